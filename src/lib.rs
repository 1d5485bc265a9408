#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod client;
pub mod command;
pub mod config;
mod connection;
mod coordinator;
pub mod engine;
mod error;
mod placement;
pub mod read;
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

pub use bytes::Bytes;

/// The typed commands as methods: `use hedgerow::prelude::*`.
///
/// ```
/// use std::{collections::HashMap, time::Duration};
/// use hedgerow::{Bytes, Client, Error, ErrorKind, Fate, prelude::*};
/// use hedgerow::command::strings::SetOptions;
///
/// async fn tour(client: &Client) -> Result<(), Error> {
///     // A value is read as the type that you name; `Option` where the key may be missing.
///     let page: Option<String> = client.get("page").await?;
///     let image: Option<Bytes> = client.get("image").await?;
///     // Options are types beside the command's function.
///     let once = SetOptions::new().nx().expiry(Duration::from_secs(30));
///     let got_it: bool = client.set_with("lock", "me", once).await?;
///     client.hset("user:1", [("name", "Ada"), ("city", "London")]).await?;
///     let user: HashMap<String, String> = client.hgetall("user:1").await?;
///     client.zadd("board", [(1.5, "ada"), (2.0, "bob")]).await?;
///     let board: Vec<(String, f64)> = client.zrange_withscores("board", 0, -1).await?;
///     // Any command by name; any request with a time of its own.
///     let coding: String = client.command("OBJECT ENCODING").arg("page").send().await?;
///     match client.incr("hits").timeout(Duration::from_millis(50)).await {
///         Ok(hits) => println!("{hits}"),
///         Err(e) if e.kind() == ErrorKind::Timeout && e.fate() == Fate::NotSent => {}
///         Err(e) => return Err(e),
///     }
///     # let _ = (page, image, got_it, user, board, coding);
///     Ok(())
/// }
/// ```
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
