//! Notices that this process is the child of one that had cores.
//!
//! A child has a copy of every value but not the ring's memory (it is mapped `DONTFORK`), and its
//! descriptors are its parent's: a turn would fault, a teardown would cancel the parent's operations.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the one in which counting began.
static FORKS: AtomicU32 = AtomicU32::new(0);
static COUNTING: Once = Once::new();

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process. Children made by `fork(3)` are told apart, those of a bare `clone(2)` are
    /// not.
    pub(crate) fn current() -> Process {
        // SAFETY: the handler only adds to an atomic, which is safe in a child of a threaded process.
        COUNTING.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(on_child));
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the caller runs in that process.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

extern "C" fn on_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn error() -> io::Error {
    io::Error::other(
        "this process was forked after the driver was built, and the driver's ring belongs to the \
         parent; build a new driver in the child",
    )
}
