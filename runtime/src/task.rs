//! A small executor for the `!Send` tasks of one core.
//!
//! A waker is one word: core, index and generation of the task. Cloning it, and waking on its own
//! thread, touch no atomic and no allocation. A wake from another thread goes through the core's
//! mailbox. A panic ends its own task and no other.

mod reach;
mod ready;
mod spawned;
mod waker;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(crate) use reach::{Post, Reach};
use reach::{delist, enlist};
use ready::{Place, Ready, Round};
use spawned::{Job, Spawned};
pub use spawned::{Panicked, Task};
use waker::{HERE, TaskKey, waker};

use crate::attention::Attention;

/// The tasks of one core.
pub(crate) struct Tasks {
    core: u16,
    ready: Rc<Ready>,
    free: RefCell<Vec<u32>>,
    live: Cell<usize>,
}

impl Tasks {
    /// Registers a core of the calling thread.
    pub(crate) fn new(reach: Arc<Reach>, attention: Rc<Attention>) -> Tasks {
        let core = enlist(reach);
        let ready = Rc::new(Ready { due: RefCell::default(), attention });
        HERE.with_borrow_mut(|here| here.push((core, ready.clone())));
        Tasks { core, ready, free: RefCell::default(), live: Cell::new(0) }
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }

    /// Whether a task is due.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_len() > 0
    }

    /// How many tasks are due.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.due.borrow().len()
    }

    pub(crate) fn wake(&self, key: TaskKey) {
        self.ready.push(key);
    }

    /// Wakes a task, one of this core without a look at the thread's cores.
    #[inline]
    pub(crate) fn wake_task(&self, waker: Waker) {
        if let Some(waker) = self.wake_own(waker) {
            waker.wake();
        }
    }

    /// Wakes a task of this core, which puts its number on a list and runs nobody's code. Any other
    /// waker comes back, and all do while a host waits, which would have to be called.
    #[inline(always)]
    pub(crate) fn wake_own(&self, waker: Waker) -> Option<Waker> {
        let own = TaskKey::of(&waker).filter(|key| key.core() == self.core);
        let Some(key) = own.filter(|_| !self.ready.attention.is_parked()) else {
            return Some(waker);
        };
        // Its drop would do nothing, through a pointer.
        std::mem::forget(waker);
        self.ready.push(key);
        None
    }

    /// Adds a task. It runs in the same turn if one that was woken adds it, else in the next.
    pub(crate) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let spawned = Rc::new(Spawned::new(future));
        self.add(spawned.clone());
        Task::of(spawned)
    }

    fn add(&self, job: Rc<dyn Job>) {
        let mut due = self.ready.due.borrow_mut();
        let places = &mut due.places;
        let index = self.free.borrow_mut().pop().unwrap_or(places.len() as u32);
        if index as usize == places.len() {
            let key = TaskKey::new(self.core, index, 0);
            places.push(Place { key, queued: false, job: None });
        }
        places[index as usize].job = Some(job);
        // A tenant that woke itself as it ended left its place in the queue.
        if !std::mem::replace(&mut places[index as usize].queued, true) {
            due.fresh.tasks.push(index);
        }
        self.live.set(self.live.get() + 1);
        drop(due);
        self.ready.attention.call();
    }

    /// Runs the tasks that are due now, each once, and then those that were spawned by now: what they
    /// have to send goes out with this turn, and a task for each arrival costs no wait. What is woken
    /// or spawned meanwhile runs in the next turn, so that a task that always wakes itself cannot hold
    /// up the ring (trap 8).
    pub(crate) fn run(&self) {
        self.run_round(Round::Woken);
        self.run_round(Round::Fresh);
    }

    #[inline(always)]
    fn run_round(&self, round: Round) {
        let due_now = self.ready.due.borrow_mut().queue(round).len();
        for _ in 0..due_now {
            let Some((key, job)) = self.ready.pop(round) else { break };
            if let Some(job) = job {
                self.poll(key, job);
            }
        }
        self.ready.due.borrow_mut().queue(round).end_round();
    }

    #[inline(always)]
    fn poll(&self, key: TaskKey, job: NonNull<dyn Job>) {
        // Its drop would do nothing, through a pointer.
        let waker = ManuallyDrop::new(waker(key));
        let mut context = Context::from_waker(&waker);
        // SAFETY: the place holds the task, which only `bury` and `clear` take out of it. `clear` runs
        // when the core is dropped or shut down, and whoever turns it has it borrowed meanwhile.
        let job = unsafe { job.as_ref() };
        match catch_unwind(AssertUnwindSafe(|| job.step(&mut context))) {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(())) => {}
            // Whoever waits for it may panic when it is woken.
            Err(payload) => quietly(|| job.panicked(payload)),
        }
        self.bury(key.index());
    }

    /// Drops a task that has ended. An output that nobody wants may panic as it goes.
    #[inline(never)]
    fn bury(&self, at: usize) {
        let job = self.ready.take(at);
        self.end(at);
        quietly(|| drop(job));
    }

    fn end(&self, at: usize) {
        let places = &mut self.ready.due.borrow_mut().places;
        places[at].key = places[at].key.next_tenant();
        self.free.borrow_mut().push(at as u32);
        self.live.set(self.live.get() - 1);
    }

    /// Drops every task, also those that are spawned by the drops.
    pub(crate) fn clear(&self) {
        loop {
            let jobs: Vec<(usize, Rc<dyn Job>)> = {
                let places = &mut self.ready.due.borrow_mut().places;
                let places = places.iter_mut().enumerate();
                places.filter_map(|(at, place)| Some((at, place.job.take()?))).collect()
            };
            if jobs.is_empty() {
                return;
            }
            for (at, job) in jobs {
                self.end(at);
                // A destructor that panics must not keep the rest alive.
                quietly(|| job.cease());
                quietly(|| drop(job));
            }
        }
    }
}

/// Runs code of the user's, such as a waker, whose panic concerns nobody here.
pub fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        discard(payload);
    }
}

/// Drops what a caught panic carried. That destructor is the user's too and may panic in its turn;
/// what it panics with is let be.
pub fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.clear();
        HERE.with_borrow_mut(|here| here.retain(|(core, _)| *core != self.core));
        delist(self.core);
    }
}

#[cfg(test)]
mod tests;
