//! What was said on a connection and not answered yet, in wire order.

use crate::engine::{CellId, Stage};

/// Whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request.
    Request(CellId),
    /// The second copy of one.
    Hedge(CellId),
    /// The connection's own set-up.
    Setup,
    /// The client's, that wants to know whether a node still is what it was.
    Role,
    /// The client's, that measures the round trip.
    Ping,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Fails if a ring that wraps, grows or loses units from its queued part gives a reply to another
    /// unit than a plain queue would, or tells another place or fate of one.
    #[test]
    fn a_ring_is_a_queue() {
        for (seed, most) in [(1, 1), (2, 2), (3, 33), (4, 200)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ring, mut model) = (InFlight::default(), VecDeque::<(u64, Unit)>::new());
            let (mut handed, mut answered, mut number) = (0, 0, 0);
            for _ in 0..40_000 {
                match rng.u8(..10) {
                    0..=3 if model.len() < most => {
                        number += 1;
                        let owner =
                            Owner::Request(CellId { index: number, generation: seed as u32 });
                        let unit = Unit { owner, bytes: rng.u32(1..90), due: rng.u32(1..3) };
                        let ordinal = ring.push(unit);
                        assert_eq!(ordinal, answered + model.len() as u64);
                        model.push_back((ordinal, unit));
                    }
                    4..=6 => {
                        let due = (handed > 0).then(|| model.front_mut().expect("handed").1.owner);
                        assert_eq!(ring.answer().map(|u| u.owner), due);
                        if let Some((_, front)) = model.front_mut().filter(|_| handed > 0) {
                            front.due -= 1;
                            if front.due == 0 {
                                model.pop_front();
                                (handed, answered) = (handed - 1, answered + 1);
                            }
                        }
                    }
                    7 => {
                        ring.hand_over();
                        handed = model.len();
                    }
                    8 => {
                        let dropped = |unit: &Unit| unit.bytes.is_multiple_of(3);
                        let queued = model.split_off(handed);
                        for (_, unit) in queued.into_iter().filter(|(_, unit)| !dropped(unit)) {
                            model.push_back((answered + model.len() as u64, unit));
                        }
                        let mut told = Vec::new();
                        ring.retain_queued(|unit, ordinal| {
                            let keep = !dropped(unit);
                            told.extend(keep.then_some((ordinal, unit.owner)));
                            keep
                        });
                        let kept = model.iter().skip(handed).map(|(at, unit)| (*at, unit.owner));
                        assert!(told.into_iter().eq(kept));
                    }
                    _ => {
                        let unsent = rng.u64(..300);
                        let mut behind = 0;
                        for (place, (ordinal, unit)) in model.iter().enumerate().rev() {
                            let found = ring.unit(*ordinal).map(|u| (u.owner, u.bytes));
                            assert_eq!(found, Some((unit.owner, unit.bytes)));
                            assert_eq!(ring.is_handed(*ordinal), place < handed);
                            if place < handed {
                                assert_eq!(ring.is_writing(*ordinal, unsent), behind < unsent);
                                behind += u64::from(unit.bytes);
                            }
                        }
                    }
                }
                assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
            }
            let left: Vec<_> = ring.into_units(0).map(|(unit, _)| unit.owner).collect();
            assert!(model.iter().map(|(_, unit)| unit.owner).eq(left));
        }
    }
}
