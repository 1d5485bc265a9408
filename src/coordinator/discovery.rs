//! Asks the nodes of a cluster who serves which slots.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::refresh::{Cause, Refresh};
use super::round::{Candidate, Part, Round, Said};
use crate::client::{LocalClient, LocalContext};
use crate::config::Endpoint;
use crate::error::{Error, ErrorKind, Fate};
use crate::topology::{Board, NodeIndex, Role, Topology};

/// Longest pass.
const PASS_MOST: Duration = Duration::from_secs(60);

/// The discovery of one cluster.
pub(super) struct Discovery {
    core: LocalContext,
    client: LocalClient,
    board: Arc<Board>,
    state: Rc<RefCell<State>>,
}

struct State {
    refresh: Refresh,
    random: fastrand::Rng,
    /// Nodes that were lost, or are no primaries any more: they are asked last.
    doubtful: Vec<NodeIndex>,
    /// The pass that is due is one that commands wait for.
    is_urgent: bool,
    /// Slots of which reads wait for a replica: those that are not being asked for yet, and those that are.
    sought: Vec<u16>,
    searched: Vec<u16>,
}

impl State {
    fn doubt(&mut self, node: NodeIndex) {
        if !self.doubtful.contains(&node) {
            self.doubtful.push(node);
        }
    }
}

impl Discovery {
    /// That of the deployment, if it is a cluster.
    pub(super) fn new(
        core: &LocalContext,
        client: &LocalClient,
        board: &Arc<Board>,
    ) -> Option<Discovery> {
        let cluster = board.profile().cluster.as_ref()?;
        let state = State {
            refresh: Refresh::new(cluster.period()),
            random: fastrand::Rng::with_seed(core.now().as_nanos()),
            doubtful: Vec::new(),
            is_urgent: false,
            sought: Vec::new(),
            searched: Vec::new(),
        };
        Some(Discovery {
            core: core.clone(),
            client: client.clone(),
            board: board.clone(),
            state: Rc::new(RefCell::new(state)),
        })
    }

    /// When something is to be done next.
    pub(super) fn due(&self) -> Instant {
        self.state.borrow().refresh.due()
    }

    /// Begins what is due: a pass, and a search for what reads wait for.
    pub(super) fn step(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        if let Some(cause) = state.refresh.begin(now) {
            let is_urgent = std::mem::take(&mut state.is_urgent);
            let until = now + self.longest(is_urgent);
            let is_bounded = is_urgent || cause == Cause::Need;
            let round = self.round(&mut state, until, is_urgent, is_bounded);
            let candidates = self.candidates(&mut state);
            state.doubtful.clear();
            drop(self.core.spawn(pass(round, candidates, self.state.clone())));
        }
        let sought = std::mem::take(&mut state.sought);
        if !sought.is_empty() {
            let until = now + self.board.profile().connect_and_command();
            let round = self.round(&mut state, until, true, true);
            let candidates = self.candidates(&mut state);
            state.searched.extend(&sought);
            drop(self.core.spawn(search(round, candidates, sought, self.state.clone())));
        }
    }

    fn round(
        &self,
        state: &mut State,
        until: Instant,
        is_awaited: bool,
        is_bounded: bool,
    ) -> Round {
        let (core, client, board) = (self.core.clone(), self.client.clone(), self.board.clone());
        Round { core, client, board, until, is_awaited, is_bounded, seed: state.random.u64(..) }
    }

    /// A pass that commands wait for takes no longer than a connection may.
    fn longest(&self, is_urgent: bool) -> Duration {
        match is_urgent {
            true => self.board.profile().connect_timeout,
            false => PASS_MOST,
        }
    }

    /// Known primaries, other known nodes, and the seeds; in another order each time.
    fn candidates(&self, state: &mut State) -> Vec<Candidate> {
        let topology = self.board.topology();
        let is_known = topology.slots().is_some();
        let mut known = Vec::new();
        let mut seeds = Vec::new();
        for (index, node) in topology.nodes().filter(|(_, node)| !node.is_removed) {
            let endpoint = node.endpoint().clone();
            let is_seed = node.id.is_none();
            let rank = match node.role {
                _ if state.doubtful.contains(&index) => 2,
                Role::Primary => 0,
                Role::Replica => 1,
            };
            match is_seed && (rank < 2 || !is_known) {
                true => seeds.push((index, endpoint)),
                false => known.push((rank, index, endpoint)),
            }
        }
        state.random.shuffle(&mut known);
        known.sort_by_key(|(rank, ..)| *rank);
        // At first they are asked in the order in which they were given.
        if is_known {
            state.random.shuffle(&mut seeds);
        }
        let last = seeds.len().saturating_sub(1);
        let known = known.into_iter();
        let known =
            known.map(|(_, node, endpoint)| Candidate { node, endpoint, part: Part::Known });
        let seeds = seeds.into_iter().enumerate().map(|(n, (node, endpoint))| {
            let part = if n == last { Part::Last } else { Part::Seed };
            Candidate { node, endpoint, part }
        });
        known.chain(seeds).collect()
    }

    pub(super) fn on_lost(&self, now: Instant, node: NodeIndex) {
        let mut state = self.state.borrow_mut();
        state.doubt(node);
        state.refresh.on_lost(now);
    }

    pub(super) fn on_stale(&self, now: Instant) {
        self.state.borrow_mut().refresh.on_redirect(now);
    }

    pub(super) fn on_read_only(&self, now: Instant, node: NodeIndex) {
        self.state.borrow_mut().doubt(node);
        self.on_awaited(now);
    }

    /// Commands wait for what a pass finds.
    pub(super) fn on_awaited(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.is_urgent = true;
        state.refresh.on_awaited(now);
    }

    /// Reads wait for a replica that serves this slot.
    pub(super) fn on_sought(&self, slot: u16) {
        let mut state = self.state.borrow_mut();
        if !state.sought.contains(&slot) && !state.searched.contains(&slot) {
            state.sought.push(slot);
        }
    }

    /// Nodes said that slots, or keys of them, are elsewhere: published at once, and asked for later.
    pub(super) fn on_redirects(&self, now: Instant, redirects: Vec<(Option<u16>, Endpoint)>) {
        self.state.borrow_mut().refresh.on_redirect(now);
        let profile = self.board.profile();
        let before = self.board.topology();
        let mut next = Topology::clone(&before);
        for (slot, to) in redirects {
            let is_known = next.find(&to).is_some();
            let has_slot = slot.and_then(|slot| next.slots()?.owner(slot));
            next = match slot {
                Some(_) if has_slot.is_some() && next.find(&to) == has_slot => continue,
                Some(slot) => next.with_moved(now, profile, slot, &to),
                None if is_known => continue,
                None => next.with_node(now, profile, &to),
            };
        }
        if next.epoch() > before.epoch() {
            self.board.publish_topology(next);
        }
    }
}

/// Asks until one node knows.
async fn pass(round: Round, candidates: Vec<Candidate>, state: Rc<RefCell<State>>) {
    let mut found: Result<Said, Error> = Err(nobody_to_ask());
    let mut is_first = true;
    let mut take = |said: Result<Said, Error>| {
        // With wrong options it would be the same with any other node.
        let is_over = said.as_ref().map_or_else(|e| e.kind() == ErrorKind::Config, |_| true);
        if is_over || std::mem::take(&mut is_first) {
            found = said;
        }
        is_over
    };
    round.ask_all(candidates, &mut take).await;
    let now = round.core.now();
    let random = state.borrow_mut().random.f64();
    state.borrow_mut().refresh.end(now, found.is_ok(), random);
    // What was found and that the pass is over are seen at once: who waits for the pass has its answer.
    round.board.end_pass(found.map(|said| what_is_new(&round, &said)));
}

/// Asks all nodes until replicas of these slots are known. What an answer says is taken over at once; only
/// where it would leave one of them without replicas, it has to wait until nobody else knows any.
async fn search(
    round: Round,
    candidates: Vec<Candidate>,
    sought: Vec<u16>,
    state: Rc<RefCell<State>>,
) {
    let mut left = sought.clone();
    let mut others = None;
    let mut take = |said: Result<Said, Error>| {
        let Ok(said) = said else { return false };
        let before = left.len();
        left.retain(|slot| !said.slots.has_replica(*slot));
        if left.len() == before {
            others.get_or_insert((round.board.topology().epoch(), said));
        } else {
            publish(&round, &said);
        }
        left.is_empty()
    };
    round.ask_all(candidates, &mut take).await;
    // What was published since is newer than this answer.
    let is_current = |epoch: u64| round.board.topology().epoch() == epoch;
    if let Some((_, said)) = others.filter(|(epoch, _)| is_current(*epoch)) {
        publish(&round, &said);
    }
    state.borrow_mut().searched.retain(|slot| !sought.contains(slot));
    round.board.end_searches(&sought);
}

fn publish(round: &Round, said: &Said) {
    if let Some(next) = what_is_new(round, said) {
        round.board.publish_topology(next);
    }
}

/// What an answer says that is not known by now.
fn what_is_new(round: &Round, said: &Said) -> Option<Topology> {
    let before = round.board.topology();
    let next = before.with_slots(round.core.now(), round.board.profile(), &said.slots);
    let is_new = before.slots().is_none() || !next.serves_as(&before);
    if is_new {
        tracing::info!(epoch = next.epoch(), from = %said.from, "the topology of the cluster changed");
    }
    is_new.then_some(next)
}

fn nobody_to_ask() -> Error {
    let text = "no node of the cluster is known that could be asked";
    Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
}
