//! Pinned cores, each with its own ring, buffers and timers. Knows no protocol.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod epoll;
pub mod kernel;
pub mod op;
pub mod time;
