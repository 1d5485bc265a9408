//! Where an engine lives: on a pinned core, inside a tokio runtime, or in the simulator. The only
//! part of this crate that knows sockets or locks.

pub(crate) mod core;
#[cfg(feature = "hosted")]
pub(crate) mod hosted;
pub(crate) mod sim;
#[cfg(feature = "hosted")]
mod stream;
