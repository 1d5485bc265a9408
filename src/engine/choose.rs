//! Which link a command takes.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::check::LATE;
use super::link::{Link, LinkState};
use super::pin::Pinned;
use super::{Engine, LinkId, Outside};
use crate::error::{Error, ErrorKind, Fate};
use crate::read::{ReadFrom, Reads, nearest};
use crate::route::{Cursor, PinId, Way};
use crate::topology::{NodeIndex, Role};

/// PINGs that may be unanswered at a time (R-239; C-19: for each core).
const PINGS_MAX: usize = 4;
/// Between two PINGs on a connection.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for what a better replica says of its role, where another could serve.
pub(super) const ROLE_WAIT: Duration = Duration::from_secs(1);

/// The one shard of a standalone deployment.
const ONLY: NodeIndex = NodeIndex(0);

/// What was decided on a command.
#[derive(Debug)]
pub(super) enum Chosen {
    /// It takes this link, which has room.
    Link(LinkId),
    /// It waits.
    Wait(Why),
    /// Waiting would not help.
    Never(Error),
}

/// What a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// For a connection, or for what a replica says of its role.
    Connection,
    /// For the answer to a PING: every candidate owes one.
    Sample,
    /// For another replica of the shard to be found: none that is known can serve.
    Search,
    /// For room in the connections.
    Room,
}

/// The links that serve the reads of a policy.
#[derive(Default)]
pub(super) struct Route {
    links: Vec<LinkId>,
    until: Instant,
    epoch: u64,
}

/// What a link is to a read.
enum Look {
    /// It would serve, at this rank.
    Serves(u8),
    /// Not now.
    Soon(Why),
    /// Not before something changes.
    Not,
}

impl<O: Outside> Engine<O> {
    /// The link for a command; `except` is a node that it must not go to, with the copy of it there.
    pub(super) fn choose(&mut self, now: Instant, way: &Way, except: Option<NodeIndex>) -> Chosen {
        if self.closed || (self.draining && way.again == 0) {
            return Chosen::Wait(Why::Connection);
        }
        if self.cluster.is_some() {
            return self.choose_in_cluster(now, way, except);
        }
        if way.is_primary() {
            return match self.primary_with_room() {
                Some(link) => Chosen::Link(link),
                None => match self.given_up() {
                    Some(error) => Chosen::Never(error.with_fate(Fate::NotSent)),
                    None if self.is_connected() => Chosen::Wait(Why::Room),
                    None => Chosen::Wait(Why::Connection),
                },
            };
        }
        if except.is_none()
            && let Some(link) = self.choose_quickly(now, way)
        {
            return Chosen::Link(link);
        }
        self.start_replicas(now);
        if way.reads.lag_max.is_some() {
            self.track_lag(now);
        }
        match way.cursor {
            _ if way.node.is_some() => self.choose_node(way),
            Cursor::None => self.choose_read(now, way, except, ONLY),
            Cursor::Begins(pin) | Cursor::GoesOn(pin) => self.choose_pinned(now, way, pin, ONLY),
        }
    }

    /// The next link to the primary that has room, in turn.
    #[inline]
    pub(super) fn primary_with_room(&mut self) -> Option<LinkId> {
        let max = self.options.in_flight_max;
        let fits = |l: &Link| l.is_ready() && l.has_room(max);
        if self.closed || self.draining {
            return None;
        }
        let first = self.primary.start;
        if let [only] = &self.links[self.primary.clone()] {
            return fits(only).then_some(LinkId(first as u32));
        }
        let count = self.primary.len();
        for _ in 0..count {
            let at = first + self.lane;
            self.lane = if self.lane + 1 == count { 0 } else { self.lane + 1 };
            if fits(&self.links[at]) {
                return Some(LinkId(at as u32));
            }
        }
        None
    }

    /// The link of one node.
    fn choose_node(&self, way: &Way) -> Chosen {
        let max = self.options.in_flight_max;
        let links = self.links.iter().enumerate();
        let mut of_node = links.filter(|(_, link)| Some(link.node) == way.node);
        if let Some((at, _)) = of_node.clone().find(|(_, l)| l.is_ready() && l.has_room(max)) {
            return Chosen::Link(LinkId(at as u32));
        }
        if of_node.any(|(_, link)| link.is_ready() || link.is_coming()) {
            return Chosen::Wait(Why::Connection);
        }
        Chosen::Never(self.no_server(way.reads, ONLY))
    }

    /// The link for a plain read by what was found out for an earlier one, as long as that holds.
    #[inline]
    fn choose_quickly(&mut self, now: Instant, way: &Way) -> Option<LinkId> {
        let from = way.reads.from;
        let route = &self.routes[from.index()];
        let holds = route.epoch == self.route_epoch && now < route.until;
        if !holds || !way.is_plain() {
            return None;
        }
        let link = match &route.links[..] {
            [only] if from != ReadFrom::Nearest => *only,
            several if from.takes_turns() => {
                self.turn = self.turn.wrapping_add(1);
                several[self.turn % several.len()]
            }
            _ => return self.choose_by_latency(now, from),
        };
        self.links[link.0 as usize].has_room(self.options.in_flight_max).then_some(link)
    }

    fn choose_by_latency(&mut self, now: Instant, from: ReadFrom) -> Option<LinkId> {
        let links = std::mem::take(&mut self.routes[from.index()].links);
        let chosen = self.choose_among(now, from, &links);
        self.routes[from.index()].links = links;
        match chosen {
            Chosen::Link(at) => {
                self.links[at.0 as usize].has_room(self.options.in_flight_max).then_some(at)
            }
            Chosen::Wait(_) | Chosen::Never(_) => None,
        }
    }

    /// Remembers which links serve the reads of a policy, until one of them changes or its check is too
    /// old.
    fn remember_route(&mut self, from: ReadFrom, links: &[LinkId]) {
        let interval = self.options.replica_refresh_interval;
        if interval.is_zero() {
            return;
        }
        let until = |link: &LinkId| match self.links[link.0 as usize].role {
            Role::Primary => Instant::NEVER,
            Role::Replica => {
                self.said(link.0 as usize).at.map_or(Instant::ZERO, |at| at + interval * LATE)
            }
        };
        let until = links.iter().map(until).min().unwrap_or(Instant::ZERO);
        let route = &mut self.routes[from.index()];
        route.links.clear();
        route.links.extend_from_slice(links);
        (route.until, route.epoch) = (until, self.route_epoch);
    }

    pub(super) fn choose_read(
        &mut self,
        now: Instant,
        way: &Way,
        except: Option<NodeIndex>,
        shard: NodeIndex,
    ) -> Chosen {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let mut best = u8::MAX;
        let mut soon = None;
        for n in 0..self.readable(shard) {
            let at = self.readable_at(shard, n);
            match self.look_at(now, at, way, except) {
                Look::Serves(rank) => {
                    if rank < best {
                        best = rank;
                        candidates.clear();
                    }
                    if rank == best {
                        candidates.push(LinkId(at as u32));
                    }
                }
                Look::Soon(why) => soon = soon.max(Some(why)),
                Look::Not => {}
            }
        }
        let is_any = except.is_none() && way.is_plain() && soon != Some(Why::Room);
        if is_any && self.cluster.is_none() {
            self.remember_route(way.reads.from, &candidates);
        }
        let chosen = match (&candidates[..], soon) {
            ([], Some(why)) => Chosen::Wait(why),
            ([], None) if except.is_none() && self.replaces(now, way, shard) => {
                Chosen::Wait(Why::Connection)
            }
            ([], None) if except.is_none() && self.seeks(now, way.slot, shard) => {
                Chosen::Wait(Why::Search)
            }
            ([], None) => Chosen::Never(self.no_server(way.reads, shard)),
            // Where every read asks for the role first, the answer is worth waiting for.
            (_, Some(Why::Connection)) if self.awaits_better_role(now, way, except, best) => {
                Chosen::Wait(Why::Connection)
            }
            ([only], _) if self.owes_pong(way, *only) => Chosen::Wait(Why::Sample),
            ([only], _) => Chosen::Link(*only),
            (several, _) => self.choose_among(now, way.reads.from, several),
        };
        self.candidates = candidates;
        chosen
    }

    fn look_at(&mut self, now: Instant, at: usize, way: &Way, except: Option<NodeIndex>) -> Look {
        let link = &self.links[at];
        let linked = link.role == Role::Replica && self.is_linked(at);
        let Some(rank) = way.reads.from.rank(link.standing(linked)) else { return Look::Not };
        if except == Some(link.node) {
            return Look::Not;
        }
        if !link.is_ready() {
            let comes = match self.cluster {
                Some(_) => self.awaits(now, at),
                None => link.is_coming(),
            };
            return if comes { Look::Soon(Why::Connection) } else { Look::Not };
        }
        if link.role == Role::Replica {
            if !self.is_checked(now, at) {
                return Look::Soon(Why::Connection);
            }
            if let Some(max) = way.reads.lag_max
                && self.lag(at).is_none_or(|lag| lag > max.into())
            {
                let is_known = self.lag(at).is_some();
                return if is_known { Look::Not } else { self.awaits_offset() };
            }
        }
        if !self.links[at].has_room(self.options.in_flight_max) {
            return Look::Soon(Why::Room);
        }
        Look::Serves(rank)
    }

    /// Whether a replica's own link to its primary is up; in a cluster unless it said otherwise.
    pub(super) fn is_linked(&self, at: usize) -> bool {
        let said = self.said(at);
        said.linked || (self.cluster.is_some() && said.at.is_none())
    }

    fn awaits_offset(&self) -> Look {
        let primaries = &self.links[self.primary.clone()];
        if primaries.iter().any(|l| l.check.asked_since.is_some()) {
            return Look::Soon(Why::Connection);
        }
        Look::Not
    }

    /// Whether a read that would go to rank `best` waits for a better replica's answer to ROLE.
    fn awaits_better_role(
        &self,
        now: Instant,
        way: &Way,
        except: Option<NodeIndex>,
        best: u8,
    ) -> bool {
        let better = |l: &Link| {
            l.is_ready()
                && except != Some(l.node)
                && l.check.asked_since.is_some_and(|asked| now.since(asked) < ROLE_WAIT)
                && l.role == Role::Replica
                && way.reads.from.rank(l.standing(true)).is_some_and(|rank| rank < best)
        };
        self.options.replica_refresh_interval.is_zero() && self.links.iter().any(better)
    }

    fn choose_among(&mut self, now: Instant, from: ReadFrom, links: &[LinkId]) -> Chosen {
        self.turn = self.turn.wrapping_add(1);
        match from {
            ReadFrom::Nearest => self.choose_nearest(now, links),
            ReadFrom::Quickest => {
                let random = self.random.u64(..);
                let may = |at: usize| links.contains(&LinkId(at as u32));
                let link = self.races.choice.pick(now, random, may);
                Chosen::Link(link.map_or(links[0], |at| LinkId(at as u32)))
            }
            _ => Chosen::Link(links[self.turn % links.len()]),
        }
    }

    /// The lowest latency by PING. A link with an unanswered PING is out of the question; what was
    /// never measured, or not for 10 s, is measured first unless all places for that are taken.
    fn choose_nearest(&mut self, now: Instant, links: &[LinkId]) -> Chosen {
        for link in links {
            if self.latency(now, *link).is_none() {
                self.ping(now, *link);
            }
        }
        self.refresh_one(now, links);
        let links_free = links.iter().filter(|l| self.links[l.0 as usize].pinged.is_none());
        let latencies = links_free.clone().map(|l| self.latency(now, *l));
        match nearest(latencies, self.turn) {
            Some(index) => match links_free.clone().nth(index) {
                Some(link) => Chosen::Link(*link),
                None => Chosen::Wait(Why::Sample),
            },
            None => Chosen::Wait(Why::Sample),
        }
    }

    /// Whether no read of Nearest goes behind an unanswered PING on this link.
    fn owes_pong(&self, way: &Way, at: LinkId) -> bool {
        way.reads.from == ReadFrom::Nearest && self.links[at.0 as usize].pinged.is_some()
    }

    fn latency(&self, now: Instant, link: LinkId) -> Option<Duration> {
        let link = &self.links[link.0 as usize];
        let published = self.published_ping(link.node);
        link.estimate.latency_or(now, published.as_ref())
    }

    /// Measures again what was measured over a second ago: one at a time, and only while another measured
    /// one is left to serve meanwhile.
    fn refresh_one(&mut self, now: Instant, links: &[LinkId]) {
        let measured = |l: &&LinkId| {
            self.latency(now, **l).is_some() && self.links[l.0 as usize].pinged.is_none()
        };
        let free = links.iter().filter(measured);
        if free.clone().count() < 2 {
            return;
        }
        let oldest = free.min_by_key(|l| self.links[l.0 as usize].last_ping);
        if let Some(link) = oldest.copied() {
            self.ping(now, link);
        }
    }

    /// Sends a PING on a link, if the link and the engine may have another one.
    fn ping(&mut self, now: Instant, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        let too_soon = link.last_ping.is_some_and(|last| now.since(last) < PING_EVERY);
        if link.pinged.is_some() || too_soon || self.pings >= PINGS_MAX {
            return;
        }
        (link.pinged, link.last_ping) = (Some(now), Some(now));
        self.pings += 1;
        self.say(at, crate::connection::Owner::Ping, &[b"PING"]);
    }

    /// A scan reads from its server; a new one may take another if that is gone.
    pub(super) fn choose_pinned(
        &mut self,
        now: Instant,
        way: &Way,
        pin: PinId,
        shard: NodeIndex,
    ) -> Chosen {
        let of = way.slot.map(|_| shard);
        if let Some(at) = self.pins.get(pin, of) {
            let link = &self.links[at.link.0 as usize];
            let is_there = link.number == at.number && link.is_ready();
            if is_there && self.may_read_on(way, at.link) {
                return self.choose_page(now, at.link);
            }
            self.pins.remove(pin, of);
        }
        if let Cursor::GoesOn(_) = way.cursor {
            return Chosen::Never(cursor_lost());
        }
        let chosen = self.choose_read(now, way, None, shard);
        self.pin(pin, of, &chosen);
        chosen
    }

    /// The next page of a scan is read where this one is.
    pub(super) fn pin(&mut self, pin: PinId, of: Option<NodeIndex>, chosen: &Chosen) {
        if let Chosen::Link(link) = *chosen {
            let number = self.links[link.0 as usize].number;
            self.pins.set(pin, of, Pinned { link, number });
        }
    }

    /// A page of a scan from its server, which with an interval of zero is asked for its role first, too.
    fn choose_page(&mut self, now: Instant, at: LinkId) -> Chosen {
        let asks = self.options.replica_refresh_interval.is_zero();
        let link = &self.links[at.0 as usize];
        let (role, has_room) = (link.role, link.has_room(self.options.in_flight_max));
        if asks && role == Role::Replica && !self.is_checked(now, at.0 as usize) {
            return Chosen::Wait(Why::Connection);
        }
        if has_room { Chosen::Link(at) } else { Chosen::Wait(Why::Room) }
    }

    /// Whether the server of a scan may serve this page of it: only the first has to keep to a bound on
    /// staleness.
    fn may_read_on(&self, way: &Way, at: LinkId) -> bool {
        let (Some(max), Cursor::Begins(_)) = (way.reads.lag_max, way.cursor) else { return true };
        let is_primary = self.links[at.0 as usize].role == Role::Primary;
        is_primary || self.lag(at.0 as usize).is_some_and(|lag| lag <= max.into())
    }

    /// Why no server can take a read.
    pub(super) fn no_server(&self, reads: Reads, shard: NodeIndex) -> Error {
        let from = reads.from;
        let mut text = format!("no server can take the read ({from}");
        if let Some(max) = reads.lag_max {
            text.push_str(&format!(", at most {max} bytes behind"));
        }
        text.push(')');
        let down = self.links.iter().filter(|link| {
            link.shard == shard && !link.is_ready() && from.rank(link.standing(true)).is_some()
        });
        for link in down.take(3) {
            let why = link.last_error.as_ref().map_or("not connected", Error::text);
            text.push_str(&format!("; {}: {why}", link.profile.endpoint));
        }
        Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
    }
}

///
pub(super) fn cursor_lost() -> Error {
    let text = "the server that this cursor comes from is gone: begin the scan again with cursor 0";
    Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
}

impl Link {
    /// Whether it may take commands soon: a primary unless it was given up, a replica while its first
    /// attempt is under way, so that one that is down costs no read its time.
    fn is_coming(&self) -> bool {
        match self.role {
            Role::Primary => !matches!(self.state, LinkState::Failed(_) | LinkState::Closed),
            Role::Replica => {
                let begins = matches!(self.state, LinkState::Connecting | LinkState::SettingUp(_));
                begins && self.last_error.is_none()
            }
        }
    }
}
