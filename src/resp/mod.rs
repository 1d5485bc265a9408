//! Replies.
use bytes::Bytes;

/// An owner of received bytes.
pub trait Kept: AsRef<[u8]> + Clone + 'static {}
impl Kept for Bytes {}

/// A reply.
#[derive(Debug)]
pub struct Reply<'a, K>(&'a [u8], std::marker::PhantomData<K>);

/// A reply of another type.
#[derive(Debug)]
pub struct ConvertError;

/// A type that a reply can be read as.
pub trait FromReply<K: Kept = Bytes>: Sized {
    /// Reads it.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError>;
}
