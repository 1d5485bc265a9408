#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod config;
mod connection;
pub mod engine;
mod error;
mod placement;
pub mod resp;
mod route;
pub mod testing;
pub mod topology;

#[cfg(feature = "hosted")]
pub use client::Client;
pub use client::{Cores, Door, Driver, Embedded, LocalClient, LocalContext};
pub use config::{Endpoint, Options};
pub use error::{Error, ErrorKind, Fate};
pub use hedgerow_runtime as runtime;
pub use hedgerow_runtime::host;

/// The typed commands as methods: `use hedgerow::prelude::*`.
pub mod prelude {
    pub use crate::client::Door;
    pub use crate::command::RawCommands;
    pub use crate::command::connection::ConnectionCommands;
    pub use crate::command::hashes::HashCommands;
    pub use crate::command::keys::KeyCommands;
    pub use crate::command::lists::ListCommands;
    pub use crate::command::server::ServerCommands;
    pub use crate::command::sets::SetCommands;
    pub use crate::command::sorted_sets::SortedSetCommands;
    pub use crate::command::strings::StringCommands;
}
