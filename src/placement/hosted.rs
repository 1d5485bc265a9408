//! An engine inside the caller's tokio runtime: no hop, no ring, no thread of our own.
//!
//! The engine stands behind a short lock. Under it `Outside` only records; sends and wakes happen
//! after it was let go. Commands of many tasks share a send: with nothing in flight a command goes
//! out at once, else the first to queue wakes itself and sends for all on its second poll. That
//! promise is made only while a reply is due; the reader (after its bytes) and the deadline sweep
//! keep it too, so a request that is never polled again stalls nobody.

mod out;
mod received;
mod wire;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use hedgerow_runtime::Progress;
use hedgerow_runtime::time::Instant;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::boards;
use super::stream::{ReadHalf, WriteHalf, connect};
use crate::client::request::Place;
use crate::config::{Endpoint, Keepalive, Options};
use crate::engine::{Engine, Line, LinkId, Received};
use crate::error::{Error, ErrorKind, Fate};
use crate::topology::{Board, Topology};
use out::{Ask, HostOut, Number, Todo};
use received::{Chunk, HostRx, READ_AHEAD, READ_BUFFER, make_room};
use wire::{Sender, Wire, write};

/// One engine with its connections.
struct Lane {
    engine: Mutex<Engine<HostOut>>,
    /// By link. Read by every flush, without a lock; only grows.
    wires: boxcar::Vec<Arc<Wire>>,
    timer: AsyncFd<OwnedFd>,
    /// Which arming is in the timer.
    armed: Mutex<u64>,
    /// The timer's task, which holds the lane until the engine is closed.
    timekeeper: Mutex<Option<AbortHandle>>,
    runtime: Handle,
}

#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing of a user runs under our locks, so a poisoned one holds no half-made state of theirs.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// Lets `f` have the engine; everything that it asked for is done after the lock, and what a
    /// request has promised to send is left to it.
    fn with<T>(self: &Arc<Lane>, f: impl FnOnce(&mut Engine<HostOut>, Instant) -> T) -> T {
        let (value, todo) = self.locked(Instant::now(), f);
        if todo.dirty && !todo.promised {
            self.flush();
        }
        self.act(todo);
        value
    }

    /// As [`Lane::with`] for the reader and the deadlines, which keep promises too: a request that
    /// is never polled again must not stall the others.
    fn drive<T>(self: &Arc<Lane>, f: impl FnOnce(&mut Engine<HostOut>, Instant) -> T) -> T {
        let (value, todo) = self.locked(Instant::now(), |engine, now| {
            engine.look_at_board(now);
            f(engine, now)
        });
        if todo.dirty {
            self.flush();
        }
        self.act(todo);
        value
    }

    /// Follows what is published of its deployment, also while nothing happens here.
    fn follow(self: &Arc<Lane>, board: Arc<Board>) {
        let weak = Arc::downgrade(self);
        let call = move || {
            if let Some(lane) = weak.upgrade() {
                let runtime = lane.runtime.clone();
                runtime.spawn(async move { lane.drive(|_, _| ()) });
            }
        };
        lock(&self.engine).follow(board, true, Box::new(call));
    }

    fn locked<T>(
        &self,
        now: Instant,
        f: impl FnOnce(&mut Engine<HostOut>, Instant) -> T,
    ) -> (T, Todo) {
        let mut engine = lock(&self.engine);
        let value = f(&mut engine, now);
        let todo = Todo::take(&mut engine);
        (value, todo)
    }

    fn act(self: &Arc<Lane>, mut todo: Todo) {
        for ask in todo.asks {
            match ask {
                Ask::Connect(link, number, endpoint, by, keepalive) => {
                    self.begin(&self.wire(link), number, endpoint, by, keepalive);
                }
                Ask::Close(link, number) => self.wire(link).hang_up(number),
                Ask::Coordinate(board) => boards::start(&board),
            }
        }
        if todo.closed {
            self.retire();
        }
        if let Some((arms, at)) = todo.arm {
            self.set_timer(arms, at);
        }
        super::each(&mut todo.lines, Line::say);
        super::each(&mut todo.wakes, Waker::wake);
    }

    fn set_timer(&self, arms: u64, at: Instant) {
        // Of two threads the one that asked last wins, whichever comes here first.
        let mut armed = lock(&self.armed);
        if arms <= *armed {
            return;
        }
        *armed = arms;
        let ns = if at == Instant::NEVER { 0 } else { at.as_nanos().max(1) };
        let value =
            Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let new = Itimerspec { it_interval: interval, it_value: value };
        // It fails only for invalid arguments, which these are not.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &new);
    }

    // --- Sending -------------------------------------------------------------------------------

    /// Sends what is queued on any link.
    fn flush(self: &Arc<Lane>) {
        loop {
            let (link, is_last) = {
                let mut engine = lock(&self.engine);
                let out = engine.out();
                out.promised = false;
                (out.dirty.pop(), out.dirty.is_empty())
            };
            let Some(link) = link else { return };
            match self.wires.get(link.0 as usize) {
                Some(wire) => self.flush_wire(wire),
                None => self.flush_wire(&self.wire(link)),
            }
            if is_last {
                return;
            }
        }
    }

    /// Sends what is queued on a link, unless somebody is at it, who then goes on with ours.
    fn flush_wire(self: &Arc<Lane>, wire: &Arc<Wire>) {
        wire.again.store(true, Ordering::SeqCst);
        while wire.again.load(Ordering::SeqCst) {
            let Ok(mut sender) = wire.sender.try_lock() else { return };
            while wire.again.swap(false, Ordering::SeqCst) {
                self.send(wire, &mut sender);
            }
        }
    }

    fn send(self: &Arc<Lane>, wire: &Arc<Wire>, sender: &mut Sender) {
        let Some(half) = sender.half.clone() else { return };
        while !sender.blocked {
            if sender.batch.is_empty() && !self.take_batch(wire.link, sender) {
                return;
            }
            match write(&half, &sender.batch, sender.out) {
                Ok(n) => {
                    sender.out += n;
                    let idle = sender.out == sender.batch.len();
                    if idle {
                        sender.batch.clear();
                        sender.out = 0;
                    }
                    let mut engine = lock(&self.engine);
                    engine.handle_sent(Instant::now(), wire.link, n, idle);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(wire.clone(), sender, half.clone())
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // The reader sees the same end, with what the server still said before it.
                    sender.half = None;
                    return;
                }
            }
        }
    }

    /// Takes the engine's batch over.
    fn take_batch(&self, link: LinkId, sender: &mut Sender) -> bool {
        let mut engine = lock(&self.engine);
        let batch = &mut sender.batch;
        engine.flush(Instant::now(), link, |queued| {
            std::mem::swap(batch, queued);
            true
        });
        !sender.batch.is_empty()
    }

    #[cold]
    fn wait_writable(self: &Arc<Lane>, wire: Arc<Wire>, sender: &mut Sender, half: Arc<WriteHalf>) {
        sender.blocked = true;
        let lane = self.clone();
        self.runtime.spawn(async move {
            let _ = half.writable().await;
            {
                let mut sender = lock(&wire.sender);
                if sender.half.as_ref().is_some_and(|h| Arc::ptr_eq(h, &half)) {
                    sender.blocked = false;
                }
            }
            lane.flush_wire(&wire);
        });
    }

    // --- Connecting and receiving --------------------------------------------------------------

    /// The sockets of a link.
    fn wire(&self, link: LinkId) -> Arc<Wire> {
        loop {
            if let Some(wire) = self.wires.get(link.0 as usize) {
                return wire.clone();
            }
            // Two threads may both add one: each is made for the place that it gets.
            self.wires.push_with(|at| Arc::new(Wire::new(LinkId(at as u32))));
        }
    }

    fn begin(
        self: &Arc<Lane>,
        wire: &Arc<Wire>,
        number: Number,
        endpoint: Endpoint,
        by: Instant,
        keepalive: Option<Keepalive>,
    ) {
        let (weak, of) = (Arc::downgrade(self), wire.clone());
        let time = by.since(Instant::now());
        let task = self.runtime.spawn(async move {
            let outcome = connect(&endpoint, time, keepalive).await;
            let Some(lane) = weak.upgrade() else { return };
            match outcome {
                Ok((read, write)) => lane.connected(&of, number, read, write),
                Err(error) => lane.with(|engine, now| {
                    if engine.out().is_latest(of.link, number) {
                        engine.handle_connected(now, of.link, Err(error));
                    }
                }),
            }
        });
        wire.keep(number, task.abort_handle());
    }

    fn connected(
        self: &Arc<Lane>,
        wire: &Arc<Wire>,
        number: Number,
        read: ReadHalf,
        write: WriteHalf,
    ) {
        {
            let mut sender = lock(&wire.sender);
            if sender.is_past(number) {
                return;
            }
            *sender = Sender { number, half: Some(Arc::new(write)), ..Sender::default() };
        }
        // Told before anything is read: what comes is for an engine that knows of the connection.
        self.with(|engine, now| {
            if engine.out().is_latest(wire.link, number) {
                engine.handle_connected(now, wire.link, Ok(()));
            }
        });
        let reader = read_all(Arc::downgrade(self), wire.clone(), number, read);
        let task = self.runtime.spawn(reader);
        wire.keep(number, task.abort_handle());
    }

    /// The engine was closed: nothing holds the lane any more but its users.
    fn retire(&self) {
        self.wires.iter().for_each(|(_, wire)| wire.hang_up(Number::MAX));
        if let Some(task) = lock(&self.timekeeper).take() {
            task.abort();
        }
    }

    fn runtime_ended(self: &Arc<Lane>) {
        let text = "the tokio runtime that this client lived in has ended";
        let error = Error::new(ErrorKind::Runtime, Fate::Unknown, text);
        self.with(|engine, now| engine.close_with(now, error));
    }
}

/// Reads one connection to its end.
async fn read_all(weak: Weak<Lane>, wire: Arc<Wire>, number: Number, mut half: ReadHalf) {
    let mut buffer = BytesMut::with_capacity(READ_BUFFER);
    let mut need = 0;
    let cause = loop {
        make_room(&mut buffer, need);
        match half.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
        let Some(lane) = weak.upgrade() else { return };
        need = lane.received(wire.link, number, &mut buffer);
    };
    if let Some(lane) = weak.upgrade() {
        wire.end_sending(number);
        lane.with(|engine, now| {
            if engine.out().is_latest(wire.link, number) {
                engine.handle_closed(now, wire.link, cause);
            }
        });
    }
}

impl Lane {
    /// Shows the engine what came; answers how much its next frame needs.
    fn received(self: &Arc<Lane>, link: LinkId, number: Number, buffer: &mut BytesMut) -> usize {
        let capacity = buffer.capacity();
        let mut rx = HostRx { bytes: Chunk::Open(std::mem::take(buffer)), capacity };
        let progress = self.drive(|engine, now| {
            if engine.out().is_latest(link, number) {
                engine.handle_bytes(now, link, &mut rx)
            } else {
                Progress { consumed: rx.bytes().len(), need: 0 }
            }
        });
        match rx.bytes {
            Chunk::Open(mut bytes) => {
                bytes.advance(progress.consumed.min(bytes.len()));
                *buffer = bytes;
            }
            Chunk::Frozen(bytes) => {
                let rest = bytes.get(progress.consumed..).unwrap_or_default();
                let ahead = progress.need.min(READ_AHEAD);
                *buffer = BytesMut::with_capacity(READ_BUFFER.max(rest.len() + ahead));
                buffer.extend_from_slice(rest);
            }
        }
        progress.need
    }
}

/// The task that calls the engine at its deadlines. It lives as long as the engine is open, so its
/// end before that is the runtime's end.
async fn keep_time(keeper: Timekeeper) {
    loop {
        let Ok(mut ready) = keeper.0.timer.readable().await else { return };
        let mut count = [0u8; 8];
        // Only clears the descriptor: the engine compares deadlines with the clock itself.
        let _ = rustix::io::read(keeper.0.timer.get_ref(), &mut count);
        ready.clear_ready();
        drop(ready);
        keeper.0.drive(|engine, now| engine.handle_deadline(now));
    }
}

struct Timekeeper(Arc<Lane>);

impl Drop for Timekeeper {
    fn drop(&mut self) {
        self.0.runtime_ended();
    }
}

/// One hosted engine's door.
#[derive(Clone)]
pub(crate) struct HostPlace {
    lane: Arc<Lane>,
}

impl HostPlace {
    /// Waits until nothing is in flight, for at most `limit`. The waiting is done in the runtime that the
    /// engine lives in: the caller may be on none, and if that one ends there is nothing to wait for.
    pub(crate) async fn drained(&self, limit: Duration) {
        let lane = self.lane.clone();
        let done = move || lane.with(|engine, _| engine.drain());
        if done() || limit.is_zero() {
            return;
        }
        let step = Duration::from_millis(1).min(limit);
        let task = self.lane.runtime.spawn(async move {
            let drained = async {
                while !done() {
                    tokio::time::sleep(step).await;
                }
            };
            let _ = tokio::time::timeout(limit, drained).await;
        });
        let _ = task.await;
    }

    /// An engine in the present tokio runtime, which begins to connect.
    pub(crate) fn open(options: Arc<Options>) -> Result<HostPlace, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            let text = "Client::connect needs a tokio runtime: call it inside one, or make a \
                        client over pinned cores with Cores::connect";
            Error::new(ErrorKind::Runtime, Fate::NotSent, text)
        })?;
        let failed = |e: io::Error| {
            Error::new(ErrorKind::Runtime, Fate::NotSent, format!("making a timer: {e}"))
        };
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|e| failed(e.into()))?;
        let timer = timer_of_runtime(fd)?.map_err(failed)?;
        let board = options.is_coordinated().then(|| boards::board_of(&options));
        let topology = match &board {
            Some(board) => board.topology(),
            None => Arc::new(Topology::of(&options)),
        };
        let now = Instant::now();
        let engine = Engine::new(HostOut::default(), topology, 1, now, fastrand::u64(..));
        let lane = Arc::new(Lane {
            engine: Mutex::new(engine),
            wires: boxcar::Vec::new(),
            timer,
            armed: Mutex::new(0),
            timekeeper: Mutex::default(),
            runtime: runtime.clone(),
        });
        if let Some(board) = board {
            lane.follow(board);
        }
        let task = runtime.spawn(keep_time(Timekeeper(lane.clone())));
        *lock(&lane.timekeeper) = Some(task.abort_handle());
        lane.with(|engine, now| engine.start(now));
        Ok(HostPlace { lane })
    }
}

/// The timer in the present runtime. Whether that drives sockets and timers can only be found out by
/// trying, and tokio answers by a panic.
fn timer_of_runtime(fd: OwnedFd) -> Result<io::Result<AsyncFd<OwnedFd>>, Error> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        drop(tokio::time::sleep(Duration::ZERO));
        // Deprecated for descriptors that can be closed behind its back; this one is owned by it. The
        // replacement is unsafe to call, which this crate forbids itself.
        #[allow(deprecated)]
        AsyncFd::new(fd)
    }));
    tried.map_err(|_| {
        let text = "this tokio runtime was built without I/O or timers: build it with enable_all()";
        Error::new(ErrorKind::Runtime, Fate::NotSent, text)
    })
}

/// What a hosted request owes.
#[derive(Default)]
pub(crate) struct Duty {
    promised: bool,
}

impl Place for HostPlace {
    type Out = HostOut;
    type Duty = Duty;
    const ALONE: bool = false;
    type Look<'a> = MutexGuard<'a, Engine<HostOut>>;

    fn with<T>(&self, f: impl FnOnce(&mut Engine<HostOut>, Instant) -> T) -> T {
        self.lane.with(f)
    }

    #[inline]
    fn look(&self) -> MutexGuard<'_, Engine<HostOut>> {
        lock(&self.lane.engine)
    }

    #[inline]
    fn queue<T>(
        &self,
        duty: &mut Duty,
        cx: &mut Context<'_>,
        f: impl FnOnce(&mut Engine<HostOut>, Instant) -> T,
    ) -> T {
        let now = Instant::coarse();
        let mut engine = lock(&self.lane.engine);
        let value = f(&mut engine, now);
        let mut dirty = false;
        if let Some(link) = engine.out().dirty.last().copied() {
            // The latest is the one that was just queued on, unless that was dirty before.
            dirty = !engine.replies_due(link);
            if !dirty {
                duty.promised = !std::mem::replace(&mut engine.out().promised, true);
            }
        }
        let todo = (!engine.out().is_quiet()).then(|| Todo::take(&mut engine));
        drop(engine);
        if dirty {
            self.lane.flush();
        }
        if let Some(todo) = todo {
            self.lane.act(todo);
        }
        if duty.promised {
            // Its panic must not lose the request, which is on the engine's books by now.
            let woken = catch_unwind(AssertUnwindSafe(|| cx.waker().wake_by_ref()));
            if let Err(payload) = woken {
                hedgerow_runtime::discard(payload);
                self.discharge(duty);
            }
        }
        value
    }

    #[inline]
    fn discharge(&self, duty: &mut Duty) {
        if std::mem::take(&mut duty.promised) {
            self.lane.flush();
        }
    }
}
