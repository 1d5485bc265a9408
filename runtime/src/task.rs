//! A small executor for the `!Send` tasks of one core.
//!
//! A waker is one word: core, index and generation of the task. Cloning it, and waking on its own
//! thread, touch no atomic and no allocation. A wake from another thread goes through the core's
//! mailbox. A panic ends its own task and no other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::attention::Attention;
use crate::mailbox::{Producer, PushError};

/// What other threads send to a core.
pub(crate) enum Post {
    /// Wake this task.
    Wake(TaskKey),
    /// Nothing but a reason to look: wakes may wait in the overflow list.
    Look,
    /// Run this on the core.
    Run(Box<dyn FnOnce() + Send>),
}

/// Core, task and tenant in one word, which is also a waker's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskKey(u64);

impl TaskKey {
    const INDEX_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 24;

    fn new(core: u16, index: u32, generation: u32) -> TaskKey {
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        TaskKey(u64::from(core) << 48 | generation << Self::INDEX_BITS | u64::from(index))
    }
    #[inline]
    fn core(self) -> u16 {
        (self.0 >> 48) as u16
    }
    #[inline]
    fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

/// Where a core can be reached from other threads.
pub(crate) struct Reach {
    pub(crate) producer: Producer<Post>,
    overflow: Mutex<Vec<TaskKey>>,
    /// Whether the overflow list may hold anything.
    overflowed: AtomicBool,
}

impl Reach {
    pub(crate) fn new(producer: Producer<Post>) -> Reach {
        Reach { producer, overflow: Mutex::new(Vec::new()), overflowed: AtomicBool::new(false) }
    }

    /// Never loses a wake: what the full mailbox does not take waits beside it, and the second push
    /// either finds room (and wakes the core) or shows that the core has yet to drain the mailbox,
    /// after which it looks here.
    fn wake(&self, key: TaskKey) {
        if let Err(PushError::Full(_)) = self.producer.push(Post::Wake(key)) {
            self.overflow.lock().unwrap_or_else(PoisonError::into_inner).push(key);
            self.overflowed.store(true, Ordering::Relaxed);
            // A push that finds the mailbox full fences before it says so: either it finds room, or
            // the consumer that makes room sees the flag.
            fence(Ordering::SeqCst);
            let _ = self.producer.push(Post::Look);
        }
    }

    /// The wakes that the mailbox had no room for. To be asked after anything was taken from it.
    pub(crate) fn take_overflow(&self) -> Vec<TaskKey> {
        fence(Ordering::SeqCst);
        if !self.overflowed.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // Before the list is taken: a wake that comes in between sets it again.
        self.overflowed.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        std::mem::take(&mut *self.overflow.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// All cores of the process, by number. Read only by wakes from foreign threads.
static CORES: RwLock<Vec<Option<Arc<Reach>>>> = RwLock::new(Vec::new());

thread_local! {
    /// The executors of this thread: one on a core's own thread, several in a host with several.
    static HERE: RefCell<Vec<(u16, Rc<Ready>)>> = const { RefCell::new(Vec::new()) };
}

/// The tasks that are due.
struct Ready {
    due: RefCell<Due>,
    attention: Rc<Attention>,
}

#[derive(Default)]
struct Due {
    queue: VecDeque<u32>,
    /// Per task: its tenant, and whether it is queued already.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    key: TaskKey,
    queued: bool,
}

impl Ready {
    #[inline]
    fn push(&self, key: TaskKey) {
        let mut due = self.due.borrow_mut();
        if let Some(mark) = due.marks.get_mut(key.index())
            && mark.key == key
            && !mark.queued
        {
            mark.queued = true;
            due.queue.push_back(key.index() as u32);
        }
    }

    /// The next task that is due, which may be queued again from now on.
    #[inline]
    fn pop(&self) -> Option<TaskKey> {
        let mut due = self.due.borrow_mut();
        let index = due.queue.pop_front()?;
        let mark = due.marks.get_mut(index as usize)?;
        mark.queued = false;
        Some(mark.key)
    }
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one core.
pub(crate) struct Tasks {
    core: u16,
    ready: Rc<Ready>,
    jobs: RefCell<Vec<Option<Job>>>,
    free: RefCell<Vec<u32>>,
    live: Cell<usize>,
}

impl Tasks {
    /// Registers a core of the calling thread.
    pub(crate) fn new(reach: Arc<Reach>, attention: Rc<Attention>) -> Tasks {
        let core = enlist(reach);
        let ready = Rc::new(Ready { due: RefCell::default(), attention });
        HERE.with_borrow_mut(|here| here.push((core, ready.clone())));
        Tasks {
            core,
            ready,
            jobs: RefCell::default(),
            free: RefCell::default(),
            live: Cell::new(0),
        }
    }

    /// Tasks that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }

    /// Whether a task is due.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.due.borrow().queue.is_empty()
    }

    /// How many tasks are due.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.due.borrow().queue.len()
    }

    pub(crate) fn wake(&self, key: TaskKey) {
        self.ready.push(key);
    }

    /// Wakes a task, one of this core without a look at the thread's cores.
    #[inline]
    pub(crate) fn wake_task(&self, waker: Waker) {
        let key = TaskKey(waker.data() as u64);
        if std::ptr::eq(waker.vtable(), &VTABLE) && key.core() == self.core {
            // Its drop would do nothing, through a pointer.
            std::mem::forget(waker);
            self.ready.push(key);
            if self.ready.attention.is_parked() {
                self.ready.attention.call();
            }
        } else {
            waker.wake();
        }
    }

    /// Adds a task; it runs in the next turn's task phase.
    pub(crate) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let slot = Rc::new(Outcome { value: RefCell::new(None), waker: RefCell::new(None) });
        let task = Task { outcome: slot.clone() };
        let job = Box::pin(async move {
            let ended = Caught(Some(future)).await;
            *slot.value.borrow_mut() = Some(ended);
            let waker = slot.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        self.add(job);
        task
    }

    fn add(&self, job: Job) {
        let mut jobs = self.jobs.borrow_mut();
        let mut due = self.ready.due.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or(jobs.len() as u32);
        if index as usize == jobs.len() {
            jobs.push(None);
            due.marks.push(Mark { key: TaskKey::new(self.core, index, 0), queued: false });
        }
        jobs[index as usize] = Some(job);
        let key = due.marks[index as usize].key;
        self.live.set(self.live.get() + 1);
        drop((jobs, due));
        self.ready.push(key);
        self.ready.attention.call();
    }

    /// Runs the tasks that are due now, each once; what they wake runs in the next turn, so that a
    /// task that always wakes itself cannot hold up the ring (trap 8).
    pub(crate) fn run(&self) {
        for _ in 0..self.ready_len() {
            let Some(key) = self.ready.pop() else { break };
            self.poll(key);
        }
    }

    fn poll(&self, key: TaskKey) {
        let at = key.index();
        // Taken out while it runs, so that it may spawn and wake.
        let Some(mut job) = self.jobs.borrow_mut()[at].take() else { return };
        // Its drop would do nothing, through a pointer.
        let waker = ManuallyDrop::new(waker(key));
        let mut context = Context::from_waker(&waker);
        // The future's own panics are its outcome; an output that nobody wants may panic as it goes.
        let mut pending = false;
        quietly(|| pending = job.as_mut().poll(&mut context).is_pending());
        if pending {
            self.jobs.borrow_mut()[at] = Some(job);
            return;
        }
        self.end(at);
        quietly(|| drop(job));
    }

    fn end(&self, at: usize) {
        let marks = &mut self.ready.due.borrow_mut().marks;
        let mask = (1 << TaskKey::GENERATION_BITS) - 1;
        let generation = ((marks[at].key.0 >> TaskKey::INDEX_BITS) & mask) as u32;
        marks[at].key = TaskKey::new(self.core, at as u32, generation.wrapping_add(1));
        self.free.borrow_mut().push(at as u32);
        self.live.set(self.live.get() - 1);
    }

    /// Drops every task, also those that are spawned by the drops.
    pub(crate) fn clear(&self) {
        loop {
            let jobs: Vec<(usize, Job)> = {
                let mut jobs = self.jobs.borrow_mut();
                jobs.iter_mut().enumerate().filter_map(|(i, j)| Some((i, j.take()?))).collect()
            };
            if jobs.is_empty() {
                return;
            }
            for (at, job) in jobs {
                self.end(at);
                // A destructor that panics must not keep the rest alive.
                quietly(|| drop(job));
            }
        }
    }
}

/// Runs code of the user's whose panic concerns nobody here.
pub(crate) fn quietly(f: impl FnOnce()) {
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
        let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cores.get_mut(self.core as usize) {
            *cell = None;
        }
    }
}

/// Gives a core its number.
fn enlist(reach: Arc<Reach>) -> u16 {
    let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
    let free = cores.iter().position(Option::is_none).unwrap_or(cores.len());
    if free == cores.len() {
        cores.push(None);
    }
    cores[free] = Some(reach);
    // 65,536 cores alive at once do not exist; a wrapped number would only wake spuriously.
    free as u16
}

/// A future whose panics, those of its destructor included, become its outcome.
struct Caught<F>(Option<F>);

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with its owner: it is never moved out, only dropped in place.
        let mut inner = unsafe { self.map_unchecked_mut(|caught| &mut caught.0) };
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let polled = inner.as_mut().as_pin_mut().map(|future| future.poll(cx));
            if matches!(polled, Some(Poll::Ready(_))) {
                inner.set(None);
            }
            polled
        }));
        match polled {
            Ok(Some(Poll::Ready(value))) => Poll::Ready(Ok(value)),
            Ok(_) => Poll::Pending,
            Err(panic) => {
                quietly(|| inner.set(None));
                Poll::Ready(Err(panic))
            }
        }
    }
}

struct Outcome<T> {
    value: RefCell<Option<Result<T, Box<dyn Any + Send>>>>,
    waker: RefCell<Option<Waker>>,
}

/// A spawned task. Awaiting it gives its output; dropping it lets it run on.
pub struct Task<T> {
    outcome: Rc<Outcome<T>>,
}

/// The task panicked; the payload is the panic's.
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
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.value.borrow().is_some()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Panicked>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = self.outcome.value.borrow_mut().take();
        if let Some(value) = ended {
            return Poll::Ready(value.map_err(Panicked));
        }
        let waker = cx.waker().clone();
        let old = self.outcome.waker.borrow_mut().replace(waker);
        drop(old);
        Poll::Pending
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish()
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| wake(TaskKey(data as u64)),
    |data| wake(TaskKey(data as u64)),
    |_| {},
);

fn waker(key: TaskKey) -> Waker {
    let data = std::ptr::without_provenance::<()>(key.0 as usize);
    // SAFETY: the data is a number, never a pointer; the functions above keep nothing and may be
    // called from any thread.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

fn wake(key: TaskKey) {
    // Without thread-local storage (a thread that ends), every core is foreign.
    let local = HERE.try_with(|here| {
        let here = here.try_borrow().ok()?;
        let (_, ready) = here.iter().find(|(core, _)| *core == key.core())?;
        ready.push(key);
        Some(ready.attention.is_parked().then(|| ready.attention.clone()))
    });
    match local {
        Ok(Some(None)) => {}
        // Outside of the borrow: the waker is the host's code.
        Ok(Some(Some(attention))) => attention.call(),
        _ => wake_foreign(key),
    }
}

#[cold]
fn wake_foreign(key: TaskKey) {
    let reach = {
        let cores = CORES.read().unwrap_or_else(PoisonError::into_inner);
        cores.get(key.core() as usize).cloned().flatten()
    };
    if let Some(reach) = reach {
        reach.wake(key);
    }
}
