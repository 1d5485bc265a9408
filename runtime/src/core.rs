//! The turn: one pass of a core's loop, and what a task sees of its core.
//!
//! Order, fixed: mailbox, ready tasks, flush, enter, collect, dispatch, timers. One clock read per
//! turn. A completion never runs inside the collecting loop, and what a turn wakes runs in the next.

mod local;
mod remote;
mod sleep;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

pub use local::Local;
use local::Shared;
pub use remote::{Remote, RemoteError};
pub use sleep::Sleep;
use sleep::Timers;

use crate::attention::Attention;
use crate::fork::{self, Process};
use crate::io::{Handler, Io};
use crate::kernel::{Kernel, Wait};
use crate::mailbox::{Consumer, mailbox};
use crate::op::Completion;
use crate::park::{Idle, Parker};
use crate::task::{Post, Reach, Tasks, quietly};
use crate::time::Instant;

/// Messages that a core's mailbox holds.
const MAILBOX: usize = 4096;
/// Messages that one turn takes from the mailbox at most, so that senders cannot starve the ring.
const MAIL_PER_TURN: usize = 1024;
/// How long teardown waits for the kernel to let go of all operations.
const DRAIN_FOR: Duration = Duration::from_secs(1);
/// So often it looks without waiting when that time is over.
const DRAIN_LOOKS: u32 = 16;

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
    /// Whether [`Drive::on_flush`] has anything to do; a host does not park then.
    fn is_busy(&self) -> bool {
        false
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
    process: Process,
}

impl<K: Kernel> Core<K> {
    /// A core over `kernel`, to be driven by the calling thread.
    pub fn new(kernel: K, parker: Parker) -> Core<K> {
        let (producer, mail) = mailbox(MAILBOX, kernel.waker());
        let attention = Rc::new(Attention::new(kernel.waker()));
        let reach = Arc::new(Reach::new(producer));
        let now = kernel.now();
        let shared = Shared {
            tasks: Tasks::new(reach.clone(), attention.clone()),
            now: Cell::new(now),
            simulated: kernel.is_simulated(),
            counters: Cell::default(),
            completions: Cell::new(0),
            timers: RefCell::new(Timers::new(now)),
            reach,
            attention,
        };
        Core {
            io: Io::new(kernel),
            local: Local(Rc::new(shared)),
            mail,
            parker,
            completions: Vec::with_capacity(1024),
            process: Process::current(),
        }
    }

    /// From now on a host turns this core with [`Turn::Return`] and waits on [`Core::ready_fd`].
    pub fn embed(&mut self) {
        self.shared().attention.embed();
    }

    /// Whom to wake when work comes up on this thread while the host waits.
    pub fn set_host(&mut self, waker: &Waker) {
        self.shared().attention.set_host(waker);
    }

    /// The descriptor that becomes readable when a turn is worth taking. The host only waits on it.
    ///
    /// # Errors
    /// The system's error when it cannot be made; see also [`Core::turn`] on forks.
    pub fn ready_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if !self.process.is_here() {
            return Err(fork::error());
        }
        let fd = self.io.kernel.ready_fd()?;
        // SAFETY: the kernel owns the descriptor and keeps it open for its own life, which the
        // borrow of `self` cannot outlast.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// What this core's tasks share.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// One pass. Returns whether it found anything to do.
    ///
    /// # Errors
    /// When the kernel below is unusable, or this process is a fork of the core's; the core cannot
    /// go on.
    pub fn turn<D: Drive<K>>(&mut self, drive: &mut D, turn: Turn) -> io::Result<bool> {
        if !self.process.is_here() {
            return Err(fork::error());
        }
        let hosted = self.shared().attention.is_hosted();
        if hosted {
            self.shared().attention.begin_turn();
            // The host may have run other things since the last turn.
            self.shared().now.set(self.io.kernel.now());
        }
        let worked = self.pass(drive, turn);
        if hosted {
            self.shared().attention.end_turn();
        }
        worked
    }

    fn pass<D: Drive<K>>(&mut self, drive: &mut D, turn: Turn) -> io::Result<bool> {
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
        self.shared().completions.set(self.completions.len());
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
                Post::Look => {}
                // The sender's code: a panic in it must not end the core.
                Post::Run(job) => {
                    quietly(job);
                }
            }
        }
        if any {
            for key in self.shared().reach.take_overflow() {
                self.shared().tasks.wake(key);
            }
            self.mail.call_crowd();
        }
        any
    }

    /// Arms the kernel and decides whether this turn may wait.
    fn wait<D: Drive<K>>(&mut self, drive: &D, turn: Turn) -> Wait {
        let now = self.local.now();
        let next = self.next_deadline(drive);
        let rests = !self.shared().tasks.is_ready()
            && next > now
            && (turn == Turn::Return || self.parker.idle(now, drive.in_flight()) == Idle::Park);
        // A core that takes its next turn at once needs nobody to call it, and what was armed for the
        // last rest may be over: it would fire at each enter.
        self.io.kernel.arm(if rests { next } else { Instant::NEVER });
        // From here on whoever posts rings the bell.
        let waits = rests && turn == Turn::MayWait && self.mail.prepare_sleep();
        if waits { Wait::Yes } else { Wait::No }
    }

    fn next_deadline<D: Drive<K>>(&self, drive: &D) -> Instant {
        let sleeps = self.shared().timers.borrow().next();
        drive.next_deadline().min(sleeps).min(self.io.next_deadline())
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
        any | sleep::expire(&self.shared().timers, now)
    }

    /// For a host, before it waits on [`Core::ready_fd`]: `true` if waiting is safe. Work that is
    /// due already (tasks, mail, sends, deadlines, completions) answers `false`: take another turn.
    pub fn prepare_park<D: Drive<K>>(&mut self, drive: &D) -> bool {
        if !self.process.is_here() || self.shared().tasks.is_ready() || drive.is_busy() {
            return false;
        }
        let next = self.next_deadline(drive);
        if next <= self.io.kernel.now() {
            return false;
        }
        self.io.kernel.arm(next);
        if !self.mail.prepare_sleep() {
            return false;
        }
        if !self.io.kernel.prepare_park() {
            self.mail.rise();
            return false;
        }
        if self.shared().attention.is_hosted() {
            self.shared().attention.park();
        }
        true
    }

    /// Why spinning is off although it was asked for, once.
    pub fn take_park_reason(&mut self) -> Option<String> {
        self.parker.take_reason().map(str::to_owned)
    }

    /// Ends the core: drops its tasks, closes every socket and drains the kernel. What cannot be
    /// drained in time is leaked, since the kernel may still write to it.
    ///
    /// In a fork of the core's process nothing is touched, and its memory is leaked: descriptors
    /// and operations are the parent's.
    pub fn shut_down<D: Drive<K>>(mut self, drive: &mut D) {
        self.shared().attention.forget_host();
        if !self.process.is_here() {
            std::mem::forget(self);
            return;
        }
        self.shared().tasks.clear();
        drive.on_flush(self.local.now(), &mut self.io);
        self.io.close_all();
        let until = self.io.kernel.now() + DRAIN_FOR;
        // A clock may jump (a process that was stopped): what came meanwhile still counts.
        let mut looks = DRAIN_LOOKS;
        while self.io.live() > 0 && looks > 0 {
            let is_late = self.io.kernel.now() >= until;
            looks -= u32::from(is_late);
            let (at, wait) = if is_late { (Instant::NEVER, Wait::No) } else { (until, Wait::Yes) };
            self.io.kernel.arm(at);
            if self.io.kernel.enter(wait, &mut self.completions).is_err() {
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
