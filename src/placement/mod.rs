//! Where an engine lives: on a pinned core, inside a tokio runtime, or in the simulator. The only
//! part of this crate that knows sockets or locks.

pub(crate) mod core;
#[cfg(feature = "hosted")]
pub(crate) mod hosted;
pub(crate) mod sim;
#[cfg(feature = "hosted")]
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::engine::Line;

/// Says and wakes what an engine recorded, once it was let go. Both are code of the user's: a panic in
/// it costs neither the other tasks their wake nor the core or reader that calls it its life.
fn tell(lines: &mut Vec<Line>, wakes: &mut Vec<Waker>) {
    each(lines, Line::say);
    each(wakes, Waker::wake);
}

#[inline]
fn each<T>(list: &mut Vec<T>, act: impl Fn(T)) {
    if list.is_empty() {
        return;
    }
    let mut rest = list.drain(..);
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| rest.by_ref().for_each(&act))) {
        // Its destructor is theirs too.
        std::mem::forget(payload);
    }
}
