//! A Redis and Valkey client on io_uring, one thread per core.
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod config;
mod connection;
pub mod engine;
mod error;
pub mod resp;
mod route;
pub mod topology;

pub use config::{Endpoint, Options};
pub use error::{Error, ErrorKind, Fate};
