//! Pinned cores, each with its own ring, buffers and timers. Knows no protocol.

#![warn(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a task's waker is one 64-bit word: this crate needs a 64-bit target");

mod attention;
pub mod buffer;
pub mod caps;
pub mod core;
pub mod cpu;
mod descriptor;
pub mod epoll;
mod fork;
mod group;
pub mod host;
pub mod io;
pub mod kernel;
pub mod mailbox;
pub mod op;
pub mod park;
mod quota;
mod recv;
pub mod ring;
mod send;
pub mod sim;
pub mod socket;
mod task;
pub mod time;
pub mod timer;

pub use quota::Quota;
pub use recv::{Progress, Rx};
pub use send::Batch;
pub use task::{Panicked, Task, discard, quietly};
