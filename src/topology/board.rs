//! What the cores of a client and its coordinator share: snapshots downwards, hints and reports upwards.
//! Nothing of it is locked or written on the road of a command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_queue::ArrayQueue;
use hedgerow_runtime::quietly;

use super::{Health, NodeIndex, Report, Topology};
use crate::config::{Endpoint, Options};
use crate::error::Error;

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
    /// A slot of the cluster is elsewhere.
    Moved {
        /// Which.
        slot: u16,
        /// Where.
        to: Endpoint,
    },
    /// A node of the cluster is there.
    Known(Endpoint),
    /// The connection to a node of the cluster was lost, or it says nothing any more.
    Lost(NodeIndex),
    /// What is known of the slots is not right, and nobody says what is.
    Stale,
    /// A node is no primary any more, and commands wait until its successor is known.
    ReadOnly(NodeIndex),
    /// A command waits to be told where its slot is: a node knows no address of the one that has it.
    Awaited,
    /// Reads of this slot wait for a replica that can serve them.
    Sought(u16),
}

/// A counter on cache lines of its own: every core reads it once a turn.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded(AtomicU64);

/// Calls a core that waits, so that it looks at the board.
pub(crate) type Call = Box<dyn Fn() + Send + Sync>;

/// Names a stream of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatcherId(usize);

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
    /// Streams of changes, and who waits for the next.
    watchers: Mutex<Vec<(WatcherId, Option<Waker>)>>,
    users: AtomicUsize,
    /// For calls and watchers.
    next_number: AtomicUsize,
    /// Somebody coordinates it.
    coordinated: AtomicBool,
    /// How often the nodes of a cluster were asked for its slots.
    pass: AtomicU64,
    /// Why that failed, while nothing is known.
    failure: ArcSwapOption<Error>,
    /// How many searches for a replica of a slot have ended.
    searches: Mutex<HashMap<u16, u64>>,
    /// Nodes of a cluster are to be asked for their role.
    wants_roles: AtomicBool,
    /// The coordinator, while it waits for hints.
    waker: Mutex<Option<Waker>>,
}

impl Board {
    pub(crate) fn new(profile: Arc<Options>) -> Board {
        let topology = Topology::of(&profile);
        Board {
            profile,
            epoch: Padded(AtomicU64::new(1)),
            topology: ArcSwap::from_pointee(topology),
            health: ArcSwap::from_pointee(Health::default()),
            hints: ArrayQueue::new(QUEUE),
            old: ArrayQueue::new(QUEUE),
            reports: Mutex::default(),
            calls: Mutex::default(),
            watchers: Mutex::default(),
            users: AtomicUsize::new(0),
            next_number: AtomicUsize::new(0),
            coordinated: AtomicBool::new(false),
            pass: AtomicU64::new(0),
            failure: ArcSwapOption::empty(),
            searches: Mutex::default(),
            wants_roles: AtomicBool::new(false),
            waker: Mutex::default(),
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
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How often the nodes of a cluster were asked for its slots.
    pub(crate) fn pass(&self) -> u64 {
        self.pass.load(Ordering::Acquire)
    }

    /// Why nothing is known of a cluster.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.load_full().map(|error| (*error).clone())
    }

    /// How many searches for a replica of this slot have ended.
    pub(crate) fn searches(&self, slot: u16) -> u64 {
        lock(&self.searches).get(&slot).copied().unwrap_or(0)
    }

    /// From now on nodes of a cluster are asked for their role.
    pub(crate) fn want_roles(&self) {
        self.wants_roles.store(true, Ordering::Relaxed);
    }

    /// A core joins, with an empty report: where it is to put what it learns.
    pub(crate) fn join(&self, empty: Report) -> Arc<ArcSwap<Report>> {
        self.users.fetch_add(1, Ordering::SeqCst);
        let report = Arc::new(ArcSwap::from_pointee(empty));
        lock(&self.reports).push(Arc::clone(&report));
        report
    }

    /// A core leaves. Who watched is to be woken where nothing is borrowed: the last one left.
    #[must_use]
    pub(crate) fn leave(&self, report: &Arc<ArcSwap<Report>>) -> Vec<Waker> {
        lock(&self.reports).retain(|other| !Arc::ptr_eq(other, report));
        match self.users.fetch_sub(1, Ordering::SeqCst) {
            1 => self.take_watchers(),
            _ => Vec::new(),
        }
    }

    /// From now on `call` is made when a topology is published, until the number is handed to
    /// [`Board::uncall`].
    pub(crate) fn on_publish(&self, call: Call) -> usize {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).push((number, call));
        number
    }

    pub(crate) fn uncall(&self, number: usize) {
        lock(&self.calls).retain(|(other, _)| *other != number);
    }

    // --- What streams of changes do ------------------------------------------------------------------

    /// A new watcher, until [`Board::unwatch`].
    pub(super) fn watch(&self) -> WatcherId {
        let id = WatcherId(self.next_number.fetch_add(1, Ordering::Relaxed));
        lock(&self.watchers).push((id, None));
        id
    }

    /// Has `waker` woken by the next topology, and when the last core leaves.
    pub(super) fn call_watcher(&self, id: WatcherId, waker: &Waker) {
        let waker = Some(waker.clone());
        let mut watchers = lock(&self.watchers);
        let watcher = watchers.iter_mut().find(|(other, _)| *other == id);
        let before = watcher.and_then(|(_, before)| std::mem::replace(before, waker));
        // It is somebody else's code, which must find nothing locked.
        drop(watchers);
        drop(before);
    }

    pub(super) fn unwatch(&self, id: WatcherId) -> Option<Waker> {
        let mut watchers = lock(&self.watchers);
        let at = watchers.iter().position(|(other, _)| *other == id)?;
        watchers.swap_remove(at).1
    }

    fn take_watchers(&self) -> Vec<Waker> {
        lock(&self.watchers).iter_mut().filter_map(|(_, waker)| waker.take()).collect()
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

    /// Ready once there is a hint.
    pub(crate) fn poll_hinted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let before = lock(&self.waker).replace(cx.waker().clone());
        drop(before);
        // One that came before the waker was there has woken nobody.
        if self.hints.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whether nodes of a cluster are to be asked for their role.
    pub(crate) fn wants_roles(&self) -> bool {
        self.wants_roles.load(Ordering::Relaxed)
    }

    /// The nodes of a cluster were asked, with this result: a new topology, or why none knew.
    pub(crate) fn end_pass(&self, found: Result<Option<Topology>, Error>) {
        self.failure.store(found.as_ref().err().cloned().map(Arc::new));
        if let Ok(Some(topology)) = found {
            self.topology.store(Arc::new(topology));
        }
        self.pass.fetch_add(1, Ordering::Release);
        self.publish();
    }

    /// All nodes were asked for replicas of these slots; what they know is published.
    pub(crate) fn end_searches(&self, sought: &[u16]) {
        for slot in sought {
            *lock(&self.searches).entry(*slot).or_default() += 1;
        }
        self.publish();
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
        self.publish();
    }

    fn publish(&self) {
        self.epoch.0.fetch_add(1, Ordering::Release);
        lock(&self.calls).iter().for_each(|(_, call)| call());
        self.take_watchers().into_iter().for_each(|waker| quietly(|| waker.wake()));
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
