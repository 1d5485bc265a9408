//! What a simulated kernel holds, and how its operations go: started, stepped, cancelled, ended.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;

use super::memory::{copy_in, copy_out, endpoint, parts};
use super::net::{ConnId, World};
use crate::group::Group;
use crate::op::{Completion, GroupId, Op, Token};
use crate::time::Instant;

#[derive(Default)]
pub(super) struct State {
    pub(super) armed: Option<Instant>,
    pub(super) queued: Vec<(Token, Op)>,
    pub(super) files: BTreeMap<RawFd, File>,
    pub(super) groups: BTreeMap<u16, Group>,
    /// Unfinished operations in the order of their submission.
    pub(super) live: BTreeMap<u64, Live>,
    last_op: u64,
    /// Every cell and generation that ever queued something.
    known: BTreeSet<(u32, u32)>,
    /// Done and not yet returned.
    pub(super) done: Vec<Completion>,
    /// Of these: sends that went out whole, which end no wait.
    pub(super) whole_sends: usize,
    pub(super) violations: Vec<String>,
    pub(super) deadlock: bool,
    pub(super) enters: u64,
    pub(super) trace: u64,
}

#[derive(Default)]
pub(super) struct File {
    conn: Option<ConnId>,
    pub(super) shut: bool,
}

pub(super) struct Live {
    pub(super) token: Token,
    fd: RawFd,
    conn: Option<ConnId>,
    pub(super) kind: Kind,
    /// Cancelled; its completion is on its way.
    ending: bool,
}

pub(super) enum Kind {
    Connect,
    Multi(GroupId),
    Exact { ptr: *mut u8, len: usize, done: usize },
    PollIn,
    PollOut,
}

impl State {
    /// Empty, with the trace at the basis of FNV-1a.
    pub(super) fn new() -> State {
        State { trace: 0xcbf2_9ce4_8422_2325, ..State::default() }
    }

    pub(super) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    fn complete(&mut self, token: Token, result: i32) {
        self.done.push(Completion::plain(token, result));
    }

    /// Folds a completion into the trace (FNV-1a over its fields).
    pub(super) fn note(&mut self, now: Instant, c: &Completion) {
        let flags = u64::from(c.more) | u64::from(c.buffer_more) << 1;
        let buffer = c.buffer.map_or(u64::MAX, u64::from);
        for word in [now.as_nanos(), c.token.0, c.result as u64, flags, buffer] {
            for byte in word.to_le_bytes() {
                self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    /// Starts one operation; answers a connection that is to be reset.
    pub(super) fn start(
        &mut self,
        world: &mut World,
        id: u32,
        token: Token,
        op: Op,
    ) -> Option<ConnId> {
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
    pub(super) fn end_late(&mut self, op: u64) {
        if let Some(live) = self.live.remove(&op) {
            self.done.push(live.cancelled());
        }
    }

    pub(super) fn close(&mut self, world: &mut World, fd: RawFd) {
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
    pub(super) fn pump(&mut self, world: &mut World, id: u32) {
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
