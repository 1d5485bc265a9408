//! The bytes of one reply between their arrival and their redemption.

use hedgerow_runtime::time::Instant;

use super::choose::Why;
use crate::Error;
use crate::resp::{Frame, Kept, Reply, Shape};
use crate::route::{QueueId, Way};

/// Frames up to this length stay inside the request's cell.
pub(super) const INLINE_MAX: usize = 84;
/// Frames up to this length (a value of 4 KiB with its framing) are copied into memory that is used
/// again; longer ones are kept by the placement, which shares or copies.
pub(super) const POOLED_MAX: usize = 4096 + 32;

/// A validated frame that was taken out of its request's cell, and who owns its bytes.
pub(crate) enum Body<K> {
    /// In place.
    Short(Short),
    /// In memory that goes back to the engine.
    Pooled(Vec<u8>),
    /// In memory that the placement keeps: large values are shared with the received block.
    Kept(K),
}

impl<K: Kept> Body<K> {
    /// The frame, with the owner of its bytes if values may share it.
    #[inline]
    pub(crate) fn reply(&self) -> Reply<'_, K> {
        match self {
            Body::Short(short) => Reply::new(Frame::from_validated(short.raw()), None),
            Body::Pooled(bytes) => Reply::new(Frame::from_validated(bytes), None),
            Body::Kept(kept) => Reply::new(Frame::from_validated(kept.as_ref()), Some(kept)),
        }
    }
}

/// A validated frame that is short enough for its request's cell.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    len: u8,
    /// Of a scalar: what the decoder found, so that its header is not read again.
    shape: Shape,
    bytes: [u8; INLINE_MAX],
}

impl Short {
    pub(crate) const EMPTY: Short = Short { len: 0, shape: Shape::NULL, bytes: [0; INLINE_MAX] };

    /// Copies the frame of at most [`INLINE_MAX`] bytes that `received` begins with. Where enough
    /// was received all that fits is taken, whose length the compiler knows.
    #[inline(always)]
    pub(super) fn take(&mut self, received: &[u8], len: usize, shape: Shape) {
        self.len = len as u8;
        self.shape = shape;
        match received.first_chunk() {
            Some(bytes) => self.bytes = *bytes,
            None => self.take_rest(received, len),
        }
    }

    /// Apart, or the compiler makes one copy of unknown length of both.
    #[cold]
    #[inline(never)]
    fn take_rest(&mut self, received: &[u8], len: usize) {
        if let (Some(room), Some(frame)) = (self.bytes.get_mut(..len), received.get(..len)) {
            room.copy_from_slice(frame);
        }
    }

    /// Copies a command, if it is short enough.
    #[inline]
    pub(super) fn hold(&mut self, text: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(..text.len()) else { return false };
        room.copy_from_slice(text);
        self.len = text.len() as u8;
        true
    }

    /// The frame, or the command.
    #[inline(always)]
    pub(super) fn raw(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The frame of one that was taken with its shape; its values are copied.
    #[inline(always)]
    pub(crate) fn scalar<K: Kept>(&self) -> Reply<'_, K> {
        Reply::new(Frame::of_shape(self.raw(), self.shape), None)
    }
}

/// What a cell holds beside its [`Short`].
pub(super) enum Held<K> {
    /// Nothing: its request is in flight, over, or has a scalar for its reply.
    Nothing,
    /// What its request needs while it waits for a connection or for room.
    Waiting {
        /// Its deadline without the limit on waiting for a connection.
        own_deadline: Instant,
        /// Bytes that it will take when it is queued.
        len: u32,
        /// Where it may go.
        way: Way,
        /// What it waits for.
        why: Why,
        /// Where it stands in line.
        queue: QueueId,
    },
    /// As [`Held::Sent`], of a command that went to the primary of its slot, as nearly all do.
    Direct {
        /// That slot.
        slot: u16,
        /// Bytes of its command.
        len: u32,
    },
    /// What a request of a cluster needs to be sent again, while it is in flight.
    Sent {
        /// How it was sent.
        way: Way,
        /// Bytes of its command.
        len: u32,
    },
    /// A frame that is no scalar, in the cell's [`Short`].
    Short,
    /// A frame as in [`Body::Pooled`].
    Pooled(Vec<u8>),
    /// A frame as in [`Body::Kept`].
    Kept(K),
    /// There is no reply.
    Failed(Error),
}

impl<K> std::fmt::Debug for Body<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Short(_) => "Body::Short",
            Body::Pooled(_) => "Body::Pooled",
            Body::Kept(_) => "Body::Kept",
        })
    }
}
