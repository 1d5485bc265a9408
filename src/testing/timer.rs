//! Wake-ups of connections with replies to come, on one timer descriptor.
//!
//! epoll waits in milliseconds; injected delays need less.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Moments and the connections that wait for them.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: OwnedFd,
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    /// The moment for which the descriptor is set.
    set_for: Option<Instant>,
}

impl Timer {
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { descriptor, heap: BinaryHeap::new(), set_for: None })
    }

    pub(super) fn wake_at(&mut self, at: Instant, id: u64) {
        self.heap.push(Reverse((at, id)));
    }

    /// The next wake-up that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, u64)> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse(entry)| entry),
            _ => None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.heap.is_empty()
    }

    /// Sets the descriptor for the earliest moment, unless it is set for it already. Setting it
    /// clears its readiness.
    pub(super) fn arm(&mut self, now: Instant) -> io::Result<()> {
        let Some(Reverse((at, _))) = self.heap.peek() else { return Ok(()) };
        if self.set_for == Some(*at) {
            return Ok(());
        }
        // Zero would switch the timer off.
        let wait = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(wait.subsec_nanos()),
            },
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &spec)?;
        self.set_for = Some(*at);
        Ok(())
    }

    /// To be called when the descriptor was ready.
    pub(super) fn fired(&mut self) {
        self.set_for = None;
    }
}
