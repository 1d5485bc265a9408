//! What a task sees of its core.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::remote::Remote;
use super::sleep::{Sleep, Timers};
use crate::attention::Attention;
use crate::io::Counters;
use crate::task::{Reach, Task, Tasks};
use crate::time::Instant;

/// The part of a core that its tasks share. Clones are the same core.
#[derive(Clone)]
pub struct Local(pub(super) Rc<Shared>);

pub(super) struct Shared {
    pub(super) tasks: Tasks,
    pub(super) now: Cell<Instant>,
    pub(super) simulated: bool,
    pub(super) counters: Cell<Counters>,
    pub(super) completions: Cell<usize>,
    pub(super) timers: RefCell<Timers>,
    pub(super) reach: Arc<Reach>,
    pub(super) attention: Rc<Attention>,
}

impl Shared {
    /// The turn's clock; outside of a host's turns, where that may be old, the clock itself.
    #[inline]
    pub(super) fn now(&self) -> Instant {
        if self.attention.is_outside() { Instant::now() } else { self.now.get() }
    }
}

impl Local {
    /// Adds a task to this core. A panic ends that task only.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.tasks.spawn(future)
    }

    /// Wakes a task: the same as `waker.wake()`, and shorter for a task of this core. To be called
    /// on the core's thread, as this type can only be.
    #[inline]
    pub fn wake(&self, waker: Waker) {
        self.0.tasks.wake_task(waker);
    }

    /// Wakes a task of this core by putting its number on a list: nobody's code runs. Any other waker
    /// comes back, and all do while a host waits and would have to be called.
    #[inline(always)]
    pub fn wake_own(&self, waker: Waker) -> Option<Waker> {
        self.0.tasks.wake_own(waker)
    }

    /// The clock as of this turn, without a system call. A host's task outside of a turn gets the
    /// clock as it is: the last turn may be long ago.
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// Whether a host waits on our behalf, so that work which comes up now must call it.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.0.attention.is_parked()
    }

    /// Calls the host if it waits, once until it waits again. On a core of its own this does
    /// nothing. The host's waker is woken inside: call it while nothing is borrowed.
    #[inline]
    pub fn call_host(&self) {
        self.0.attention.call();
    }

    /// The clock, read now; as of this turn where it is simulated.
    pub fn read_clock(&self) -> Instant {
        if self.0.simulated { self.now() } else { Instant::now() }
    }

    /// Whether this core runs in a simulation.
    pub fn is_simulated(&self) -> bool {
        self.0.simulated
    }

    /// Ends at `at`, to about 50 us.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(self.0.clone(), at)
    }

    /// Ends after `time`, counted from this turn.
    pub fn sleep(&self, time: Duration) -> Sleep {
        self.sleep_until(self.now() + time)
    }

    /// This core's counters as of the last turn.
    pub fn counters(&self) -> Counters {
        self.0.counters.get()
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.0.reach.producer.clone())
    }

    /// Tasks that are due.
    pub fn ready_tasks(&self) -> usize {
        self.0.tasks.ready_len()
    }

    /// Completions of this turn, dispatched or not.
    pub fn completions(&self) -> usize {
        self.0.completions.get()
    }

    /// Tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.0.tasks.live()
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("live_tasks", &self.live_tasks()).finish_non_exhaustive()
    }
}
