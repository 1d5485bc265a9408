//! Where an engine lives: on a pinned core, inside a tokio runtime, or in the simulator. The only
//! part of this crate that knows sockets or locks.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) mod boards;
pub(crate) mod core;
#[cfg(feature = "hosted")]
pub(crate) mod hosted;
pub(crate) mod sim;
#[cfg(feature = "hosted")]
mod stream;

/// Does something with each of a list: wakes or logs what an engine recorded, once it was let go. Both
/// are code of the user's: a panic in one costs neither the rest its turn, nor the core or the reader
/// that calls it its life.
#[inline]
fn each<T>(list: &mut Vec<T>, act: impl Fn(T)) {
    if list.is_empty() {
        return;
    }
    let mut rest = list.drain(..);
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| rest.by_ref().for_each(&act))) {
        // Its destructor is theirs too.
        hedgerow_runtime::discard(payload);
    }
}
