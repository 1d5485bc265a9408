//! What every measured program shares.
//!
//! A program parses a [`Workload`], connects, calls [`start`] and then loops for ever: it draws
//! keys from [`Keys`], and tells a [`Lane`] of each verified reply. One controller thread, asleep
//! except at two instants, takes the snapshots, prints one JSON line and ends the process, whatever
//! runtime the program uses.
//!
//! Replies are checked in every program: a reply of the wrong length makes the run fail.

#![forbid(unsafe_code)]

mod arrivals;
mod control;
mod keys;
mod lane;
mod pipeline;
mod reply;
mod workload;

pub use arrivals::Arrivals;
pub use control::{counter, start};
pub use keys::{KEY_LEN, Keys};
pub use lane::Lane;
pub use pipeline::{Pipeline, connect};
pub use reply::Replies;
pub use workload::{Verb, Workload};

use std::sync::LazyLock;
use std::time::Instant;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the first call in this process, on the monotonic clock.
#[inline]
pub fn now_ns() -> u64 {
    ORIGIN.elapsed().as_nanos() as u64
}
