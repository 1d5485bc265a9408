//! How much a peer may send in one reply.

const MIB: u64 = 1 << 20;

/// Bounds on one reply. A breach is a protocol error of that connection and of no other.
///
/// Nothing is ever allocated for a count or a length that a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open aggregates and attributes, one inside the other. Default 512.
    pub depth: u32,
    /// Bytes of one string, without framing; for a streamed string, all its chunks. Default 512 MiB.
    pub bulk: u64,
    /// Bytes of one whole top-level frame with its attributes. Default 513 MiB: one string of the
    /// greatest size and its framing.
    pub reply: u64,
    /// Elements of one top-level frame at all levels together; a map's pair counts twice. Default
    /// 179,306,496: `reply` bytes hold no more, since an element is at least 3 bytes long.
    pub elements: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: 512, bulk: 512 * MIB, reply: 513 * MIB, elements: 513 * MIB / 3 }
    }
}
