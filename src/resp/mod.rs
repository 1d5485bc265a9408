//! Bytes and frames: RESP2 and RESP3 as servers speak them.
//!
//! - [`Decoder`] finds the end of each frame in a growing run of bytes. It owns no bytes, resumes
//!   where it stopped, and checks everything once: grammar, nesting, sizes.
//! - [`Frame`] is a `Copy` view of such a checked run. Aggregates are walked in place.
//! - [`Reply`] adds the owner of the bytes, and [`FromReply`] makes Rust values of it.
//! - [`Value`] is the owned tree, with the shape as it came.
//! - [`encode`] writes commands and replies.
//!
//! Nothing here knows a socket, a clock or a thread.

mod convert;
mod decode;
mod elements;
pub mod encode;
mod frame;
mod from_aggregate;
mod from_scalar;
mod head;
mod kind;
mod limits;
mod number;
mod protocol_error;
mod reply;
mod scalar;
mod server_error;
mod stack;
mod value;

pub use convert::{ConvertError, FromReply};
pub use decode::{Decoder, Step};
pub use elements::{AttributeGroups, Attributes, Elements, Pairs};
pub use frame::Frame;
pub(crate) use frame::Shape;
pub use from_scalar::{Millis, Seconds};
pub use kind::{Kind, Protocol};
pub use limits::Limits;
pub use protocol_error::{Fault, ProtocolError};
pub use reply::{COPY_UP_TO, Kept, Reply};
pub use server_error::{ServerError, code};
pub use value::{Attributed, Value};
