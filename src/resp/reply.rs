//! A frame together with the owner of its bytes.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

use super::{ConvertError, Frame, FromReply};

/// Payloads up to so many bytes are copied: a copy costs less than a reference count, and a small
/// value must not hold a large block.
pub const COPY_UP_TO: usize = 256;

/// A reply's bytes in the form that the placement keeps them in: counted slices of what it received.
pub trait Kept: AsRef<[u8]> + Clone + 'static {
    /// Another owner of the same memory, for `sub` alone. `sub` lies within `self`; if it does not,
    /// it is copied.
    fn slice_ref(&self, sub: &[u8]) -> Self;
    /// An owner of a copy.
    fn copy_from(bytes: &[u8]) -> Self;
    /// The same bytes in the form that may cross threads.
    fn into_bytes(self) -> Bytes;
}

impl Kept for Bytes {
    fn slice_ref(&self, sub: &[u8]) -> Self {
        // `Bytes::slice_ref` panics for foreign slices.
        let within = sub.as_ptr_range().start >= self.as_ptr_range().start
            && sub.as_ptr_range().end <= self.as_ptr_range().end;
        if within { Bytes::slice_ref(self, sub) } else { Bytes::copy_from_slice(sub) }
    }

    fn copy_from(bytes: &[u8]) -> Self {
        Bytes::copy_from_slice(bytes)
    }

    fn into_bytes(self) -> Bytes {
        self
    }
}

/// A reply on its way into a Rust value: the frame, and the owner of its bytes if it may be shared.
pub struct Reply<'a, K = Bytes> {
    frame: Frame<'a>,
    kept: Option<&'a K>,
}

impl<K> Clone for Reply<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Reply<'_, K> {}

impl<K> fmt::Debug for Reply<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("frame", &self.frame)
            .field("kept", &self.kept.is_some())
            .finish()
    }
}

impl<'a, K: Kept> Reply<'a, K> {
    /// A reply whose payloads may share `kept`, in whose bytes the frame lies. With `None` every
    /// payload is copied.
    #[inline]
    pub fn new(frame: Frame<'a>, kept: Option<&'a K>) -> Self {
        Reply { frame, kept }
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame<'a> {
        self.frame
    }

    /// The owner of the frame's bytes, if payloads may share it.
    pub fn kept(&self) -> Option<&'a K> {
        self.kept
    }

    /// The same owner for a frame inside this one.
    pub fn with_frame(&self, frame: Frame<'a>) -> Self {
        Reply { frame, kept: self.kept }
    }

    /// Whether [`slice`](Self::slice) shares a payload of `len` bytes or copies it: shared if it is
    /// longer than [`COPY_UP_TO`] and at least a quarter of what it would hold.
    #[inline]
    pub fn shares(&self, len: usize) -> bool {
        let holds = |kept: &K| kept.as_ref().len() / 4;
        len > COPY_UP_TO && self.kept.is_some_and(|kept| len >= holds(kept))
    }

    /// An owner of `payload`, which lies within the frame: shared if it pays, else copied.
    #[inline]
    pub fn slice(&self, payload: &[u8]) -> K {
        match self.kept {
            Some(kept) if self.shares(payload.len()) => kept.slice_ref(payload),
            _ => K::copy_from(payload),
        }
    }

    /// An owner of the frame's [`text`](Frame::text).
    #[inline]
    pub fn text(&self) -> K {
        match self.frame.text() {
            Cow::Borrowed(text) => self.slice(text),
            Cow::Owned(text) => K::copy_from(&text),
        }
    }

    /// The reply as a `T`.
    ///
    /// # Errors
    /// [`ConvertError`] when the frame's kind or content does not suit `T`.
    pub fn convert<T: FromReply<K>>(self) -> Result<T, ConvertError> {
        T::from_reply(self)
    }
}
