//! Where an engine lives: on a pinned core, inside a tokio runtime, in a simulation. The only part
//! of this crate that knows sockets or locks.

pub(crate) mod core;
pub(crate) mod sim;
