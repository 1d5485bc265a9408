//! The memory that a command's bytes are in.
//!
//! A command is a few words, so that it moves through futures for next to nothing; its bytes stay
//! where they were written. Short buffers are used again by the same thread, last in, first out: a
//! task that awaits one command after the other always writes into the same, warm, cache lines.

use std::cell::RefCell;

use bytes::Bytes;

use super::Encoded;

/// A buffer begins with room for so many bytes: a SET of a 16 byte key to 64 bytes and more.
const BEGIN: usize = 128;
/// Buffers up to this capacity are used again.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// Buffers that a thread keeps.
const SPARES_MAX: usize = 64;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
#[inline(always)]
fn take() -> Vec<u8> {
    // Without thread-local storage (a thread that ends) there is nothing to use again.
    let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(BEGIN))
}

#[inline(always)]
fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() <= SPARE_BYTES_MAX {
        buffer.clear();
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARES_MAX {
                spares.push(buffer);
            }
        });
    }
}

/// A command's bytes: its own, or, once complete, shared with whoever sends them.
///
/// Not an enum: every field always has a value, so that moving one never leaves half-written words
/// behind for the next load to wait for.
#[derive(Default)]
pub(crate) struct Text {
    own: Vec<u8>,
    shared: Option<Box<Bytes>>,
}

impl Text {
    /// An empty one.
    #[inline(always)]
    pub(super) fn new() -> Text {
        Text { own: take(), shared: None }
    }

    /// Its own bytes, to be added to before it is shared.
    #[inline(always)]
    pub(super) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.shared {
            None => &self.own,
            Some(bytes) => bytes,
        }
    }

    /// Lets whoever sends the bytes share them: no copy.
    #[cold]
    pub(super) fn share(&mut self) {
        if self.shared.is_none() {
            self.shared = Some(Box::new(Bytes::from(std::mem::take(&mut self.own))));
        }
    }

    /// Moves the bytes out.
    #[inline]
    pub(super) fn take(&mut self) -> Text {
        std::mem::take(self)
    }

    /// The bytes on their way into a connection, complete.
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        match &self.shared {
            None => Encoded::Short(&self.own),
            Some(bytes) => Encoded::Long(bytes),
        }
    }

    /// The bytes are not needed any more.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        if self.own.capacity() != 0 {
            give(std::mem::take(&mut self.own));
        }
        if self.shared.is_some() {
            self.shared = None;
        }
    }

    /// The bytes as their own owner: no copy of those that would not be used again.
    pub(super) fn into_bytes(mut self) -> Bytes {
        if self.bytes().len() <= SPARE_BYTES_MAX {
            return Bytes::copy_from_slice(self.bytes());
        }
        self.share();
        self.shared.take().map(|bytes| *bytes).unwrap_or_default()
    }
}

impl Clone for Text {
    fn clone(&self) -> Text {
        let mut copy = Text { own: take(), shared: self.shared.clone() };
        copy.own.extend_from_slice(&self.own);
        copy
    }
}

impl Text {
    #[cold]
    #[inline(never)]
    fn forget_late(&mut self) {
        self.forget();
    }
}

impl Drop for Text {
    #[inline(always)]
    fn drop(&mut self) {
        // Nearly always it was forgotten when its bytes were queued.
        if self.own.capacity() != 0 || self.shared.is_some() {
            self.forget_late();
        }
    }
}
