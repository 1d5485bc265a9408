//! The doors: how an application reaches the engine.

mod cores;
pub mod door;
mod embedded;
#[cfg(feature = "hosted")]
mod handle;
mod local;
mod pages;
mod parts;
#[cfg(feature = "hosted")]
mod pinned;
pub(crate) mod request;
mod states;

pub use crate::engine::{ConnectionState, StateChange};
pub(crate) use cores::RUNG_VARIABLE;
pub use cores::{Cores, CoresBuilder, LocalContext};
pub use door::Door;
pub use embedded::{Driver, Embedded, EmbeddedBuilder};
#[cfg(feature = "hosted")]
pub use handle::{Client, ClientRequest, ClientStates};
pub use local::{LocalClient, LocalRequest, WithReply};
pub use pages::Pages;
pub use states::LocalStates;
