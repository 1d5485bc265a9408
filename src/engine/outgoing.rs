//! What leaves: commands in the write buffers, cut out again where nobody waits for them any more.

use hedgerow_runtime::Batch;
use hedgerow_runtime::time::Instant;

use super::cell::{Cell, State};
use super::link::Link;
use super::{CellId, Engine, KeptOf, LinkId, Outside};
use crate::command::Encoded;
use crate::connection::Owner;

impl<O: Outside> Engine<O> {
    /// A queued unit is not wanted any more: it is cut out before the next send, or at once when
    /// such units make up half of what is queued.
    pub(super) fn mark_dead(&mut self, at: LinkId, ordinal: u64) {
        let link = &mut self.links[at.0 as usize];
        if link.connection.in_flight.is_handed(ordinal) {
            return;
        }
        let unit = link.connection.in_flight.unit(ordinal);
        link.dead_bytes += unit.map_or(0, |u| u64::from(u.bytes));
        if link.dead_bytes * 2 > link.connection.out.len() as u64 {
            self.cut_dead(at);
        }
    }

    /// Cuts queued units that nobody waits for out of the write buffer.
    fn cut_dead(&mut self, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        link.dead_bytes = 0;
        let (cells, races) = (&mut self.cells, &mut self.races);
        let mut over = Vec::new();
        let mut cuts = Vec::new();
        link.connection.in_flight.retain_queued(|unit, ordinal| {
            let keep = match unit.owner {
                Owner::Request(id) | Owner::Hedge(id) => match cells.get(id) {
                    Some(cell) if cell.state == State::InFlight => {
                        match unit.owner {
                            Owner::Hedge(_) => races.move_hedge(cell.race, ordinal),
                            _ => cell.ordinal = ordinal,
                        }
                        true
                    }
                    Some(cell) => {
                        cell.entries = cell.entries.saturating_sub(1);
                        races.cut(cell, at);
                        over.push(id);
                        false
                    }
                    None => false,
                },
                Owner::Setup | Owner::Role | Owner::Ping | Owner::Nobody => true,
            };
            cuts.push((unit.bytes as usize, keep));
            keep
        });
        link.connection.out.retain_units(cuts.into_iter());
        for id in over {
            self.cells.free_if_over(id);
        }
        // The time of the last bytes may be long past.
        let now = self.out.clock(self.now);
        self.admit(now);
    }

    /// Offers what `at` has to send: `send` takes the batch (leaving it empty) and answers true, or
    /// leaves it and answers false, and is asked again when the link is dirty the next time.
    pub fn flush(&mut self, now: Instant, at: LinkId, send: impl FnOnce(&mut Batch) -> bool) {
        if self.links.get(at.0 as usize).is_none_or(|l| !l.is_open()) {
            return;
        }
        if self.links[at.0 as usize].dead_bytes > 0 {
            self.cut_dead(at);
        }
        let link = &mut self.links[at.0 as usize];
        link.dirty = false;
        let len = link.connection.out.len() as u64;
        if len > 0 && send(&mut link.connection.out) {
            link.connection.in_flight.hand_over();
            link.unsent += len;
            link.handed_at = Some(now);
        }
    }

    /// `n` more bytes of what was handed over were taken by the system; `idle` if that was all.
    pub fn handle_sent(&mut self, now: Instant, at: LinkId, n: usize, idle: bool) {
        let Some(link) = self.links.get_mut(at.0 as usize) else { return };
        link.unsent = link.unsent.saturating_sub(n as u64);
        // What went out in one go went out when it was handed over: a core may hear of it only at
        // the end of the wait that the send began.
        let at_once = idle.then(|| link.handed_at.take()).flatten();
        link.handed_at = None;
        link.last_write = at_once.or(Some(now));
        if idle && !link.connection.out.is_empty() && !link.dirty && link.is_open() {
            link.dirty = true;
            self.out.dirty(at);
        }
    }
}

/// What comes before a command that was sent to a node for this once (ASK).
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// As [`enqueue`], with ASKING right before it, and nothing between the two.
pub(super) fn enqueue_asking<O: Outside>(
    link: &mut Link,
    out: &mut O,
    id: CellId,
    cell: &mut Cell<KeptOf<O>>,
    command: &Encoded<'_>,
) {
    let ordinal = link.connection.enqueue_after(ASKING, command, Owner::Request(id));
    queued(link, out, cell, ordinal);
}

/// Queues the command of a request on a link.
#[inline]
pub(super) fn enqueue<O: Outside>(
    link: &mut Link,
    out: &mut O,
    id: CellId,
    cell: &mut Cell<KeptOf<O>>,
    command: &Encoded<'_>,
) {
    let ordinal = link.connection.enqueue(command, Owner::Request(id), 1);
    queued(link, out, cell, ordinal);
}

#[inline(always)]
fn queued<O: Outside>(link: &mut Link, out: &mut O, cell: &mut Cell<KeptOf<O>>, ordinal: u64) {
    cell.ordinal = ordinal;
    cell.entries = 1;
    if !link.dirty {
        link.dirty = true;
        out.dirty(cell.link);
    }
}
