//! An engine on a core of our own runtime.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use hedgerow_runtime::buffer::LocalBytes;
use hedgerow_runtime::core::{Core, Drive, Local, Turn};
use hedgerow_runtime::io::{Connect, Handler, Io, SocketId, Target};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::Parker;
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Progress, Rx};

use super::boards::{self, Boards};
use crate::client::LocalContext;
use crate::client::request::Place;
use crate::config::{Endpoint, Keepalive, Options};
use crate::coordinator::coordinate;
use crate::engine::{Engine, Line, LinkId, Outside, Pressure, Received};
use crate::resp::{ConvertError, FromReply, Kept, Reply};
use crate::topology::{Board, Topology};

impl Kept for LocalBytes {
    fn slice_ref(&self, sub: &[u8]) -> LocalBytes {
        LocalBytes::slice_ref(self, sub)
    }
    #[inline(always)]
    fn copy_from(bytes: &[u8]) -> LocalBytes {
        LocalBytes::copy_from(bytes)
    }
    fn into_bytes(self) -> Bytes {
        LocalBytes::into_bytes(self)
    }
}

impl FromReply<LocalBytes> for LocalBytes {
    const PLAIN: bool = true;

    /// A string, or the text of a number. Large ones share the received block.
    #[inline(always)]
    fn from_reply(reply: Reply<'_, LocalBytes>) -> Result<LocalBytes, ConvertError> {
        let frame = reply.frame();
        if frame.is_null() || frame.kind().is_aggregate() {
            return Err(ConvertError::new("a string", &frame));
        }
        Ok(reply.text())
    }
}

impl Received for Rx {
    type Kept = LocalBytes;
    const POOLED: bool = true;

    #[inline]
    fn bytes(&self) -> &[u8] {
        Rx::bytes(self)
    }
    fn keep(&mut self, range: Range<usize>) -> LocalBytes {
        Rx::keep(self, range)
    }
    #[inline]
    fn count_copy(&mut self, n: usize) {
        Rx::count_copy(self, n);
    }
}

/// What an engine asked for, besides sending and waking.
enum Ask {
    Connect { link: LinkId, endpoint: Endpoint, by: Instant, keepalive: Option<Keepalive> },
    Close(LinkId),
    Receive(LinkId, bool),
    Coordinate(Arc<Board>),
}

/// An engine's outside on a core: lists that the driver works off.
pub(crate) struct CoreOut {
    index: usize,
    desk: Rc<Desk>,
    local: Local,
    listed: bool,
    dirty: Vec<LinkId>,
    asks: Vec<Ask>,
    wakes: Vec<Waker>,
    lines: Vec<Line>,
}

impl CoreOut {
    /// Has the driver look at this engine in this turn.
    #[inline]
    fn list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.desk.busy.borrow_mut().push(self.index);
        }
    }
}

impl Outside for CoreOut {
    type Rx = Rx;

    #[inline]
    fn dirty(&mut self, link: LinkId) {
        self.dirty.push(link);
        self.list();
    }

    fn connect(
        &mut self,
        link: LinkId,
        endpoint: &Endpoint,
        by: Instant,
        keepalive: Option<Keepalive>,
    ) {
        self.asks.push(Ask::Connect { link, endpoint: endpoint.clone(), by, keepalive });
        self.list();
    }

    fn close(&mut self, link: LinkId) {
        self.asks.push(Ask::Close(link));
        self.list();
    }

    fn receive(&mut self, link: LinkId, on: bool) {
        self.asks.push(Ask::Receive(link, on));
        self.list();
    }

    fn arm(&mut self, at: Instant, _fine: bool) {
        self.desk.arm(self.index, at);
    }

    #[inline(always)]
    fn wake(&mut self, waker: Waker) {
        // A task of this core needs nobody's code to be woken; others wait until we are let go.
        if let Some(waker) = self.local.wake_own(waker) {
            self.wakes.push(waker);
            self.list();
        }
    }

    fn log(&mut self, line: Line) {
        self.lines.push(line);
        self.list();
    }

    fn coordinate(&mut self, board: &Arc<Board>) {
        self.asks.push(Ask::Coordinate(board.clone()));
        self.list();
    }

    fn clock(&self, _turn: Instant) -> Instant {
        self.local.read_clock()
    }

    fn pressure(&self) -> Pressure {
        let lag = self.local.read_clock().since(self.local.now());
        Pressure {
            tasks_ready: Some(self.local.ready_tasks()),
            lag: Some(lag),
            completions: Some(self.local.completions()),
            queue_full: Some(self.local.counters().queue_full),
            requests: None,
        }
    }
}

type EngineCell = Rc<RefCell<Engine<CoreOut>>>;

/// Whether a place of the table may be used again. An engine that was closed while requests still
/// referred to it is let go of here, when the last of them is gone.
fn is_over(place: &Option<EngineCell>) -> bool {
    place.as_ref().is_none_or(|cell| {
        let closed = |mut e: RefMut<'_, Engine<CoreOut>>| e.is_closed() && !e.out().listed;
        Rc::strong_count(cell) == 1 && cell.try_borrow_mut().is_ok_and(closed)
    })
}

/// What the driver and the clients of one core share.
struct Desk {
    engines: RefCell<Vec<Option<EngineCell>>>,
    /// Engines that asked for something.
    busy: RefCell<Vec<usize>>,
    deadlines: RefCell<Vec<Instant>>,
    earliest: Cell<Instant>,
    /// `earliest` became earlier since the last flush.
    sooner: Cell<bool>,
    /// The core has ended: nothing will be worked off any more.
    ended: Cell<bool>,
    lookups: Lookups,
    /// Where the engines' seeds come from.
    seeds: RefCell<fastrand::Rng>,
    /// Engines that follow a board.
    following: RefCell<Vec<usize>>,
    /// The boards of a simulation, which is a world of its own.
    boards: RefCell<Boards>,
}

impl Desk {
    fn arm(&self, index: usize, at: Instant) {
        let mut deadlines = self.deadlines.borrow_mut();
        if index >= deadlines.len() {
            deadlines.resize(index + 1, Instant::NEVER);
        }
        deadlines[index] = at;
        let earliest = deadlines.iter().copied().min().unwrap_or(Instant::NEVER);
        if self.earliest.replace(earliest) > earliest {
            self.sooner.set(true);
        }
    }
}

/// Name resolution off the core: the system's resolver blocks, so each lookup is a short thread.
#[derive(Default)]
struct Lookups {
    running: Cell<usize>,
    done: Arc<Mutex<Vec<Resolved>>>,
}

struct Resolved {
    index: usize,
    link: LinkId,
    by: Instant,
    keepalive: Option<Keepalive>,
    outcome: io::Result<Vec<SocketAddr>>,
}

impl Lookups {
    fn start(&self, local: &Local, host: String, port: u16, mut found: Resolved) {
        let (done, remote) = (self.done.clone(), local.remote());
        self.running.set(self.running.get() + 1);
        let look = move || {
            found.outcome = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            // An empty job: the core only has to look. A full mailbox means that it is awake.
            let _ = remote.run(|| {});
        };
        let name = "hedgerow-dns".to_owned();
        // Without a thread the connect runs into its own deadline and is tried again.
        let _ = std::thread::Builder::new().name(name).spawn(look);
    }

    fn take(&self) -> Vec<Resolved> {
        if self.running.get() == 0 {
            return Vec::new();
        }
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        self.running.set(self.running.get() - done.len());
        done
    }
}

/// What a link of an engine is bound to.
#[derive(Clone, Copy, Default)]
enum Binding {
    #[default]
    None,
    /// Its name is being resolved, until then at the latest.
    Resolving(Instant),
    Socket(SocketId),
}

/// The engines of one core, driven by its turns.
pub(crate) struct World {
    desk: Rc<Desk>,
    local: Local,
    /// By engine and link.
    bindings: Vec<Vec<Binding>>,
    /// By socket index: engine and link.
    owners: Vec<Option<(usize, LinkId)>>,
    resolving_until: Instant,
}

impl World {
    fn engine(&self, index: usize) -> Option<EngineCell> {
        self.desk.engines.borrow().get(index).cloned().flatten()
    }

    fn binding(&mut self, index: usize, link: LinkId) -> &mut Binding {
        if index >= self.bindings.len() {
            self.bindings.resize_with(index + 1, Vec::new);
        }
        let links = &mut self.bindings[index];
        let at = link.0 as usize;
        if at >= links.len() {
            links.resize(at + 1, Binding::None);
        }
        &mut links[at]
    }

    fn owner(&self, socket: SocketId) -> Option<(EngineCell, LinkId)> {
        let (index, link) = (*self.owners.get(socket.index())?)?;
        Some((self.engine(index)?, link))
    }

    /// The socket is gone: unbinds it and says whose it was.
    fn release(&mut self, socket: SocketId) -> Option<(EngineCell, LinkId)> {
        let owner = self.owner(socket);
        if let Some(Some((index, link))) = self.owners.get(socket.index()).copied() {
            *self.binding(index, link) = Binding::None;
            self.owners[socket.index()] = None;
        }
        owner
    }

    fn act<K: Kernel>(&mut self, now: Instant, io: &mut Io<K>, index: usize, ask: Ask) {
        match ask {
            Ask::Connect { link, endpoint, by, keepalive } => {
                self.connect(now, io, index, link, endpoint, by, keepalive);
            }
            Ask::Close(link) => {
                let bound = std::mem::take(self.binding(index, link));
                if let Binding::Socket(socket) = bound {
                    self.owners[socket.index()] = None;
                    io.close(socket);
                }
            }
            Ask::Coordinate(board) if self.local.is_simulated() => {
                if board.begin() {
                    let desk = CoreDesk { desk: self.desk.clone(), local: self.local.clone() };
                    let core = LocalContext::new(desk, 0, None);
                    self.local.spawn(coordinate(core, board));
                }
            }
            Ask::Coordinate(board) => boards::start(&board),
            Ask::Receive(link, on) => {
                if let Binding::Socket(socket) = *self.binding(index, link) {
                    io.receive(now, socket, on, self);
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // One ask's parts, handed through.
    fn connect<K: Kernel>(
        &mut self,
        now: Instant,
        io: &mut Io<K>,
        index: usize,
        link: LinkId,
        endpoint: Endpoint,
        by: Instant,
        keepalive: Option<Keepalive>,
    ) {
        let targets = match endpoint {
            Endpoint::Unix(path) => vec![Target::Unix(path)],
            Endpoint::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => vec![Target::Tcp(SocketAddr::new(ip, port))],
                Err(_) => {
                    *self.binding(index, link) = Binding::Resolving(by);
                    self.resolving_until = self.resolving_until.min(by);
                    let outcome = Ok(Vec::new());
                    let found = Resolved { index, link, by, keepalive, outcome };
                    return self.desk.lookups.start(&self.local, host, port, found);
                }
            },
        };
        self.dial(now, io, index, link, Connect { targets, by, keepalive });
    }

    fn dial<K: Kernel>(
        &mut self,
        now: Instant,
        io: &mut Io<K>,
        index: usize,
        link: LinkId,
        connect: Connect,
    ) {
        match io.connect(now, connect) {
            Ok(socket) => {
                *self.binding(index, link) = Binding::Socket(socket);
                if socket.index() >= self.owners.len() {
                    self.owners.resize(socket.index() + 1, None);
                }
                self.owners[socket.index()] = Some((index, link));
            }
            Err(error) => {
                *self.binding(index, link) = Binding::None;
                if let Some(engine) = self.engine(index) {
                    engine.borrow_mut().handle_connected(now, link, Err(error));
                }
            }
        }
    }

    fn on_resolved<K: Kernel>(&mut self, now: Instant, io: &mut Io<K>, found: Resolved) {
        let Resolved { index, link, by, keepalive, outcome } = found;
        // A late answer to a lookup that was given up, or of an earlier attempt.
        if !matches!(*self.binding(index, link), Binding::Resolving(until) if until == by) {
            return;
        }
        match outcome {
            Ok(found) => {
                let targets = found.into_iter().map(Target::Tcp).collect();
                self.dial(now, io, index, link, Connect { targets, by, keepalive });
            }
            Err(error) => {
                *self.binding(index, link) = Binding::None;
                let text = format!("resolving the host name: {error}");
                if let Some(engine) = self.engine(index) {
                    let error = io::Error::new(error.kind(), text);
                    engine.borrow_mut().handle_connected(now, link, Err(error));
                }
            }
        }
    }

    /// Gives up lookups that take too long.
    fn expire_lookups(&mut self, now: Instant) {
        if self.resolving_until > now {
            return;
        }
        self.resolving_until = Instant::NEVER;
        let mut late = Vec::new();
        for (index, links) in self.bindings.iter_mut().enumerate() {
            for (link, binding) in links.iter_mut().enumerate() {
                match *binding {
                    Binding::Resolving(by) if by <= now => {
                        *binding = Binding::None;
                        late.push((index, LinkId(link as u32)));
                    }
                    Binding::Resolving(by) => self.resolving_until = self.resolving_until.min(by),
                    _ => {}
                }
            }
        }
        for (index, link) in late {
            if let Some(engine) = self.engine(index) {
                let error = io::Error::from(io::ErrorKind::TimedOut);
                engine.borrow_mut().handle_connected(now, link, Err(error));
            }
        }
    }

    /// Has the engines that follow a board look at it: once a turn.
    fn look_at_boards(&self, now: Instant) {
        let engines = self.desk.engines.borrow();
        self.desk.following.borrow_mut().retain(|index| {
            let Some(Some(engine)) = engines.get(*index) else { return false };
            let mut engine = engine.borrow_mut();
            engine.look_at_board(now);
            engine.is_following()
        });
    }

    /// Works off what one engine asked for; its wakes are woken last, when it is let go.
    fn serve<K: Kernel>(&mut self, now: Instant, io: &mut Io<K>, index: usize) {
        let Some(cell) = self.engine(index) else { return };
        loop {
            let (asks, dirty) = {
                let mut engine = cell.borrow_mut();
                let out = engine.out();
                out.listed = false;
                // Lists that hold nothing stay where they are, with their memory.
                if out.asks.is_empty() && out.dirty.is_empty() {
                    break;
                }
                (std::mem::take(&mut out.asks), std::mem::take(&mut out.dirty))
            };
            for ask in asks {
                self.act(now, io, index, ask);
            }
            self.send(now, io, &cell, index, dirty);
        }
        wake_all(&cell);
        if cell.borrow().is_closed() && Rc::strong_count(&cell) == 2 {
            // Only this table and `cell` hold it: nobody can ask anything of it any more.
            self.desk.engines.borrow_mut()[index] = None;
            self.desk.arm(index, Instant::NEVER);
        }
    }

    fn send<K: Kernel>(
        &mut self,
        now: Instant,
        io: &mut Io<K>,
        cell: &EngineCell,
        index: usize,
        mut dirty: Vec<LinkId>,
    ) {
        let mut engine = cell.borrow_mut();
        for link in dirty.drain(..) {
            let Binding::Socket(socket) = *self.binding(index, link) else { continue };
            engine.flush(now, link, |batch| io.send(socket, batch));
        }
        // The list's memory is used again, unless something was added meanwhile.
        if engine.out().dirty.is_empty() {
            engine.out().dirty = dirty;
        }
    }
}

/// Wakes whom an engine recorded, and says what it has for the log, outside of it.
fn wake_all(cell: &EngineCell) {
    let (mut wakes, mut lines, local) = {
        let mut engine = cell.borrow_mut();
        let out = engine.out();
        if out.wakes.is_empty() && out.lines.is_empty() {
            return;
        }
        (std::mem::take(&mut out.wakes), std::mem::take(&mut out.lines), out.local.clone())
    };
    super::each(&mut lines, Line::say);
    super::each(&mut wakes, |waker| local.wake(waker));
    let mut engine = cell.borrow_mut();
    if engine.out().wakes.is_empty() {
        engine.out().wakes = wakes;
    }
}

impl Handler for World {
    fn on_connected(&mut self, now: Instant, socket: SocketId, outcome: io::Result<()>) {
        let owner = if outcome.is_ok() { self.owner(socket) } else { self.release(socket) };
        if let Some((engine, link)) = owner {
            engine.borrow_mut().handle_connected(now, link, outcome);
        }
    }

    #[inline]
    fn on_bytes(&mut self, now: Instant, socket: SocketId, rx: &mut Rx) -> Progress {
        match self.owner(socket) {
            Some((engine, link)) => engine.borrow_mut().handle_bytes(now, link, rx),
            None => Progress { consumed: rx.bytes().len(), need: 0 },
        }
    }

    fn on_sent(&mut self, now: Instant, socket: SocketId, n: usize, idle: bool) {
        if let Some((engine, link)) = self.owner(socket) {
            engine.borrow_mut().handle_sent(now, link, n, idle);
        }
    }

    fn on_closed(&mut self, now: Instant, socket: SocketId, error: Option<io::Error>) {
        if let Some((engine, link)) = self.release(socket) {
            engine.borrow_mut().handle_closed(now, link, error);
        }
    }
}

impl<K: Kernel> Drive<K> for World {
    fn on_flush(&mut self, now: Instant, io: &mut Io<K>) {
        self.desk.sooner.set(false);
        if !self.desk.following.borrow().is_empty() {
            self.look_at_boards(now);
        }
        for found in self.desk.lookups.take() {
            self.on_resolved(now, io, found);
        }
        while let Some(index) = { self.desk.busy.borrow_mut().pop() } {
            self.serve(now, io, index);
        }
    }

    fn on_dispatched(&mut self, _now: Instant) {
        // What these engines want sent waits for the flush, after the tasks that are woken now.
        let busy = self.desk.busy.borrow();
        let cells: [Option<EngineCell>; 1] = match busy[..] {
            [] => return,
            [only] => [self.engine(only)],
            _ => {
                let all: Vec<_> = busy.iter().filter_map(|i| self.engine(*i)).collect();
                drop(busy);
                return all.iter().for_each(wake_all);
            }
        };
        drop(busy);
        cells.iter().flatten().for_each(wake_all);
    }

    fn on_deadline(&mut self, now: Instant) {
        self.expire_lookups(now);
        if self.desk.earliest.get() > now {
            return;
        }
        let due: Vec<usize> = {
            let deadlines = self.desk.deadlines.borrow();
            let all = deadlines.iter().enumerate();
            all.filter(|(_, at)| **at <= now).map(|(index, _)| index).collect()
        };
        for index in due {
            self.desk.arm(index, Instant::NEVER);
            if let Some(cell) = self.engine(index) {
                cell.borrow_mut().handle_deadline(now);
                wake_all(&cell);
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        self.desk.earliest.get().min(self.resolving_until)
    }

    fn is_busy(&self) -> bool {
        !self.desk.busy.borrow().is_empty()
    }

    fn in_flight(&self) -> bool {
        self.desk.engines.borrow().iter().flatten().any(|e| e.borrow().in_flight())
    }
}

/// The tasks' side of a core: makes clients on it.
#[derive(Clone)]
pub(crate) struct CoreDesk {
    desk: Rc<Desk>,
    local: Local,
}

impl CoreDesk {
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Whether the core has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.desk.ended.get()
    }

    /// An engine for `options`, which begins to connect in this turn.
    pub(crate) fn open(&self, options: Arc<Options>) -> CorePlace {
        let lanes = options.connections;
        if options.replica_endpoints.is_empty() {
            return self.add(Arc::new(Topology::standalone(options)), lanes, None);
        }
        let board = match self.local.is_simulated() {
            true => self.desk.boards.borrow_mut().of(&options),
            false => boards::board_of(&options),
        };
        self.add(board.topology(), lanes, Some((board, true)))
    }

    /// The engine of a deployment's coordinator.
    pub(crate) fn open_control(&self, board: &Arc<Board>) -> CorePlace {
        self.add(board.topology(), 1, Some((board.clone(), false)))
    }

    fn add(
        &self,
        topology: Arc<Topology>,
        lanes: usize,
        board: Option<(Arc<Board>, bool)>,
    ) -> CorePlace {
        let mut engines = self.desk.engines.borrow_mut();
        let index = engines.iter().position(is_over).unwrap_or(engines.len());
        let out = CoreOut {
            index,
            desk: self.desk.clone(),
            local: self.local.clone(),
            listed: false,
            dirty: Vec::new(),
            asks: Vec::new(),
            wakes: Vec::new(),
            lines: Vec::new(),
        };
        let now = self.local.now();
        let seed = self.desk.seeds.borrow_mut().u64(..);
        let mut engine = Engine::new(out, topology, lanes, now, seed);
        if let Some((board, reports)) = board {
            let remote = self.local.remote();
            // A full mailbox means that the core is awake, and looks once a turn.
            let call = move || {
                let _ = remote.run(|| {});
            };
            engine.follow(board, reports, Box::new(call));
            let mut following = self.desk.following.borrow_mut();
            if !following.contains(&index) {
                following.push(index);
            }
        }
        let engine = Rc::new(RefCell::new(engine));
        if index == engines.len() {
            engines.push(None);
        }
        engines[index] = Some(engine.clone());
        drop(engines);
        engine.borrow_mut().start(now);
        self.local.call_host();
        CorePlace { engine }
    }

    /// Clients that somebody still holds, and requests that hold a cell.
    pub(crate) fn left(&self) -> (usize, usize) {
        let engines = self.desk.engines.borrow();
        let held = engines.iter().filter(|place| !is_over(place)).count();
        (held, engines.iter().flatten().map(|e| e.borrow().live_requests()).sum())
    }

    /// Ends every client of the core.
    fn close_all(&self, now: Instant) {
        let cells: Vec<_> = self.desk.engines.borrow().iter().flatten().cloned().collect();
        for cell in cells {
            cell.borrow_mut().close(now);
            wake_all(&cell);
        }
    }
}

/// One client's engine on its core.
#[derive(Clone)]
pub(crate) struct CorePlace {
    engine: EngineCell,
}

impl Drop for CorePlace {
    #[inline(always)]
    fn drop(&mut self) {
        // The table's and this one: a closed engine that the last request lets go leaves the table.
        if Rc::strong_count(&self.engine) == 2 {
            self.let_go();
        }
    }
}

impl CorePlace {
    #[cold]
    #[inline(never)]
    fn let_go(&self) {
        if let Ok(mut engine) = self.engine.try_borrow_mut()
            && engine.is_closed()
        {
            engine.out().list();
        }
    }
}

impl Place for CorePlace {
    type Out = CoreOut;
    type Duty = ();
    const ALONE: bool = true;
    type Look<'a> = RefMut<'a, Engine<CoreOut>>;

    #[inline(always)]
    fn with<T>(&self, f: impl FnOnce(&mut Engine<CoreOut>, Instant) -> T) -> T {
        let mut engine = self.engine.borrow_mut();
        let now = engine.out().local.now();
        let answer = f(&mut engine, now);
        // Nobody turns the core now: a host has to be told, outside of the engine.
        let out = engine.out();
        if out.local.is_parked() && (out.listed || out.desk.sooner.get()) {
            let local = out.local.clone();
            drop(engine);
            local.call_host();
        }
        answer
    }

    #[inline(always)]
    fn look(&self) -> RefMut<'_, Engine<CoreOut>> {
        self.engine.borrow_mut()
    }

    #[inline]
    fn queue<T>(
        &self,
        (): &mut (),
        _cx: &mut Context<'_>,
        f: impl FnOnce(&mut Engine<CoreOut>, Instant) -> T,
    ) -> T {
        // The flush of this turn sends for all.
        self.with(f)
    }

    #[inline]
    fn discharge(&self, (): &mut ()) {}
}

/// A core with its engines, for whoever turns it.
pub(crate) struct CoreDriver<K: Kernel> {
    core: Core<K>,
    world: World,
}

impl<K: Kernel> CoreDriver<K> {
    pub(crate) fn new(kernel: K, parker: Parker) -> CoreDriver<K> {
        CoreDriver::seeded(kernel, parker, fastrand::u64(..))
    }

    /// As [`CoreDriver::new`]; all that its engines draw follows from `seed`.
    pub(crate) fn seeded(kernel: K, parker: Parker, seed: u64) -> CoreDriver<K> {
        let core = Core::new(kernel, parker);
        let desk = Rc::new(Desk {
            engines: RefCell::default(),
            busy: RefCell::default(),
            deadlines: RefCell::default(),
            earliest: Cell::new(Instant::NEVER),
            sooner: Cell::new(false),
            ended: Cell::new(false),
            lookups: Lookups::default(),
            seeds: RefCell::new(fastrand::Rng::with_seed(seed)),
            following: RefCell::default(),
            boards: RefCell::default(),
        });
        let world = World {
            desk,
            local: core.local().clone(),
            bindings: Vec::new(),
            owners: Vec::new(),
            resolving_until: Instant::NEVER,
        };
        CoreDriver { core, world }
    }

    pub(crate) fn desk(&self) -> CoreDesk {
        CoreDesk { desk: self.world.desk.clone(), local: self.world.local.clone() }
    }

    pub(crate) fn core(&mut self) -> &mut Core<K> {
        &mut self.core
    }

    pub(crate) fn turn(&mut self, turn: Turn) -> io::Result<bool> {
        self.core.turn(&mut self.world, turn)
    }

    /// For a host, before it waits; see [`Core::prepare_park`].
    pub(crate) fn prepare_park(&mut self) -> bool {
        self.core.prepare_park(&self.world)
    }

    /// Answers every request with an error, closes every socket, drains the kernel.
    pub(crate) fn shut_down(mut self) {
        self.world.desk.ended.set(true);
        self.desk().close_all(self.core.local().now());
        self.core.shut_down(&mut self.world);
        // An engine holds the desk that lists it: a client that outlives its core must not keep both.
        let engines = std::mem::take(&mut *self.world.desk.engines.borrow_mut());
        drop(engines);
    }
}
