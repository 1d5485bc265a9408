//! Pinned cores, each with its own ring, buffers and timers. Knows no protocol.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod cpu;
pub mod kernel;
pub mod mailbox;
pub mod op;
pub mod park;
mod quota;
pub mod time;
pub mod timer;
