//! Whether a core is inside a turn, and how its host is called when work comes up outside of one.
//!
//! On its own thread a core is always in a turn when a task runs. In a host it is not: a task of the
//! host may queue a command, set a timer or wake one of our tasks while the driver's task sleeps. Then
//! nobody would look, so the first such event since the host parked calls the driver's task.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Waker;

use crate::kernel::Wakeup;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The core turns by itself: there is no outside.
    Own,
    /// A host's turn is under way.
    Turning,
    /// Between turns; the host looks again before it parks.
    Outside,
    /// The host was told that it may wait.
    Parked,
}

pub(crate) struct Attention {
    phase: Cell<Phase>,
    host: RefCell<Option<Waker>>,
    /// Turns the ready descriptor readable, for a host without a waker.
    wakeup: Arc<dyn Wakeup>,
}

impl Attention {
    pub(crate) fn new(wakeup: Arc<dyn Wakeup>) -> Attention {
        Attention { phase: Cell::new(Phase::Own), host: RefCell::new(None), wakeup }
    }

    /// From now on a host turns the core.
    pub(crate) fn embed(&self) {
        self.phase.set(Phase::Outside);
    }

    pub(crate) fn is_hosted(&self) -> bool {
        self.phase.get() != Phase::Own
    }

    /// Whether the clock of the last turn may be old.
    #[inline]
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.phase.get(), Phase::Outside | Phase::Parked)
    }

    /// Whether what comes up now must call the host.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.phase.get() == Phase::Parked
    }

    pub(crate) fn begin_turn(&self) {
        self.phase.set(Phase::Turning);
    }

    pub(crate) fn end_turn(&self) {
        self.phase.set(Phase::Outside);
    }

    pub(crate) fn park(&self) {
        self.phase.set(Phase::Parked);
    }

    pub(crate) fn set_host(&self, waker: &Waker) {
        let known = self.host.borrow().as_ref().is_some_and(|w| w.will_wake(waker));
        if !known {
            let old = self.host.borrow_mut().replace(waker.clone());
            drop(old);
        }
    }

    pub(crate) fn forget_host(&self) {
        let old = self.host.borrow_mut().take();
        drop(old);
    }

    /// Calls the host if it parked; once until it parks again. Must not be called while an engine or
    /// a list of this core is borrowed: the waker is the host's code.
    #[inline]
    pub(crate) fn call(&self) {
        if self.is_parked() {
            self.call_host();
        }
    }

    #[cold]
    fn call_host(&self) {
        self.phase.set(Phase::Outside);
        let host = self.host.borrow().clone();
        match host {
            Some(waker) => waker.wake(),
            None => self.wakeup.wake(),
        }
    }
}
