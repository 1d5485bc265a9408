//! The settings of hedged reads.

use std::time::Duration;

use crate::Error;

/// Shortest delay (C-17): the timers of a core are about this fine.
pub(super) const DELAY_MIN: Duration = Duration::from_micros(50);
/// Longest delay (R-258).
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Most hedges that may be stored: a bound on what an error can ask for.
const BURST_MAX: u32 = 1_000_000;

/// How long a read waits for its first node before a copy goes to another, counted from the choice of
/// that node (R-258).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// Always the same: 50 us to one minute (C-17). The default mode, with 10 ms.
    Fixed(Duration),
    /// Follows the latencies seen on this core, an extension (R-280): a copy starts when a read has
    /// taken longer than the share `q` of its class. See [`Adaptive`](super::Adaptive) for how the
    /// delay is chosen so that the hedges fit the budget.
    Quantile {
        /// Share of reads that finish before their delay, 0.5 to 0.999. Raised where the budget does not
        /// pay for `1 - q` of the reads.
        q: f64,
        /// Shortest delay, at least 50 us.
        floor: Duration,
        /// Longest delay, at most one minute; also the delay while too few latencies are known.
        ceiling: Duration,
    },
}

impl Delay {
    /// The adaptive delay with its defaults: `q` 0.5, floor 250 us, ceiling 100 ms.
    ///
    /// `q` 0.5 leaves it to the budget: a copy starts as early as that pays for, which is the quantile 0.96
    /// at 5 %. A higher `q` sends fewer copies than the budget allows.
    /// The floor is five times as long as a timer of a core is late at worst; below it a copy is sent for
    /// what the scheduler did, not the server.
    pub const fn adaptive() -> Delay {
        let (floor, ceiling) = (Duration::from_micros(250), Duration::from_millis(100));
        Delay::Quantile { q: 0.5, floor, ceiling }
    }
}

impl Default for Delay {
    /// Fixed, 10 ms (R-258).
    fn default() -> Delay {
        Delay::Fixed(Duration::from_millis(10))
    }
}

/// Hedged reads: a second copy of a slow, idempotent read on one other node (R-257, R-260).
///
/// ```
/// use std::time::Duration;
/// use hedgerow::read::{Delay, Hedging};
///
/// let mut hedging = Hedging::default(); // after 10 ms, for at most 5 % of the reads
/// hedging.delay = Delay::Fixed(Duration::from_millis(2));
/// hedging.check()?;
/// hedging.max_extra_load_percent = 0;
/// assert!(hedging.check().is_err());
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Hedging {
    /// When the second copy starts, default fixed at 10 ms (R-258).
    pub delay: Delay,
    /// Most hedges for 100 eligible reads, over the client's lifetime, 1 to 100, default 5 (R-259,
    /// R-270).
    pub max_extra_load_percent: u32,
    /// Most hedges that unspent credit may start at once, for each core, 1 to 1,000,000, default 1
    /// (R-269, C-16, C-23).
    pub burst: u32,
    /// Whether hedging switches itself off while its copies lose, default true. See
    /// [`Storm`](super::Storm).
    pub storm_guard: bool,
}

impl Default for Hedging {
    fn default() -> Hedging {
        Hedging { delay: Delay::default(), max_extra_load_percent: 5, burst: 1, storm_guard: true }
    }
}

impl Hedging {
    /// Checks all values together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), naming the option and what would be right.
    pub fn check(&self) -> Result<(), Error> {
        let in_range = |delay| (DELAY_MIN..=DELAY_MAX).contains(&delay);
        let bad = match self.delay {
            Delay::Fixed(delay) if !in_range(delay) => {
                "`hedging.delay` must be from 50 us to 1 minute"
            }
            Delay::Quantile { q, .. } if !(0.5..=0.999).contains(&q) => {
                "`hedging.delay.q` must be from 0.5 to 0.999"
            }
            Delay::Quantile { floor, .. } if !in_range(floor) => {
                "`hedging.delay.floor` must be from 50 us to 1 minute"
            }
            Delay::Quantile { floor, ceiling, .. } if ceiling < floor || !in_range(ceiling) => {
                "`hedging.delay.ceiling` must be from `hedging.delay.floor` to 1 minute"
            }
            _ if !(1..=100).contains(&self.max_extra_load_percent) => {
                "`hedging.max_extra_load_percent` must be from 1 to 100"
            }
            _ if !(1..=BURST_MAX).contains(&self.burst) => {
                "`hedging.burst` must be from 1 to 1,000,000"
            }
            _ => return Ok(()),
        };
        Err(Error::config(bad))
    }

    /// How much longer a read waits that found no credit after `waited`, before it asks again; `None`:
    /// it does not.
    ///
    /// With a fixed delay it asks once and then goes the ordinary way (R-274). With an adaptive one it
    /// asks again each time it has waited an eighth longer: the reads that wait longest get the credit
    /// that comes meanwhile. With 5 % and `burst` 1 half of the copies wanted at the 95th percentile find no
    /// credit at first, and those reads would make the 99.9th.
    pub fn again(&self, waited: Duration) -> Option<Duration> {
        match self.delay {
            Delay::Fixed(_) => None,
            Delay::Quantile { .. } => Some((waited / 8).max(DELAY_MIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// R-258, R-259. Fails if a default is not the documented one.
    #[test]
    fn defaults_are_the_documented_ones() {
        let hedging = Hedging::default();
        assert_eq!(hedging.delay, Delay::Fixed(Duration::from_millis(10)));
        assert_eq!((hedging.max_extra_load_percent, hedging.burst), (5, 1));
        assert!(hedging.check().is_ok());
        assert!(Hedging { delay: Delay::adaptive(), ..hedging }.check().is_ok());
        assert_eq!(hedging.again(Duration::from_millis(10)), None);
    }

    /// R-258, R-259; C-17. Fails if a value out of its range is taken, one at its end refused, or
    /// if the error does not name the option.
    #[test]
    fn values_out_of_range_are_named() {
        let us = Duration::from_micros;
        let quantile = |q, floor, ceiling| Delay::Quantile { q, floor, ceiling };
        let good = Hedging::default();
        let minute = Duration::from_secs(60);
        let delays = [
            (Delay::Fixed(us(49)), "`hedging.delay` "),
            (Delay::Fixed(minute + us(1)), "`hedging.delay` "),
            (quantile(0.4, us(50), minute), "`hedging.delay.q`"),
            (quantile(f64::NAN, us(50), minute), "`hedging.delay.q`"),
            (quantile(0.9, us(49), minute), "`hedging.delay.floor`"),
            (quantile(0.9, us(70), us(60)), "`hedging.delay.ceiling`"),
            (quantile(0.9, us(70), minute + us(1)), "`hedging.delay.ceiling`"),
        ];
        let delays = delays.map(|(delay, name)| (Hedging { delay, ..good }, name));
        let percents = [0, 101].map(|max_extra_load_percent| {
            (Hedging { max_extra_load_percent, ..good }, "`hedging.max_extra_load_percent`")
        });
        let bursts = [0, 1_000_001].map(|burst| (Hedging { burst, ..good }, "`hedging.burst`"));
        for (hedging, name) in delays.into_iter().chain(percents).chain(bursts) {
            let error = hedging.check().expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(name), "{error} does not name {name}");
        }
        for delay in [us(50), minute].map(Delay::Fixed) {
            for (max_extra_load_percent, burst) in [(1, 1), (100, 1_000_000)] {
                let ends = Hedging { delay, max_extra_load_percent, burst, ..good };
                assert!(ends.check().is_ok(), "{ends:?}");
            }
        }
    }
}
