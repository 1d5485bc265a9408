//! The turn: one pass of a core's loop, and what a task sees of its core.
//!
//! Order, fixed: mailbox, ready tasks, flush, enter, collect, dispatch, timers. One clock read per
//! turn. A completion never runs inside the collecting loop, and what a turn wakes runs in the next.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::io::{Counters, Handler, Io};
use crate::kernel::{Kernel, Wait};
use crate::mailbox::{Consumer, Producer, PushError, mailbox};
use crate::op::Completion;
use crate::park::{Idle, Parker};
use crate::task::{Post, Reach, Task, TaskKey, Tasks};
use crate::time::Instant;
use crate::timer::{TimerKey, Wheel};

/// Messages that a core's mailbox holds.
const MAILBOX: usize = 4096;
/// Messages that one turn takes from the mailbox at most, so that senders cannot starve the ring.
const MAIL_PER_TURN: usize = 1024;
/// How long teardown waits for the kernel to let go of all operations.
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// What a core drives: the protocol above its sockets.
pub trait Drive<K: Kernel>: Handler {
    /// After the ready tasks, once per turn: open, send, close.
    fn on_flush(&mut self, now: Instant, io: &mut Io<K>);
    /// After the completions of a turn were dispatched: wake whom they concern.
    fn on_dispatched(&mut self, now: Instant);
    /// The instant of [`Drive::next_deadline`] has come.
    fn on_deadline(&mut self, now: Instant);
    /// When it next needs to be called, `NEVER` if not at all.
    fn next_deadline(&self) -> Instant;
    /// Whether replies or connects are outstanding (an adaptive core spins only then).
    fn in_flight(&self) -> bool;
}

/// The part of a core that its tasks share. Clones are the same core.
#[derive(Clone)]
pub struct Local(Rc<Shared>);

struct Shared {
    tasks: Tasks,
    now: Cell<Instant>,
    simulated: bool,
    counters: Cell<Counters>,
    timers: RefCell<Timers>,
    reach: Arc<Reach>,
}

struct Timers {
    wheel: Wheel<u32>,
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
    due: Vec<u32>,
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

    /// The clock as of this turn; no system call.
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.now.get()
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
        Sleep { shared: self.0.clone(), at, timer: None }
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
        Remote(self.0.reach.producer.clone())
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

/// Reaches a core from any thread.
#[derive(Clone)]
pub struct Remote(Producer<Post>);

/// The core did not take the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// Its mailbox is full; try again a little later.
    #[error("the core's mailbox is full")]
    Full,
    /// The core has ended.
    #[error("the core has ended")]
    Ended,
}

impl Remote {
    /// Runs `job` on the core, soon. Never waits.
    ///
    /// # Errors
    /// When the mailbox is full or the core has ended; the job is dropped then.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), RemoteError> {
        self.0.push(Post::Run(Box::new(job))).map_err(|e| match e {
            PushError::Full(_) => RemoteError::Full,
            PushError::Closed(_) => RemoteError::Ended,
        })
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// Waits until an instant.
pub struct Sleep {
    shared: Rc<Shared>,
    at: Instant,
    timer: Option<(TimerKey, u32)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.now.get() >= self.at {
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
        Poll::Pending
    }
}

impl Sleep {
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

impl Timers {
    fn add(&mut self, at: Instant, waker: Waker) -> (TimerKey, u32) {
        let cell = self.free.pop().unwrap_or(self.wakers.len() as u32);
        if cell as usize == self.wakers.len() {
            self.wakers.push(None);
        }
        self.wakers[cell as usize] = Some(waker);
        (self.wheel.insert(at, cell), cell)
    }
}

/// How a turn may end when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Wait in the kernel, as the park policy says.
    MayWait,
    /// Return at once; a host waits on the ready descriptor.
    Return,
}

/// A core: one thread's kernel, sockets, tasks and timers.
pub struct Core<K: Kernel> {
    /// Its sockets.
    pub io: Io<K>,
    local: Local,
    mail: Consumer<Post>,
    parker: Parker,
    completions: Vec<Completion>,
}

impl<K: Kernel> Core<K> {
    /// A core over `kernel`, to be driven by the calling thread.
    pub fn new(kernel: K, parker: Parker) -> Core<K> {
        let (producer, mail) = mailbox(MAILBOX, kernel.waker());
        let reach = Arc::new(Reach::new(producer));
        let now = kernel.now();
        let timers = Timers {
            wheel: Wheel::new(now),
            wakers: Vec::new(),
            free: Vec::new(),
            due: Vec::new(),
        };
        let shared = Shared {
            tasks: Tasks::new(reach.clone()),
            now: Cell::new(now),
            simulated: kernel.is_simulated(),
            counters: Cell::default(),
            timers: RefCell::new(timers),
            reach,
        };
        Core {
            io: Io::new(kernel),
            local: Local(Rc::new(shared)),
            mail,
            parker,
            completions: Vec::with_capacity(1024),
        }
    }

    /// What this core's tasks share.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// One pass. Returns whether it found anything to do.
    ///
    /// # Errors
    /// When the kernel below is unusable; the core cannot go on.
    pub fn turn<D: Drive<K>>(&mut self, drive: &mut D, turn: Turn) -> io::Result<bool> {
        let mut worked = self.read_mail();
        worked |= self.shared().tasks.is_ready();
        self.shared().tasks.run();
        drive.on_flush(self.local.now(), &mut self.io);
        let wait = self.wait(drive, turn);
        self.io.kernel.enter(wait, &mut self.completions)?;
        self.mail.rise();
        let now = self.io.kernel.now();
        self.shared().now.set(now);
        worked |= !self.completions.is_empty();
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.io.dispatch(now, &completion, drive);
        }
        self.completions = completions;
        drive.on_dispatched(now);
        worked |= self.expire(drive, now);
        self.shared().counters.set(self.io.counters());
        if worked {
            self.parker.worked(now);
        }
        Ok(worked)
    }

    fn shared(&self) -> &Shared {
        &self.local.0
    }

    fn read_mail(&mut self) -> bool {
        let mut any = false;
        for _ in 0..MAIL_PER_TURN {
            let Some(post) = self.mail.pop() else { break };
            any = true;
            match post {
                Post::Wake(key) => self.shared().tasks.wake(key),
                Post::Overflow => self.wake_overflow(),
                // The sender's code: a panic in it must not end the core.
                Post::Run(job) => {
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            }
        }
        any
    }

    #[cold]
    fn wake_overflow(&self) {
        let keys: Vec<TaskKey> = self.shared().reach.take_overflow();
        for key in keys {
            self.shared().tasks.wake(key);
        }
    }

    /// Arms the kernel and decides whether this turn may wait.
    fn wait<D: Drive<K>>(&mut self, drive: &D, turn: Turn) -> Wait {
        if self.shared().tasks.is_ready() {
            return Wait::No;
        }
        let now = self.local.now();
        let sleeps = self.shared().timers.borrow().wheel.next();
        let next = drive.next_deadline().min(sleeps).min(self.io.next_deadline());
        self.io.kernel.arm(next);
        if turn == Turn::Return || next <= now {
            return Wait::No;
        }
        if self.parker.idle(now, drive.in_flight()) == Idle::Spin {
            return Wait::No;
        }
        // From here on whoever posts rings the bell.
        if self.mail.prepare_sleep() { Wait::Yes } else { Wait::No }
    }

    fn expire<D: Drive<K>>(&mut self, drive: &mut D, now: Instant) -> bool {
        let mut any = false;
        if drive.next_deadline() <= now {
            drive.on_deadline(now);
            any = true;
        }
        if self.io.next_deadline() <= now {
            self.io.expire_connects(now);
            any = true;
        }
        any | self.expire_sleeps(now)
    }

    fn expire_sleeps(&self, now: Instant) -> bool {
        let mut timers = self.shared().timers.borrow_mut();
        if timers.wheel.next() > now {
            return false;
        }
        let mut due = std::mem::take(&mut timers.due);
        timers.wheel.expire(now, &mut due);
        drop(timers);
        let any = !due.is_empty();
        for cell in due.drain(..) {
            let waker = self.shared().timers.borrow_mut().wakers[cell as usize].take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.shared().timers.borrow_mut().due = due;
        any
    }

    /// For a host, before it waits on the kernel's ready descriptor: `true` if waiting is safe.
    /// Work that is due already (tasks, mail, completions) answers `false`: take another turn.
    pub fn prepare_park(&mut self) -> bool {
        if self.shared().tasks.is_ready() || !self.mail.prepare_sleep() {
            return false;
        }
        if self.io.kernel.prepare_park() {
            return true;
        }
        self.mail.rise();
        false
    }

    /// Why spinning is off although it was asked for, once.
    pub fn take_park_reason(&mut self) -> Option<String> {
        self.parker.take_reason().map(str::to_owned)
    }

    /// Ends the core: drops its tasks, closes every socket and drains the kernel. What cannot be
    /// drained in time is leaked, since the kernel may still write to it.
    pub fn shut_down<D: Drive<K>>(mut self, drive: &mut D) {
        self.shared().tasks.clear();
        drive.on_flush(self.local.now(), &mut self.io);
        self.io.close_all();
        let until = self.io.kernel.now() + DRAIN_FOR;
        while self.io.live() > 0 && self.io.kernel.now() < until {
            self.io.kernel.arm(until);
            if self.io.kernel.enter(Wait::Yes, &mut self.completions).is_err() {
                break;
            }
            let now = self.io.kernel.now();
            for completion in std::mem::take(&mut self.completions) {
                self.io.dispatch(now, &completion, drive);
            }
        }
        if self.io.live() > 0 {
            tracing::warn!(
                sockets = self.io.live(),
                "the kernel did not let go of sockets in time"
            );
            std::mem::forget(self.io);
        }
    }
}
