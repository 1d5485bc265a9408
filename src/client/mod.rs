//! The doors: how an application reaches the engine.

mod cores;
pub mod door;
mod embedded;
mod local;
pub(crate) mod request;
mod states;

pub use cores::{Cores, CoresBuilder, LocalContext};
pub use door::Door;
pub use embedded::{Driver, Embedded, EmbeddedBuilder};
pub use local::{LocalClient, LocalRequest, WithReply};
pub use states::LocalStates;
