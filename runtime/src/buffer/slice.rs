//! What users keep of received bytes.

use bytes::Bytes;

use super::block::{Block, Foreign};
use super::small::Small;

/// A part of a received block, held by a plain count: cheap, and bound to its core.
#[derive(Clone)]
pub(crate) struct Slice {
    block: Block,
    at: usize,
    end: usize,
}

impl Slice {
    /// Keeps `at..end` of `block`, which must have been delivered.
    pub(crate) fn new(block: Block, at: usize, end: usize) -> Slice {
        assert!(at <= end && end <= block.len());
        Slice { block, at, end }
    }

    /// The same bytes with a hold that may leave the core: one small allocation and one atomic
    /// count, no copy.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Part { memory: self.block.foreign(), at: self.at, end: self.end })
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.block.bytes(self.at, self.end)
    }
}

/// A part of a block with a hold that any thread may drop.
struct Part {
    memory: Foreign,
    at: usize,
    end: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes(self.at, self.end)
    }
}

/// A value on its core: a part of the received block when it is large, else a copy.
///
/// It is `!Send`; [`LocalBytes::into_bytes`] (or `Bytes::from`) makes the form that may leave the
/// core, without copying more than 128 bytes.
pub struct LocalBytes(Kind);

enum Kind {
    Slice(Slice),
    Small(Small),
    Copied(Bytes),
}

impl Clone for LocalBytes {
    /// Another owner of the same memory; up to 128 bytes are copied.
    fn clone(&self) -> LocalBytes {
        LocalBytes(match &self.0 {
            Kind::Slice(slice) => Kind::Slice(slice.clone()),
            Kind::Small(small) => return LocalBytes::copy_from(small.as_ref()),
            Kind::Copied(bytes) => Kind::Copied(bytes.clone()),
        })
    }
}

impl LocalBytes {
    /// A copy of `bytes`: one allocation, or none where a copy of 33 to 128 bytes finds memory that
    /// an earlier one on this thread has left.
    #[inline(always)]
    pub fn copy_from(bytes: &[u8]) -> LocalBytes {
        LocalBytes(match Small::copy_from(bytes) {
            Some(small) => Kind::Small(small),
            None => Kind::Copied(Bytes::copy_from_slice(bytes)),
        })
    }

    /// The bytes `sub`, which must lie inside `self` (as a sub-slice of `self.as_ref()`), sharing
    /// the same memory. Bytes that lie elsewhere are copied.
    #[inline]
    pub fn slice_ref(&self, sub: &[u8]) -> LocalBytes {
        match &self.0 {
            Kind::Slice(s) => match offset_in(s.as_ref(), sub) {
                Some(at) => {
                    let at = s.at + at;
                    LocalBytes(Kind::Slice(Slice::new(s.block.clone(), at, at + sub.len())))
                }
                None => LocalBytes::copy_from(sub),
            },
            Kind::Small(_) => LocalBytes::copy_from(sub),
            Kind::Copied(b) => match offset_in(b, sub) {
                Some(at) => LocalBytes(Kind::Copied(b.slice(at..at + sub.len()))),
                None => LocalBytes::copy_from(sub),
            },
        }
    }

    /// The form that may leave the core; no more than 128 bytes are copied.
    #[inline]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Kind::Slice(s) => s.into_bytes(),
            Kind::Small(s) => Bytes::copy_from_slice(s.as_ref()),
            Kind::Copied(b) => b,
        }
    }

    /// Whether it shares the received block (and so keeps the whole block alive).
    pub fn shares_block(&self) -> bool {
        matches!(self.0, Kind::Slice(_))
    }
}

/// Where `sub` begins inside `whole`, if it lies there.
fn offset_in(whole: &[u8], sub: &[u8]) -> Option<usize> {
    let at = (sub.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (at + sub.len() <= whole.len()).then_some(at)
}

impl AsRef<[u8]> for LocalBytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Kind::Slice(s) => s.as_ref(),
            Kind::Small(s) => s.as_ref(),
            Kind::Copied(b) => b,
        }
    }
}

impl std::ops::Deref for LocalBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl From<Slice> for LocalBytes {
    fn from(slice: Slice) -> LocalBytes {
        LocalBytes(Kind::Slice(slice))
    }
}

impl From<Bytes> for LocalBytes {
    #[inline]
    fn from(bytes: Bytes) -> LocalBytes {
        LocalBytes(Kind::Copied(bytes))
    }
}

impl From<LocalBytes> for Bytes {
    fn from(bytes: LocalBytes) -> Bytes {
        bytes.into_bytes()
    }
}

impl PartialEq<[u8]> for LocalBytes {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_ref() == other
    }
}

impl PartialEq for LocalBytes {
    fn eq(&self, other: &LocalBytes) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for LocalBytes {}

/// Prints the length only: values do not belong in logs.
impl std::fmt::Debug for LocalBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalBytes({} bytes)", self.len())
    }
}

/// Prints the length only.
impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice({} bytes)", self.end - self.at)
    }
}
