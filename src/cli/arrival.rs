//! When requests of an open loop are due.
//!
//! The schedule is fixed by the seed and never looks at replies: a late start catches up, and what
//! waited is measured from the instant at which it was due.

use hedgerow_runtime::time::Instant;
use std::time::Duration;

/// Gaps between arrivals, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// Exponential gaps: many independent callers.
    Poisson,
    /// Equal gaps.
    Constant,
}

impl Arrivals {
    /// Its name as typed and reported.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Arrivals::Poisson => "poisson",
            Arrivals::Constant => "constant",
        }
    }
}

/// The due instants of one core's requests, in order.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    arrivals: Arrivals,
    start: Instant,
    rate_per_s: f64,
    /// Seconds from the start to the next arrival; for constant gaps the count of arrivals
    /// instead, so that rounding never adds up.
    at: f64,
    offset: f64,
    next: Instant,
}

impl Schedule {
    /// A schedule of `rate_per_s` (above zero) from `start`; `share` of `shares` tells this core's
    /// place among the others, so that constant arrivals of all cores interleave evenly.
    pub(crate) fn new(
        arrivals: Arrivals,
        rate_per_s: f64,
        start: Instant,
        (share, shares): (usize, usize),
        dice: &mut fastrand::Rng,
    ) -> Schedule {
        let offset = share as f64 / shares.max(1) as f64;
        let mut schedule =
            Schedule { arrivals, start, rate_per_s, at: 0.0, offset, next: Instant::NEVER };
        match arrivals {
            Arrivals::Constant => schedule.next = schedule.constant(),
            Arrivals::Poisson => schedule.advance(dice),
        }
        schedule
    }

    /// The next arrival that was not taken yet.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Takes the next arrival.
    pub(crate) fn take(&mut self, dice: &mut fastrand::Rng) -> Instant {
        let due = self.next;
        self.advance(dice);
        due
    }

    fn advance(&mut self, dice: &mut fastrand::Rng) {
        match self.arrivals {
            Arrivals::Constant => {
                self.at += 1.0;
                self.next = self.constant();
            }
            Arrivals::Poisson => {
                // 1 - u is in (0, 1], so the logarithm is finite.
                self.at += -(1.0 - dice.f64()).ln() / self.rate_per_s;
                self.next = self.after(self.at);
            }
        }
    }

    fn constant(&self) -> Instant {
        self.after((self.at + self.offset) / self.rate_per_s)
    }

    fn after(&self, seconds: f64) -> Instant {
        self.start + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(5_000_000_000);

    fn count(arrivals: Arrivals, rate: f64, seconds: u64, share: (usize, usize)) -> usize {
        let mut dice = fastrand::Rng::with_seed(11);
        let mut schedule = Schedule::new(arrivals, rate, START, share, &mut dice);
        let end = START + Duration::from_secs(seconds);
        std::iter::from_fn(|| Some(schedule.take(&mut dice))).take_while(|at| *at < end).count()
    }

    /// Constant arrivals hit the asked number exactly. Fails if rounding of the gap adds up.
    #[test]
    fn constant_rate() {
        assert_eq!(count(Arrivals::Constant, 1000.0, 10, (0, 1)), 10_000);
        assert_eq!(count(Arrivals::Constant, 3.0, 1000, (0, 1)), 3000);
        assert_eq!(count(Arrivals::Constant, 300_000.0, 1, (1, 2)), 300_000);
    }

    /// Poisson arrivals have the asked mean and a variance of the same size. Fails if gaps are
    /// equal or scaled wrongly.
    #[test]
    fn poisson_rate() {
        let n = count(Arrivals::Poisson, 1000.0, 100, (0, 1));
        assert!((99_000..101_000).contains(&n), "{n}");
        let mut dice = fastrand::Rng::with_seed(5);
        let mut schedule = Schedule::new(Arrivals::Poisson, 1000.0, START, (0, 1), &mut dice);
        let mut per_second = [0f64; 500];
        loop {
            let at = (schedule.take(&mut dice).since(START).as_secs_f64() * 10.0) as usize;
            match per_second.get_mut(at) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let mean = per_second.iter().sum::<f64>() / 500.0;
        let variance = per_second.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 500.0;
        assert!((0.75..1.3).contains(&(variance / mean)), "{variance} {mean}");
    }

    /// Cores' constant schedules interleave. Fails if all cores send at the same instants.
    #[test]
    fn shares_interleave() {
        let mut dice = fastrand::Rng::with_seed(1);
        let first = |share| {
            Schedule::new(Arrivals::Constant, 100.0, START, (share, 4), &mut dice.clone()).next()
        };
        assert_eq!(first(0), START);
        assert_eq!(first(1).since(first(0)), Duration::from_micros(2500));
        assert!(Schedule::new(Arrivals::Poisson, 1e-300, START, (0, 1), &mut dice).next() > START);
    }
}
