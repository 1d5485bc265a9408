//! Second copies of slow reads.

use hedgerow_runtime::time::Instant;

use super::cell::{NO_RACE, State};
use super::choose::Chosen;
use super::race::Sent;
use super::{CellId, Engine, Line, LinkId, Outside, ReadCopy};
use crate::connection::Owner;
use crate::read::{Due, Ledger, Weather};

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
    /// it now and the budget pays for it.
    fn hedge(&mut self, now: Instant, id: CellId, again: bool) {
        let Some(cell) = self.cells.get(id).filter(|cell| is_armed(cell.state, cell.race)) else {
            return;
        };
        let Some(race) = self.races.get(cell.race) else { return };
        let (way, original) = (race.way, race.original);
        let peer = match self.choose(now, &way, Some(original.node)) {
            Chosen::Link(peer) => peer,
            // Nobody to ask: the read goes the ordinary way, and pays nothing.
            Chosen::Wait(_) | Chosen::Never(_) => return,
        };
        let waited = now.since(original.at);
        let due = match &mut self.races.tail {
            Some(tail) => tail.on_due(now, waited, again),
            None => Due::Leave,
        };
        match due {
            Due::Start => self.start_hedge(now, id, peer),
            Due::Again(time) => self.races.ask_again(now + time, id),
            Due::Leave => {}
        }
    }

    fn start_hedge(&mut self, now: Instant, id: CellId, peer: LinkId) {
        let Some(cell) = self.cells.get(id) else { return };
        let Some(race) = self.races.get(cell.race) else { return };
        let link = &mut self.links[peer.0 as usize];
        let ordinal = link.connection.enqueue(&race.text.encoded(), Owner::Hedge(id), 1);
        let sent = Sent { node: link.node, link: peer, ordinal, at: now };
        self.races.start(cell, sent);
        self.mark_dirty(peer);
    }

    /// When the next hedge may be due.
    pub(super) fn next_hedge(&mut self) -> Instant {
        let cells = &mut self.cells;
        let is_over = |id| cells.get(id).is_none_or(|cell| !is_armed(cell.state, cell.race));
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

/// Whether a hedge may still follow. (With one under way it is not asked for again: each read is on the
/// list once.)
fn is_armed(state: State, race: u32) -> bool {
    state == State::InFlight && race != NO_RACE
}
