//! The simulated network: listeners, connections, the virtual clock and what is on the wire.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;

use super::{Sim, SimConfig};
use crate::time::Instant;

/// When an unanswered connect fails by itself, as Linux does by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);

/// Names one simulated connection; never used twice in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The other side of connections: a model server. One peer serves all connections of a listener.
pub trait Peer {
    /// A connection was made.
    fn on_connect(&mut self, _now: Instant, _conn: ConnId, _out: &mut PeerOut) {}
    /// Bytes of `conn` arrived, in order; pieces have any size.
    fn on_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8], out: &mut PeerOut);
    /// The other side closed, or the connection was reset. Nothing more comes of it.
    fn on_close(&mut self, _now: Instant, _conn: ConnId) {}
    /// An alarm set by [`PeerOut::alarm`] came.
    fn on_alarm(&mut self, _now: Instant, _conn: ConnId, _out: &mut PeerOut) {}
}

/// What a peer does in answer to something; delays are its own and come on top of the wire's.
#[derive(Debug, Default)]
pub struct PeerOut(Vec<(ConnId, Duration, Action)>);

#[derive(Debug)]
enum Action {
    Send(Vec<u8>),
    End,
    Reset,
    Alarm,
    Pause,
}

impl PeerOut {
    /// Sends `bytes` on `conn` after `delay`. Bytes of one connection keep their order.
    pub fn send(&mut self, conn: ConnId, delay: Duration, bytes: impl Into<Vec<u8>>) {
        self.0.push((conn, delay, Action::Send(bytes.into())));
    }

    /// Ends the peer's direction after `delay`, behind all that was sent.
    pub fn end(&mut self, conn: ConnId, delay: Duration) {
        self.0.push((conn, delay, Action::End));
    }

    /// Resets the connection after `delay`.
    pub fn reset(&mut self, conn: ConnId, delay: Duration) {
        self.0.push((conn, delay, Action::Reset));
    }

    /// Calls [`Peer::on_alarm`] after `delay`.
    pub fn alarm(&mut self, conn: ConnId, delay: Duration) {
        self.0.push((conn, delay, Action::Alarm));
    }

    /// Reads nothing of `conn` for `time`: its sender meets a full socket.
    pub fn pause_reading(&mut self, conn: ConnId, time: Duration) {
        self.0.push((conn, time, Action::Pause));
    }
}

/// A simulated network with its clock. Clones are the same network. Everything random in it, and in
/// the kernels on it, follows from the seed of its [`SimConfig`].
#[derive(Clone)]
pub struct SimNet(pub(super) Rc<RefCell<World>>);

type SharedPeer = Rc<RefCell<dyn Peer>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) config: SimConfig,
    /// How many kernels were made on it.
    pub(super) kernels: u32,
    /// Cancelled operations whose late end has come: kernel, and its number of the operation.
    pub(super) late: Vec<(u32, u64)>,
    listeners: BTreeMap<Endpoint, SharedPeer>,
    conns: BTreeMap<ConnId, Conn>,
    last_conn: u64,
    /// By instant, then in the order of their making.
    events: BTreeMap<(Instant, u64), Event>,
    last_event: u64,
}

/// One connection, seen from the kernel's side.
pub(super) struct Conn {
    owner: u32,
    to: Endpoint,
    peer: Option<SharedPeer>,
    /// The outcome of the connect, once known: 0 or `-errno`.
    pub(super) connected: Option<i32>,
    /// Arrived and not yet received.
    pub(super) inbound: VecDeque<u8>,
    /// The peer's direction ended behind `inbound`.
    pub(super) ended: bool,
    /// The error behind `inbound`, as an errno.
    pub(super) error: Option<i32>,
    /// Bytes that a send may still take.
    pub(super) room: usize,
    /// Sends answer `EAGAIN` until then.
    pub(super) blocked_until: Instant,
    /// This side sends no more.
    pub(super) shut: bool,
    last_in: Instant,
    last_out: Instant,
    paused_until: Instant,
    /// Bytes that the peer may still send before its answers vanish.
    unmuted: Option<usize>,
}

enum Event {
    Connected(ConnId),
    Failed(ConnId, i32),
    ToPeer(ConnId, Vec<u8>),
    FromPeer(ConnId, Vec<u8>),
    PeerEnd(ConnId),
    Reset(ConnId),
    Closed(ConnId),
    Alarm(ConnId),
    /// Something about a connection is to be looked at again.
    Look(u32),
    Late(u32, u64),
    Call(Box<dyn FnOnce(&SimNet)>),
}

impl SimNet {
    /// A network without listeners, its clock at 1 s.
    pub fn new(config: SimConfig) -> SimNet {
        SimNet(Rc::new(RefCell::new(World {
            now: Instant::from_nanos(1_000_000_000),
            rng: Rng::with_seed(config.seed),
            config,
            kernels: 0,
            late: Vec::new(),
            listeners: BTreeMap::new(),
            conns: BTreeMap::new(),
            last_conn: 0,
            events: BTreeMap::new(),
            last_event: 0,
        })))
    }

    /// A kernel on this network. With several, turn them in a fixed order: each returns as soon as
    /// something happened to another one.
    pub fn kernel(&self) -> Sim {
        Sim::new(self.clone())
    }

    /// Puts `peer` behind a TCP address, in place of the one before.
    pub fn listen(&self, at: SocketAddr, peer: impl Peer + 'static) {
        self.listen_shared(at, Rc::new(RefCell::new(peer)));
    }

    /// As [`SimNet::listen`], for a peer that the caller keeps a hold on.
    pub fn listen_shared(&self, at: SocketAddr, peer: Rc<RefCell<dyn Peer>>) {
        self.0.borrow_mut().listeners.insert(Endpoint::Tcp(at), peer);
    }

    /// Puts `peer` behind the path of a Unix socket.
    pub fn listen_unix(&self, at: &Path, peer: impl Peer + 'static) {
        let peer: SharedPeer = Rc::new(RefCell::new(peer));
        self.0.borrow_mut().listeners.insert(Endpoint::Unix(at.to_owned()), peer);
    }

    /// Refuses new connections to `at`; those that exist live on.
    pub fn unlisten(&self, at: SocketAddr) {
        self.0.borrow_mut().listeners.remove(&Endpoint::Tcp(at));
    }

    /// Resets every connection to `at`, as when its server dies.
    pub fn cut(&self, at: SocketAddr) {
        let at = Endpoint::Tcp(at);
        let world = self.0.borrow();
        let cut: Vec<ConnId> =
            world.conns.iter().filter(|(_, c)| c.to == at).map(|(id, _)| *id).collect();
        drop(world);
        for conn in cut {
            self.reset(conn);
        }
    }

    /// Does what `act` asks, as a peer would in answer to bytes (for pushes and scenarios).
    pub fn act(&self, act: impl FnOnce(&mut PeerOut)) {
        let mut out = PeerOut::default();
        act(&mut out);
        self.0.borrow_mut().apply(out);
    }

    /// Calls `then` when the clock has gone on by `after`.
    pub fn schedule(&self, after: Duration, then: impl FnOnce(&SimNet) + 'static) {
        let mut world = self.0.borrow_mut();
        let at = world.now + after;
        world.add(at, Event::Call(Box::new(then)));
    }

    /// The virtual clock.
    pub fn now(&self) -> Instant {
        self.0.borrow().now
    }

    /// Connections that are being made or exist.
    pub fn connections(&self) -> usize {
        self.0.borrow().conns.len()
    }

    /// The instant of the next event.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.0.borrow().events.keys().next().map(|(at, _)| *at)
    }

    /// Carries out all that is due. `true` if another kernel than `kernel` is concerned.
    pub(super) fn run_due(&self, kernel: u32) -> bool {
        let mut foreign = false;
        loop {
            let mut world = self.0.borrow_mut();
            let now = world.now;
            let Some(entry) = world.events.first_entry().filter(|e| e.key().0 <= now) else {
                return foreign;
            };
            let event = entry.remove();
            let owner = event.conn().and_then(|c| world.conns.get(&c)).map(|c| c.owner);
            drop(world);
            let owner = match &event {
                Event::Look(owner) | Event::Late(owner, _) => Some(*owner),
                _ => owner,
            };
            foreign |= owner.is_some_and(|o| o != kernel);
            self.carry_out(event);
        }
    }

    fn carry_out(&self, event: Event) {
        match event {
            Event::Connected(conn) => {
                if self.0.borrow_mut().on_connected(conn) {
                    self.tell(conn, |peer, now, out| peer.on_connect(now, conn, out));
                }
            }
            Event::Failed(conn, errno) => self.0.borrow_mut().fail(conn, errno),
            Event::ToPeer(conn, bytes) => self.deliver_to_peer(conn, bytes),
            Event::FromPeer(conn, bytes) => self.deliver(conn, &bytes),
            Event::PeerEnd(conn) => {
                if let Some(c) = self.0.borrow_mut().conns.get_mut(&conn) {
                    c.ended = true;
                }
            }
            Event::Reset(conn) => self.reset(conn),
            Event::Closed(conn) => {
                let mut world = self.0.borrow_mut();
                let paused = world.conns.get(&conn).map_or(Instant::ZERO, |c| c.paused_until);
                if paused > world.now {
                    return world.add(paused, Event::Closed(conn));
                }
                drop(world);
                self.tell(conn, |peer, now, _| peer.on_close(now, conn));
                self.0.borrow_mut().conns.remove(&conn);
            }
            Event::Alarm(conn) => self.tell(conn, |peer, now, out| peer.on_alarm(now, conn, out)),
            Event::Look(_) => {}
            Event::Late(kernel, op) => self.0.borrow_mut().late.push((kernel, op)),
            Event::Call(then) => then(self),
        }
    }

    /// Calls the peer of `conn` with nothing borrowed, then does what it asked for.
    fn tell(&self, conn: ConnId, call: impl FnOnce(&mut dyn Peer, Instant, &mut PeerOut)) {
        let world = self.0.borrow();
        let now = world.now;
        let peer =
            world.conns.get(&conn).filter(|c| c.error.is_none()).and_then(|c| c.peer.clone());
        drop(world);
        if let Some(peer) = peer {
            let mut out = PeerOut::default();
            call(&mut *peer.borrow_mut(), now, &mut out);
            self.0.borrow_mut().apply(out);
        }
    }

    fn deliver_to_peer(&self, conn: ConnId, bytes: Vec<u8>) {
        let mut world = self.0.borrow_mut();
        let now = world.now;
        let Some(c) = world.conns.get_mut(&conn) else { return };
        if c.paused_until > now {
            let at = c.paused_until;
            return world.add(at, Event::ToPeer(conn, bytes));
        }
        c.room += bytes.len();
        drop(world);
        self.tell(conn, |peer, now, out| peer.on_bytes(now, conn, &bytes, out));
    }

    fn deliver(&self, conn: ConnId, bytes: &[u8]) {
        let mut world = self.0.borrow_mut();
        let (reset, half) = (world.config.reset, world.config.half_close);
        let (reset, half) = (world.chance(reset), world.chance(half));
        let Some(c) = world.conns.get_mut(&conn) else { return };
        if !c.ended && c.error.is_none() && !c.shut {
            c.inbound.extend(bytes);
            c.ended |= half;
        }
        drop(world);
        if reset {
            self.reset(conn);
        }
    }

    /// Resets a connection; bytes that arrived are still there or lost, as it happens.
    pub(super) fn reset(&self, conn: ConnId) {
        self.tell(conn, |peer, now, _| peer.on_close(now, conn));
        let mut world = self.0.borrow_mut();
        let purge = world.rng.bool();
        if let Some(c) = world.conns.get_mut(&conn) {
            c.error.get_or_insert(libc::ECONNRESET);
            c.connected.get_or_insert(-libc::ECONNRESET);
            if purge {
                c.inbound.clear();
            }
        }
    }
}

impl std::fmt::Debug for SimNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNet").finish_non_exhaustive()
    }
}

impl Event {
    fn conn(&self) -> Option<ConnId> {
        match self {
            Event::Connected(c) | Event::Failed(c, _) | Event::ToPeer(c, _) => Some(*c),
            Event::FromPeer(c, _) | Event::PeerEnd(c) | Event::Reset(c) => Some(*c),
            Event::Closed(c) | Event::Alarm(c) => Some(*c),
            Event::Look(_) | Event::Late(..) | Event::Call(_) => None,
        }
    }
}

impl World {
    /// Throws the dice. No number is drawn for a fault that is off.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }

    /// A time on the wire.
    pub(super) fn delay(&mut self) -> Duration {
        let mut delay = self.config.delay_min;
        if !self.config.delay_extra.is_zero() {
            // 1 - [0, 1) is never zero, so the logarithm is finite.
            delay += self.config.delay_extra.mul_f64(-(1.0 - self.rng.f64()).ln());
        }
        let tail = self.config.delay_tail;
        if self.chance(tail) { delay * 50 } else { delay }
    }

    fn add(&mut self, at: Instant, event: Event) {
        self.last_event += 1;
        self.events.insert((at, self.last_event), event);
    }

    pub(super) fn conn(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&conn)
    }

    /// Starts a connection of kernel `owner`; its `connected` tells the outcome.
    pub(super) fn connect(&mut self, owner: u32, to: Endpoint) -> ConnId {
        self.last_conn += 1;
        let id = ConnId(self.last_conn);
        let (refuse, blackhole, mute) =
            (self.config.refuse, self.config.blackhole, self.config.mute);
        let at = self.now + self.delay() + self.delay();
        if self.chance(blackhole) {
            let at = self.now + CONNECT_TIMEOUT;
            self.add(at, Event::Failed(id, libc::ETIMEDOUT));
        } else if self.chance(refuse) {
            self.add(at, Event::Failed(id, libc::ECONNREFUSED));
        } else {
            self.add(at, Event::Connected(id));
        }
        let unmuted = self.chance(mute).then(|| self.rng.usize(0..4096));
        let conn = Conn {
            owner,
            to,
            peer: None,
            connected: None,
            inbound: VecDeque::new(),
            ended: false,
            error: None,
            room: self.config.send_buffer,
            blocked_until: Instant::ZERO,
            shut: false,
            last_in: self.now,
            last_out: self.now,
            paused_until: Instant::ZERO,
            unmuted,
        };
        self.conns.insert(id, conn);
        id
    }

    fn on_connected(&mut self, conn: ConnId) -> bool {
        let Some(c) = self.conns.get_mut(&conn).filter(|c| c.connected.is_none()) else {
            return false;
        };
        c.peer = self.listeners.get(&c.to).cloned();
        c.connected = Some(if c.peer.is_some() { 0 } else { -libc::ECONNREFUSED });
        c.peer.is_some()
    }

    fn fail(&mut self, conn: ConnId, errno: i32) {
        if let Some(c) = self.conns.get_mut(&conn) {
            c.connected.get_or_insert(-errno);
        }
    }

    /// Puts bytes on the wire to the peer.
    pub(super) fn transmit(&mut self, conn: ConnId, bytes: Vec<u8>) {
        let at = self.now + self.delay();
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.room = c.room.saturating_sub(bytes.len());
        c.last_out = c.last_out.max(at);
        let at = c.last_out;
        self.add(at, Event::ToPeer(conn, bytes));
    }

    /// The socket takes no bytes for a while.
    pub(super) fn block(&mut self, conn: ConnId) {
        let at = self.now + self.delay();
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.blocked_until = at;
        let owner = c.owner;
        self.add(at, Event::Look(owner));
    }

    /// This side is done with `conn`: the peer hears of it behind all that was sent.
    pub(super) fn close(&mut self, conn: ConnId) {
        let at = self.now + self.delay();
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.peer.is_none() || c.error.is_some() {
            // A connect that nobody has accepted, or a reset that the peer knows of.
            self.conns.remove(&conn);
            return;
        }
        c.shut = true;
        let at = at.max(c.last_out).max(c.paused_until);
        self.add(at, Event::Closed(conn));
    }

    /// Lets the cancelled operation `op` of `kernel` end late.
    pub(super) fn end_late(&mut self, kernel: u32, op: u64) {
        let at = self.now + (self.delay() + self.delay()) * 4;
        self.add(at, Event::Late(kernel, op));
    }

    /// Looks at kernel `owner` again after a while.
    pub(super) fn look_later(&mut self, owner: u32) {
        let at = self.now + self.delay();
        self.add(at, Event::Look(owner));
    }

    fn apply(&mut self, out: PeerOut) {
        for (conn, delay, action) in out.0 {
            let now = self.now;
            let wire = now + delay + self.delay();
            let Some(c) = self.conns.get_mut(&conn) else { continue };
            match action {
                Action::Alarm => self.add(now + delay, Event::Alarm(conn)),
                Action::Pause => c.paused_until = c.paused_until.max(now + delay),
                Action::Reset => self.add(wire, Event::Reset(conn)),
                Action::End => {
                    c.last_in = c.last_in.max(wire);
                    let at = c.last_in;
                    self.add(at, Event::PeerEnd(conn));
                }
                Action::Send(mut bytes) => {
                    if let Some(left) = &mut c.unmuted {
                        bytes.truncate(*left);
                        *left -= bytes.len();
                    }
                    if !bytes.is_empty() {
                        c.last_in = c.last_in.max(wire);
                        let at = c.last_in;
                        self.add(at, Event::FromPeer(conn, bytes));
                    }
                }
            }
        }
    }
}
