//! A seeded model kernel: the [`Kernel`] over a simulated network and a virtual clock.
//!
//! No descriptor, no system call, no real time: descriptors are numbers, and `enter(Wait::Yes)` moves
//! the clock to the next event or the armed instant. Same seed and same calls: same completions,
//! which [`Ledger::trace`] condenses to one number. It also checks how it is used; what a real
//! kernel would punish with a wild write or a leak is a line of [`Ledger::violations`] here.

mod faults;
mod ledger;
mod memory;
mod net;
mod state;

use std::cell::{RefCell, RefMut};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use faults::SimConfig;
pub use ledger::Ledger;
use net::World;
pub use net::{ConnId, Peer, PeerOut, SimNet};
use state::{File, Kind, State};

use crate::group::Group;
use crate::kernel::{Address, GroupConfig, Kernel, Wait, Wakeup};
use crate::op::{Completion, GroupId, Op, Token};
use crate::socket::Keepalive;
use crate::time::Instant;

/// The first descriptor number handed out: far from those of the process, so that one that is
/// closed for real by mistake is nobody's.
pub const FIRST_FD: RawFd = 1_000_000;

/// The model kernel; made by [`SimNet::kernel`].
pub struct Sim {
    net: SimNet,
    id: u32,
    state: Rc<RefCell<State>>,
    waker: Arc<SimWaker>,
}

struct SimWaker(AtomicBool);

impl Wakeup for SimWaker {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("ledger", &self.ledger()).finish_non_exhaustive()
    }
}

impl Sim {
    fn new(net: SimNet) -> Sim {
        let id = net.0.borrow().kernels;
        net.0.borrow_mut().kernels += 1;
        let waker = Arc::new(SimWaker(AtomicBool::new(false)));
        Sim { net, id, state: Rc::new(RefCell::new(State::new())), waker }
    }

    /// Its books, for checkers.
    pub fn ledger(&self) -> Ledger {
        Ledger(self.state.clone())
    }

    fn parts(&self) -> (RefMut<'_, State>, RefMut<'_, World>) {
        (self.state.borrow_mut(), self.net.0.borrow_mut())
    }

    fn submit(&self) {
        let queued = std::mem::take(&mut self.state.borrow_mut().queued);
        for (token, op) in queued {
            let (mut state, mut world) = self.parts();
            let reset = state.start(&mut world, self.id, token, op);
            drop((state, world));
            if let Some(conn) = reset {
                self.net.reset(conn);
            }
        }
    }

    /// Runs what is due and lets every operation go on. `true`: the wait is over.
    fn advance(&self) -> bool {
        let foreign = self.net.run_due(self.id);
        let (mut state, mut world) = self.parts();
        let (id, mut late) = (self.id, Vec::new());
        std::mem::swap(&mut late, &mut world.late);
        for (kernel, op) in late {
            if kernel == id {
                state.end_late(op);
            } else {
                world.late.push((kernel, op));
            }
        }
        state.pump(&mut world, id);
        foreign || state.done.len() > state.whole_sends
    }

    /// An instant that is over and stays armed would fire again at each enter of a real kernel.
    fn check_armed(&self, wait: Wait) {
        let now = self.net.now();
        let mut state = self.state.borrow_mut();
        if let Some(at) = state.armed.filter(|at| wait == Wait::No && *at <= now) {
            state.violation(format!(
                "{at:?} is over and armed in an enter at {now:?} that does not wait"
            ));
        }
    }

    /// Waits on the virtual clock.
    fn wait(&self) {
        loop {
            if self.waker.0.swap(false, Ordering::Acquire) {
                return;
            }
            let armed = self.state.borrow().armed.unwrap_or(Instant::NEVER);
            let event = self.net.next_event().unwrap_or(Instant::NEVER);
            let next = armed.min(event);
            if next == Instant::NEVER {
                // Another kernel of the same network could still cause something.
                let alone = self.net.0.borrow().kernels == 1;
                self.state.borrow_mut().deadlock |= alone;
                return;
            }
            let mut world = self.net.0.borrow_mut();
            world.now = world.now.max(next);
            drop(world);
            if self.advance() || armed <= event {
                return;
            }
        }
    }

    /// Hands out what is done, with operations in another order if the dice say so.
    fn hand_out(&self, out: &mut Vec<Completion>) {
        let (mut state, mut world) = self.parts();
        let mut done = std::mem::take(&mut state.done);
        state.whole_sends = 0;
        let reorder = world.config.reorder;
        if done.len() > 1 && world.chance(reorder) {
            done = shuffle(&done, &mut world.rng);
        }
        let now = world.now;
        for completion in &done {
            state.note(now, completion);
        }
        out.extend(done);
    }
}

/// Another order of `done` in which each operation's completions keep theirs.
fn shuffle(done: &[Completion], rng: &mut fastrand::Rng) -> Vec<Completion> {
    let mut order: Vec<Token> = done.iter().map(|c| c.token).collect();
    rng.shuffle(&mut order);
    let mut taken = vec![false; done.len()];
    let mut result = Vec::with_capacity(done.len());
    for token in order {
        let next = (0..done.len()).find(|&at| !taken[at] && done[at].token == token);
        if let Some(at) = next {
            taken[at] = true;
            result.push(done[at]);
        }
    }
    result
}

impl Kernel for Sim {
    fn now(&self) -> Instant {
        self.net.now()
    }

    fn socket(&mut self, _address: Address<'_>) -> io::Result<RawFd> {
        let mut state = self.state.borrow_mut();
        // The lowest free number, as a real kernel: a stale use soon meets another's socket.
        let free = (FIRST_FD..).find(|fd| !state.files.contains_key(fd));
        let fd = free.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        state.files.insert(fd, File::default());
        Ok(fd)
    }

    fn keepalive(&mut self, fd: RawFd, _keepalive: &Keepalive) -> io::Result<()> {
        if self.state.borrow().files.contains_key(&fd) {
            return Ok(());
        }
        self.state.borrow_mut().violation(format!("keepalive on closed descriptor {fd}"));
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }

    fn shutdown(&mut self, fd: RawFd) {
        let mut state = self.state.borrow_mut();
        match state.files.get_mut(&fd) {
            Some(file) => file.shut = true,
            None => state.violation(format!("shutdown of closed descriptor {fd}")),
        }
    }

    fn close_now(&mut self, fd: RawFd) {
        let (mut state, mut world) = self.parts();
        state.close(&mut world, fd);
    }

    unsafe fn queue(&mut self, token: Token, op: Op) {
        self.state.borrow_mut().queued.push((token, op));
    }

    fn enter(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        self.state.borrow_mut().enters += 1;
        self.check_armed(wait);
        let mut world = self.net.0.borrow_mut();
        let (spurious, jump) = (world.config.spurious, world.config.clock_jump);
        let spurious = world.chance(spurious);
        let mut passed = world.config.enter_cost;
        if world.chance(jump) {
            passed += world.config.clock_jump_max.mul_f64(world.rng.f64());
        }
        world.now = world.now + passed;
        drop(world);
        self.submit();
        let over = self.advance();
        let due = self.state.borrow().armed.is_some_and(|at| at <= self.net.now());
        if wait == Wait::Yes && !over && !spurious && !due {
            self.wait();
        }
        self.hand_out(out);
        Ok(())
    }

    fn incremental(&self) -> bool {
        self.net.0.borrow().config.incremental
    }

    fn group(&mut self, config: GroupConfig) -> io::Result<GroupId> {
        let group = Group::new(config)?;
        if config.incremental && !self.incremental() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut state = self.state.borrow_mut();
        let free = (0..=u16::MAX).find(|id| !state.groups.contains_key(id));
        let id = free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        state.groups.insert(id, group);
        Ok(GroupId(id))
    }

    unsafe fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, len: u32) {
        let mut state = self.state.borrow_mut();
        let wrong = match state.groups.get_mut(&group.0) {
            None => "that group does not exist",
            Some(_) if len == 0 => "it is empty",
            Some(g) if g.holds(index) => "that index is posted already",
            Some(g) if g.is_full() => "the group is full",
            // SAFETY: as the caller promises.
            Some(g) => return unsafe { g.post(index, ptr, len) },
        };
        state.violation(format!("post of buffer {index} to {group:?}: {wrong}"));
    }

    fn ungroup(&mut self, group: GroupId) {
        let mut state = self.state.borrow_mut();
        let user = state
            .live
            .values()
            .find(|l| matches!(l.kind, Kind::Multi(g) if g == group))
            .map(|l| l.token);
        if let Some(token) = user {
            state.violation(format!("{group:?} removed while {token:?} receives into it"));
        }
        if state.groups.remove(&group.0).is_none() {
            state.violation(format!("removal of {group:?}, which does not exist"));
        }
    }

    fn arm(&mut self, at: Instant) {
        self.state.borrow_mut().armed = (at != Instant::NEVER).then_some(at);
    }

    /// There is none: a simulated core is turned, not waited for.
    fn ready_fd(&mut self) -> io::Result<RawFd> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn prepare_park(&mut self) -> bool {
        let state = self.state.borrow();
        state.queued.is_empty() && state.done.is_empty() && !self.waker.0.load(Ordering::Acquire)
    }

    fn waker(&self) -> Arc<dyn Wakeup> {
        self.waker.clone()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn enters(&self) -> u64 {
        self.state.borrow().enters
    }
}

#[cfg(test)]
mod tests;
