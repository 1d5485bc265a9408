//! The tasks' side of a core: makes clients on it.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use hedgerow_runtime::core::Local;
use hedgerow_runtime::time::Instant;

use super::super::boards::{self, Boards};
use super::lookups::Lookups;
use super::out::CoreOut;
use super::wake_all;
use crate::client::request::Place;
use crate::config::Options;
use crate::engine::Engine;
use crate::topology::{Board, Topology};

pub(super) type EngineCell = Rc<RefCell<Engine<CoreOut>>>;

/// Whether a place of the table may be used again. An engine that was closed while requests still
/// referred to it is let go of here, when the last of them is gone.
pub(super) fn is_over(place: &Option<EngineCell>) -> bool {
    place.as_ref().is_none_or(|cell| {
        let closed = |mut e: RefMut<'_, Engine<CoreOut>>| e.is_closed() && !e.out().listed;
        Rc::strong_count(cell) == 1 && cell.try_borrow_mut().is_ok_and(closed)
    })
}

/// What the driver and the clients of one core share.
pub(super) struct Desk {
    pub(super) engines: RefCell<Vec<Option<EngineCell>>>,
    /// Engines that asked for something.
    pub(super) busy: RefCell<Vec<usize>>,
    pub(super) deadlines: RefCell<Vec<Instant>>,
    pub(super) earliest: Cell<Instant>,
    /// `earliest` became earlier since the last flush.
    pub(super) sooner: Cell<bool>,
    /// The core has ended: nothing will be worked off any more.
    pub(super) ended: Cell<bool>,
    pub(super) lookups: Lookups,
    /// Where the engines' seeds come from.
    pub(super) seeds: RefCell<fastrand::Rng>,
    /// Engines that follow a board.
    pub(super) following: RefCell<Vec<usize>>,
    /// The boards of a simulation, which is a world of its own.
    pub(super) boards: RefCell<Boards>,
}

impl Desk {
    pub(super) fn arm(&self, index: usize, at: Instant) {
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

/// The tasks' side of a core: makes clients on it.
#[derive(Clone)]
pub(crate) struct CoreDesk {
    pub(super) desk: Rc<Desk>,
    pub(super) local: Local,
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
        if !options.is_coordinated() {
            return self.add(Arc::new(Topology::of(&options)), lanes, None);
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

    pub(super) fn add(
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
    pub(super) fn close_all(&self, now: Instant) {
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
    pub(super) engine: EngineCell,
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
    pub(super) fn let_go(&self) {
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
