//! Which link a command of a cluster takes.

use std::ops::Range;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::choose::{Chosen, Why};
use super::follow::Parked;
use super::link::{Link, LinkState};
use super::search::Search;
use super::{Engine, Line, LinkId, Outside};
use crate::config::Cluster as Settings;
use crate::connection::Owner;
use crate::error::{Error, ErrorKind, Fate};
use crate::route::{Cursor, QueueId, Way};
use crate::topology::{Hint, NodeIndex, Role, SlotTable, Topology};

/// What an engine knows of its cluster.
pub(super) struct Cluster {
    /// The primaries of slots; `None` until a node was asked. Redirects patch it until the next snapshot.
    pub(super) slots: Option<SlotTable>,
    /// By primary the nodes of its shard, itself first.
    shards: Vec<Vec<NodeIndex>>,
    /// Those that have slots.
    primaries: Vec<NodeIndex>,
    /// Requests that no node would have, and what they wait for.
    pub(super) parked: Parked,
    /// By primary the search for replicas of its shard.
    pub(super) searches: Vec<Search>,
    /// How often the nodes were asked.
    pub(super) pass: u64,
    /// Why nothing is known yet.
    pub(super) failure: Option<Error>,
    sockets_max: usize,
    /// That there are too many nodes was said.
    is_crowded: bool,
    /// When it may be said again that commands are refused as their node is dead.
    next_refusal: Instant,
}

/// Between two reports of commands that are refused.
const REFUSED_EVERY: Duration = Duration::from_millis(200);

impl Cluster {
    pub(super) fn new(settings: &Settings, now: Instant) -> Cluster {
        Cluster {
            slots: None,
            shards: Vec::new(),
            primaries: Vec::new(),
            parked: Parked::new(now),
            searches: Vec::new(),
            pass: 0,
            failure: None,
            sockets_max: settings.sockets_max,
            is_crowded: false,
            next_refusal: Instant::ZERO,
        }
    }

    /// Takes over what a snapshot says of slots and shards.
    fn take(&mut self, topology: &Topology) {
        self.slots = topology.slots().cloned();
        self.shards.clear();
        self.shards.resize(topology.nodes().count(), Vec::new());
        self.searches.resize(self.shards.len(), Search::default());
        self.primaries.clear();
        for (index, node) in topology.nodes().filter(|(_, node)| !node.is_removed) {
            let Some(shard) = self.shards.get_mut(node.shard.0 as usize) else { continue };
            match node.role {
                Role::Primary => shard.insert(0, index),
                Role::Replica => shard.push(index),
            }
        }
        let owners = self.slots.iter().flat_map(SlotTable::ranges).map(|(_, owner)| owner);
        self.primaries.extend(owners);
        self.primaries.sort_unstable();
        self.primaries.dedup();
    }
}

impl<O: Outside> Engine<O> {
    /// The link for a command of a cluster.
    pub(super) fn choose_in_cluster(
        &mut self,
        now: Instant,
        way: &Way,
        except: Option<NodeIndex>,
    ) -> Chosen {
        if let Some(node) = way.node {
            return match way.cursor {
                Cursor::Begins(pin) | Cursor::GoesOn(pin) if way.slot.is_none() => {
                    self.choose_pinned(now, way, pin, node)
                }
                Cursor::Begins(pin) => {
                    // Sent on to the node that has its slot.
                    let chosen = self.choose_lane(now, node);
                    self.pin(pin, Some(node), &chosen);
                    chosen
                }
                _ => self.choose_lane(now, node),
            };
        }
        if let Some(unknown) = self.cluster.as_ref().filter(|cluster| cluster.slots.is_none()) {
            let failure = unknown.failure.as_ref();
            let wrong = failure.filter(|error| error.kind() == ErrorKind::Config);
            return match wrong {
                Some(error) => Chosen::Never(error.clone()),
                None => Chosen::Wait(Why::Connection),
            };
        }
        let Some(shard) = self.owner(way.slot).or_else(|| self.any_primary()) else {
            return Chosen::Wait(Why::Connection);
        };
        match way.cursor {
            Cursor::Begins(pin) | Cursor::GoesOn(pin) => self.choose_pinned(now, way, pin, shard),
            Cursor::None if way.is_primary() => self.choose_lane(now, shard),
            Cursor::None => {
                self.begin_to_ask(way);
                if except.is_none() && self.has_no_replica(shard) {
                    // Nobody waits for it where another node serves.
                    self.seeks(now, way.slot, shard);
                }
                self.choose_read(now, way, except, shard)
            }
        }
    }

    /// The primary of a slot, as far as that is known.
    pub(super) fn owner(&self, slot: Option<u16>) -> Option<NodeIndex> {
        self.cluster.as_ref()?.slots.as_ref()?.owner(slot?)
    }

    /// A primary for what has no key: one that is connected, each in turn; else one that is not known to
    /// be dead.
    fn any_primary(&mut self) -> Option<NodeIndex> {
        let primaries = &self.cluster.as_ref()?.primaries;
        self.turn = self.turn.wrapping_add(1);
        let count = primaries.len();
        let in_turn = (0..count).map(|n| primaries[(self.turn + n) % count]);
        let find = |fits: fn(&Link) -> bool| {
            let mut nodes = in_turn.clone();
            nodes.find(|node| self.links[self.links_of(*node)].iter().any(fits))
        };
        find(Link::is_ready).or_else(|| find(|link| !link.is_dead)).or(primaries.first().copied())
    }

    /// The primaries of a cluster, or all of its nodes; `None` until they are known.
    pub(crate) fn nodes_of_cluster(&self, all: bool) -> Option<Vec<NodeIndex>> {
        let cluster = self.cluster.as_ref().filter(|cluster| cluster.slots.is_some())?;
        if !all {
            return Some(cluster.primaries.clone());
        }
        // A seed that the cluster does not name may be gone, or another name of one that it does.
        let is_named = |index: NodeIndex| {
            let node = self.topology.node(index);
            let is_known = node.is_some_and(|node| node.id.is_some() || node.role == Role::Replica);
            is_known || cluster.primaries.contains(&index)
        };
        Some(cluster.shards.iter().flatten().copied().filter(|index| is_named(*index)).collect())
    }

    /// The link of nearly every command that only the primary of its slot may run: that has one, which is up
    /// and has room, nobody waits, and nothing is to be learnt of the command.
    #[inline]
    pub(crate) fn direct(&self, slot: u16, now: Instant, deadline: Instant) -> Option<LinkId> {
        // Whether a near deadline is past, only the clock itself can tell.
        let is_far = deadline > now.plus_nanos(O::BEHIND_NS);
        let is_usual = self.lanes == 1 && is_far && !self.races.is_traced();
        if !is_usual || self.queues.waiting() > 0 || self.closed || self.draining {
            return None;
        }
        let owner = self.owner(Some(slot))?;
        let at = self.by_node.get(owner.0 as usize)?.start;
        let link = self.links.get(at)?;
        let fits =
            link.node == owner && link.is_ready() && link.has_room(self.options.in_flight_max);
        fits.then_some(LinkId(at as u32))
    }

    /// Where a command of a cluster stands in line.
    pub(super) fn queue_of(&self, way: &Way) -> QueueId {
        match way.node.or_else(|| self.owner(way.slot)) {
            Some(node) if self.cluster.is_some() => way.queue().of_shard(node),
            _ => way.queue(),
        }
    }

    /// The link that a waiting command is said to wait for.
    pub(super) fn awaited_link(&self, way: &Way) -> LinkId {
        let node = way.node.or_else(|| self.owner(way.slot));
        let links = node.map(|node| self.links_of(node)).filter(|links| !links.is_empty());
        links.map_or(self.first_link(), |links| LinkId(links.start as u32))
    }

    /// How many links serve the reads of a shard.
    pub(super) fn readable(&self, shard: NodeIndex) -> usize {
        match &self.cluster {
            None => self.links.len(),
            Some(cluster) => {
                let nodes = cluster.shards.get(shard.0 as usize).map_or(0, Vec::len);
                nodes * self.lanes
            }
        }
    }

    /// The n-th of them.
    pub(super) fn readable_at(&self, shard: NodeIndex, n: usize) -> usize {
        let Some(cluster) = &self.cluster else { return n };
        let nodes = cluster.shards.get(shard.0 as usize);
        let node = nodes.and_then(|nodes| nodes.get(n / self.lanes));
        node.map_or(0, |node| self.links_of(*node).start + n % self.lanes)
    }

    /// A link to this very node.
    fn choose_lane(&mut self, now: Instant, node: NodeIndex) -> Chosen {
        let links = self.links_of(node);
        let max = self.options.in_flight_max;
        let count = links.len();
        if count > 1 {
            self.turn = self.turn.wrapping_add(1);
        }
        let mut wait = None;
        for n in 0..count {
            let at = links.start + (self.turn + n) % count;
            let link = &self.links[at];
            if link.is_ready() && link.has_room(max) {
                return Chosen::Link(LinkId(at as u32));
            }
            if link.is_ready() {
                wait = Some(Why::Room);
            } else if self.awaits(now, at) {
                wait = wait.or(Some(Why::Connection));
            }
        }
        if wait.is_none() && self.replace_for(now, links) {
            wait = Some(Why::Connection);
        }
        if wait.is_none() {
            self.report_dead(now, node);
        }
        wait.map_or_else(|| Chosen::Never(self.unreachable(node)), Chosen::Wait)
    }

    /// A command is refused as its node cannot be reached: another one may have its slots by now, which
    /// nobody tells a client that has nobody else to ask.
    fn report_dead(&mut self, now: Instant, node: NodeIndex) {
        let is_dead = |link: &Link| link.is_dead && !matches!(link.state, LinkState::Failed(_));
        let is_dead = self.links[self.links_of(node)].iter().any(is_dead);
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| now >= cluster.next_refusal)
        else {
            return;
        };
        if is_dead {
            cluster.next_refusal = now + REFUSED_EVERY;
            self.tell_coordinator(Hint::Lost(node));
        }
    }

    /// Whether a read of this shard for which no link is left may wait for one that takes the place of
    /// another.
    pub(super) fn replaces(&mut self, now: Instant, way: &Way, shard: NodeIndex) -> bool {
        if self.cluster.is_none() {
            return false;
        }
        let rank = |at: usize| way.reads.from.rank(self.links[at].standing(true));
        let links = (0..self.readable(shard)).map(|n| self.readable_at(shard, n));
        let idle = links.filter(|at| matches!(self.links[*at].state, LinkState::Idle));
        let best = idle.filter_map(|at| Some((rank(at)?, at))).min();
        best.is_some_and(|(_, at)| self.replace_for(now, at..at + 1))
    }

    /// Whether a link will take commands soon; one that nobody has asked for yet is connected.
    pub(super) fn awaits(&mut self, now: Instant, at: usize) -> bool {
        match self.links[at].state {
            LinkState::Idle => self.connect_for_need(now, LinkId(at as u32)),
            LinkState::Connecting | LinkState::SettingUp(_) | LinkState::Down => {
                !self.links[at].is_dead
            }
            // What drains is replaced.
            LinkState::Draining(_) | LinkState::Ready => true,
            LinkState::Failed(_) | LinkState::Closed => false,
        }
    }

    /// Connects a link, if there may be one more. Answers whether it did.
    fn connect_for_need(&mut self, now: Instant, at: LinkId) -> bool {
        let Some(cluster) = &mut self.cluster else { return false };
        let is_open = |link: &&Link| link.is_open() || matches!(link.state, LinkState::Connecting);
        let open = self.links.iter().filter(is_open).count();
        let max = cluster.sockets_max;
        if open < max {
            self.connect(now, at);
            return true;
        }
        if !std::mem::replace(&mut cluster.is_crowded, true) {
            self.out.log(Line::crowded(max));
        }
        false
    }

    /// Connects one of these links in place of one that nobody uses just now.
    fn replace_for(&mut self, now: Instant, links: Range<usize>) -> bool {
        let mut idle = links.filter(|at| matches!(self.links[*at].state, LinkState::Idle));
        let Some(at) = idle.next() else { return false };
        let is_unused = |link: &Link| {
            let has_nothing = link.connection.in_flight.is_empty() && link.reserved == 0;
            link.is_ready() && has_nothing && link.connection.out.is_empty()
        };
        let links = self.links.iter().enumerate().filter(|(_, link)| is_unused(link));
        let Some((unused, _)) = links.min_by_key(|(_, link)| link.last_read) else { return false };
        self.shelve(LinkId(unused as u32));
        self.connect(now, LinkId(at as u32));
        true
    }

    /// Ends a connection that nobody uses just now.
    fn shelve(&mut self, at: LinkId) {
        self.out.close(at);
        self.forget_connection(at);
        let link = &mut self.links[at.0 as usize];
        (link.state, link.timer) = (LinkState::Idle, Instant::NEVER);
        link.connection.out.clear();
    }

    /// Why a node takes no command.
    fn unreachable(&self, node: NodeIndex) -> Error {
        let links = &self.links[self.links_of(node)];
        let Some(first) = links.first() else {
            let text = "the node is not known to the cluster any more";
            return Error::new(ErrorKind::NotConnected, Fate::NotSent, text);
        };
        let error = match (&first.state, &first.last_error) {
            (LinkState::Failed(error), _) => error.with_fate(Fate::NotSent),
            (LinkState::Closed, _) => {
                let text = "the node left the cluster";
                Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
            }
            (LinkState::Idle, _) => {
                let max = self.cluster.as_ref().map_or(0, |cluster| cluster.sockets_max);
                let text = format!(
                    "as many connections as there may be ({max}) are in use: raise `cluster.sockets_max`"
                );
                Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
            }
            (_, last) => {
                let why = last.as_ref().map_or("not connected", Error::text);
                let text = format!("the node cannot be reached; last attempt: {why}");
                Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
            }
        };
        error.with_node(&first.profile.endpoint)
    }

    /// Takes over the nodes of a cluster.
    pub(super) fn take_cluster(&mut self, now: Instant, topology: &Topology) {
        for (index, node) in topology.nodes() {
            let links = self.links_of(index);
            if links.is_empty() && !node.is_removed {
                self.add_links(index, node);
                continue;
            }
            for at in links {
                self.follow_in_cluster(now, LinkId(at as u32), node);
            }
        }
        self.races.resize(self.links.len(), topology.nodes().count());
        let Some(cluster) = &mut self.cluster else { return };
        cluster.take(topology);
        if cluster.slots.is_some() {
            cluster.failure = None;
            self.first_failure = None;
        }
        self.sort_queues();
        self.connect_first(now);
    }

    /// The client of an application is up once one primary is; the coordinator's own needs none.
    pub(super) fn connect_first(&mut self, now: Instant) {
        let is_application = self.reported_board().is_some();
        let is_begun = self.links.iter().any(Link::is_begun);
        if !is_application || self.was_up || is_begun {
            return;
        }
        if let Some(node) = self.any_primary()
            && let Some(at) = self.links_of(node).find(|at| !self.links[*at].is_dead)
        {
            self.awaits(now, at);
        }
    }

    /// What a snapshot says of the node of a link.
    fn follow_in_cluster(&mut self, now: Instant, at: LinkId, node: &crate::topology::Node) {
        let link = &mut self.links[at.0 as usize];
        if std::mem::replace(&mut link.shard, node.shard) != node.shard && link.is_ready() {
            self.races.move_to(at, node.shard);
        }
        let is_demoted = link.role == Role::Primary && node.role == Role::Replica;
        link.role = node.role;
        if link.profile.endpoint != node.profile.endpoint {
            link.profile = node.profile.clone();
            if matches!(link.state, LinkState::Down | LinkState::Failed(_)) {
                (link.state, link.timer) = (LinkState::Idle, Instant::NEVER);
            }
            (link.attempts, link.is_dead) = (0, false);
        }
        if is_demoted && self.links[at.0 as usize].is_ready() {
            self.say_read_only(at);
        }
        self.follow_node(now, at, node.is_removed);
    }

    /// A primary has become a replica: it serves reads as one from the answer on, and what is sent later
    /// comes after it.
    pub(super) fn say_read_only(&mut self, at: LinkId) {
        self.say(at, Owner::Nobody, &[b"READONLY"]);
    }
}
