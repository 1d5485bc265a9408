//! Commands that a node of the cluster would not have: where they go instead, and when.
//!
//! A command that was answered with such an error was not run, so that sending it elsewhere repeats nothing.
//! Its bytes are with its task, which is woken to queue them again.

use std::time::Duration;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::timer::Wheel;

use super::body::Held;
use super::cell::State;
use super::choose::{Chosen, Why, cursor_lost};
use super::receive::copy_of;
use super::{CellId, Engine, LinkId, Outside};
use crate::config::Endpoint;
use crate::error::Error;
use crate::read::{ReadFrom, Reads};
use crate::resp::{Frame, ServerError};
use crate::route::{self, Cursor, Redirect, Verdict, Way};
use crate::topology::{Hint, NodeIndex, Role};

/// How often a command may be sent again.
const AGAIN_MAX: u8 = 5;
/// Before a command is sent again that may succeed a moment later: so long the first time, then twice as
/// long each time.
const AGAIN_AFTER: Duration = Duration::from_millis(25);

/// A node that said nothing for so long, with commands unanswered, may have stopped.
const SILENT: Duration = Duration::from_millis(500);

/// Requests that wait for more than a connection.
pub(super) struct Parked {
    /// For a moment to pass.
    timed: Wheel<CellId>,
    /// For the nodes to be asked.
    asked: Vec<Asked>,
    due: Vec<CellId>,
}

/// A request that waits until more is known of the cluster.
struct Asked {
    id: CellId,
    /// What it fails with if that does not help.
    error: Error,
    /// The node that it was named, which is not known yet.
    to: Option<Endpoint>,
    /// The node that would not have it.
    from: Option<NodeIndex>,
    /// From this pass on it is not helped.
    pass: u64,
}

impl Parked {
    pub(super) fn new(now: Instant) -> Parked {
        Parked { timed: Wheel::new(now), asked: Vec::new(), due: Vec::new() }
    }

    /// When the next one has waited for long enough.
    pub(super) fn next(&self) -> Instant {
        self.timed.next()
    }
}

impl<O: Outside> Engine<O> {
    /// An error came for what is at the head of a link of a cluster. Answers whether the request gets it.
    pub(super) fn on_error_in_cluster(
        &mut self,
        now: Instant,
        at: LinkId,
        frame: Frame<'_>,
    ) -> bool {
        let Some(error) = ServerError::from_frame(&frame) else { return true };
        let from = self.links[at.0 as usize].profile.endpoint.clone();
        let verdict = route::verdict_in_cluster(&error, &from);
        if verdict == Verdict::Return {
            return self.give_error(now, at, error);
        }
        let link = &mut self.links[at.0 as usize];
        let unit = link.connection.in_flight.answer();
        link.heard = true;
        self.counters.replies += 1;
        self.look_at_board(now);
        self.learn(at, &verdict);
        if let Some((id, leg)) = unit.and_then(|unit| copy_of(unit.owner)) {
            self.settle(now, id, leg, Error::server(error).with_node(&from));
        }
        self.admit(now);
        self.rearm();
        false
    }

    /// What an error says of the cluster, to whomever it was.
    fn learn(&mut self, at: LinkId, verdict: &Verdict) {
        match verdict {
            Verdict::Follow(Redirect { is_moved, slot, to }) => {
                let known = to.as_ref().and_then(|to| self.topology.find(to));
                let Some(to) = to else { return self.tell_coordinator(Hint::Awaited) };
                match (known, is_moved) {
                    // What was known already: the replica that said so may not know of READONLY.
                    (Some(node), true) if self.owner(Some(*slot)) == Some(node) => {}
                    (known, true) => {
                        self.patch(*slot, known);
                        self.tell_coordinator(Hint::Moved { slot: *slot, to: to.clone() });
                    }
                    (Some(_), false) => {}
                    (None, false) => self.tell_coordinator(Hint::Known(to.clone())),
                }
            }
            Verdict::Rediscover => {
                self.tell_coordinator(Hint::ReadOnly(self.links[at.0 as usize].node));
            }
            Verdict::AwaitCluster => self.tell_coordinator(Hint::Stale),
            _ => {}
        }
    }

    /// From now on a slot is another node's, until the next snapshot says better (C-22).
    fn patch(&mut self, slot: u16, to: Option<NodeIndex>) {
        if let (Some(cluster), Some(to)) = (&mut self.cluster, to)
            && let Some(slots) = &mut cluster.slots
        {
            slots.set(slot..=slot, to);
            self.counters.moved += 1;
        }
    }

    /// A command had no answer in time: a node that has said nothing for long may have stopped.
    pub(super) fn suspect(&self, now: Instant, at: LinkId) {
        let link = &self.links[at.0 as usize];
        let last = link.last_read.or(link.up_since);
        if self.cluster.is_some() && last.is_none_or(|last| now.since(last) >= SILENT) {
            self.tell_coordinator(Hint::Lost(link.node));
        }
    }

    pub(super) fn tell_coordinator(&self, hint: Hint) {
        if let Some(board) = self.reported_board() {
            board.hint(hint);
        }
    }

    /// A request was answered with this error, and no other copy of it is under way. Answers whether it is
    /// sent again; else it is the caller's.
    pub(super) fn go_on(&mut self, now: Instant, id: CellId, error: &Error) -> bool {
        let (Some(said), Some(from)) = (error.server_error(), error.node()) else { return false };
        let Some(cell) = self.cells.get(id).filter(|cell| cell.state == State::InFlight) else {
            return false;
        };
        let way = cell.way();
        if self.cluster.is_none() || way.slot.is_none() || way.again >= AGAIN_MAX {
            return false;
        }
        if let Cursor::GoesOn(_) = way.cursor {
            self.fail(id, cursor_lost().with_node(from));
            return true;
        }
        let next = Way { node: None, is_asking: false, again: way.again + 1, ..way };
        match route::verdict_in_cluster(said, from) {
            Verdict::Follow(redirect) => self.follow_redirect(now, id, error, next, redirect),
            Verdict::TryAgain => {
                // Where it was asked is where its keys will be.
                let next = Way { node: way.node, is_asking: way.is_asking, ..next };
                self.park_for_a_moment(now, id, next);
            }
            // Another role may know better.
            Verdict::AwaitCluster => {
                if !self.switch_role(now, id, next, error) {
                    self.park_for_a_moment(now, id, next);
                }
            }
            Verdict::Rediscover => {
                let from = self.topology.find(from);
                // Its slot may have gone elsewhere since it was sent.
                match self.owner(next.slot).is_some_and(|owner| Some(owner) != from) {
                    true => self.send_again(now, id, next),
                    false => self.park(id, next, error, None, from),
                }
            }
            Verdict::OtherRole => return self.switch_role(now, id, next, error),
            Verdict::Return | Verdict::ReturnAndCheck | Verdict::ReturnAndReconnect => {
                return false;
            }
        }
        true
    }

    fn follow_redirect(
        &mut self,
        now: Instant,
        id: CellId,
        error: &Error,
        next: Way,
        redirect: Redirect,
    ) {
        let is_asking = !redirect.is_moved;
        let known = redirect.to.as_ref().and_then(|to| self.topology.find(to));
        match known {
            Some(node) => self.send_again(now, id, Way { node: Some(node), is_asking, ..next }),
            None => self.park(id, Way { is_asking, ..next }, error, redirect.to, None),
        }
    }

    /// A read of a policy that prefers one role goes to the other one, and stays there. Answers
    /// whether there is another.
    fn switch_role(&mut self, now: Instant, id: CellId, next: Way, error: &Error) -> bool {
        let Some(cell) = self.cells.get(id) else { return false };
        let role = self.links[cell.link.0 as usize].role;
        let from = match (next.reads.from, role) {
            (ReadFrom::Primary | ReadFrom::Replica, _) => return false,
            (_, Role::Replica) => ReadFrom::Primary,
            (_, Role::Primary) => ReadFrom::Replica,
        };
        // The bound on staleness stays; what only the primary may serve now is not hedged.
        let (reads, may_race) =
            (Reads { from, ..next.reads }, next.may_race && from.uses_replicas());
        let next = Way { reads, may_race, ..next };
        match self.choose(now, &next, None) {
            // Nobody of that role: what the server said tells more.
            Chosen::Never(_) | Chosen::Wait(Why::Search) => self.fail(id, error.clone()),
            chosen => self.send_again_by(id, next, chosen),
        }
        true
    }

    fn park_for_a_moment(&mut self, now: Instant, id: CellId, next: Way) {
        let spread = 0.75 + self.random.f64() / 2.0;
        let time = AGAIN_AFTER.mul_f64(spread) * (1 << (next.again - 1));
        if let Some(cluster) = &mut self.cluster {
            cluster.parked.timed.insert(now + time, id);
        }
        self.set_parked(id, next);
    }

    fn park(
        &mut self,
        id: CellId,
        next: Way,
        error: &Error,
        to: Option<Endpoint>,
        from: Option<NodeIndex>,
    ) {
        let Some(cluster) = &mut self.cluster else { return };
        // A node that was named is published without a pass, so that one which ends just now, and began
        // before, says nothing of it.
        let pass = cluster.pass + if to.is_some() { 2 } else { 1 };
        cluster.parked.asked.push(Asked { id, error: error.clone(), to, from, pass });
        self.set_parked(id, next);
    }

    fn set_parked(&mut self, id: CellId, next: Way) {
        if let Some(cell) = self.cells.get(id)
            && let Some(len) = cell.len_sent()
        {
            cell.state = State::Parked;
            cell.held = Held::Sent { way: next, len };
        }
    }

    /// Sends those again that have waited for long enough.
    pub(super) fn handle_parked(&mut self, now: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.parked.next() > now {
            return;
        }
        let mut due = std::mem::take(&mut cluster.parked.due);
        cluster.parked.timed.expire(now, &mut due);
        for id in due.drain(..) {
            if let Some(way) = self.parked_way(id) {
                self.send_again(now, id, way);
            }
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.parked.due = due;
        }
    }

    /// More is known of the cluster, or could not be found out.
    pub(super) fn look_at_parked(&mut self, now: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        for asked in std::mem::take(&mut cluster.parked.asked) {
            let Some(way) = self.parked_way(asked.id) else { continue };
            let pass = self.cluster.as_ref().map_or(0, |cluster| cluster.pass);
            let named = asked.to.as_ref().and_then(|to| self.topology.find(to));
            let owner = self.owner(way.slot).filter(|owner| Some(*owner) != asked.from);
            match (named, owner) {
                (Some(node), _) => {
                    self.send_again(now, asked.id, Way { node: Some(node), ..way });
                }
                // Somebody else has the slot by now.
                (None, Some(_))
                    if asked.to.is_none() && (asked.from.is_some() || pass >= asked.pass) =>
                {
                    self.send_again(now, asked.id, Way { is_asking: false, ..way });
                }
                _ if pass >= asked.pass => self.fail(asked.id, asked.error),
                _ => {
                    if let Some(cluster) = &mut self.cluster {
                        cluster.parked.asked.push(asked);
                    }
                }
            }
        }
    }

    fn parked_way(&mut self, id: CellId) -> Option<Way> {
        let cell = self.cells.get(id).filter(|cell| cell.state == State::Parked)?;
        Some(cell.way())
    }

    /// A request whose command was not run is queued again, by its task, as soon as there is room.
    fn send_again(&mut self, now: Instant, id: CellId, way: Way) {
        let chosen = self.choose(now, &way, None);
        self.send_again_by(id, way, chosen);
    }

    fn send_again_by(&mut self, id: CellId, way: Way, chosen: Chosen) {
        let queue = self.queue_of(&way);
        let target = self.awaited_link(&way);
        let Some(cell) = self.cells.get(id) else { return };
        let Some(len) = cell.len_sent() else { return };
        let own_deadline = cell.deadline;
        let (state, why) = match chosen {
            Chosen::Never(error) => return self.fail(id, error),
            Chosen::Link(at) => {
                cell.link = at;
                (State::Admitted, Why::Room)
            }
            Chosen::Wait(why) => {
                cell.link = target;
                (State::Waiting, why)
            }
        };
        self.counters.again += 1;
        cell.state = state;
        cell.held = Held::Waiting { own_deadline, len, way, why, queue };
        if state == State::Waiting {
            return self.queues.push_front(queue, id, len as usize);
        }
        let link = cell.link;
        if let Some(waker) = cell.waker.take() {
            self.out.wake(waker);
        }
        self.links[link.0 as usize].reserved += 1;
    }
}
