//! Pinned cores, each with its own ring, buffers and timers. Knows no protocol.

pub mod buffer;
pub mod io;
pub mod kernel;
pub mod mailbox;
pub mod op;
mod recv;
pub mod ring;
mod send;
pub mod socket;
pub mod cpu;
pub mod park;
mod quota;
pub mod time;
pub mod timer;

pub use recv::{Progress, Rx};
pub use send::Batch;
