//! Asks the nodes of a cluster who serves which slots.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::refresh::{Cause, Refresh};
use crate::client::{LocalClient, LocalContext};
use crate::command::raw;
use crate::config::{Endpoint, Options};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::Frame;
use crate::topology::{Board, NodeIndex, Role, SlotsReply, Topology};

/// Longest pass.
const PASS_MOST: Duration = Duration::from_secs(60);

/// What a node has at least to answer, and at most while there is another one to ask.
const LEAST: Duration = Duration::from_millis(100);
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// How long a node has before the next is asked as well, where commands wait for the answer.
const HEAD_START: Duration = Duration::from_millis(250);

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
    /// Slots of which reads wait for a replica.
    sought: Vec<u16>,
    passes: u64,
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
            passes: 0,
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

    /// Begins a pass if one is due.
    pub(super) fn step(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        if let Some(cause) = state.refresh.begin(now) {
            let sought = std::mem::take(&mut state.sought);
            let is_urgent = std::mem::take(&mut state.is_urgent);
            state.passes += 1;
            let pass = Pass {
                client: self.client.clone(),
                core: self.core.clone(),
                board: self.board.clone(),
                until: now + self.longest(is_urgent, !sought.is_empty()),
                cause,
                is_awaited: is_urgent || !sought.is_empty(),
                sought,
                seed: state.random.u64(..),
            };
            let candidates = pass.candidates(&mut state);
            state.doubtful.clear();
            let state = self.state.clone();
            drop(self.core.spawn(pass.run(candidates, state)));
        }
    }

    /// A pass that commands wait for takes no longer than a connection may, one that looks for
    /// replicas may send a command after that.
    fn longest(&self, is_urgent: bool, seeks: bool) -> Duration {
        match (is_urgent, seeks) {
            (true, _) => self.board.profile().connect_timeout,
            (false, true) => time_of_ask(self.board.profile()),
            (false, false) => PASS_MOST,
        }
    }

    pub(super) fn on_lost(&self, now: Instant, node: NodeIndex) {
        let mut state = self.state.borrow_mut();
        state.doubtful.push(node);
        state.refresh.on_lost(now);
    }

    pub(super) fn on_stale(&self, now: Instant) {
        self.state.borrow_mut().refresh.on_redirect(now);
    }

    pub(super) fn on_read_only(&self, now: Instant, node: NodeIndex) {
        self.state.borrow_mut().doubtful.push(node);
        self.on_awaited(now);
    }

    /// Commands wait for what a pass finds.
    pub(super) fn on_awaited(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.is_urgent = true;
        state.refresh.on_awaited(now);
    }

    /// Reads wait for a replica that serves this slot.
    pub(super) fn on_sought(&self, now: Instant, slot: u16) {
        let mut state = self.state.borrow_mut();
        if !state.sought.contains(&slot) {
            state.sought.push(slot);
        }
        state.refresh.on_sought(now);
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

/// One round over the nodes.
struct Pass {
    core: LocalContext,
    client: LocalClient,
    board: Arc<Board>,
    until: Instant,
    cause: Cause,
    /// Commands wait for it.
    is_awaited: bool,
    /// Slots that it is to find replicas of.
    sought: Vec<u16>,
    /// Of the spread of delays.
    seed: u64,
}

/// A node that is being asked.
type Ask<'a> = Pin<Box<dyn Future<Output = Result<Found, Error>> + 'a>>;

/// What a node said.
struct Found {
    /// What is new of it.
    topology: Option<Topology>,
    /// It names replicas of all slots that they are sought for.
    is_enough: bool,
}

/// A node to be asked, and by when.
struct Candidate {
    node: NodeIndex,
    endpoint: Endpoint,
    part: Part,
}

/// How the time of a pass is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nodes of the cluster: half of it.
    Known,
    /// Seeds but the last: half of the rest.
    Seed,
    /// What is left.
    Last,
}

impl Pass {
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

    async fn run(mut self, candidates: Vec<Candidate>, state: Rc<RefCell<State>>) {
        let found = self.ask_all(candidates).await;
        let now = self.core.now();
        let sought = std::mem::take(&mut self.sought);
        let mut state = state.borrow_mut();
        let random = state.random.f64();
        state.refresh.end(now, found.is_ok(), random);
        drop(state);
        // What was found and that the pass is over are seen at once: who waits for the pass has its answer.
        self.board.end_pass(found, &sought);
    }

    /// Asks one after the other until one knows. Where commands wait for it none is waited for long before
    /// the next is asked as well, and the first to know ends it. Answers what is new, or why none
    /// knew.
    async fn ask_all(&self, candidates: Vec<Candidate>) -> Result<Option<Topology>, Error> {
        let mut ended = Ended::default();
        let mut asks: Vec<Ask<'_>> = Vec::new();
        let begun = self.core.now();
        let all = self.until.since(begun);
        let seeds_until = begun + all / 2 + all / 4;
        let has_seeds = candidates.iter().any(|candidate| candidate.part != Part::Known);
        let parts: Vec<_> = candidates.iter().map(|candidate| candidate.part).collect();
        for (n, Candidate { node, endpoint, part }) in candidates.into_iter().enumerate() {
            if n > 0 && !self.await_turn(n, &mut asks, &mut ended).await {
                break;
            }
            let until = match part {
                Part::Known if has_seeds => begun + all / 2,
                Part::Seed => seeds_until,
                Part::Known | Part::Last => self.until,
            };
            let left = parts[n..].iter().filter(|other| **other == part).count() as u32;
            let time = self.time_of_one(until.since(self.core.now()), left);
            if !time.is_zero() {
                asks.push(Box::pin(self.ask(node, endpoint, time)));
            }
        }
        while !ended.is_over() && !asks.is_empty() {
            ended.add(first(&mut asks).await);
        }
        ended.result()
    }

    /// Waits until the `n`-th node is to be asked, from 1. Answers whether it is.
    async fn await_turn(&self, n: usize, asks: &mut Vec<Ask<'_>>, ended: &mut Ended) -> bool {
        let policy = &self.board.profile().reconnect;
        let bound = policy.attempts.filter(|_| self.cause == Cause::Need);
        if bound.is_some_and(|most| n > most as usize) {
            return false;
        }
        let random = fastrand::Rng::with_seed(self.seed.wrapping_add(n as u64)).f64();
        let (pause, ends_early) = match bound {
            // As with attempts to connect, of which there may only be so many.
            Some(_) => (policy.delay(n as u32 - 1, random), false),
            None if self.is_awaited => (HEAD_START, true),
            None => (PASS_MOST, true),
        };
        let mut paused = pin!(self.core.sleep(pause));
        while !ended.is_over() {
            if asks.is_empty() && ends_early {
                return true;
            }
            match select(&mut paused, asks).await {
                None => return true,
                Some(one) => ended.add(one),
            }
        }
        false
    }

    /// The time of one node, with so many left that share `time`: at most that of a connect and a command,
    /// and one that says nothing leaves the others enough.
    fn time_of_one(&self, time: Duration, left: u32) -> Duration {
        let most = time_of_ask(self.board.profile());
        match left {
            0 | 1 => time.min(most),
            _ => (time / left).clamp(time.min(LEAST), most).min(ONE_OF_SEVERAL),
        }
    }

    /// Asks one node. Answers what is new.
    async fn ask(
        &self,
        node: NodeIndex,
        endpoint: Endpoint,
        time: Duration,
    ) -> Result<Found, Error> {
        let endpoint = &endpoint;
        let until = self.core.now() + time;
        let slots = raw("CLUSTER").arg("SLOTS").build::<()>();
        let request = self.client.to_node(node, slots).timeout(time);
        let said = request.with(|frame: Frame<'_>| SlotsReply::of(&frame, endpoint)).await;
        let said = said.map_err(|error| not_a_cluster(error, endpoint))?;
        let said = said.and_then(|said| match said.0.iter().any(|range| range.primary.is_some()) {
            false if said.0.is_empty() => Err("it serves no slots"),
            false => Err("it names no primary that could be reached"),
            true => Ok(said),
        });
        let said = said.map_err(|wrong| {
            let text = format!("the answer to CLUSTER SLOTS is of no use: {wrong}");
            Error::new(ErrorKind::Protocol, Fate::Answered, text).with_node(endpoint)
        })?;
        self.identify(node, until).await;
        let (now, before) = (self.core.now(), self.board.topology());
        let next = before.with_slots(now, self.board.profile(), &said);
        let is_new = before.slots().is_none() || !next.serves_as(&before);
        if is_new {
            tracing::info!(epoch = next.epoch(), from = %endpoint, "the topology of the cluster changed");
        }
        let is_enough = self.sought.iter().all(|slot| said.has_replica(*slot));
        Ok(Found { topology: is_new.then_some(next), is_enough })
    }

    /// Asks a node that is only known by the address of a seed which one it is.
    async fn identify(&self, node: NodeIndex, until: Instant) {
        let topology = self.board.topology();
        if topology.node(node).is_none_or(|node| node.id.is_some()) {
            return;
        }
        let time = until.since(self.core.now());
        let request = self.client.to_node(node, raw("CLUSTER").arg("MYID").build::<()>());
        let id = request.timeout(time).with(|frame: Frame<'_>| {
            let text = std::str::from_utf8(frame.payload()).ok().filter(|_| !frame.is_null());
            text.filter(|id| !id.is_empty()).map(str::to_owned)
        });
        // Where that may not be asked the seed is one more node.
        if let Ok(Some(id)) = id.await
            && let Some(next) = self.board.topology().with_id(self.core.now(), node, &id)
        {
            self.board.publish_topology(next);
        }
    }
}

/// What the nodes that were asked have said.
#[derive(Default)]
struct Ended {
    /// The first of use.
    found: Option<Option<Topology>>,
    failure: Option<Error>,
    is_over: bool,
}

impl Ended {
    fn add(&mut self, one: Result<Found, Error>) {
        match one {
            Ok(found) if found.is_enough => {
                (self.found, self.is_over) = (Some(found.topology), true);
            }
            Ok(found) => _ = self.found.get_or_insert(found.topology),
            // It would be the same with any other.
            Err(error) if error.kind() == ErrorKind::Config => {
                (self.found, self.failure, self.is_over) = (None, Some(error), true);
            }
            Err(error) => _ = self.failure.get_or_insert(error),
        }
    }

    /// Whether nobody else needs to be asked.
    fn is_over(&self) -> bool {
        self.is_over
    }

    fn result(self) -> Result<Option<Topology>, Error> {
        match (self.found, self.failure) {
            (Some(topology), _) => Ok(topology),
            (None, Some(error)) => Err(error),
            (None, None) => {
                let text = "no node of the cluster is known that could be asked";
                Err(Error::new(ErrorKind::NotConnected, Fate::NotSent, text))
            }
        }
    }
}

/// The first of them to end, which is taken out.
fn poll_first(asks: &mut Vec<Ask<'_>>, cx: &mut Context<'_>) -> Poll<Result<Found, Error>> {
    for n in 0..asks.len() {
        if let Poll::Ready(one) = asks[n].as_mut().poll(cx) {
            drop(asks.swap_remove(n));
            return Poll::Ready(one);
        }
    }
    Poll::Pending
}

async fn first(asks: &mut Vec<Ask<'_>>) -> Result<Found, Error> {
    poll_fn(|cx| poll_first(asks, cx)).await
}

/// The same, unless `pause` is over before.
async fn select(
    pause: &mut Pin<&mut impl Future>,
    asks: &mut Vec<Ask<'_>>,
) -> Option<Result<Found, Error>> {
    poll_fn(|cx| match poll_first(asks, cx) {
        Poll::Ready(one) => Poll::Ready(Some(one)),
        Poll::Pending => pause.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// Longest time of one node: that of a connect and a command.
fn time_of_ask(profile: &Options) -> Duration {
    profile.connect_timeout + profile.command_timeout.unwrap_or(profile.connect_timeout)
}

/// What a server without cluster support says means that the options are wrong.
fn not_a_cluster(error: Error, endpoint: &Endpoint) -> Error {
    let said = error.server_error().map(|said| said.text().to_ascii_lowercase());
    match said {
        Some(said) if said.contains("cluster support disabled") => {
            let text = "`cluster`: the server is no node of a cluster: leave the option out, or name a \
                        server with `cluster-enabled yes`";
            Error::config(text).with_node(endpoint)
        }
        _ => error,
    }
}
