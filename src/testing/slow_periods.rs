//! Times in which a server is slower.

use std::time::Duration;

/// The last part of every period, in which delays are longer: what a backup, a compaction or a noisy
/// neighbour does.
///
/// ```
/// use hedgerow::testing::{Delay, Server, SlowPeriods};
/// use std::time::Duration;
///
/// let server = Server::start()?;
/// server.faults().delay(Delay::Constant(Duration::from_micros(200)));
/// // 600 us instead of 200 for the last tenth of every two seconds.
/// let (every, length) = (Duration::from_secs(2), Duration::from_millis(200));
/// server.faults().slow_periods(Some(SlowPeriods { every, length, factor: 3.0 }));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPeriods {
    /// From one slow time's start to the next one's.
    pub every: Duration,
    /// How long it is slow, at most `every`.
    pub length: Duration,
    /// By what delays are multiplied then; values below 0 or not finite count as 1.
    pub factor: f64,
}

impl SlowPeriods {
    /// Whether it is slow `elapsed` after the start of the first period.
    pub(super) fn is_slow(&self, elapsed: Duration) -> bool {
        let every = self.every.as_nanos().max(1);
        elapsed.as_nanos() % every >= every.saturating_sub(self.length.as_nanos())
    }

    /// A delay of the slow time.
    pub(super) fn slowed(&self, delay: Duration) -> Duration {
        let factor = if self.factor.is_finite() && self.factor >= 0.0 { self.factor } else { 1.0 };
        Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(Duration::MAX / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if another part of the period is slow than its last, or a wrong factor panics.
    #[test]
    fn the_end_of_each_period_is_slow() {
        let ms = Duration::from_millis;
        let slow = SlowPeriods { every: ms(100), length: ms(10), factor: 3.0 };
        for (at, is_slow) in
            [(0, false), (89, false), (90, true), (99, true), (100, false), (995, true)]
        {
            assert_eq!(slow.is_slow(ms(at)), is_slow, "{at} ms");
        }
        assert_eq!(slow.slowed(ms(2)), ms(6));
        assert_eq!(SlowPeriods { factor: f64::NAN, ..slow }.slowed(ms(2)), ms(2));
        assert!(SlowPeriods { every: ms(0), ..slow }.is_slow(ms(5)));
    }
}
