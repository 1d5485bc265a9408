//! Whether the two baselines agree: if not, the machine or the deployment changed meanwhile, and no
//! comparison of passes says much.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Deviations of a count that chance explains (99 %).
const DEVIATIONS: f64 = 2.58;
/// Difference that does not matter, whatever chance says: a quarter. Reads are not independent, since slow
/// ones come together, and so their counts scatter more than `DEVIATIONS` allows for.
const MATTERS: f64 = 1.25;
/// Reads of each baseline below which not even a difference is told.
const READS_MIN: u64 = 100;
/// Reads of each baseline below which nothing is called agreement: ten beyond the 99th percentile.
const AGREE_MIN: u64 = 1_000;
/// Reads beyond a percentile below which no difference is told: one slow read would make it.
const DIFFER_MIN: f64 = 9.9;
/// Reads beyond a percentile that make its difference chance's doing, where chance explains it. Of fewer,
/// chance explains anything.
const BEYOND_MIN: f64 = 50.0;

/// How the service times of the second baseline compare with those of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drift {
    /// Reads of the first and of the second.
    #[serde(default)]
    pub(crate) reads: (u64, u64),
    /// Median of the second over that of the first.
    pub(crate) p50_ratio: f64,
    /// The same of the 90th and 99th percentile.
    pub(crate) p90_ratio: f64,
    pub(crate) p99_ratio: f64,
    /// None differs by more than chance explains and a quarter; `null`: too few reads to tell.
    pub(crate) agrees: Option<bool>,
}

impl Drift {
    /// Compares the service times of two baselines.
    pub(crate) fn new(first: &Histogram<u64>, second: &Histogram<u64>) -> Drift {
        let ratio =
            |q| second.value_at_quantile(q) as f64 / first.value_at_quantile(q).max(1) as f64;
        let same = [0.5, 0.9, 0.99].map(|q| same(first, second, q));
        let fewest = first.len().min(second.len());
        let agrees = match fewest {
            READS_MIN.. if same.contains(&Some(false)) => Some(false),
            AGREE_MIN.. if same.iter().all(Option::is_some) => Some(true),
            _ => None,
        };
        Drift {
            reads: (first.len(), second.len()),
            p50_ratio: ratio(0.5),
            p90_ratio: ratio(0.9),
            p99_ratio: ratio(0.99),
            agrees,
        }
    }

    /// Something changed between the two.
    pub(crate) fn disagrees(&self) -> bool {
        self.agrees == Some(false)
    }

    /// The same as a sentence.
    pub(crate) fn text(&self) -> String {
        let Drift { p50_ratio, p90_ratio, p99_ratio, .. } = self;
        let ratios = format!("{p50_ratio:.2}, {p90_ratio:.2} and {p99_ratio:.2} times");
        match self.agrees {
            Some(true) => format!(
                "the two baselines agree: p50, p90 and p99 service time of the second are {ratios} those of \
                 the first"
            ),
            Some(false) => format!(
                "the two baselines disagree (p50, p90 and p99 service time of the second are {ratios} those \
                 of the first): something changed meanwhile, so do not compare the passes; measure on a \
                 quieter machine, or longer"
            ),
            None => self.too_few(&ratios),
        }
    }

    fn too_few(&self, ratios: &str) -> String {
        let (first, second) = self.reads;
        let seen = if first.min(second) >= READS_MIN {
            format!(
                " (p50, p90 and p99 service time of the second are {ratios} those of the first)"
            )
        } else {
            String::new()
        };
        format!(
            "too few reads to tell whether the two baselines agree: {first} and {second}{seen}; so take no \
             comparison of passes and no advice for sure, and measure longer (--duration) or more (--rate)"
        )
    }
}

/// Whether a quantile is the same in both; `None` where they are apart and there are too few reads to say
/// whether that is chance.
fn same(first: &Histogram<u64>, second: &Histogram<u64>, q: f64) -> Option<bool> {
    let ratio = second.value_at_quantile(q) as f64 / first.value_at_quantile(q).max(1) as f64;
    if (1.0 / MATTERS..=MATTERS).contains(&ratio) {
        return Some(true);
    }
    let beyond = first.len().min(second.len()) as f64 * (1.0 - q);
    if beyond < DIFFER_MIN {
        return None;
    }
    if !overlap(interval(first, q), interval(second, q)) {
        return Some(false);
    }
    (beyond >= BEYOND_MIN).then_some(true)
}

/// Where the quantile `q` lies, as far as chance goes.
fn interval(times: &Histogram<u64>, q: f64) -> (u64, u64) {
    let within = DEVIATIONS * (q * (1.0 - q) / times.len().max(1) as f64).sqrt();
    let at = |q: f64| times.value_at_quantile(q.clamp(0.0, 1.0));
    (at(q - within), at(q + within))
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(reads: u64, each_us: u64, stalls: u64) -> Histogram<u64> {
        let mut times = Histogram::new(3).unwrap();
        for n in 0..reads {
            let us = if n % 1_000 < stalls { 50_000 } else { each_us + n % 50 };
            times.record(us * 1_000).unwrap();
        }
        times
    }

    /// Fails if a baseline that doubled or a tail that came passes for noise, or noise of few reads
    /// for a change.
    #[test]
    fn changes_are_told_from_noise() {
        let agrees = |one: &_, two: &_| Drift::new(one, two).agrees;
        let usual = times(10_000, 400, 5);
        assert_eq!(agrees(&usual, &times(9_800, 410, 5)), Some(true));
        assert_eq!(agrees(&usual, &times(10_000, 900, 5)), Some(false));
        assert_eq!(agrees(&usual, &times(10_000, 400, 25)), Some(false));
        assert_eq!(agrees(&times(10_000, 400, 90), &times(10_000, 400, 150)), Some(false), "p90");
        assert_eq!(
            agrees(&times(10_000, 400, 9), &times(10_000, 400, 11)),
            Some(true),
            "p99's edge"
        );
        assert_eq!(
            agrees(&times(200, 400, 8), &times(200, 900, 12)),
            Some(false),
            "few, yet twice"
        );
    }

    /// 1 and 3 of a hundred stall. Fails if one slow read is a change.
    #[test]
    fn one_slow_read_is_no_change() {
        assert_eq!(Drift::new(&times(100, 400, 1), &times(100, 400, 3)).agrees, None);
        assert_eq!(Drift::new(&times(100, 400, 3), &times(100, 400, 0)).agrees, None);
    }

    /// Fails if few reads are called agreement, whatever their percentiles are, or if the sentence
    /// says more than they do.
    #[test]
    fn few_reads_tell_nothing() {
        let few = Drift::new(&times(150, 400, 16), &times(150, 400, 12));
        assert!(few.p90_ratio < 0.5 && few.agrees.is_none(), "{few:?}");
        assert!(few.text().starts_with("too few reads to tell"), "{}", few.text());
        let alike = Drift::new(&times(900, 400, 5), &times(900, 400, 5));
        assert_eq!(alike.agrees, None);
        let none = Drift::new(&times(10_000, 400, 5), &times(0, 400, 5));
        assert_eq!(none.agrees, None);
        assert!(none.text().contains("10000 and 0;"), "{}", none.text());
    }
}
