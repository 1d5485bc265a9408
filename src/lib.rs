//! A Redis and Valkey client on io_uring, one thread per core.
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
pub mod topology;

pub use client::{Cores, Door, LocalClient, LocalContext};
pub use config::{Endpoint, Options};
pub use error::{Error, ErrorKind, Fate};
pub use hedgerow_runtime as runtime;

/// The traits whose methods are the commands.
pub mod prelude {
    pub use crate::client::Door;
    pub use crate::command::*;
}
