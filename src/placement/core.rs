//! An engine on a core of our own runtime.

mod desk;
mod lookups;
mod out;
mod received;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use hedgerow_runtime::core::{Core, Drive, Local, Turn};
use hedgerow_runtime::io::{Connect, Handler, Io, SocketId, Target};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::Parker;
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Progress, Rx};

use super::boards;
use crate::client::LocalContext;
use crate::config::{Endpoint, Keepalive};
use crate::coordinator::coordinate;
use crate::engine::{Line, LinkId};
pub(crate) use desk::{CoreDesk, CorePlace};
use desk::{Desk, EngineCell};
use lookups::{Lookups, Resolved};
use out::Ask;

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
