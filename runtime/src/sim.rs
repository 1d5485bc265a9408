//! A seeded model kernel: the [`Kernel`] over a simulated network and a virtual clock.
//!
//! No descriptor, no system call, no real time: descriptors are numbers, and `enter(Wait::Yes)` moves
//! the clock to the next event or the armed instant. Same seed and same calls: same completions,
//! which [`Ledger::trace`] condenses to one number. It also checks how it is used; what a real
//! kernel would punish with a wild write or a leak is a line of [`Ledger::violations`] here.

mod faults;
mod net;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use faults::SimConfig;
pub use net::{ConnId, Peer, PeerOut, SimNet};
use net::{Endpoint, World};

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

/// What a [`Sim`] holds and what it was misused for; stays readable when the kernel is gone.
#[derive(Clone)]
pub struct Ledger(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    armed: Option<Instant>,
    queued: Vec<(Token, Op)>,
    files: BTreeMap<RawFd, File>,
    groups: BTreeMap<u16, Group>,
    /// Unfinished operations in the order of their submission.
    live: BTreeMap<u64, Live>,
    last_op: u64,
    /// Every cell and generation that ever queued something.
    known: BTreeSet<(u32, u32)>,
    /// Done and not yet returned.
    done: Vec<Completion>,
    /// Of these: sends that went out whole, which end no wait.
    whole_sends: usize,
    violations: Vec<String>,
    deadlock: bool,
    enters: u64,
    trace: u64,
}

#[derive(Default)]
struct File {
    conn: Option<ConnId>,
    shut: bool,
}

struct Live {
    token: Token,
    fd: RawFd,
    conn: Option<ConnId>,
    kind: Kind,
    /// Cancelled; its completion is on its way.
    ending: bool,
}

enum Kind {
    Connect,
    Multi(GroupId),
    Exact { ptr: *mut u8, len: usize, done: usize },
    PollIn,
    PollOut,
}

struct SimWaker(AtomicBool);

impl Wakeup for SimWaker {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Ledger {
    /// Misuses of the kernel, in order; empty is what tests assert.
    pub fn violations(&self) -> Vec<String> {
        self.0.borrow().violations.clone()
    }

    /// A wait found that nothing could ever end it: no event, no armed instant, no wake.
    pub fn deadlock(&self) -> bool {
        self.0.borrow().deadlock
    }

    /// Descriptors made and not closed.
    pub fn open_fds(&self) -> usize {
        self.0.borrow().files.len()
    }

    /// Buffers that are posted, partly used ones included.
    pub fn posted_buffers(&self) -> usize {
        self.0.borrow().groups.values().map(Group::len).sum()
    }

    /// Groups made and not removed.
    pub fn groups(&self) -> usize {
        self.0.borrow().groups.len()
    }

    /// Operations whose final completion has not been returned yet.
    pub fn live_ops(&self) -> usize {
        let state = self.0.borrow();
        state.queued.len() + state.live.len() + state.done.iter().filter(|c| !c.more).count()
    }

    /// A hash over all completions returned so far and their instants.
    pub fn trace(&self) -> u64 {
        self.0.borrow().trace
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("open_fds", &self.open_fds())
            .field("live_ops", &self.live_ops())
            .field("posted_buffers", &self.posted_buffers())
            .field("violations", &self.violations())
            .finish_non_exhaustive()
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
        let state = State { trace: 0xcbf2_9ce4_8422_2325, ..State::default() };
        let waker = Arc::new(SimWaker(AtomicBool::new(false)));
        Sim { net, id, state: Rc::new(RefCell::new(state)), waker }
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

impl State {
    fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    fn complete(&mut self, token: Token, result: i32) {
        self.done.push(Completion::plain(token, result));
    }

    /// Folds a completion into the trace (FNV-1a over its fields).
    fn note(&mut self, now: Instant, c: &Completion) {
        let flags = u64::from(c.more) | u64::from(c.buffer_more) << 1;
        let buffer = c.buffer.map_or(u64::MAX, u64::from);
        for word in [now.as_nanos(), c.token.0, c.result as u64, flags, buffer] {
            for byte in word.to_le_bytes() {
                self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    /// Starts one operation; answers a connection that is to be reset.
    fn start(&mut self, world: &mut World, id: u32, token: Token, op: Op) -> Option<ConnId> {
        self.check_token(token, &op);
        if let Op::Cancel { target } = op {
            self.cancel(world, id, token, target);
            return None;
        }
        let fd = descriptor(&op);
        let Some(file) = self.files.get(&fd) else {
            self.violation(format!("{token:?}: {} on closed descriptor {fd}", name(&op)));
            self.complete(token, -libc::EBADF);
            return None;
        };
        let conn = file.conn;
        match op {
            Op::Connect { addr, len, .. } => self.connect(world, id, token, fd, (addr, len)),
            Op::Send { ptr, len, .. } => {
                return self.send(world, token, fd, &[(ptr, len as usize)]);
            }
            Op::SendMsg { msg, .. } => {
                // SAFETY: the queuer keeps the header and its iovecs valid until the completion.
                let parts = unsafe { parts(msg) };
                return self.send(world, token, fd, &parts);
            }
            Op::RecvMulti { group, .. } => {
                if self.groups.get(&group.0).is_none_or(Group::is_empty) {
                    self.complete(token, -libc::ENOBUFS);
                } else {
                    self.wait_on(token, fd, conn, Kind::Multi(group));
                }
            }
            Op::RecvExact { ptr, len, .. } => {
                self.wait_on(token, fd, conn, Kind::Exact { ptr, len: len as usize, done: 0 });
            }
            Op::PollIn { .. } => self.wait_on(token, fd, conn, Kind::PollIn),
            Op::PollOut { .. } => self.wait_on(token, fd, conn, Kind::PollOut),
            Op::Close { .. } => {
                self.close(world, fd);
                self.complete(token, 0);
            }
            Op::Cancel { .. } => {}
        }
        None
    }

    /// Two operations of one name could not be told apart. Cancels may share theirs: each completes
    /// within its own submit.
    fn check_token(&mut self, token: Token, op: &Op) {
        let live = self.live.values().any(|l| l.token == token)
            || self.done.iter().any(|c| c.token == token && !c.more);
        if live && !matches!(op, Op::Cancel { .. }) {
            self.violation(format!("{token:?} queued while an operation of that name is live"));
        }
        if !matches!(op, Op::Cancel { .. }) {
            self.known.insert((token.index(), token.generation()));
        }
    }

    fn wait_on(&mut self, token: Token, fd: RawFd, conn: Option<ConnId>, kind: Kind) {
        self.last_op += 1;
        self.live.insert(self.last_op, Live { token, fd, conn, kind, ending: false });
    }

    fn connect(
        &mut self,
        world: &mut World,
        id: u32,
        token: Token,
        fd: RawFd,
        (addr, len): (*const libc::sockaddr, libc::socklen_t),
    ) {
        // SAFETY: the queuer keeps `addr..addr + len` valid until the completion.
        let Some(to) = (unsafe { endpoint(addr, len) }) else {
            return self.complete(token, -libc::EINVAL);
        };
        let Some(file) = self.files.get_mut(&fd) else { return };
        // A descriptor whose first connect failed may try again.
        if let Some(old) = file.conn {
            match world.conn(old).map(|c| c.connected) {
                Some(None) => return self.complete(token, -libc::EALREADY),
                Some(Some(0)) => return self.complete(token, -libc::EISCONN),
                _ => world.close(old),
            }
        }
        let conn = world.connect(id, to);
        file.conn = Some(conn);
        self.wait_on(token, fd, Some(conn), Kind::Connect);
    }

    /// Sends at once, as much as the socket and the dice allow.
    fn send(
        &mut self,
        world: &mut World,
        token: Token,
        fd: RawFd,
        from: &[(*const u8, usize)],
    ) -> Option<ConnId> {
        let file = self.files.get(&fd)?;
        let (short, again, reset) =
            (world.config.short_send, world.config.send_again, world.config.reset);
        let (short, again, reset) = (world.chance(short), world.chance(again), world.chance(reset));
        let asked: usize = from.iter().map(|(_, len)| len).sum();
        let now = world.now;
        let id = file.conn.filter(|_| !file.shut).unwrap_or(ConnId(0));
        let Some(c) = world.conn(id) else {
            let errno = if file.shut { libc::EPIPE } else { libc::ENOTCONN };
            self.complete(token, -errno);
            return None;
        };
        let room = c.room;
        if c.error.is_some() || c.connected.is_some_and(|r| r != 0) {
            self.complete(token, -libc::EPIPE);
            return None;
        }
        let closed = c.connected.is_none() || c.blocked_until > now || c.room == 0;
        if again && !closed {
            world.block(id);
        }
        if closed || again {
            self.complete(token, -libc::EAGAIN);
            return None;
        }
        let mut take = asked.min(room);
        if short && take > 1 {
            take = world.rng.usize(1..take);
        }
        world.transmit(id, copy_out(from, take));
        self.whole_sends += usize::from(take == asked);
        self.complete(token, take as i32);
        reset.then_some(id)
    }

    fn cancel(&mut self, world: &mut World, id: u32, token: Token, target: Token) {
        // Of a tenant that did queue something, a core may cancel more than is there.
        if !self.known.contains(&(target.index(), target.generation())) {
            self.violation(format!("{token:?}: cancel of {target:?}, whose cell never queued"));
        }
        let found = self.live.iter().find(|(_, l)| l.token == target && !l.ending).map(|(k, _)| *k);
        let Some(key) = found else { return self.complete(token, -libc::ENOENT) };
        let late = world.config.late_cancel;
        let late = world.chance(late);
        // A running operation may take bytes until it ends.
        let running = late && world.rng.bool();
        if late {
            if let Some(live) = self.live.get_mut(&key) {
                live.ending = !running;
            }
            world.end_late(id, key);
        } else if let Some(live) = self.live.remove(&key) {
            self.done.push(live.cancelled());
        }
        self.complete(token, if running { -libc::EALREADY } else { 0 });
    }

    /// The late end of a cancelled operation, unless it completed by itself meanwhile.
    fn end_late(&mut self, op: u64) {
        if let Some(live) = self.live.remove(&op) {
            self.done.push(live.cancelled());
        }
    }

    fn close(&mut self, world: &mut World, fd: RawFd) {
        let Some(file) = self.files.remove(&fd) else {
            return self.violation(format!("close of descriptor {fd}, which is not open"));
        };
        let left: Vec<u64> =
            self.live.iter().filter(|(_, l)| l.fd == fd).map(|(key, _)| *key).collect();
        for key in left {
            if let Some(live) = self.live.remove(&key) {
                self.violation(format!("close of descriptor {fd} under live {:?}", live.token));
                self.done.push(live.cancelled());
            }
        }
        if let Some(conn) = file.conn {
            world.close(conn);
        }
    }

    /// Lets every operation go as far as it can.
    fn pump(&mut self, world: &mut World, id: u32) {
        let keys: Vec<u64> = self.live.keys().copied().collect();
        for key in keys {
            // Taken out while it runs, so that all of `self` can be lent to it.
            let Some(mut live) = self.live.remove(&key) else { continue };
            let over = if live.ending { None } else { self.step(world, id, &mut live) };
            match over {
                Some(Some(result)) => self.complete(live.token, result),
                // Its last completion was its end.
                Some(None) => {}
                None => {
                    self.live.insert(key, live);
                }
            }
        }
    }

    /// One operation. `Some`: it is over, with a completion to be made or without.
    fn step(&mut self, world: &mut World, id: u32, live: &mut Live) -> Option<Option<i32>> {
        let shut = self.files.get(&live.fd).is_none_or(|f| f.shut);
        let now = world.now;
        let conn = live.conn.and_then(|conn| world.conn(conn));
        let Some(c) = conn else {
            let result = match live.kind {
                _ if shut => 0,
                Kind::PollIn | Kind::PollOut => i32::from(libc::POLLHUP),
                _ => -libc::ENOTCONN,
            };
            return Some(Some(result));
        };
        match &mut live.kind {
            Kind::Connect if shut => Some(Some(c.connected.unwrap_or(-libc::ECONNRESET))),
            Kind::Connect => c.connected.map(Some),
            Kind::PollOut => {
                let failed = c.error.is_some() || shut || c.connected.is_some_and(|r| r != 0);
                let takes = c.connected == Some(0) && c.room > 0 && c.blocked_until <= now;
                let mask = if failed { libc::POLLERR | libc::POLLHUP } else { libc::POLLOUT };
                (failed || takes).then_some(Some(i32::from(mask)))
            }
            Kind::PollIn => {
                let ready = !c.inbound.is_empty() || c.ended || c.error.is_some() || shut;
                ready.then_some(Some(i32::from(libc::POLLIN)))
            }
            Kind::Exact { ptr, len, done } => {
                let take = (*len - *done).min(c.inbound.len());
                // SAFETY: the queuer keeps `ptr..ptr + len` untouched until the final completion,
                // which was not given; `done + take <= len`.
                unsafe { copy_in(&mut c.inbound, take, ptr.add(*done)) };
                *done += take;
                if *done == *len {
                    return Some(Some(*done as i32));
                }
                let end = end_of(c.error, c.ended || shut)?;
                Some(Some(if *done > 0 { *done as i32 } else { end }))
            }
            Kind::Multi(group) => {
                let group = *group;
                self.receive_multi(world, id, live, group, shut)
            }
        }
    }

    fn receive_multi(
        &mut self,
        world: &mut World,
        id: u32,
        live: &Live,
        group: GroupId,
        shut: bool,
    ) -> Option<Option<i32>> {
        let conn = live.conn?;
        let (split, no_buffers, end) =
            (world.config.split, world.config.no_buffers, world.config.multishot_end);
        loop {
            let c = world.conn(conn)?;
            if c.inbound.is_empty() {
                return end_of(c.error, c.ended || shut).map(Some);
            }
            let there = c.inbound.len();
            let (split, no_buffers, end) =
                (world.chance(split), world.chance(no_buffers), world.chance(end));
            let group = self.groups.get_mut(&group.0).filter(|_| !no_buffers);
            let Some(group) = group.filter(|g| !g.is_empty()) else {
                // Whoever arms again must be heard, also if nothing new arrives.
                world.look_later(id);
                return Some(Some(-libc::ENOBUFS));
            };
            let (to, space) = group.front()?;
            let mut take = there.min(space as usize);
            if split && take > 1 {
                take = world.rng.usize(1..take);
            }
            let c = world.conn(conn)?;
            // SAFETY: `post` promised `to..to + space` to us until the buffer is consumed, and
            // `take <= space`.
            unsafe { copy_in(&mut c.inbound, take, to) };
            let (index, stays) = group.consume(take as u32)?;
            self.done.push(Completion {
                token: live.token,
                result: take as i32,
                more: !end,
                buffer: Some(index),
                buffer_more: stays,
            });
            if end {
                return Some(None);
            }
        }
    }
}

impl Live {
    fn cancelled(&self) -> Completion {
        match self.kind {
            Kind::Exact { done, .. } if done > 0 => Completion::plain(self.token, done as i32),
            _ => Completion::plain(self.token, -libc::ECANCELED),
        }
    }
}

/// What a receive on a drained socket answers, `None` if it has to wait.
fn end_of(error: Option<i32>, ended: bool) -> Option<i32> {
    error.map(|errno| -errno).or(ended.then_some(0))
}

fn descriptor(op: &Op) -> RawFd {
    match *op {
        Op::Connect { fd, .. } | Op::Send { fd, .. } | Op::SendMsg { fd, .. } => fd,
        Op::RecvMulti { fd, .. } | Op::RecvExact { fd, .. } => fd,
        Op::PollOut { fd } | Op::PollIn { fd } | Op::Close { fd } => fd,
        Op::Cancel { .. } => -1,
    }
}

fn name(op: &Op) -> &'static str {
    match op {
        Op::Connect { .. } => "connect",
        Op::Send { .. } | Op::SendMsg { .. } => "send",
        Op::RecvMulti { .. } | Op::RecvExact { .. } => "receive",
        Op::PollOut { .. } | Op::PollIn { .. } => "poll",
        Op::Cancel { .. } => "cancel",
        Op::Close { .. } => "close",
    }
}

/// The pieces that a message names.
///
/// # Safety
/// `msg` and its `iovec`s are valid for reading.
unsafe fn parts(msg: *const libc::msghdr) -> Vec<(*const u8, usize)> {
    // SAFETY: as the caller promises.
    let (first, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
    (0..count)
        .map(|at| {
            // SAFETY: `at` stays below the number of parts.
            let part = unsafe { *first.add(at) };
            (part.iov_base.cast_const().cast(), part.iov_len)
        })
        .collect()
}

/// The first `take` bytes of what a send names.
fn copy_out(from: &[(*const u8, usize)], take: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(take);
    for &(ptr, len) in from {
        let len = len.min(take - bytes.len());
        if len > 0 {
            // SAFETY: a send's memory is readable until its completion, which is not made yet.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr, len) });
        }
    }
    bytes
}

/// Moves the first `take` bytes of `from` to `to`.
///
/// # Safety
/// `to..to + take` is writable and nobody else reads or writes it now.
unsafe fn copy_in(from: &mut VecDeque<u8>, take: usize, to: *mut u8) {
    let (front, back) = from.as_slices();
    let first = take.min(front.len());
    let second = (take - first).min(back.len());
    // SAFETY: `first + second <= take`, and each is within its slice; the deque's memory is its own.
    unsafe {
        std::ptr::copy_nonoverlapping(front.as_ptr(), to, first);
        std::ptr::copy_nonoverlapping(back.as_ptr(), to.add(first), second);
    }
    from.drain(..take);
}

/// Reads a socket address.
///
/// # Safety
/// `addr..addr + len` is valid for reading.
unsafe fn endpoint(addr: *const libc::sockaddr, len: libc::socklen_t) -> Option<Endpoint> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len as usize) };
    let port = || Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    match i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?])) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Endpoint::Tcp(SocketAddr::new(Ipv4Addr::from(ip).into(), port()?)))
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            let v6 = SocketAddrV6::new(Ipv6Addr::from(ip), port()?, flow, scope);
            Some(Endpoint::Tcp(SocketAddr::V6(v6)))
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..)?.split(|b| *b == 0).next()?;
            Some(Endpoint::Unix(std::ffi::OsStr::from_bytes(path).into()))
        }
        _ => None,
    }
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
