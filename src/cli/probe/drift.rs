//! Whether the two baselines agree: if not, the machine or the deployment changed meanwhile, and no
//! comparison of passes says much.

use super::super::record::Times;
use serde::{Deserialize, Serialize};

/// Deviations of a count that chance explains (99 %).
const DEVIATIONS: f64 = 2.58;
/// Difference that does not matter, whatever chance says: a quarter. Reads are not independent, since slow
/// ones come together, and so their counts scatter more than `DEVIATIONS` allows for.
const MATTERS: f64 = 1.25;
/// Reads of each baseline below which nothing is said.
const READS_MIN: u64 = 100;

/// How the second baseline compares with the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drift {
    /// Median of the second over that of the first.
    pub(crate) p50_ratio: f64,
    /// The same of the 90th and 99th percentile.
    pub(crate) p90_ratio: f64,
    pub(crate) p99_ratio: f64,
    /// None differs by more than chance explains and a quarter.
    pub(crate) agrees: bool,
}

impl Drift {
    /// Compares two baselines; `None` where either has too few reads.
    pub(crate) fn new(first: &Times, second: &Times) -> Option<Drift> {
        if first.count().min(second.count()) < READS_MIN {
            return None;
        }
        let ratio = |q| second.quantile_ns(q) as f64 / first.quantile_ns(q).max(1) as f64;
        let same = |q| {
            let apart = ratio(q) > MATTERS || ratio(q) < 1.0 / MATTERS;
            !apart || overlap(interval(first, q), interval(second, q))
        };
        Some(Drift {
            p50_ratio: ratio(0.5),
            p90_ratio: ratio(0.9),
            p99_ratio: ratio(0.99),
            agrees: same(0.5) && same(0.9) && same(0.99),
        })
    }

    /// The same as a sentence.
    pub(crate) fn text(&self) -> String {
        let Drift { p50_ratio, p90_ratio, p99_ratio, agrees } = self;
        let ratios = format!("{p50_ratio:.2}, {p90_ratio:.2} and {p99_ratio:.2} times");
        if *agrees {
            return format!(
                "the two baselines agree: p50, p90 and p99 of the second are {ratios} those of the first"
            );
        }
        format!(
            "the two baselines disagree (p50, p90 and p99 of the second are {ratios} those of the first): \
             something changed meanwhile, so do not compare the passes; measure on a quieter machine, or \
             longer"
        )
    }
}

/// Where the quantile `q` lies, as far as chance goes.
fn interval(times: &Times, q: f64) -> (u64, u64) {
    let count = times.count() as f64;
    let within = DEVIATIONS * (q * (1.0 - q) / count).sqrt();
    (times.quantile_ns((q - within).max(0.0)), times.quantile_ns((q + within).min(1.0)))
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn times(reads: u64, each_us: u64, stalls: u64) -> Times {
        let mut times = Times::new();
        for n in 0..reads {
            let us = if n % 1_000 < stalls { 50_000 } else { each_us + n % 50 };
            times.add(Duration::from_micros(us));
        }
        times
    }

    /// Fails if a baseline that doubled or a tail that came passes for noise, or noise of few reads
    /// for a change.
    #[test]
    fn changes_are_told_from_noise() {
        let agrees = |one: &Times, two: &Times| Drift::new(one, two).map(|drift| drift.agrees);
        let usual = times(10_000, 400, 5);
        assert_eq!(agrees(&usual, &times(9_800, 410, 5)), Some(true));
        assert_eq!(agrees(&usual, &times(10_000, 900, 5)), Some(false));
        assert_eq!(agrees(&usual, &times(10_000, 400, 25)), Some(false));
        assert_eq!(agrees(&times(10_000, 400, 90), &times(10_000, 400, 150)), Some(false), "p90");
        assert_eq!(agrees(&times(200, 400, 8), &times(200, 400, 12)), Some(true));
        assert_eq!(agrees(&usual, &times(99, 400, 5)), None);
    }
}
