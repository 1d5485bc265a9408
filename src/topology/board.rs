//! What the cores of a client and its coordinator share: snapshots downwards, hints and reports upwards.
//! Nothing of it is locked or written on the road of a command.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;

use super::{Health, NodeIndex, Report, Topology};
use crate::config::{Endpoint, Options};

/// Hints and old snapshots that may wait for the coordinator. What does not fit is lost: a hint comes
/// again, a snapshot is freed where it is.
const QUEUE: usize = 1024;

/// What a core has seen that a snapshot does not say yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Ask this node again: its connection was lost, or it said that its link is down.
    Check(NodeIndex),
    /// The deployment has these replicas from now on.
    Replicas(Vec<Endpoint>),
}

/// A counter on cache lines of its own: every core reads it once a turn.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded(AtomicU64);

/// Calls a core that waits, so that it looks at the board.
pub(crate) type Call = Box<dyn Fn() + Send + Sync>;

/// The board of one deployment: what its cores and its coordinator tell each other.
pub struct Board {
    profile: Arc<Options>,
    /// Goes up with every publication.
    epoch: Padded,
    topology: ArcSwap<Topology>,
    health: ArcSwap<Health>,
    hints: ArrayQueue<Hint>,
    old: ArrayQueue<Arc<Topology>>,
    /// Of each core, newest as a whole: one writer, and no reader waits for it.
    reports: Mutex<Vec<Arc<ArcSwap<Report>>>>,
    calls: Mutex<Vec<(usize, Call)>>,
    users: AtomicUsize,
    next_call: AtomicUsize,
    /// Somebody coordinates it.
    coordinated: AtomicBool,
}

impl Board {
    pub(crate) fn new(profile: Arc<Options>) -> Board {
        let topology = Topology::standalone(profile.clone());
        Board {
            profile,
            epoch: Padded(AtomicU64::new(1)),
            topology: ArcSwap::from_pointee(topology),
            health: ArcSwap::from_pointee(Health::default()),
            hints: ArrayQueue::new(QUEUE),
            old: ArrayQueue::new(QUEUE),
            reports: Mutex::default(),
            calls: Mutex::default(),
            users: AtomicUsize::new(0),
            next_call: AtomicUsize::new(0),
            coordinated: AtomicBool::new(false),
        }
    }

    /// The settings of the deployment that it is of.
    pub(crate) fn profile(&self) -> &Arc<Options> {
        &self.profile
    }

    // --- What cores do ---------------------------------------------------------------------------

    /// Whether anything was published after `seen`. A load that no other core disturbs but by a
    /// publication.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.0.load(Ordering::Acquire)
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.topology.load_full()
    }

    pub(crate) fn health(&self) -> Arc<Health> {
        self.health.load_full()
    }

    /// Gives a snapshot back that is not used any more: the coordinator frees it.
    pub(crate) fn give_back(&self, old: Arc<Topology>) {
        let _ = self.old.push(old);
    }

    pub(crate) fn hint(&self, hint: Hint) {
        let _ = self.hints.push(hint);
    }

    /// A core joins: where it is to put what it learns.
    pub(crate) fn join(&self) -> Arc<ArcSwap<Report>> {
        self.users.fetch_add(1, Ordering::SeqCst);
        let report = Arc::new(ArcSwap::default());
        lock(&self.reports).push(Arc::clone(&report));
        report
    }

    pub(crate) fn leave(&self, report: &Arc<ArcSwap<Report>>) {
        lock(&self.reports).retain(|other| !Arc::ptr_eq(other, report));
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// From now on `call` is made when a topology is published, until the number is handed to
    /// [`Board::uncall`].
    pub(crate) fn on_publish(&self, call: Call) -> usize {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).push((number, call));
        number
    }

    pub(crate) fn uncall(&self, number: usize) {
        lock(&self.calls).retain(|(other, _)| *other != number);
    }

    // --- What the coordinator does -----------------------------------------------------------------

    /// Whether the caller is to coordinate it; nobody else does.
    pub(crate) fn begin(&self) -> bool {
        !self.coordinated.swap(true, Ordering::SeqCst)
    }

    /// Its coordinator found no core left. `false`: one has come meanwhile, so it goes on.
    pub(crate) fn end(&self) -> bool {
        self.coordinated.store(false, Ordering::SeqCst);
        !(self.is_used() && self.begin())
    }

    /// Whether any core is left.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn next_hint(&self) -> Option<Hint> {
        self.hints.pop()
    }

    /// Frees the snapshots that came back.
    pub(crate) fn free_old(&self) {
        while self.old.pop().is_some() {}
    }

    pub(crate) fn reports(&self) -> Vec<Arc<Report>> {
        lock(&self.reports).iter().map(|report| report.load_full()).collect()
    }

    pub(crate) fn publish_health(&self, health: Health) {
        self.health.store(Arc::new(health));
        self.epoch.0.fetch_add(1, Ordering::Release);
    }

    /// Publishes a topology, and calls every core that waits: drains need it.
    pub(crate) fn publish_topology(&self, topology: Topology) {
        self.topology.store(Arc::new(topology));
        self.epoch.0.fetch_add(1, Ordering::Release);
        lock(&self.calls).iter().for_each(|(_, call)| call());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is under these locks is whole at any instant.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("epoch", &self.epoch.0).finish_non_exhaustive()
    }
}
