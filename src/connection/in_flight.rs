//! What was said on a connection and not answered yet, in wire order.

use std::collections::VecDeque;

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
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    units: VecDeque<Unit>,
    /// Units before the front: the front's ordinal.
    answered: u64,
    /// Ordinal of the first unit that was not handed to the system yet.
    handed: u64,
}

impl InFlight {
    /// Units queued or in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.units.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Bytes of the commands whose replies are outstanding: counted now, since only those ask who
    /// want to know what went wrong.
    pub(crate) fn bytes(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.bytes)).sum()
    }

    /// Adds a unit at the tail; returns its ordinal.
    #[inline(always)]
    pub(crate) fn push(&mut self, unit: Unit) -> u64 {
        let ordinal = self.answered + self.units.len() as u64;
        self.units.push_back(unit);
        ordinal
    }

    /// Whose the next reply is. `None`: nothing is due.
    #[inline]
    pub(crate) fn peek_answer(&self) -> Option<Unit> {
        // A reply cannot belong to what was not handed over.
        if self.answered >= self.handed { None } else { self.units.front().copied() }
    }

    /// The next reply is the only one of a request: takes it. `None` leaves all as it is.
    #[inline]
    pub(crate) fn answer_of_request(&mut self) -> Option<CellId> {
        if self.answered >= self.handed {
            return None;
        }
        let Unit { owner: Owner::Request(id), due: 1, .. } = *self.units.front()? else {
            return None;
        };
        self.units.pop_front();
        self.answered += 1;
        Some(id)
    }

    /// One reply came: whose is it? The unit leaves with its last reply. `None`: nothing is due.
    #[inline]
    pub(crate) fn answer(&mut self) -> Option<Unit> {
        if self.answered >= self.handed {
            return None;
        }
        let front = self.units.front_mut()?;
        front.due = front.due.saturating_sub(1);
        let unit = *front;
        if unit.due == 0 {
            self.units.pop_front();
            self.answered += 1;
        }
        Some(unit)
    }

    /// All queued units were handed to the system.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        self.handed = self.answered + self.units.len() as u64;
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
        self.units.get(usize::try_from(ordinal.checked_sub(self.answered)?).ok()?)
    }

    /// Drops queued units for which `keep` answers false; it is told the ordinal that the unit has
    /// from now on if it stays.
    pub(crate) fn retain_queued(&mut self, mut keep: impl FnMut(&Unit, u64) -> bool) {
        let first = (self.handed - self.answered) as usize;
        for unit in self.units.split_off(first) {
            if keep(&unit, self.answered + self.units.len() as u64) {
                self.units.push_back(unit);
            }
        }
    }

    /// All units with how far each had come, `unsent` bytes of the handed-over ones being unwritten.
    pub(crate) fn into_units(self, unsent: u64) -> impl Iterator<Item = (Unit, Stage)> {
        let handed = (self.handed - self.answered) as usize;
        let of_handed: u64 = self.units.iter().take(handed).map(|u| u64::from(u.bytes)).sum();
        let mut written = of_handed.saturating_sub(unsent);
        self.units.into_iter().enumerate().map(move |(i, unit)| {
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
