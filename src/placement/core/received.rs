//! What a reply keeps on a core: the runtime's own shared bytes.

use std::ops::Range;

use bytes::Bytes;
use hedgerow_runtime::Rx;
use hedgerow_runtime::buffer::LocalBytes;

use crate::engine::Received;
use crate::resp::{ConvertError, FromReply, Kept, Reply};

impl Kept for LocalBytes {
    fn slice_ref(&self, sub: &[u8]) -> LocalBytes {
        LocalBytes::slice_ref(self, sub)
    }
    #[inline(always)]
    fn copy_from(bytes: &[u8]) -> LocalBytes {
        LocalBytes::copy_from(bytes)
    }
    fn into_bytes(self) -> Bytes {
        LocalBytes::into_bytes(self)
    }
}

impl FromReply<LocalBytes> for LocalBytes {
    const PLAIN: bool = true;

    /// A string, or the text of a number. Large ones share the received block.
    #[inline(always)]
    fn from_reply(reply: Reply<'_, LocalBytes>) -> Result<LocalBytes, ConvertError> {
        let frame = reply.frame();
        if frame.is_null() || frame.kind().is_aggregate() {
            return Err(ConvertError::new("a string", &frame));
        }
        Ok(reply.text())
    }
}

impl Received for Rx {
    type Kept = LocalBytes;
    const POOLED: bool = true;

    #[inline]
    fn bytes(&self) -> &[u8] {
        Rx::bytes(self)
    }
    fn keep(&mut self, range: Range<usize>) -> LocalBytes {
        Rx::keep(self, range)
    }
    #[inline]
    fn count_copy(&mut self, n: usize) {
        Rx::count_copy(self, n);
    }
}
