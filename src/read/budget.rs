//! How many hedges may start: an integer credit that reads earn and hedges spend.

/// What a hedge costs; a read earns `percent` of it.
const HEDGE: u64 = 100;

/// The hedge budget of one core (R-267..R-270, C-16, C-23).
///
/// A read adds `percent`, a hedge takes 100, and what is stored is capped at 100 x `burst`. The store
/// starts empty. So at any time, for ever: starts <= `percent` % of the reads + `burst`. Two
/// additions and a comparison; nothing is allocated or shared.
///
/// ```
/// use hedgerow::read::Budget;
///
/// let mut budget = Budget::new(5, 1); // 5 % is one hedge for 20 reads
/// for _ in 0..19 {
///     budget.on_read();
/// }
/// assert!(!budget.take());
/// budget.on_read();
/// assert!(budget.take() && !budget.take());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    percent: u64,
    cap: u64,
    credit: u64,
}

impl Budget {
    /// An empty budget of `percent` hedges for 100 reads that stores at most `burst` of them; both
    /// are at least 1 and `percent` at most 100, as [`Hedging::check`](super::Hedging::check) sees to.
    pub fn new(percent: u32, burst: u32) -> Budget {
        Budget { percent: percent.into(), cap: HEDGE * u64::from(burst), credit: 0 }
    }

    /// An eligible read was given its first node (R-267): also a fast one, and one that has no second
    /// node. Reads that only a primary may serve, and excluded commands, add nothing (R-268).
    #[inline]
    pub fn on_read(&mut self) {
        self.credit = (self.credit + self.percent).min(self.cap);
    }

    /// Whether a hedge could start now.
    #[inline]
    pub fn has_credit(&self) -> bool {
        self.credit >= HEDGE
    }

    /// Spends the credit of one hedge, if there is that much.
    #[inline]
    #[must_use = "a hedge starts only with credit"]
    pub fn take(&mut self) -> bool {
        let enough = self.has_credit();
        if enough {
            self.credit -= HEDGE;
        }
        enough
    }

    /// A hedge whose credit was spent did not start.
    pub fn give_back(&mut self) {
        self.credit = (self.credit + HEDGE).min(self.cap);
    }

    /// Credit in hundredths of a hedge.
    pub fn credit(&self) -> u64 {
        self.credit
    }

    /// Takes over other settings; credit above the new cap is lost, the rest stays.
    pub fn adjust(&mut self, percent: u32, burst: u32) {
        *self = Budget { credit: self.credit, ..Budget::new(percent, burst) };
        self.credit = self.credit.min(self.cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-269. Fails if the budget does not start empty, if 5 % is not one hedge for 20 reads, or if a
    /// thousand idle reads store more than one hedge.
    #[test]
    fn one_hedge_is_stored() {
        let mut budget = Budget::new(5, 1);
        assert_eq!(budget.credit(), 0);
        let reads = (1..).find(|_| {
            budget.on_read();
            budget.take()
        });
        assert_eq!(reads, Some(20));
        (0..1_000).for_each(|_| budget.on_read());
        assert!(budget.take());
        assert!(!budget.take());
    }

    /// C-23. Fails if `burst` stores more or fewer hedges than it says, or if other settings keep
    /// credit above their cap.
    #[test]
    fn a_burst_is_stored() {
        let mut budget = Budget::new(2, 100);
        (0..100_000).for_each(|_| budget.on_read());
        let mut other = budget.clone();
        assert_eq!((0..200).filter(|_| budget.take()).count(), 100);
        other.adjust(50, 3);
        assert_eq!((0..200).filter(|_| other.take()).count(), 3);
        other.on_read();
        other.on_read();
        assert!(other.take());
    }
}
