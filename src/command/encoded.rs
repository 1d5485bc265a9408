//! A command's bytes on their way into a connection.

use bytes::Bytes;

/// Bytes to be sent, and whether they may be shared.
#[derive(Clone, Debug)]
pub(crate) enum Encoded<'a> {
    /// To be copied.
    Short(&'a [u8]),
    /// To be shared.
    Long(&'a Bytes),
}

impl Encoded<'_> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Encoded::Short(bytes) => bytes.len(),
            Encoded::Long(bytes) => bytes.len(),
        }
    }
}
