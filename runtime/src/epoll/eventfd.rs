//! What ends a wait in epoll from another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptor::{eventfd, ring_eventfd};
use crate::kernel::Wakeup;

/// An eventfd that another thread writes to end our wait.
#[derive(Debug)]
pub(super) struct EventFd {
    pub(super) fd: OwnedFd,
    /// Written and not yet answered: further wakes need no system call.
    signalled: AtomicBool,
}

impl Wakeup for EventFd {
    fn wake(&self) {
        // AcqRel: what the waking thread did before is visible to `answer`, which swaps it back.
        if !self.signalled.swap(true, Ordering::AcqRel) {
            ring_eventfd(&self.fd);
        }
    }
}

impl EventFd {
    pub(super) fn new() -> io::Result<EventFd> {
        Ok(EventFd { fd: eventfd(libc::EFD_NONBLOCK)?, signalled: AtomicBool::new(false) })
    }

    /// Lets the next wake write again. The counter itself is never read: every write is an edge.
    pub(super) fn answer(&self) {
        self.signalled.swap(false, Ordering::AcqRel);
    }
}
