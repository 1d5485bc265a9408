//! A Redis and Valkey client on io_uring, one thread per core.
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
mod error;
pub mod resp;

pub use error::Error;

/// The typed commands as methods: `use hedgerow::prelude::*`.
pub mod prelude {
    pub use crate::client::door::Door;
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
