//! Second copies of slow reads.

use hedgerow_runtime::time::Instant;

use super::cell::{Cell, NO_RACE, State};
use super::choose::{Chosen, Why};
use super::link::Link;
use super::race::Sent;
use super::{CellId, Engine, Line, Outside, ReadCopy};
use crate::command::Encoded;
use crate::connection::Owner;
use crate::read::{Due, Ledger, Weather};
use crate::route::Way;
use crate::topology::NodeIndex;

impl<O: Outside> Engine<O> {
    /// Starts the hedges that are due.
    pub(super) fn handle_hedges(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due_hedges);
        self.races.take_due(now, &mut due);
        for (id, again) in due.drain(..) {
            self.hedge(now, id, again);
        }
        self.due_hedges = due;
    }

    /// A read is unanswered after its delay: a second copy of it goes to another node, if one would take
    /// it now and the budget pays for it. Its bytes are still with its task, which is woken to
    /// queue them: nothing was copied for the many reads that are never hedged.
    fn hedge(&mut self, now: Instant, id: CellId, again: bool) {
        let Some((way, node)) = self.armed(id) else { return };
        let peer = match self.choose(now, &way, Some(node)) {
            Chosen::Link(peer) => peer,
            // The other node was asked for its role, which holds at the moment of its answer.
            Chosen::Wait(Why::Connection) if self.options.replica_refresh_interval.is_zero() => {
                return self.races.await_role(id, again);
            }
            // Nobody to ask: the read goes the ordinary way, and pays nothing.
            Chosen::Wait(_) | Chosen::Never(_) => return,
        };
        let Some(cell) = self.cells.get(id) else { return };
        let (Some(watch), Some(tail)) = (&mut cell.watch, &mut self.races.tail) else { return };
        if watch.granted.is_some() {
            return;
        }
        let waited = now.since(watch.at);
        match tail.on_due(now, waited, again) {
            Due::Start => {
                watch.granted = Some(peer);
                if let Some(waker) = cell.waker.take() {
                    self.out.wake(waker);
                }
            }
            Due::Again(time) => self.races.ask_again(now + time, id),
            Due::Leave => {}
        }
    }

    /// The way of a read that may still be hedged, and the node that it must not go to again.
    fn armed(&mut self, id: CellId) -> Option<(Way, NodeIndex)> {
        let cell = self.cells.get(id).filter(|cell| is_armed(cell))?;
        let watch = cell.watch?;
        let sent = cell.way();
        let may_race = watch.reads.from.uses_replicas() && !sent.is_asking;
        let way = Way { reads: watch.reads, may_race, slot: sent.slot, ..Way::PRIMARY };
        may_race.then_some((way, self.links[cell.link.0 as usize].node))
    }

    /// Starts the hedges that waited for what a node says of its role.
    pub(super) fn hedge_after_role(&mut self, now: Instant) {
        if self.races.await_role.is_empty() {
            return;
        }
        let mut due = std::mem::take(&mut self.due_hedges);
        due.append(&mut self.races.await_role);
        for (id, again) in due.drain(..) {
            self.hedge(now, id, again);
        }
        self.due_hedges = due;
        self.rearm();
    }

    /// Queues the second copy of a read of which [`Found::Hedge`](super::Found) was said.
    pub(crate) fn queue_hedge(&mut self, now: Instant, id: CellId, command: &Encoded<'_>) {
        let now = self.exact(now);
        let Some((way, node)) = self.armed(id) else { return };
        let granted = self.cells.get(id).and_then(|cell| cell.watch?.granted);
        // Other hedges that were granted with it may have taken the room, and its slot may have moved
        //
        let (max, owner) = (self.options.in_flight_max, self.owner(way.slot));
        let fits = |link: &Link| {
            link.is_ready() && link.has_room(max) && owner.is_none_or(|owner| link.shard == owner)
        };
        let chosen = match granted.filter(|peer| fits(&self.links[peer.0 as usize])) {
            Some(peer) => Chosen::Link(peer),
            None => self.choose(now, &way, Some(node)),
        };
        let Some(cell) = self.cells.get(id) else { return };
        let Chosen::Link(peer) = chosen else {
            // It went away meanwhile.
            return self.races.take_back(cell);
        };
        if let Some(watch) = &mut cell.watch {
            watch.granted = None;
        }
        let link = &mut self.links[peer.0 as usize];
        let ordinal = link.connection.enqueue(command, Owner::Hedge(id), 1);
        let sent = Sent { node: link.node, link: peer, ordinal, at: now };
        self.races.start(cell, sent, command.len());
        self.mark_dirty(peer);
    }

    /// Keeps the list of armed reads as short as what is under way, whatever the delay.
    #[cold]
    pub(super) fn forget_answered(&mut self) {
        let cells = &mut self.cells;
        let is_over = |id| cells.get(id).is_none_or(|cell| !is_armed(cell));
        self.races.make_room(is_over);
    }

    /// When the next hedge may be due.
    pub(super) fn next_hedge(&mut self) -> Instant {
        let cells = &mut self.cells;
        let is_over = |id| cells.get(id).is_none_or(|cell| !is_armed(cell));
        self.races.next_due(is_over)
    }

    /// Takes the copies that lost a race out of the write buffers, and says what the guard says.
    pub(super) fn settle_races(&mut self) {
        while let Some((at, ordinal)) = self.races.lost.pop() {
            self.mark_dead(at, ordinal);
        }
        if let Some(weather) = self.races.change.take() {
            self.out.log(Line::weather(weather));
        }
    }

    /// The books of hedging.
    pub fn hedges(&self) -> Ledger {
        self.races.ledger()
    }

    /// What the storm guard says.
    pub fn weather(&self) -> Weather {
        self.races.weather()
    }

    /// Keeps the last `capacity` answered copies of reads from now on.
    pub(crate) fn trace_reads(&mut self, capacity: usize) {
        self.races.trace(capacity);
    }

    pub(crate) fn take_trace(&mut self) -> (Vec<ReadCopy>, u64) {
        self.races.take_trace()
    }
}

/// Whether a hedge may still follow.
fn is_armed<K>(cell: &Cell<K>) -> bool {
    cell.state == State::InFlight && cell.watch.is_some() && cell.race == NO_RACE
}
