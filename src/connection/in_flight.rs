//! What was said on a connection and not answered yet, in wire order.

use crate::engine::{CellId, Stage};

/// Whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request.
    Request(CellId),
    /// The connection's own set-up.
    Setup,
    /// Nobody's: sent for its effect, whatever the answer.
    Nobody,
}

/// Commands written adjacently that are answered together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) owner: Owner,
    /// Bytes of its commands.
    pub(crate) bytes: u32,
    /// Replies due before it is over.
    pub(crate) due: u32,
}

/// The queue of a connection. Units at its tail may still be unsent.
///
/// A ring whose length is a power of two: a unit's ordinal, its number on this connection, says where
/// it lies.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    ring: Vec<Unit>,
    /// Ordinal of the front.
    answered: u64,
    /// Ordinal of the first unit that was not handed to the system yet.
    handed: u64,
    /// Ordinal of the next unit.
    next: u64,
}

/// Units that the first allocation holds.
const BEGIN: usize = 32;

impl InFlight {
    /// Units queued or in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.next - self.answered) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.answered
    }

    /// Bytes of the commands whose replies are outstanding: counted now, since only those ask who
    /// want to know what went wrong.
    pub(crate) fn bytes(&self) -> u64 {
        self.units(self.answered).map(|unit| u64::from(unit.bytes)).sum()
    }

    #[inline(always)]
    fn place(&self, ordinal: u64) -> usize {
        ordinal as usize & self.ring.len().wrapping_sub(1)
    }

    /// The units from `first` on.
    fn units(&self, first: u64) -> impl Iterator<Item = Unit> {
        (first..self.next).map(|ordinal| self.ring[self.place(ordinal)])
    }

    /// Adds a unit at the tail; returns its ordinal.
    #[inline(always)]
    pub(crate) fn push(&mut self, unit: Unit) -> u64 {
        if self.len() == self.ring.len() {
            self.grow();
        }
        let ordinal = self.next;
        let place = self.place(ordinal);
        self.ring[place] = unit;
        self.next += 1;
        ordinal
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let none = Unit { owner: Owner::Nobody, bytes: 0, due: 0 };
        let larger = vec![none; BEGIN.max(2 * self.ring.len())];
        let old = std::mem::replace(&mut self.ring, larger);
        for ordinal in self.answered..self.next {
            let place = self.place(ordinal);
            self.ring[place] = old[ordinal as usize & (old.len() - 1)];
        }
    }

    /// Whose the next reply is. `None`: nothing is due.
    #[inline]
    pub(crate) fn peek_answer(&self) -> Option<Unit> {
        // A reply cannot belong to what was not handed over.
        if self.answered >= self.handed {
            return None;
        }
        self.ring.get(self.place(self.answered)).copied()
    }

    /// The next reply is the only one of a request: takes it. `None` leaves all as it is.
    #[inline(always)]
    pub(crate) fn answer_of_request(&mut self) -> Option<CellId> {
        let Unit { owner: Owner::Request(id), due: 1, .. } = self.peek_answer()? else {
            return None;
        };
        self.answered += 1;
        Some(id)
    }

    /// One reply came: whose is it? The unit leaves with its last reply. `None`: nothing is due.
    #[inline]
    pub(crate) fn answer(&mut self) -> Option<Unit> {
        if self.answered >= self.handed {
            return None;
        }
        let place = self.place(self.answered);
        let front = self.ring.get_mut(place)?;
        front.due = front.due.saturating_sub(1);
        let unit = *front;
        if unit.due == 0 {
            self.answered += 1;
        }
        Some(unit)
    }

    /// All queued units were handed to the system.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        self.handed = self.next;
    }

    /// Whether the unit was handed to the system, so that bytes of it may be on the wire.
    pub(crate) fn is_handed(&self, ordinal: u64) -> bool {
        ordinal < self.handed
    }

    /// Whether bytes of a handed-over unit are still among the last `unsent` bytes of what was
    /// handed over.
    pub(crate) fn is_writing(&self, ordinal: u64, unsent: u64) -> bool {
        let mut behind = 0;
        for at in (ordinal..self.handed).rev() {
            if at == ordinal {
                return behind < unsent;
            }
            behind += self.unit(at).map_or(0, |u| u64::from(u.bytes));
            if behind >= unsent {
                return false;
            }
        }
        false
    }

    /// The unit with this ordinal, if it is still here.
    pub(crate) fn unit(&self, ordinal: u64) -> Option<&Unit> {
        let is_here = (self.answered..self.next).contains(&ordinal);
        is_here.then(|| &self.ring[self.place(ordinal)])
    }

    /// Drops queued units for which `keep` answers false; it is told the ordinal that the unit has
    /// from now on if it stays.
    pub(crate) fn retain_queued(&mut self, mut keep: impl FnMut(&Unit, u64) -> bool) {
        let mut kept = self.handed;
        for ordinal in self.handed..self.next {
            let unit = self.ring[self.place(ordinal)];
            if keep(&unit, kept) {
                let place = self.place(kept);
                self.ring[place] = unit;
                kept += 1;
            }
        }
        self.next = kept;
    }

    /// All units with how far each had come, `unsent` bytes of the handed-over ones being unwritten.
    pub(crate) fn into_units(self, unsent: u64) -> impl Iterator<Item = (Unit, Stage)> {
        let handed = (self.handed - self.answered) as usize;
        let of_handed = self.units(self.answered).take(handed).map(|unit| u64::from(unit.bytes));
        let mut written = of_handed.sum::<u64>().saturating_sub(unsent);
        (self.answered..self.next).enumerate().map(move |(i, ordinal)| {
            let unit = self.ring[self.place(ordinal)];
            let whole = written >= u64::from(unit.bytes);
            written = written.saturating_sub(u64::from(unit.bytes));
            let stage = match () {
                () if i >= handed => Stage::Buffered,
                () if whole => Stage::AwaitingReply,
                () => Stage::Writing,
            };
            (unit, stage)
        })
    }
}
