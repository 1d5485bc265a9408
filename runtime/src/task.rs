//! A small executor for the `!Send` tasks of one core.
//!
//! A waker is one word: core, index and generation of the task. Cloning it, and waking on its own
//! thread, touch no atomic and no allocation. A wake from another thread goes through the core's
//! mailbox. A panic ends its own task and no other.

use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
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

/// The tasks of one core, and which of them are due.
struct Ready {
    due: RefCell<Due>,
    attention: Rc<Attention>,
}

#[derive(Default)]
struct Due {
    /// Tasks in the order in which they were woken.
    woken: Queue,
    /// Tasks that have not run yet, in the order in which they were spawned.
    fresh: Queue,
    places: Vec<Place>,
}

/// Numbers of tasks.
#[derive(Default)]
struct Queue {
    tasks: Vec<u32>,
    /// So many of them have run in this round.
    ran: usize,
}

impl Queue {
    fn len(&self) -> usize {
        self.tasks.len() - self.ran
    }

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let task = *self.tasks.get(self.ran)?;
        self.ran += 1;
        Some(task)
    }

    /// Lets those go that have run.
    fn end_round(&mut self) {
        self.tasks.drain(..self.ran);
        self.ran = 0;
    }
}

impl Due {
    fn len(&self) -> usize {
        self.woken.len() + self.fresh.len()
    }

    #[inline(always)]
    fn queue(&mut self, of: Round) -> &mut Queue {
        match of {
            Round::Woken => &mut self.woken,
            Round::Fresh => &mut self.fresh,
        }
    }
}

/// What runs after what in a turn.
#[derive(Clone, Copy)]
enum Round {
    Woken,
    Fresh,
}

/// A task's place. Its name changes with its tenant.
struct Place {
    key: TaskKey,
    queued: bool,
    /// `None` when there is no tenant.
    job: Option<Rc<dyn Job>>,
}

impl Ready {
    #[inline(always)]
    fn push(&self, key: TaskKey) {
        let due = &mut *self.due.borrow_mut();
        if let Some(place) = due.places.get_mut(key.index())
            && place.key == key
            && !place.queued
        {
            place.queued = true;
            due.woken.tasks.push(key.index() as u32);
        }
    }

    /// The next task that is due, which may be queued again from now on, and where it is. It stays
    /// in its place while it runs: it may spawn and wake, which moves places but no task.
    #[inline(always)]
    fn pop(&self, round: Round) -> Option<(TaskKey, Option<NonNull<dyn Job>>)> {
        let due = &mut *self.due.borrow_mut();
        let index = due.queue(round).next()?;
        let place = due.places.get_mut(index as usize)?;
        place.queued = false;
        let job = place.job.as_ref().map(|job| NonNull::from(&**job));
        Some((place.key, job))
    }

    /// Takes a task that has ended out of its place.
    fn take(&self, at: usize) -> Option<Rc<dyn Job>> {
        self.due.borrow_mut().places.get_mut(at)?.job.take()
    }
}

/// A task as its core holds it.
trait Job {
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
struct Spawned<F: Future> {
    future: UnsafeCell<Option<F>>,
    outcome: Outcome<F::Output>,
}

impl<F: Future> Spawned<F> {
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
        let key = TaskKey(waker.data() as u64);
        let is_own = std::ptr::eq(waker.vtable(), &VTABLE) && key.core() == self.core;
        if !is_own || self.ready.attention.is_parked() {
            return Some(waker);
        }
        // Its drop would do nothing, through a pointer.
        std::mem::forget(waker);
        self.ready.push(key);
        None
    }

    /// Adds a task. It runs in the same turn if one that was woken adds it, else in the next.
    pub(crate) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let outcome = Outcome { value: RefCell::new(None), waker: RefCell::new(None) };
        let spawned = Rc::new(Spawned { future: UnsafeCell::new(Some(future)), outcome });
        self.add(spawned.clone());
        Task { spawned }
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
        let mask = (1 << TaskKey::GENERATION_BITS) - 1;
        let generation = ((places[at].key.0 >> TaskKey::INDEX_BITS) & mask) as u32;
        places[at].key = TaskKey::new(self.core, at as u32, generation.wrapping_add(1));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Wakeup;
    use crate::mailbox::{Consumer, mailbox};
    use std::future::{pending, poll_fn};
    use std::task::Wake;

    struct NoBell;

    impl Wakeup for NoBell {
        fn wake(&self) {}
    }

    fn tasks() -> (Rc<Tasks>, Consumer<Post>) {
        let (producer, mail) = mailbox(16, Arc::new(NoBell));
        let attention = Rc::new(Attention::new(Arc::new(NoBell)));
        (Rc::new(Tasks::new(Arc::new(Reach::new(producer)), attention)), mail)
    }

    fn poll_once<T>(task: &mut Task<T>, waker: &Waker) -> Option<Result<T, Panicked>> {
        match Pin::new(task).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }

    /// Runs something when it is dropped, and panics then.
    struct Last(Box<dyn FnMut()>);

    impl Drop for Last {
        fn drop(&mut self) {
            (self.0)();
            if !std::thread::panicking() {
                panic!("in a destructor");
            }
        }
    }

    /// Fails if whoever awaits a task of a core that ends waits for ever.
    #[test]
    fn a_core_that_ends_tells_those_who_wait() {
        struct Called(AtomicBool);
        impl Wake for Called {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (tasks, _mail) = tasks();
        let mut task = tasks.spawn(pending::<()>());
        let called = Arc::new(Called(AtomicBool::new(false)));
        let waker = Waker::from(called.clone());
        assert!(poll_once(&mut task, &waker).is_none());
        drop(tasks);
        assert!(called.0.load(Ordering::Relaxed));
        let Some(Err(ended)) = poll_once(&mut task, &waker) else { panic!("it goes on") };
        assert!(ended.message().contains("core ended"), "{ended}");
    }

    /// Fails, or Miri does, if a task that runs moves with its place, or is freed by its own handle.
    #[test]
    fn a_task_that_runs_stays_where_it_is() {
        let (tasks, _mail) = tasks();
        let own = Rc::new(RefCell::new(None::<Task<u8>>));
        let (handle, here) = (own.clone(), tasks.clone());
        let task = tasks.spawn(async move {
            let text = [1; 100];
            let held = &text;
            let mut handle = handle.borrow_mut().take();
            let mut begun = false;
            poll_fn(|cx| {
                // The list of places grows, and with it moves.
                (0..10).for_each(|_| drop(here.spawn(async {})));
                let ended = handle.as_mut().and_then(|task| poll_once(task, cx.waker()));
                assert!(ended.is_none(), "it still runs");
                cx.waker().wake_by_ref();
                handle = None;
                if std::mem::replace(&mut begun, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            held[99]
        });
        *own.borrow_mut() = Some(task);
        for _ in 0..3 {
            tasks.run();
        }
        assert_eq!((tasks.live(), tasks.ready_len()), (0, 0));
    }

    /// Fails if the waker of a task that has ended reaches who came after it, from here or elsewhere.
    #[test]
    fn a_stale_waker_reaches_nobody() {
        let (tasks, mut mail) = tasks();
        let kept = Rc::new(RefCell::new(None));
        let keeps = kept.clone();
        drop(tasks.spawn(poll_fn(move |cx| {
            *keeps.borrow_mut() = Some(cx.waker().clone());
            cx.waker().wake_by_ref();
            Poll::Ready(())
        })));
        tasks.run();
        drop(tasks.spawn(pending::<()>()));
        // It left its number in the queue, at which the new tenant runs.
        tasks.run();
        assert_eq!((tasks.live(), tasks.ready_len()), (1, 0));
        let stale = kept.take().expect("it ran");
        stale.wake_by_ref();
        assert!(tasks.wake_own(stale.clone()).is_none(), "a number of this core");
        std::thread::spawn(move || stale.wake()).join().unwrap();
        let Some(Post::Wake(key)) = mail.pop() else { panic!("a wake from elsewhere") };
        tasks.wake(key);
        assert_eq!(tasks.ready_len(), 0);
        tasks.clear();
        assert_eq!(tasks.live(), 0);
    }

    thread_local! {
        static AWAITED: RefCell<Option<Task<u8>>> = const { RefCell::new(None) };
        static GOT: Cell<u8> = const { Cell::new(0) };
    }

    /// Takes the outcome and lets the handle go inside the wake, and panics.
    struct Greedy;

    impl Wake for Greedy {
        fn wake(self: Arc<Self>) {
            let mut task = AWAITED.take().expect("a handle");
            let ended = poll_once(&mut task, Waker::noop());
            GOT.set(ended.expect("it has ended").expect("and did not panic"));
            drop(task);
            panic!("in a wake");
        }
    }

    /// Fails, or Miri does, if whoever waits cannot use and drop the handle inside its wake.
    #[test]
    fn a_waiter_may_take_the_outcome_inside_its_wake() {
        let (tasks, _mail) = tasks();
        let mut task = tasks.spawn(async { 7 });
        assert!(poll_once(&mut task, &Waker::from(Arc::new(Greedy))).is_none());
        AWAITED.set(Some(task));
        tasks.run();
        assert_eq!((GOT.get(), tasks.live()), (7, 0));
    }

    /// Fails, or Miri does, if what tasks do as they are dropped keeps another alive or frees it twice.
    #[test]
    fn all_end_whatever_their_destructors_do() {
        let (tasks, _mail) = tasks();
        let dropped = Rc::new(Cell::new(0));
        let handles = Rc::new(RefCell::new(Vec::new()));
        for number in 0..6 {
            let (here, count, both) = (Rc::downgrade(&tasks), dropped.clone(), handles.clone());
            let last = Last(Box::new(move || {
                count.set(count.get() + 1);
                let Some(here) = here.upgrade() else { return };
                let also = count.clone();
                // In the place of this one, or of one whose turn it is next.
                let heir = Last(Box::new(move || also.set(also.get() + 1)));
                drop(here.spawn(async move {
                    pending::<()>().await;
                    drop(heir);
                }));
                let other = both.borrow_mut().pop();
                drop(other);
            }));
            let task = tasks.spawn(async move {
                let last = last;
                match number % 3 {
                    0 => pending().await,
                    1 => panic!("in a task"),
                    _ => {}
                }
                last
            });
            handles.borrow_mut().push(task);
        }
        tasks.run();
        tasks.clear();
        assert_eq!(tasks.live(), 0);
        handles.take();
        drop(tasks);
        assert_eq!(dropped.get(), 12);
    }
}
