//! Where an engine lives: on a pinned core or inside a tokio runtime. The only part of this crate
//! that knows sockets or locks.

pub(crate) mod core;
#[cfg(feature = "hosted")]
pub(crate) mod hosted;
#[cfg(feature = "hosted")]
mod stream;
