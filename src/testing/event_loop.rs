//! The server's thread: one poller, one pass after another.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::clock::Clock;
use super::commands::{Context, Row, State};
use super::faults::{Admission, Close, Fate, Order, Switchboard};
use super::guest::Guest;
use super::inbox::Filled;
use super::peer::{Flushed, Outbox, Peer, Peers};
use super::reply;
use super::request::{Args, Step};
use super::stats::{Counters, add, subtract};
use super::stream::{Listener, Place, Stream};
use super::timer::Timer;
use super::tracking::{self, Notice};

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
/// Tokens of the listeners begin here; those of connections behind them.
const LISTENERS: usize = 2;
/// Reads of one connection before the others have their turn.
const ROUNDS: usize = 16;
/// Unwritten bytes of a connection at which its requests wait.
const BACKLOG_MAX: usize = 1024 * 1024;
/// Bytes of replies held back on a connection at which its requests wait.
const HELD_MAX: usize = 256 * 1024 * 1024;
/// Largest request, in bytes (`client-query-buffer-limit`); one that grows beyond ends its connection.
const REQUEST_MAX: usize = 1024 * 1024 * 1024;
/// Pause before accepting again after an error such as a full descriptor table.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// A place to listen at, and its listener unless connections are refused.
struct Door {
    place: Place,
    listener: Option<Listener>,
}

/// Everything that the server's thread owns.
pub(super) struct EventLoop {
    poll: Poll,
    doors: Vec<Door>,
    admission: Admission,
    accept_failed: bool,
    peers: Peers,
    /// Connections that had not finished when their turn ended.
    ready: VecDeque<u64>,
    timer: Timer,
    next_id: u64,
    core: Core,
    spin: bool,
}

/// What serving a request needs beside its connection.
struct Core {
    state: State,
    board: Arc<Switchboard>,
    counters: Arc<Counters>,
    clock: Clock,
    random: fastrand::Rng,
    kills: Vec<u64>,
    /// Invalidations for other connections than the one that is served.
    notices: Vec<Notice>,
}

/// What a turn of one connection ended with.
enum Next {
    /// It waits for its socket or its timer.
    Wait,
    /// It has more to do at once.
    Again,
    Close(Close),
}

/// Why running requests stopped.
enum Ran {
    /// All that had arrived.
    All,
    /// Too much is unwritten.
    Backlogged,
    /// A fault ends the connection.
    Cut(Close),
}

impl EventLoop {
    pub(super) fn new(
        listeners: Vec<(Listener, Place)>,
        state: State,
        board: Arc<Switchboard>,
        counters: Arc<Counters>,
        clock: Clock,
        spin: bool,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        board.set_waker(mio::Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut doors = Vec::new();
        for (index, (mut listener, place)) in listeners.into_iter().enumerate() {
            let token = Token(LISTENERS + index);
            poll.registry().register(listener.source(), token, Interest::READABLE)?;
            doors.push(Door { place, listener: Some(listener) });
        }
        let random = fastrand::Rng::new();
        let (kills, notices) = (Vec::new(), Vec::new());
        let core = Core { state, board, counters, clock, random, kills, notices };
        Ok(Self {
            poll,
            doors,
            admission: Admission::Open,
            accept_failed: false,
            peers: Peers::default(),
            ready: VecDeque::new(),
            timer,
            next_id: 1,
            core,
            spin,
        })
    }

    /// Serves until told to stop, or until the poller fails.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.core.board.is_stopping() {
            match self.poll.poll(&mut events, self.patience()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.turn(&events)?;
        }
        self.disconnect_all(Close::End);
        Ok(())
    }

    /// How long to wait for an event.
    fn patience(&self) -> Option<Duration> {
        let paused = self.core.board.is_paused();
        if self.spin || (!self.ready.is_empty() && !paused) {
            Some(Duration::ZERO)
        } else if self.accept_failed {
            Some(ACCEPT_AGAIN)
        } else {
            None
        }
    }

    /// One pass: orders, sockets, leftovers of the last pass, timers.
    fn turn(&mut self, events: &Events) -> io::Result<()> {
        let leftovers = self.ready.len();
        for event in events {
            match event.token() {
                WAKER => self.carry_out_orders(),
                TIMER => self.timer.fired(),
                Token(token) if token < LISTENERS + self.doors.len() => {
                    self.accept(token - LISTENERS);
                }
                Token(token) => {
                    self.serve(self.id_of(token), event.is_read_closed() || event.is_error());
                }
            }
        }
        if self.accept_failed {
            self.accept_everywhere();
        }
        if !self.core.board.is_paused() {
            for _ in 0..leftovers {
                // What ended its turn early had not reached the end of its stream: look for it.
                let Some(id) = self.ready.pop_front() else { break };
                self.serve(id, true);
            }
        }
        self.serve_due()
    }

    fn serve_due(&mut self) -> io::Result<()> {
        if self.timer.is_idle() {
            return Ok(());
        }
        let now = Instant::now();
        while let Some((at, id)) = self.timer.pop_due(now) {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            if peer.wake_set == Some(at) {
                peer.wake_set = None;
                self.serve(id, false);
            }
        }
        if self.spin { Ok(()) } else { self.timer.arm(Instant::now()) }
    }

    fn token_of(&self, id: u64) -> Token {
        Token(LISTENERS + self.doors.len() + usize::try_from(id).unwrap_or(usize::MAX / 2))
    }

    fn id_of(&self, token: usize) -> u64 {
        token.saturating_sub(LISTENERS + self.doors.len()) as u64
    }

    fn accept_everywhere(&mut self) {
        self.accept_failed = false;
        for index in 0..self.doors.len() {
            self.accept(index);
        }
    }

    /// Accepts all that wait at one door.
    fn accept(&mut self, index: usize) {
        if self.core.board.is_paused() || self.admission == Admission::Ignore {
            return;
        }
        let closed = self.doors.get(index).is_some_and(|door| door.listener.is_none());
        if closed && self.admission != Admission::Refuse {
            let token = Token(LISTENERS + index);
            let Some(door) = self.doors.get_mut(index) else { return };
            self.accept_failed |= door.open(self.poll.registry(), token).is_err();
        }
        while let Some(Door { place, listener: Some(listener) }) = self.doors.get(index) {
            match listener.accept() {
                Ok((stream, from)) => {
                    let at = place.label();
                    self.welcome(stream, from, at);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_transient(&error) => {}
                Err(_) => {
                    self.accept_failed = true;
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, mut stream: Stream, from: String, at: String) {
        add(&self.core.counters.accepted, 1);
        match self.admission {
            Admission::CloseAtOnce => return stream.close(Close::End),
            Admission::ResetAtOnce => return stream.close(Close::Reset),
            Admission::Open | Admission::Refuse | Admission::Ignore => {}
        }
        let id = self.next_id;
        if stream.register(self.poll.registry(), self.token_of(id)).is_err() {
            // The descriptor cannot be watched: closing it tells the client.
            return;
        }
        self.next_id += 1;
        let address = if from.is_empty() { at.clone() } else { from };
        let open = self.core.state.profile.is_open();
        let guest = Guest::new(id, address, at, self.core.clock.now_ms(), open);
        self.peers.insert(id, Box::new(Peer::new(stream, guest)));
        add(&self.core.counters.open, 1);
    }

    /// Gives one connection its turn.
    fn serve(&mut self, id: u64, may_have_ended: bool) {
        if self.core.board.is_paused() {
            self.ready.push_back(id);
            return;
        }
        let Some(mut peer) = self.peers.remove(&id) else { return };
        match self.core.serve(&mut peer, &self.peers, may_have_ended) {
            Next::Close(close) => self.close(*peer, close),
            next => {
                if matches!(next, Next::Again) {
                    self.ready.push_back(id);
                }
                if let Some(at) = peer.outbox.next_wake().filter(|at| peer.wake_set != Some(*at)) {
                    peer.wake_set = Some(at);
                    self.timer.wake_at(at, id);
                }
                self.peers.insert(id, peer);
            }
        }
        while let Some(killed) = self.core.kills.pop() {
            if let Some(peer) = self.peers.remove(&killed) {
                self.close(*peer, Close::End);
            }
        }
        self.tell();
    }

    /// Puts invalidations behind the replies of those whom they are for.
    fn tell(&mut self) {
        for (id, key) in self.core.notices.drain(..) {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            let mut bytes = Vec::new();
            tracking::write(&mut bytes, peer.guest.protocol, key.as_deref());
            put(&mut peer.outbox, Instant::now(), Duration::ZERO, bytes);
            // Its next turn writes them.
            self.ready.push_back(id);
        }
    }

    fn close(&mut self, peer: Peer, close: Close) {
        subtract(&self.core.counters.open, 1);
        self.core.state.tracking.stop(peer.guest.id);
        peer.stream.close(close);
    }

    fn carry_out_orders(&mut self) {
        for (order, done) in self.core.board.take_orders() {
            match order {
                Order::Admit(admission) => self.admit(admission),
                Order::DisconnectAll(close) => self.disconnect_all(close),
            }
            // Nobody may be waiting any more.
            let _ = done.send(());
        }
        // A resume comes without an order; what waited at the doors meanwhile gives no new event.
        self.accept_everywhere();
    }

    fn disconnect_all(&mut self, close: Close) {
        for (_, peer) in std::mem::take(&mut self.peers) {
            self.close(*peer, close);
        }
    }

    fn admit(&mut self, admission: Admission) {
        self.admission = admission;
        for (index, door) in self.doors.iter_mut().enumerate() {
            let token = Token(LISTENERS + index);
            if admission == Admission::Refuse {
                door.listener = None;
            } else if door.listener.is_none() {
                // Fails while something else has taken the port: the next passes try again.
                let _ = door.open(self.poll.registry(), token);
            }
        }
    }
}

impl Door {
    /// Listens again at the same place.
    fn open(&mut self, registry: &mio::Registry, token: Token) -> io::Result<()> {
        if let Place::Unix(path) = &self.place {
            // Our own socket file of before: a bind finds it in its way.
            let _ = std::fs::remove_file(path);
        }
        let (mut listener, _) = Listener::bind(&self.place)?;
        registry.register(listener.source(), token, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }
}

/// Errors of accept that belong to one connection, gone before it was taken.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

impl Core {
    /// Reads, runs and answers, until the socket is empty or its turn is over.
    fn serve(&mut self, peer: &mut Peer, peers: &Peers, may_have_ended: bool) -> Next {
        let now = Instant::now();
        let mut more = true;
        for _ in 0..ROUNDS {
            // After the read: what is sent once `pause` has returned must wait.
            if self.board.is_paused() {
                return Next::Again;
            }
            let ran = self.run_requests(peer, peers, now);
            let flushed = self.flush(peer, now);
            match (ran, flushed) {
                (_, Err(_)) => return Next::Close(Close::End),
                (_, Ok(Flushed::Cut(cut))) => {
                    self.board.byte_cut_done(cut.serial);
                    return Next::Close(cut.close);
                }
                (Ran::Cut(close), Ok(_)) => return Next::Close(close),
                (Ran::Backlogged, Ok(_)) if peer.outbox.is_empty() => continue,
                // The socket or the timer brings it back.
                (Ran::Backlogged, Ok(_)) => return Next::Wait,
                (Ran::All, Ok(_)) => {}
            }
            if peer.is_finished() {
                return Next::Close(Close::End);
            }
            if peer.ended || peer.guest.closing || !more {
                return Next::Wait;
            }
            match peer.inbox.fill(&mut peer.stream) {
                Ok(Filled::Some(count)) => add(&self.counters.bytes_in, count as u64),
                Ok(Filled::All(count)) => {
                    add(&self.counters.bytes_in, count as u64);
                    // The socket was empty; unless its end was reported, the next byte is a new
                    // event.
                    more = may_have_ended;
                }
                Ok(Filled::Nothing) => return Next::Wait,
                Ok(Filled::End) => peer.ended = true,
                Err(_) => return Next::Close(Close::End),
            }
        }
        Next::Again
    }

    fn flush(&self, peer: &mut Peer, now: Instant) -> io::Result<Flushed> {
        if peer.outbox.is_empty() {
            return Ok(Flushed::All);
        }
        let before = peer.outbox.total();
        let flushed = peer.outbox.flush(&mut peer.stream, &self.board.pace(), now);
        add(&self.counters.bytes_out, peer.outbox.total() - before);
        flushed
    }

    /// Runs the requests that have arrived whole.
    fn run_requests(&mut self, peer: &mut Peer, peers: &Peers, now: Instant) -> Ran {
        let now_ms = self.clock.now_ms();
        let mut count = 0;
        let ran = loop {
            if peer.guest.closing {
                break Ran::All;
            }
            if peer.outbox.backlog() > BACKLOG_MAX || peer.outbox.held_bytes() > HELD_MAX {
                break Ran::Backlogged;
            }
            match peer.parser.parse(peer.inbox.bytes(), peer.guest.authenticated) {
                Step::Request => {
                    count += 1;
                    let cut = self.run_request(peer, peers, now, now_ms);
                    peer.inbox.consume(peer.parser.finish());
                    if let Some(close) = cut {
                        break Ran::Cut(close);
                    }
                }
                Step::More(need) => {
                    peer.inbox.want(need);
                    peer.guest.closing |= peer.inbox.bytes().len() > REQUEST_MAX;
                    break Ran::All;
                }
                Step::Broken(text) => {
                    let mut bytes = Vec::new();
                    reply::error(&mut bytes, &format!("ERR Protocol error: {text}"));
                    put(&mut peer.outbox, now, Duration::ZERO, bytes);
                    peer.guest.closing = true;
                    break Ran::All;
                }
            }
        };
        if count > 0 {
            peer.guest.last_used_ms = now_ms;
            add(&self.counters.commands, count);
        }
        ran
    }

    /// Runs one request; says if a fault ends the connection.
    fn run_request(
        &mut self,
        peer: &mut Peer,
        peers: &Peers,
        now: Instant,
        now_ms: u64,
    ) -> Option<Close> {
        let Peer { parser, inbox, guest, outbox, .. } = peer;
        let args = parser.args(inbox.bytes());
        if !self.board.is_armed() && outbox.nothing_held() {
            self.run(guest, &mut outbox.due, peers, args, now_ms);
            return None;
        }
        let mut bytes = Vec::new();
        let reads = self.state.table.find(args.at(0)).is_some_and(Row::reads_keys);
        let delay = match self.board.judge(args.at(0), reads, &mut self.random) {
            Fate::Run { delay } => {
                self.run(guest, &mut bytes, peers, args, now_ms);
                delay
            }
            Fate::RunUnanswered => {
                self.run(guest, &mut bytes, peers, args, now_ms);
                return None;
            }
            Fate::Fail { text, delay } => {
                reply::error(&mut bytes, &text);
                delay
            }
            Fate::Cut { run, close } => {
                if run {
                    self.run(guest, &mut bytes, peers, args, now_ms);
                }
                return Some(close);
            }
        };
        put(outbox, now, delay, bytes);
        None
    }

    fn run(
        &mut self,
        guest: &mut Guest,
        out: &mut Vec<u8>,
        roster: &Peers,
        args: Args<'_>,
        now_ms: u64,
    ) {
        let mut context = Context {
            guest,
            state: &mut self.state,
            out,
            roster,
            counters: &self.counters,
            kills: &mut self.kills,
            now_ms,
        };
        context.run(args);
        if !self.state.tracking.is_off() {
            self.sort_notices(guest, out);
        }
    }

    /// Writes a connection's own invalidations behind its reply, and keeps those of the others.
    fn sort_notices(&mut self, guest: &Guest, out: &mut Vec<u8>) {
        for (id, key) in self.state.tracking.take_notices() {
            if id == guest.id {
                tracking::write(out, guest.protocol, key.as_deref());
            } else {
                self.notices.push((id, key));
            }
        }
    }
}

/// Puts a reply behind those before it.
fn put(outbox: &mut Outbox, now: Instant, delay: Duration, bytes: Vec<u8>) {
    if delay.is_zero() && outbox.nothing_held() {
        outbox.due.extend_from_slice(&bytes);
    } else {
        outbox.hold(now + delay, bytes);
    }
}
