//! The recorder: what one core measured. One writer, merged after the run.

use super::mix::Verb;
use hdrhistogram::Histogram;
use hedgerow_runtime::time::Instant;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that is told apart, in nanoseconds: an hour. Longer ones count as this long.
pub(crate) const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Times of one kind: a histogram, and the exact sum, least and greatest beside it.
///
/// A histogram rounds to three digits; means and extremes are exact.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Times {
    /// No times yet.
    pub(crate) fn new() -> Times {
        Times::with_digits(DIGITS)
    }

    /// No times yet, to so many significant digits (1 to 5).
    pub(crate) fn with_digits(digits: u8) -> Times {
        let bounded = Histogram::new_with_bounds(1, LONGEST_NS, digits);
        // The bounds are constants that the library accepts; a growing histogram is as right.
        let histogram = bounded
            .or_else(|_| Histogram::new(DIGITS))
            .unwrap_or_else(|_| unreachable!("three digits are between 0 and 5"));
        Times { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds one time.
    pub(crate) fn add(&mut self, time: Duration) {
        let ns = (time.as_nanos() as u64).min(LONGEST_NS);
        self.histogram.saturating_record(ns.max(1));
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all times of `other`.
    pub(crate) fn merge(&mut self, other: &Times) {
        // Equal bounds: adding cannot fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their exact sum, in nanoseconds.
    pub(crate) fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The time that the fraction `quantile` (0 to 1) of all does not exceed, in nanoseconds:
    /// between the exact least and greatest time, 0 for none.
    pub(crate) fn quantile_ns(&self, quantile: f64) -> u64 {
        match self.count() {
            0 => 0,
            _ if quantile >= 1.0 => self.max_ns,
            _ => self.histogram.value_at_quantile(quantile).clamp(self.min_ns, self.max_ns),
        }
    }

    /// The least time in nanoseconds, 0 for none.
    pub(crate) fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Times>() + self.histogram.distinct_values() * size_of::<u64>()
    }

    /// The histogram, in nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A reply that is not an error.
    Hit,
    /// A reply that says that the key or field is not there.
    Miss,
    /// An error reply, by the server's code word, or a reply of the wrong type.
    Failed(Cow<'static, str>),
    /// No reply, by the client's word for why.
    Lost(Cow<'static, str>),
}

/// One finished request.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Which command.
    pub(crate) verb: Verb,
    /// When it was due; in a closed loop: when it was sent.
    pub(crate) planned: Instant,
    /// When it was really sent.
    pub(crate) sent: Instant,
    /// When its reply was there.
    pub(crate) at: Instant,
    /// What the reply was.
    pub(crate) outcome: Outcome,
}

/// The figures of one command.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// From the planned instant to the reply; successes only.
    pub(crate) latency: Times,
    /// From the real send to the reply; successes only.
    pub(crate) service: Times,
    /// Successes that found nothing.
    pub(crate) misses: u64,
    /// Errors by kind.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Part {
    /// No requests yet.
    pub(crate) fn new() -> Part {
        Part { latency: Times::new(), service: Times::new(), misses: 0, errors: BTreeMap::new() }
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Part) {
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.misses += other.misses;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
    }

    /// All errors together.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// One second of the measurement, by the time of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Second {
    /// Successes.
    pub(crate) requests: u64,
    /// Errors.
    pub(crate) errors: u64,
    /// Sum of the successes' latencies, in nanoseconds.
    pub(crate) latency_sum_ns: u128,
    /// Greatest latency of a success, in nanoseconds.
    pub(crate) latency_max_ns: u64,
}

impl Second {
    fn merge(&mut self, other: &Second) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.latency_sum_ns += other.latency_sum_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// All that one core measured, or what merging several gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    parts: Vec<(Verb, Part)>,
    seconds: Vec<Second>,
}

/// Most seconds of a series (a year has as many); later replies count into the last.
const MOST_SECONDS: usize = 366 * 24 * 3600;

impl Recorder {
    /// A recorder for these commands.
    pub(crate) fn new(verbs: impl Iterator<Item = Verb>) -> Recorder {
        Recorder { parts: verbs.map(|verb| (verb, Part::new())).collect(), seconds: Vec::new() }
    }

    /// Adds one finished request; `start` is the start of the measurement.
    pub(crate) fn add(&mut self, done: Done, start: Instant) {
        let latency = done.at.since(done.planned);
        let index = (done.at.since(start).as_secs() as usize).min(MOST_SECONDS - 1);
        if self.seconds.len() <= index {
            self.seconds.resize(index + 1, Second::default());
        }
        let second = &mut self.seconds[index];
        let Some((_, part)) = self.parts.iter_mut().find(|(verb, _)| *verb == done.verb) else {
            return;
        };
        if let Outcome::Failed(kind) | Outcome::Lost(kind) = done.outcome {
            second.errors += 1;
            *part.errors.entry(kind.into_owned()).or_default() += 1;
            return;
        }
        second.requests += 1;
        second.latency_sum_ns += latency.as_nanos();
        second.latency_max_ns = second.latency_max_ns.max(latency.as_nanos() as u64);
        part.misses += u64::from(done.outcome == Outcome::Miss);
        part.latency.add(latency);
        part.service.add(done.at.since(done.sent));
    }

    /// Adds all of `other`: counts add, histograms merge, seconds are matched from the start.
    pub(crate) fn merge(&mut self, other: &Recorder) {
        for (verb, part) in &other.parts {
            match self.parts.iter_mut().find(|(mine, _)| mine == verb) {
                Some((_, mine)) => mine.merge(part),
                None => self.parts.push((*verb, part.clone())),
            }
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (mine, second) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.merge(second);
        }
    }

    /// The figures of each command.
    pub(crate) fn parts(&self) -> &[(Verb, Part)] {
        &self.parts
    }

    /// The series of seconds.
    pub(crate) fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// All commands together.
    pub(crate) fn total(&self) -> Part {
        let mut total = Part::new();
        self.parts.iter().for_each(|(_, part)| total.merge(part));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(verb: Verb, at_us: u64, latency_us: u64, outcome: Outcome) -> Done {
        let at = Instant::from_nanos(at_us * 1000);
        let sent = Instant::from_nanos((at_us - latency_us) * 1000);
        Done { verb, planned: sent, sent, at, outcome }
    }

    /// Case 28. Fails if errors enter the latency of successes or parts do not add up.
    #[test]
    fn totals_agree_with_parts() {
        let mut recorder = Recorder::new([Verb::Get, Verb::Set].into_iter());
        for n in 0..10_000u64 {
            recorder.add(done(Verb::Get, 1_000 + n * 300, 900, Outcome::Hit), Instant::ZERO);
            if n % 10 == 0 {
                recorder.add(done(Verb::Set, 1_000 + n * 300, 400, Outcome::Miss), Instant::ZERO);
                let failed = Outcome::Failed("ERR".into());
                recorder.add(done(Verb::Set, 1_000_000, 999_000, failed), Instant::ZERO);
            }
        }
        let total = recorder.total();
        assert_eq!(total.latency.count(), 11_000);
        assert_eq!(total.latency.sum_ns(), 9_400_000_000);
        assert_eq!((total.misses, total.error_count()), (1000, 1000));
        assert_eq!(total.latency.quantile_ns(1.0), 900_000);
        assert!(total.latency.quantile_ns(0.0) >= total.latency.min_ns());
        let seconds = recorder.seconds();
        assert_eq!(seconds.iter().map(|s| s.requests).sum::<u64>(), 11_000);
        assert_eq!(seconds.iter().map(|s| s.errors).sum::<u64>(), 1000);
    }

    /// Case 28. Fails if an aggregate averages percentiles instead of merging histograms.
    #[test]
    fn merging_merges_histograms() {
        let (mut fast, mut slow) = (Times::new(), Times::new());
        (0..990).for_each(|_| fast.add(Duration::from_micros(100)));
        (0..10).for_each(|_| slow.add(Duration::from_millis(50)));
        fast.merge(&slow);
        assert_eq!(fast.count(), 1000);
        assert!(fast.quantile_ns(0.98) < 101_000);
        assert!(fast.quantile_ns(0.995) > 49_000_000);
        assert_eq!(fast.quantile_ns(1.0), 50_000_000);
    }

    /// Percentiles are monotone and within the extremes, an empty set included. Fails if rounding
    /// of the histogram leaks out.
    #[test]
    fn percentiles_are_monotone() {
        let mut times = Times::new();
        assert_eq!((times.quantile_ns(0.5), times.quantile_ns(1.0), times.min_ns()), (0, 0, 0));
        let mut dice = fastrand::Rng::with_seed(2);
        (0..5000).for_each(|_| times.add(Duration::from_nanos(dice.u64(0..5_000_000_000))));
        times.add(Duration::from_secs(90_000));
        let quantiles: Vec<u64> =
            (0..=1000).map(|n| times.quantile_ns(f64::from(n) / 1000.0)).collect();
        assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(quantiles[0] >= times.min_ns());
        assert_eq!(quantiles[1000], 3_600_000_000_000);
    }
}
