//! The engine: requests, links and deadlines of one client in one placement.
//!
//! Plain code, without socket, thread, future, lock or clock. `handle_*(now, ..)` feeds it what
//! happened outside; what it wants done it records through [`Outside`]. No waker is cloned, woken
//! or dropped, and no code or value of a user runs, while it is borrowed.

mod board;
mod body;
mod cell;
mod check;
mod choose;
mod cluster;
mod deadline;
mod diagnostics;
mod follow;
mod hedge;
mod life;
mod link;
mod log;
mod outgoing;
mod outside;
mod pin;
mod queue;
mod race;
mod receive;
mod retired;
mod search;
mod seen;
mod state;
mod submit;

pub(crate) use body::Body;
pub use cell::CellId;
pub use diagnostics::{Diagnostics, Pressure, Stage};
pub use link::{Class, LinkId};
pub use log::Line;
pub use outside::{KeptOf, Outside, Received};
pub use seen::{Figures, ReadCopy, SeenNode};
pub(crate) use state::ObserverId;
pub use state::{ConnectionState, StateChange};

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use hedgerow_runtime::time::Instant;

use crate::config::Options;
use crate::error::Error;
use crate::read::{ReadFrom, Tail};
use crate::route::{self, PinId, Way};
use crate::topology::{Node, NodeIndex, Role, SlotTable, Topology};
use board::Notice;
use cell::Cells;
use choose::Route;
use cluster::Cluster;
use deadline::{Deadlines, nanos};
use link::{Link, LinkState};
use pin::Pins;
use queue::Queues;
use race::Races;
use retired::Retired;
use state::Observers;

/// Spare buffers for pooled bodies.
const SPARES_MAX: usize = 1024;

/// What became of a submission. It is copied right after it was written, so that no field is left out or
/// written in halves: a load would have to wait for the stores.
pub(crate) struct Submitted {
    /// See [`Submitted::id`].
    id: u64,
    /// It waits, or may be asked for once more, so that its bytes are still needed.
    pub(crate) keeps_text: bool,
    /// It was refused; the waker comes back, to be dropped outside.
    pub(crate) refused: Option<Box<(Error, Waker)>>,
}

impl Submitted {
    /// It is in a connection's write buffer, or waits for a connection or for room.
    #[inline(always)]
    fn taken(id: CellId, keeps_text: bool) -> Submitted {
        Submitted { id: id.to_bits(), keeps_text, refused: None }
    }

    #[cold]
    fn refused(error: Error, waker: Waker) -> Submitted {
        Submitted { id: 0, keeps_text: false, refused: Some(Box::new((error, waker))) }
    }

    /// Poll with it, unless it was refused.
    #[inline(always)]
    pub(crate) fn id(&self) -> CellId {
        CellId::from_bits(self.id)
    }
}

/// What a request's poll finds.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    /// No outcome yet, and the waker on record is the right one.
    Nothing,
    /// Not yet; record another waker with [`Engine::await_with`].
    OtherWaker,
    /// A second copy may go out: queue it with [`Engine::queue_hedge`].
    Hedge,
    /// There is room now: queue it with [`Engine::queue_admitted`].
    Admitted,
    /// A reply for [`Engine::answered`], after all.
    Reply,
    /// An outcome for [`Engine::redeem`].
    Outcome,
}

/// Counters of one engine, written by its placement only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands queued.
    pub commands: u64,
    /// Replies that reached a request, or would have.
    pub replies: u64,
    /// Push frames.
    pub pushes: u64,
    /// Requests that a deadline ended.
    pub timeouts: u64,
    /// Connections made.
    pub connects: u64,
    /// Slots that a redirect said to be elsewhere.
    pub moved: u64,
    /// Commands of a cluster that were sent again, as a node would not have them.
    pub again: u64,
}

impl Counters {
    /// The sum of two engines' counters.
    #[cfg(feature = "hosted")]
    pub(crate) fn plus(self, other: Counters) -> Counters {
        Counters {
            commands: self.commands + other.commands,
            replies: self.replies + other.replies,
            pushes: self.pushes + other.pushes,
            timeouts: self.timeouts + other.timeouts,
            connects: self.connects + other.connects,
            moved: self.moved + other.moved,
            again: self.again + other.again,
        }
    }
}

/// The requests and links of one client in one placement.
pub struct Engine<O: Outside> {
    out: O,
    topology: Arc<Topology>,
    options: Arc<Options>,
    /// The `command_timeout` in nanoseconds.
    command_ns: u64,
    cells: Cells<KeptOf<O>>,
    links: Vec<Link>,
    /// The links of each node, so many as there are lanes.
    by_node: Vec<Range<usize>>,
    lanes: usize,
    /// The links to the primary of a standalone deployment.
    primary: Range<usize>,
    cluster: Option<Box<Cluster>>,
    /// Where the search for one of them with room begins.
    lane: usize,
    /// Goes up with each choice among equal links, so that they take turns.
    turn: usize,
    /// The links that a read may take, while it is chosen for.
    candidates: Vec<LinkId>,
    /// What was found out for reads, by policy, and a number that goes up when it may not hold any more.
    routes: [Route; ReadFrom::COUNT],
    route_epoch: u64,
    queues: Queues,
    races: Races,
    due_hedges: Vec<(CellId, bool)>,
    pins: Pins,
    notice: Option<Notice>,
    retired: Retired,
    /// PINGs that are not answered.
    pings: usize,
    replicas_started: bool,
    /// A view bounds how far replicas may be behind.
    tracks_lag: bool,
    /// When something last came from outside.
    now: Instant,
    deadlines: Deadlines,
    spares: Vec<Vec<u8>>,
    observers: Observers,
    /// Who waits for the first connections to be up.
    starters: Vec<Waker>,
    random: fastrand::Rng,
    counters: Counters,
    closed: bool,
    draining: bool,
    /// Why the first attempt of some link failed, until all were up once.
    first_failure: Option<Error>,
    was_up: bool,
}

impl<O: Outside> Engine<O> {
    /// An engine for the nodes of `topology`; nothing is connected before [`Engine::start`].
    /// `lanes` connections are made to each.
    pub fn new(
        out: O,
        topology: Arc<Topology>,
        lanes: usize,
        now: Instant,
        seed: u64,
    ) -> Engine<O> {
        let node = route::primary(&topology);
        // A snapshot always has that node; a default keeps this free of panics.
        let options = topology.node(node).map(|n| n.profile.clone()).unwrap_or_else(|| {
            Arc::new(Options::new(crate::config::Endpoint::tcp("localhost", 6379)))
        });
        let nodes = topology.nodes().count();
        let tail = options.hedging.map(|hedging| Tail::new(hedging, Way::CLASSES, nodes));
        let cluster = options.cluster.as_ref();
        let mut engine = Engine {
            out,
            races: Races::new(tail, now),
            links: Vec::new(),
            by_node: Vec::new(),
            lanes: lanes.clamp(1, 1 << 16),
            primary: 0..0,
            cluster: cluster.map(|settings| Box::new(Cluster::new(settings, now))),
            topology: topology.clone(),
            command_ns: nanos(options.command_timeout),
            options,
            cells: Cells::default(),
            lane: 0,
            turn: 0,
            candidates: Vec::new(),
            routes: Default::default(),
            route_epoch: 1,
            queues: Queues::default(),
            due_hedges: Vec::new(),
            pins: Pins::default(),
            notice: None,
            retired: Retired::default(),
            pings: 0,
            replicas_started: false,
            tracks_lag: false,
            now,
            deadlines: Deadlines::new(now),
            spares: Vec::new(),
            observers: Observers::default(),
            starters: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            counters: Counters::default(),
            closed: false,
            draining: false,
            first_failure: None,
            was_up: false,
        };
        for (index, node) in topology.nodes().filter(|(_, node)| !node.is_removed) {
            engine.add_links(index, node);
        }
        if engine.cluster.is_none() {
            engine.primary = engine.links_of(node);
        }
        engine.races.resize(engine.links.len(), nodes);
        engine
    }

    /// Makes the links of a node that has none yet.
    fn add_links(&mut self, index: NodeIndex, node: &Node) {
        let (at, first) = (index.0 as usize, self.links.len());
        if at >= self.by_node.len() {
            self.by_node.resize(at + 1, 0..0);
        }
        let lanes = 0..self.lanes as u16;
        self.links.extend(lanes.map(|lane| Link::new(index, node, Class::Shared(lane))));
        self.by_node[at] = first..self.links.len();
    }

    /// The links to a node.
    fn links_of(&self, node: NodeIndex) -> Range<usize> {
        self.by_node.get(node.0 as usize).cloned().unwrap_or_default()
    }

    /// The placement's side.
    pub fn out(&mut self) -> &mut O {
        &mut self.out
    }

    /// The settings.
    pub(crate) fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// The snapshot that commands are routed by.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that hold a cell, and whether replies or connects are outstanding.
    pub fn live_requests(&self) -> usize {
        self.cells.live()
    }

    /// Whether anything is due from outside.
    pub fn in_flight(&self) -> bool {
        self.links
            .iter()
            .any(|l| !l.connection.in_flight.is_empty() || matches!(l.state, LinkState::Connecting))
    }

    /// The nodes as they are now, the primary first.
    pub fn nodes(&self, now: Instant) -> Vec<SeenNode> {
        let ranges = self.topology.slots().map(SlotTable::ranges).unwrap_or_default();
        let slots_of = |index: NodeIndex| {
            let own = ranges.iter().filter(|(_, owner)| *owner == index);
            own.map(|(slots, _)| slots.clone()).collect()
        };
        let in_cluster = self.cluster.is_some();
        let seen = |(index, node): (_, &Node)| {
            let primary = self.topology.node(node.shard).filter(|_| in_cluster);
            let primary = primary.filter(|_| node.shard != index);
            let mut all = self.links.iter().enumerate().filter(|(_, link)| link.node == index);
            let ready = all.clone().filter(|(_, link)| link.is_ready());
            let is_primary = node.role == Role::Primary;
            SeenNode {
                index: index.0,
                endpoint: node.endpoint().clone(),
                role: node.role,
                id: node.id.clone(),
                primary: primary.map(|node| node.endpoint().clone()),
                slots: slots_of(index),
                connections: ready.clone().count(),
                linked: is_primary || ready.clone().any(|(at, _)| self.is_linked(at)),
                lag_bytes: if is_primary { None } else { all.find_map(|(at, _)| self.lag(at)) },
                zone: ready.clone().find_map(|(_, link)| link.zone.clone()),
                latency: ready.filter_map(|(_, link)| link.estimate.latency(now)).min(),
            }
        };
        self.topology.nodes().filter(|(_, node)| !node.is_removed).map(seen).collect()
    }

    /// All of its figures.
    pub(crate) fn figures(&self, now: Instant) -> Figures {
        Figures {
            counters: self.counters(),
            live_requests: self.live_requests(),
            nodes: self.nodes(now),
            hedges: self.hedges(),
            weather: self.weather(),
            hedge_delays: self.races.delays(now),
        }
    }

    /// What went wrong while connections of replicas finished what they had accepted.
    pub(crate) fn retired(&self) -> (Vec<Error>, u64) {
        self.retired.told()
    }

    /// The scan is over.
    pub(crate) fn unpin(&mut self, pin: PinId) {
        self.pins.remove_all(pin);
    }

    /// A link to the primary, for errors of what never had one.
    fn first_link(&self) -> LinkId {
        LinkId(self.primary.start as u32)
    }

    /// Whether the system was handed commands on `at` that are not answered yet.
    #[cfg(feature = "hosted")]
    #[inline]
    pub(crate) fn replies_due(&self, at: LinkId) -> bool {
        let link = self.links.get(at.0 as usize);
        link.is_some_and(|l| l.connection.in_flight.peek_answer().is_some())
    }
}
