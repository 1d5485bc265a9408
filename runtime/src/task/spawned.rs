//! A task with its outcome: what its core runs, and the handle of those who wait for it.

use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::quietly;

/// A task as its core holds it.
pub(super) trait Job {
    /// One step of it. Ready: it has ended, and its outcome is on record.
    fn step(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Its step panicked, which is its outcome.
    fn panicked(&self, payload: Box<dyn Any + Send>);
    /// Its core ends: drops what there is of it, and tells whoever waits for it.
    fn cease(&self);
}

/// A task as those see it who wait for it.
trait Awaited<T> {
    fn outcome(&self) -> &Outcome<T>;
}

/// A task with its outcome, in one piece of memory.
pub(super) struct Spawned<F: Future> {
    future: UnsafeCell<Option<F>>,
    outcome: Outcome<F::Output>,
}

impl<F: Future> Spawned<F> {
    #[inline]
    pub(super) fn new(future: F) -> Spawned<F> {
        let outcome = Outcome { value: RefCell::new(None), waker: RefCell::new(None) };
        Spawned { future: UnsafeCell::new(Some(future)), outcome }
    }

    #[allow(clippy::mut_from_ref)] // The one way in, with the proof that there is one at a time.
    fn future(&self) -> Pin<&mut Option<F>> {
        // SAFETY: it is pinned in its own memory: never moved out, only dropped in place. Only the
        // functions of `Job` come here, none of which is called inside another of the same task: a
        // core runs a task once at a time, and lets it cease when it is not running.
        unsafe { Pin::new_unchecked(&mut *self.future.get()) }
    }
}

impl<F: Future> Job for Spawned<F> {
    #[inline]
    fn step(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut future = self.future();
        let Some(running) = future.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let Poll::Ready(value) = running.poll(context) else { return Poll::Pending };
        // Before the outcome: a destructor that panics is the outcome.
        future.set(None);
        self.outcome.end(Ok(value));
        Poll::Ready(())
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) {
        quietly(|| self.future().set(None));
        self.outcome.end(Err(payload));
    }

    fn cease(&self) {
        quietly(|| self.future().set(None));
        self.outcome.end(Err(Box::new("its core ended before it did")));
    }
}

impl<F: Future> Awaited<F::Output> for Spawned<F> {
    fn outcome(&self) -> &Outcome<F::Output> {
        &self.outcome
    }
}

struct Outcome<T> {
    value: RefCell<Option<Result<T, Box<dyn Any + Send>>>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Outcome<T> {
    /// Records it and wakes whoever waits for it. One that is on record stays: then it was this wake
    /// that panicked.
    fn end(&self, ended: Result<T, Box<dyn Any + Send>>) {
        if self.value.borrow().is_none() {
            *self.value.borrow_mut() = Some(ended);
        }
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A spawned task. Awaiting it gives its output; dropping it lets it run on.
pub struct Task<T> {
    spawned: Rc<dyn Awaited<T>>,
}

/// The task panicked, and the payload is the panic's; or its core ended before it did, which the
/// message says then.
pub struct Panicked(pub Box<dyn Any + Send>);

impl Panicked {
    /// The panic's message, if it had one.
    pub fn message(&self) -> &str {
        let text = self.0.downcast_ref::<&str>().copied();
        text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
    }
}

impl std::fmt::Debug for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Panicked({:?})", self.message())
    }
}

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the task panicked: {}", self.message())
    }
}

impl std::error::Error for Panicked {}

impl<T> Task<T> {
    /// The handle of what a core runs.
    #[inline]
    pub(super) fn of(spawned: Rc<Spawned<impl Future<Output = T> + 'static>>) -> Task<T> {
        Task { spawned }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.spawned.outcome().value.borrow().is_some()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Panicked>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.spawned.outcome();
        let ended = outcome.value.borrow_mut().take();
        if let Some(value) = ended {
            return Poll::Ready(value.map_err(Panicked));
        }
        let waker = cx.waker().clone();
        let old = outcome.waker.borrow_mut().replace(waker);
        drop(old);
        Poll::Pending
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish()
    }
}
