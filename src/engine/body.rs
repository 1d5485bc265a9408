//! The bytes of one reply between their arrival and their redemption.

use crate::resp::{Frame, Kept, Reply, Shape};

/// Frames up to this length stay inside the request's cell.
pub(super) const INLINE_MAX: usize = 84;
/// Frames up to this length (a value of 4 KiB with its framing) are copied into memory that is used
/// again; longer ones are kept by the placement, which shares or copies.
pub(super) const POOLED_MAX: usize = 4096 + 32;

/// A validated frame and who owns its bytes.
pub(crate) enum Body<K> {
    /// In place.
    Inline {
        /// How many bytes are used.
        len: u8,
        /// Of a scalar: what the decoder found, so that its header is not read again.
        shape: Option<Shape>,
        /// The frame.
        bytes: [u8; INLINE_MAX],
    },
    /// In memory that goes back to the engine.
    Pooled(Vec<u8>),
    /// In memory that the placement keeps: large values are shared with the received block.
    Kept(K),
}

impl<K: Kept> Body<K> {
    /// The short frame that `received` begins with, copied. Where more was received a whole body is
    /// taken, whose length the compiler knows.
    #[inline(always)]
    pub(super) fn inline(received: &[u8], len: usize, shape: Option<Shape>) -> Option<Body<K>> {
        if len > INLINE_MAX {
            return None;
        }
        if let Some(bytes) = received.first_chunk::<INLINE_MAX>() {
            return Some(Body::Inline { len: len as u8, shape, bytes: *bytes });
        }
        let mut bytes = [0; INLINE_MAX];
        bytes.get_mut(..len)?.copy_from_slice(received.get(..len)?);
        Some(Body::Inline { len: len as u8, shape, bytes })
    }

    /// The frame, with the owner of its bytes if values may share it.
    #[inline]
    pub(crate) fn reply(&self) -> Reply<'_, K> {
        match self {
            Body::Inline { len, shape, bytes } => {
                let raw = bytes.get(..usize::from(*len)).unwrap_or_default();
                let frame = match *shape {
                    Some(shape) => Frame::of_shape(raw, shape),
                    None => Frame::from_validated(raw),
                };
                Reply::new(frame, None)
            }
            Body::Pooled(bytes) => Reply::new(Frame::from_validated(bytes), None),
            Body::Kept(kept) => Reply::new(Frame::from_validated(kept.as_ref()), Some(kept)),
        }
    }
}

impl<K> std::fmt::Debug for Body<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Inline { .. } => "Body::Inline",
            Body::Pooled(_) => "Body::Pooled",
            Body::Kept(_) => "Body::Kept",
        })
    }
}
