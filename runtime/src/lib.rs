//! Pinned cores, each with its own ring, buffers and timers. Knows no protocol.

pub mod caps;
pub mod cpu;
pub mod kernel;
pub mod mailbox;
pub mod op;
pub mod park;
mod quota;
pub mod ring;
pub mod socket;
pub mod time;
pub mod timer;
