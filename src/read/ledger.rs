//! What hedging did and what it cost, of one core.

use std::time::Duration;

use super::scale::Scale;

/// Four buckets per doubling: a margin is known to a quarter.
type Buckets = Scale<2>;

/// How the race between a read and its hedge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The hedge answered first: it was worth its cost.
    Won,
    /// The original answered first.
    Lost,
    /// Both failed, and the original's error was returned.
    BothFailed,
}

/// The books of hedging: counts since the start, of one core or, merged, of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Eligible reads, hedged or not.
    pub reads: u64,
    /// Hedges that started.
    pub sent: u64,
    /// Hedges that answered before their original.
    pub won: u64,
    /// Hedges whose original answered first.
    pub lost: u64,
    /// Hedges that failed with their original.
    pub both_failed: u64,
    /// Reads whose delay passed without credit, once each.
    pub without_credit: u64,
    /// Hedges that the storm guard held back when they were due; reads that started in a storm are mostly
    /// not even armed, and not counted.
    pub held_back: u64,
    /// Bytes of the requests and replies of copies that lost.
    pub wasted_bytes: u64,
    /// Time that servers spent on copies that lost, from sending to reply, queueing included.
    pub wasted_time: Duration,
    /// By how much winning hedges won.
    pub margins: Margins,
}

impl Ledger {
    /// A race ended.
    pub fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Won => self.won += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::BothFailed => self.both_failed += 1,
        }
    }

    /// The copy that lost was answered too, or given up: what it cost. `margin` is how much later it came
    /// than the winner if the winner was the hedge.
    pub fn record_loser(&mut self, bytes: u64, time: Duration, margin: Option<Duration>) {
        self.wasted_bytes += bytes;
        self.wasted_time = self.wasted_time.saturating_add(time);
        if let Some(margin) = margin {
            self.margins.record(margin);
        }
    }

    /// Hedges as a share of the eligible reads, in percent; 0 without reads.
    pub fn extra_load_percent(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.sent as f64 * 100.0 / self.reads as f64 }
    }

    /// Won hedges as a share of those that are decided, in percent; `None` before the first.
    pub fn win_percent(&self) -> Option<f64> {
        let decided = self.won + self.lost + self.both_failed;
        (decided > 0).then(|| self.won as f64 * 100.0 / decided as f64)
    }

    /// What was entered after `earlier`, an older state of the same books. (A hedge that was granted but not
    /// sent is taken out of them again, so a count may be one lower than before: that is none.)
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        Ledger {
            reads: self.reads.saturating_sub(earlier.reads),
            sent: self.sent.saturating_sub(earlier.sent),
            won: self.won.saturating_sub(earlier.won),
            lost: self.lost.saturating_sub(earlier.lost),
            both_failed: self.both_failed.saturating_sub(earlier.both_failed),
            without_credit: self.without_credit.saturating_sub(earlier.without_credit),
            held_back: self.held_back.saturating_sub(earlier.held_back),
            wasted_bytes: self.wasted_bytes.saturating_sub(earlier.wasted_bytes),
            wasted_time: self.wasted_time.saturating_sub(earlier.wasted_time),
            margins: self.margins.since(&earlier.margins),
        }
    }

    /// Adds another core's books.
    pub fn merge(&mut self, other: &Ledger) {
        self.reads += other.reads;
        self.sent += other.sent;
        self.won += other.won;
        self.lost += other.lost;
        self.both_failed += other.both_failed;
        self.without_credit += other.without_credit;
        self.held_back += other.held_back;
        self.wasted_bytes += other.wasted_bytes;
        self.wasted_time = self.wasted_time.saturating_add(other.wasted_time);
        self.margins.merge(&other.margins);
    }
}

/// How much sooner winning hedges answered than their originals: a histogram of 88 buckets from
/// 16 us to 69 s, each at most a quarter of its margins wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Margins {
    counts: [u64; Buckets::BUCKETS],
}

impl Default for Margins {
    fn default() -> Margins {
        Margins { counts: [0; Buckets::BUCKETS] }
    }
}

impl Margins {
    /// Adds one margin.
    pub fn record(&mut self, margin: Duration) {
        let ns = u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX);
        self.counts[Buckets::bucket(ns)] += 1;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The margin that the share `rank` (0 to 1) does not exceed, to within a quarter; `None` without
    /// any.
    pub fn at(&self, rank: f64) -> Option<Duration> {
        let target = (rank * self.count() as f64).max(1.0);
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            if (below + count) as f64 >= target {
                let share = (target - below as f64) / count as f64;
                return Some(Duration::from_nanos(Buckets::within_ns(bucket, share)));
            }
            below += count;
        }
        None
    }

    fn since(&self, earlier: &Margins) -> Margins {
        let mut counts = self.counts;
        for (mine, theirs) in counts.iter_mut().zip(earlier.counts) {
            *mine = mine.saturating_sub(theirs);
        }
        Margins { counts }
    }

    fn merge(&mut self, other: &Margins) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a share is not over the reads or the decided hedges, or if merged books are not
    /// the sum of both, margins included.
    #[test]
    fn books_add_up() {
        let mut one = Ledger { reads: 200, sent: 4, ..Ledger::default() };
        for outcome in [Outcome::Won, Outcome::Won, Outcome::Lost] {
            one.record(outcome);
        }
        one.record_loser(70, Duration::from_millis(40), Some(Duration::from_millis(30)));
        let mut two = Ledger { reads: 200, sent: 6, ..Ledger::default() };
        two.record(Outcome::BothFailed);
        two.record_loser(30, Duration::from_millis(2), None);
        assert_eq!(Ledger::default().win_percent(), None);
        two.merge(&one);
        assert_eq!((two.reads, two.sent, two.won, two.lost, two.both_failed), (400, 10, 2, 1, 1));
        assert_eq!((two.extra_load_percent(), two.win_percent()), (2.5, Some(50.0)));
        assert_eq!((two.wasted_bytes, two.wasted_time), (100, Duration::from_millis(42)));
        // What came after a state is what was added to it, margins included.
        assert_eq!(two.since(&two), Ledger::default());
        let mut later = two.clone();
        later.merge(&one);
        assert_eq!(later.since(&two), one);
        let margin = two.margins.at(0.5).expect("one margin");
        assert_eq!(two.margins.count(), 1);
        assert!(margin.abs_diff(Duration::from_millis(30)) <= Duration::from_micros(7_500));
    }
}
