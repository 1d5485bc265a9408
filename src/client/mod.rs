//! The doors: how an application reaches the engine.

mod cores;
pub mod door;
mod local;
pub(crate) mod request;
mod states;

pub use cores::{Cores, CoresBuilder, LocalContext};
pub use door::Door;
pub use local::{LocalClient, LocalRequest, WithReply};
pub use states::LocalStates;
