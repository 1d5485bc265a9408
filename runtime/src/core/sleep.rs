//! The sleeps of a core's tasks.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::local::Shared;
use crate::task::quietly;
use crate::time::Instant;
use crate::timer::{TimerKey, Wheel};

/// Waits until an instant.
pub struct Sleep {
    shared: Rc<Shared>,
    at: Instant,
    timer: Option<(TimerKey, u32)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.now() >= self.at {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let shared = self.shared.clone();
        let mut timers = shared.timers.borrow_mut();
        let old = match self.timer {
            // A timer that fired a hair early (its slot began) is set again.
            Some((_, cell)) if timers.wakers[cell as usize].is_some() => {
                timers.wakers[cell as usize].replace(waker)
            }
            _ => {
                let at = self.at;
                self.release(&mut timers);
                self.timer = Some(timers.add(at, waker));
                None
            }
        };
        drop(timers);
        drop(old);
        // A host that waits must arm the earlier instant.
        shared.attention.call();
        Poll::Pending
    }
}

impl Sleep {
    pub(super) fn new(shared: Rc<Shared>, at: Instant) -> Sleep {
        Sleep { shared, at, timer: None }
    }

    fn release(&mut self, timers: &mut Timers) -> Option<Waker> {
        let (key, cell) = self.timer.take()?;
        timers.wheel.cancel(key);
        timers.free.push(cell);
        timers.wakers[cell as usize].take()
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        let waker = self.release(&mut shared.timers.borrow_mut());
        drop(waker);
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The sleeps of a core: their wakers are in cells, whose numbers the wheel holds.
pub(super) struct Timers {
    wheel: Wheel<u32>,
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
    due: Vec<u32>,
}

impl Timers {
    pub(super) fn new(now: Instant) -> Timers {
        Timers { wheel: Wheel::new(now), wakers: Vec::new(), free: Vec::new(), due: Vec::new() }
    }

    /// When the next sleep ends.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.wheel.next()
    }

    fn add(&mut self, at: Instant, waker: Waker) -> (TimerKey, u32) {
        let cell = self.free.pop().unwrap_or(self.wakers.len() as u32);
        if cell as usize == self.wakers.len() {
            self.wakers.push(None);
        }
        self.wakers[cell as usize] = Some(waker);
        (self.wheel.insert(at, cell), cell)
    }
}

/// Wakes those whose sleep is over; whether there were any.
#[inline]
pub(super) fn expire(of: &RefCell<Timers>, now: Instant) -> bool {
    let mut timers = of.borrow_mut();
    if timers.wheel.next() > now {
        return false;
    }
    let mut due = std::mem::take(&mut timers.due);
    timers.wheel.expire(now, &mut due);
    drop(timers);
    let any = !due.is_empty();
    for cell in due.drain(..) {
        let waker = of.borrow_mut().wakers[cell as usize].take();
        if let Some(waker) = waker {
            // It may be the user's code, and a panic in it must not end the core.
            quietly(|| waker.wake());
        }
    }
    of.borrow_mut().due = due;
    any
}
