//! Received bytes of a hosted connection.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::engine::Received;

/// Room for one read, and the size of a receive buffer.
pub(super) const READ_MIN: usize = 16 << 10;

pub(super) const READ_BUFFER: usize = 64 << 10;

/// A frame's announced rest reserves at most this much before it has come.
pub(super) const READ_AHEAD: usize = 4 << 20;

/// Received bytes of a hosted connection. They are only frozen (made shareable) when a reply keeps
/// a part of them.
pub(crate) struct HostRx {
    pub(super) bytes: Chunk,
    pub(super) capacity: usize,
}

pub(super) enum Chunk {
    Open(BytesMut),
    Frozen(Bytes),
}

impl Received for HostRx {
    type Kept = Bytes;
    const POOLED: bool = false;

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Chunk::Open(bytes) => bytes,
            Chunk::Frozen(bytes) => bytes,
        }
    }

    fn keep(&mut self, range: Range<usize>) -> Bytes {
        if range.len() < self.capacity / 4 {
            return Bytes::copy_from_slice(&self.bytes()[range]);
        }
        if let Chunk::Open(bytes) = &mut self.bytes {
            self.bytes = Chunk::Frozen(std::mem::take(bytes).freeze());
        }
        match &self.bytes {
            Chunk::Frozen(bytes) => bytes.slice(range),
            Chunk::Open(bytes) => Bytes::copy_from_slice(&bytes[range]),
        }
    }

    fn count_copy(&mut self, _n: usize) {}
}

/// Room for what is to come: all that a long frame still needs, within reason.
pub(super) fn make_room(buffer: &mut BytesMut, need: usize) {
    let ahead = need.min(READ_AHEAD.max(buffer.len()));
    if buffer.capacity() - buffer.len() < READ_MIN.max(ahead) {
        buffer.reserve(READ_BUFFER.max(ahead));
    }
}
