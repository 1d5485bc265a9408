//! How long a reply takes.

use std::time::Duration;

/// The time between reading a request and sending its reply.
///
/// Each reply draws its own delay, but replies of one connection stay in order: one that is due
/// early waits for those before it. A delay acts like distance, not like load: pipelined requests
/// wait at the same time. The timer behind it is good to about 50 us.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// At once.
    #[default]
    None,
    /// Always this long.
    Constant(Duration),
    /// Anything from the first to the second, all equally likely. Given the wrong way round, the
    /// ends are swapped.
    Uniform(Duration, Duration),
    /// Log-normal, the usual shape of service times. `sigma` is the standard deviation of the
    /// logarithm: 0.5 puts the 99th percentile at 3.2 times the median, 1.0 at 10 times. Draws are
    /// capped at one hour.
    Lognormal {
        /// Half the replies take longer than this.
        median: Duration,
        /// Spread; values below 0 or not finite count as 0.
        sigma: f64,
    },
    /// `usual`, but with probability `share` (0 to 1) `rare`.
    Bimodal {
        /// The delay of most replies.
        usual: Duration,
        /// The delay of the others.
        rare: Duration,
        /// The share of the others.
        share: f64,
    },
}

/// Longest delay that is drawn.
const DELAY_MAX: Duration = Duration::from_secs(3600);

impl Delay {
    /// Draws one delay.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> Duration {
        match *self {
            Self::None => Duration::ZERO,
            Self::Constant(delay) => delay,
            Self::Uniform(one, other) => {
                let (low, high) = (one.min(other), one.max(other));
                low + (high - low).mul_f64(random.f64())
            }
            Self::Lognormal { median, sigma } => {
                let sigma = if sigma.is_finite() { sigma.max(0.0) } else { 0.0 };
                let seconds = median.as_secs_f64() * (sigma * standard_normal(random)).exp();
                Duration::try_from_secs_f64(seconds).unwrap_or(DELAY_MAX)
            }
            Self::Bimodal { usual, rare, share } => {
                if random.f64() < share {
                    rare
                } else {
                    usual
                }
            }
        }
        .min(DELAY_MAX)
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// A draw from the standard normal distribution (Box and Muller).
fn standard_normal(random: &mut fastrand::Rng) -> f64 {
    // 1 - [0, 1) keeps the logarithm finite.
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Design section 4, delay distribution. Fails if the draw's median or tail is not that of a
    /// log-normal.
    #[test]
    fn lognormal_has_its_median_and_tail() {
        let mut random = fastrand::Rng::with_seed(7);
        let delay = Delay::Lognormal { median: Duration::from_micros(100), sigma: 0.5 };
        let mut draws: Vec<_> = (0..100_001).map(|_| delay.draw(&mut random)).collect();
        draws.sort_unstable();
        let us = |index: usize| draws[index].as_secs_f64() * 1e6;
        assert!((us(50_000) - 100.0).abs() < 2.0, "median {}", us(50_000));
        assert!((us(99_000) - 320.0).abs() < 15.0, "p99 {}", us(99_000));
    }

    /// Design section 4, delay distribution. Fails if swapped ends panic or a draw leaves the
    /// interval.
    #[test]
    fn uniform_takes_its_ends_in_any_order() {
        let mut random = fastrand::Rng::with_seed(7);
        let (low, high) = (Duration::from_micros(10), Duration::from_micros(20));
        for _ in 0..1000 {
            let draw = Delay::Uniform(high, low).draw(&mut random);
            assert!((low..=high).contains(&draw));
        }
    }
}
