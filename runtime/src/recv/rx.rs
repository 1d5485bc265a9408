//! Received bytes as a handler sees them, and what it keeps of them.

use std::ops::Range;

use bytes::Bytes;

use crate::buffer::{Block, LocalBytes, Slice};

/// Parts of a spill from this length on may share its memory.
const SPILL_SHARE_MIN: usize = 16 << 10;

/// What a handler did with the bytes it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes from the front that will not be shown again.
    pub consumed: usize,
    /// How many bytes beyond those shown are needed before anything more can be consumed; 0 if
    /// unknown.
    pub need: usize,
}

/// Received bytes, in front of a handler.
pub struct Rx {
    pub(super) source: Source,
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) may_slice: bool,
    pub(super) copied: u64,
    /// The longest part that was kept or asked for, which the next blocks are sized by.
    pub(super) longest: usize,
}

pub(super) enum Source {
    Block(Block),
    Spill(Vec<u8>),
    /// A spill of which a part was kept: its memory is the user's too.
    Shared(Bytes),
}

impl Rx {
    /// All that was received and not yet consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Block(block) => block.bytes(self.at, self.end),
            Source::Spill(bytes) => &bytes[self.at..self.end],
            Source::Shared(bytes) => &bytes[self.at..self.end],
        }
    }

    /// Keeps a part of [`Rx::bytes`] for as long as the caller likes: a slice of the block if the
    /// part is at least a quarter of it (and the core may give away more), else a copy.
    ///
    /// # Panics
    /// If the range is not inside [`Rx::bytes`].
    pub fn keep(&mut self, range: Range<usize>) -> LocalBytes {
        let len = range.len();
        self.longest = self.longest.max(len);
        if let Source::Block(block) = &self.source
            && self.may_slice
            && len >= block.len() / 4
        {
            assert!(range.end <= self.end - self.at, "the range is not inside the bytes");
            let (at, end) = (self.at + range.start, self.at + range.end);
            return Slice::new(block.clone(), at, end).into();
        }
        if len >= SPILL_SHARE_MIN
            && let Some(part) = self.share_spill(range.clone())
        {
            return part;
        }
        self.copied += len as u64;
        LocalBytes::copy_from(&self.bytes()[range])
    }

    /// A part of the spill that is most of it: what was put together is not copied again.
    fn share_spill(&mut self, range: Range<usize>) -> Option<LocalBytes> {
        if let Source::Spill(bytes) = &mut self.source
            && range.len() >= bytes.capacity() / 2
        {
            self.source = Source::Shared(Bytes::from(std::mem::take(bytes)));
        }
        let Source::Shared(bytes) = &self.source else { return None };
        Some(bytes.slice(self.at + range.start..self.at + range.end).into())
    }

    /// Counts `n` bytes that the handler copied out by itself.
    #[inline]
    pub fn count_copy(&mut self, n: usize) {
        self.copied += n as u64;
    }
}

impl std::fmt::Debug for Rx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rx").field("len", &(self.end - self.at)).finish_non_exhaustive()
    }
}
