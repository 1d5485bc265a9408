//! What hedging would have done: predictions from recorded service times, without any load.

use std::time::Duration;

use crate::Error;

use super::hedging::DELAY_MIN;
use super::scale::Scale;

/// Thirty-two buckets per doubling: a quantile is known to 3 % and, interpolated, better.
type Buckets = Scale<5>;

/// Samples beyond a quantile that make it worth saying.
const TAIL_MIN: f64 = 10.0;
/// Samples that every replica must have.
const REPLICA_MIN: u64 = 100;
/// Resamplings for the interval of the gain.
const RESAMPLES: usize = 200;
/// Least factor that a gain must be sure to have to be recommended: 2 %.
const GAIN_MIN: f64 = 1.02;
/// Delays and budgets whose prediction is this close to the best are as good: the cheapest of them is
/// recommended.
const CLOSE: f64 = 1.05;
/// Bursts above this are taken as this: where demand just meets the budget, 64 turn away one hedge in a
/// hundred already.
const BURST_MAX: usize = 64;
/// Hedges wanted per hedge earned, above which the store is taken as never full.
const LOAD_MAX: f64 = 4.0;
/// Quantiles of the recorded times that the grid takes as delays.
const DELAY_RANKS: [f64; 10] = [0.5, 0.75, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995];
/// Budgets of the grid, in percent.
const PERCENTS: [u32; 6] = [1, 2, 3, 5, 10, 20];
/// The quantiles of a prediction.
const RANKS: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The service times of one replica: how long it took for reads that were sent to it, hedged or not.
/// 11 KiB, whatever the number of samples; from 16 us to 69 s.
#[derive(Clone, Debug)]
pub struct Recorded {
    counts: Vec<f64>,
    samples: u64,
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded { counts: vec![0.0; Buckets::BUCKETS], samples: 0 }
    }
}

impl Recorded {
    /// Without any.
    pub fn new() -> Recorded {
        Recorded::default()
    }

    /// Adds `count` reads that took `time`, as a histogram's buckets come.
    pub fn record(&mut self, time: Duration, count: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[Buckets::bucket(ns)] += count as f64;
        self.samples += count;
    }

    /// How many reads.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

impl FromIterator<Duration> for Recorded {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Recorded {
        let mut all = Recorded::new();
        times.into_iter().for_each(|time| all.record(time, 1));
        all
    }
}

/// What is predicted for one delay and budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The delay.
    pub delay: Duration,
    /// The budget in percent.
    pub percent: u32,
    /// The burst (C-23).
    pub burst: u32,
    /// Latency at p50, p90, p99, p99.9 and p99.99; `None` where fewer than ten of the samples lie beyond.
    pub latency: [Option<Duration>; 5],
    /// Hedges for 100 reads.
    pub extra_load_percent: f64,
    /// Reads of 100 whose delay passes without credit.
    pub without_credit_percent: f64,
}

/// What [`WhatIf::recommend`] is to make fast, and at what price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The quantile, 0.5 to 0.9999, default 0.99.
    pub rank: f64,
    /// Highest budget, 1 to 100 percent, default 5.
    pub percent_max: u32,
    /// The burst that will be set, default 1.
    pub burst: u32,
}

impl Default for Goal {
    fn default() -> Goal {
        Goal { rank: 0.99, percent_max: 5, burst: 1 }
    }
}

/// By what factor the goal's quantile falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// As predicted from all samples: before / after.
    pub factor: f64,
    /// The lower end of its 95 % bootstrap interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What [`WhatIf::recommend`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Hedge so.
    Hedge {
        /// The recommended delay and budget, and what they do.
        prediction: Prediction,
        /// How much that helps.
        gain: Gain,
    },
    /// Do not hedge: not even the best pair is sure to gain 2 %.
    Leave {
        /// What the best pair would do.
        gain: Gain,
    },
    /// The samples do not reach the goal's quantile.
    TooFew {
        /// Samples there are.
        samples: u64,
        /// Samples there must be, at least 100 of them for each replica.
        needed: u64,
    },
}

/// Predicts what hedging does to recorded service times, if replicas are independent and a hedge does
/// not slow others down. Replicas that are slow together gain less than predicted: check one pair live.
///
/// A read goes to replica i with that replica's share of the samples, and its hedge to one of the others.
/// Then the chance that it takes longer than `x` is that of its first copy, times, where a hedge started
/// (after `delay`, with credit), that of the second taking longer than `x - delay`. The share with credit is
/// that of a queue with `burst` places. Nothing is simulated; a whole grid takes milliseconds.
///
/// ```
/// use std::time::Duration;
/// use hedgerow::read::{Advice, Goal, Recorded, WhatIf};
///
/// // Every 50th read of each replica stalls for 40 ms.
/// let times = |n: u64| Duration::from_micros(if n % 50 == 0 { 40_000 } else { 300 + n % 97 });
/// let replica: Recorded = (0..10_000).map(times).collect();
/// let what_if = WhatIf::new(vec![replica.clone(), replica])?;
/// match what_if.recommend(&Goal::default(), &mut fastrand::Rng::with_seed(1)) {
///     Advice::Hedge { prediction, gain } => {
///         assert!(prediction.delay < Duration::from_millis(1));
///         assert!(gain.low > 10.0 && prediction.extra_load_percent <= 5.0);
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WhatIf {
    replicas: Vec<Tails>,
    recorded: Vec<Recorded>,
    /// How many of them, the first ones, serve reads; the others get hedges only.
    serving: usize,
    samples: u64,
}

impl WhatIf {
    /// Over the service times of at least two replicas.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there are fewer, or one without samples.
    pub fn new(recorded: Vec<Recorded>) -> Result<WhatIf, Error> {
        WhatIf::with_spares(recorded, Vec::new())
    }

    /// Over the service times of the nodes that serve reads, at least one, and of others that only hedges
    /// go to: a primary beside its one replica, say. At least two nodes together.
    ///
    /// # Errors
    /// As [`WhatIf::new`].
    pub fn with_spares(serving: Vec<Recorded>, spares: Vec<Recorded>) -> Result<WhatIf, Error> {
        let (count, mut recorded) = (serving.len(), serving);
        recorded.extend(spares);
        let is_empty = |times: &Recorded| times.samples == 0;
        if count == 0 || recorded.len() < 2 || recorded.iter().any(is_empty) {
            return Err(Error::config("`replicas` must be at least two, each with service times"));
        }
        let samples = recorded[..count].iter().map(|times| times.samples).sum();
        let replicas = tails(recorded.iter().map(|times| &times.counts), count);
        Ok(WhatIf { replicas, recorded, serving: count, samples })
    }

    /// What was recorded, without hedging; `delay` is zero and so are the loads.
    pub fn baseline(&self) -> Prediction {
        self.describe(&Hedged::none(&self.replicas), Duration::ZERO, 0, 0)
    }

    /// With hedges after `delay` for at most `percent` (1 to 100) of the reads and a store of `burst`
    /// (at least 1).
    pub fn predict(&self, delay: Duration, percent: u32, burst: u32) -> Prediction {
        let hedged = Hedged::new(&self.replicas, delay, percent, burst);
        self.describe(&hedged, delay, percent, burst)
    }

    /// Every pair of ten delays (quantiles of what was recorded, p50 to p99.5, those under 50 us left
    /// out) with six budgets (1 to 20 percent): by budget, then by delay.
    pub fn grid(&self, burst: u32) -> Vec<Prediction> {
        let none = Hedged::none(&self.replicas);
        let mut delays: Vec<Duration> = DELAY_RANKS.map(|rank| none.at(rank)).to_vec();
        delays.retain(|delay| *delay >= DELAY_MIN);
        delays.dedup();
        let pairs = PERCENTS.into_iter().flat_map(|p| delays.iter().map(move |delay| (p, *delay)));
        pairs.map(|(percent, delay)| self.predict(delay, percent, burst)).collect()
    }

    /// The pair of the grid that makes the goal's quantile lowest; of those within 5 % of it, the
    /// one with the least extra load. `random` draws the resamples of the interval.
    pub fn recommend(&self, goal: &Goal, random: &mut fastrand::Rng) -> Advice {
        let needed = (TAIL_MIN / (1.0 - goal.rank)).ceil() as u64;
        let fewest = self.recorded.iter().map(|times| times.samples).min().unwrap_or(0);
        if self.samples < needed || fewest < REPLICA_MIN {
            let needed = needed.max(REPLICA_MIN * self.recorded.len() as u64);
            return Advice::TooFew { samples: self.samples, needed };
        }
        let mut pairs = self.grid(goal.burst);
        pairs.retain(|pair| pair.percent <= goal.percent_max.max(1));
        let at = |replicas: &[Tails], pair: &Prediction| {
            Hedged::new(replicas, pair.delay, pair.percent, pair.burst).at(goal.rank)
        };
        let reached: Vec<(Duration, Prediction)> =
            pairs.into_iter().map(|pair| (at(&self.replicas, &pair), pair)).collect();
        let lowest = reached.iter().map(|(latency, _)| *latency).min().unwrap_or_default();
        let close = reached.iter().filter(|(latency, _)| *latency <= lowest.mul_f64(CLOSE));
        let cheapest = close.min_by(|(_, a), (_, b)| {
            (a.extra_load_percent, a.percent)
                .partial_cmp(&(b.extra_load_percent, b.percent))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some((_, prediction)) = cheapest else {
            // Only if all was faster than the shortest delay.
            return Advice::Leave { gain: Gain { factor: 1.0, low: 1.0, high: 1.0 } };
        };
        let gain = self.gain(prediction, goal.rank, random);
        if gain.low < GAIN_MIN {
            return Advice::Leave { gain };
        }
        Advice::Hedge { prediction: *prediction, gain }
    }

    /// By what factor the latency at `rank` falls with a prediction's delay and budget.
    pub fn gain(&self, pair: &Prediction, rank: f64, random: &mut fastrand::Rng) -> Gain {
        let factor = |replicas: &[Tails]| {
            let after = Hedged::new(replicas, pair.delay, pair.percent, pair.burst).at(rank);
            Hedged::none(replicas).at(rank).as_secs_f64() / after.as_secs_f64()
        };
        let mut factors: Vec<f64> =
            (0..RESAMPLES).map(|_| factor(&self.resample(random))).collect();
        factors.sort_by(f64::total_cmp);
        let [low, high] = [25, 975].map(|part| factors[part * (RESAMPLES - 1) / 1_000]);
        Gain { factor: factor(&self.replicas), low, high }
    }

    /// What might have been recorded instead: every bucket's count drawn anew around itself.
    fn resample(&self, random: &mut fastrand::Rng) -> Vec<Tails> {
        let drawn: Vec<Vec<f64>> = self
            .recorded
            .iter()
            .map(|times| times.counts.iter().map(|count| poisson(*count, random)).collect())
            .collect();
        tails(drawn.iter(), self.serving)
    }

    fn describe(
        &self,
        hedged: &Hedged<'_>,
        delay: Duration,
        percent: u32,
        burst: u32,
    ) -> Prediction {
        let known = |rank: &f64| (1.0 - rank) * self.samples as f64 >= TAIL_MIN - 1e-6;
        let (wanted, credited) = (hedged.wanted, hedged.credited);
        Prediction {
            delay,
            percent,
            burst,
            latency: RANKS.map(|rank| known(&rank).then(|| hedged.at(rank))),
            extra_load_percent: 100.0 * wanted * credited,
            without_credit_percent: 100.0 * wanted * (1.0 - credited),
        }
    }
}

/// How much of one replica's times lies beyond each bucket's start.
#[derive(Clone, Debug)]
struct Tails {
    /// The replica's share of all reads.
    share: f64,
    beyond: Vec<f64>,
}

/// The tails of all; reads are shared among the first `serving` of them.
fn tails<'a>(counts: impl Iterator<Item = &'a Vec<f64>> + Clone, serving: usize) -> Vec<Tails> {
    let sum = |counts: &Vec<f64>| counts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let all: f64 = counts.clone().take(serving).map(sum).sum();
    let share = |at: usize, own: f64| if at < serving { own / all } else { 0.0 };
    let each = counts.enumerate();
    each.map(|(at, counts)| Tails::new(counts, sum(counts), share(at, sum(counts)))).collect()
}

impl Tails {
    fn new(counts: &[f64], own: f64, share: f64) -> Tails {
        let mut beyond = vec![0.0; counts.len() + 1];
        for bucket in (0..counts.len()).rev() {
            beyond[bucket] = beyond[bucket + 1] + counts[bucket] / own;
        }
        Tails { share, beyond }
    }

    /// The share of times longer than `ns`.
    fn beyond(&self, ns: u64) -> f64 {
        if ns < Buckets::start_ns(0) {
            return 1.0;
        }
        let bucket = Buckets::bucket(ns);
        let (start, end) = (Buckets::start_ns(bucket), Buckets::start_ns(bucket + 1));
        let inside = ((ns - start) as f64 / (end - start) as f64).min(1.0);
        self.beyond[bucket] + (self.beyond[bucket + 1] - self.beyond[bucket]) * inside
    }
}

/// Replicas under one delay and budget.
struct Hedged<'a> {
    replicas: &'a [Tails],
    delay_ns: u64,
    /// Share of reads that are late, and of those with credit.
    wanted: f64,
    credited: f64,
}

impl<'a> Hedged<'a> {
    fn none(replicas: &'a [Tails]) -> Hedged<'a> {
        Hedged { replicas, delay_ns: u64::MAX, wanted: 0.0, credited: 0.0 }
    }

    fn new(replicas: &'a [Tails], delay: Duration, percent: u32, burst: u32) -> Hedged<'a> {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let late = |replica: &Tails| replica.share * replica.beyond(delay_ns);
        let wanted: f64 = replicas.iter().map(late).sum();
        let credited = credited(wanted, percent, burst as usize);
        Hedged { replicas, delay_ns, wanted, credited }
    }

    /// The share of reads that take longer than `ns`.
    fn beyond(&self, ns: u64) -> f64 {
        let Some(second_ns) = ns.checked_sub(self.delay_ns) else {
            return self.replicas.iter().map(|replica| replica.share * replica.beyond(ns)).sum();
        };
        let second: Vec<f64> = self.replicas.iter().map(|r| r.beyond(second_ns)).collect();
        let all: f64 = second.iter().sum();
        let others = (self.replicas.len() - 1) as f64;
        let pairs = self.replicas.iter().zip(&second);
        pairs
            .map(|(replica, own)| {
                let second = 1.0 - self.credited + self.credited * (all - own) / others;
                replica.share * replica.beyond(ns) * second
            })
            .sum()
    }

    /// The latency at a rank, by bisection.
    fn at(&self, rank: f64) -> Duration {
        let (mut low, mut high) = (0, Buckets::start_ns(Buckets::BUCKETS));
        while high - low > low / 4_096 + 1 {
            let middle = low + (high - low) / 2;
            if self.beyond(middle) > 1.0 - rank { low = middle } else { high = middle }
        }
        Duration::from_nanos(high)
    }
}

/// The share of late reads that find credit, `late` being the share that is late.
///
/// The budget is a queue in discrete time: a hedge is served for as many reads as earn its credit, a late
/// read is turned away where `burst` of them are in it. One served after idling was there for its first
/// read already, hence the two distributions.
fn credited(late: f64, percent: u32, burst: usize) -> f64 {
    let burst = burst.clamp(1, BURST_MAX);
    let reads = 100.0 / f64::from(percent.clamp(1, 100));
    let of = |reads: f64| {
        let empty = if burst == 1 { 1.0 } else { idle_departures(late, reads, burst) };
        (1.0 / (late * reads + empty * (1.0 - late))).min(1.0)
    };
    if burst == 1 {
        // What is earned past the cap is lost.
        return of(reads.ceil());
    }
    of(reads.floor()) + (of(reads.ceil()) - of(reads.floor())) * reads.fract()
}

/// How many of the departures leave the queue empty, from the chain of what they leave.
fn idle_departures(late: f64, reads: f64, burst: usize) -> f64 {
    if late * reads > LOAD_MAX {
        return 0.0;
    }
    let (busy, idle) = (binomial(late, reads, burst), binomial(late, reads - 1.0, burst));
    let mut states = vec![1.0_f64];
    for next in 1..burst {
        let reached: f64 = (1..next).map(|from| states[from] * busy[next - from]).sum();
        let left = states[next - 1] - states[0] * idle[next - 1] - reached;
        states.push((left / busy[0]).max(0.0));
    }
    1.0 / states.iter().sum::<f64>()
}

/// The chances of 0 to `most` hits in `count` trials.
fn binomial(chance: f64, count: f64, most: usize) -> Vec<f64> {
    let mut chances = vec![(1.0 - chance).powf(count)];
    for hits in 0..most {
        let more = (count - hits as f64).max(0.0) / (hits + 1) as f64 * chance / (1.0 - chance);
        chances.push(chances[hits] * more);
    }
    chances
}

/// A Poisson draw around `mean`; near-normal above 30.
fn poisson(mean: f64, random: &mut fastrand::Rng) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    if mean > 30.0 {
        let (u, v) = (1.0 - random.f64(), random.f64());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        return (mean + mean.sqrt() * normal).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-mean).exp(), random.f64(), 0.0);
    while product > limit {
        product *= random.f64();
        count += 1.0;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-383. One node serves, the other gets hedges only. Fails if the spare's times count as those of
    /// reads, or if its hedges do not help.
    #[test]
    fn a_spare_gets_hedges_only() {
        let us = Duration::from_micros;
        let stalls = |n: u64| us(if n.is_multiple_of(50) { 40_000 } else { 300 + n % 97 });
        let serving: Recorded = (0..20_000).map(stalls).collect();
        // Slower than anything but a stall: as a server of reads it would double the median.
        let spare: Recorded = (0..500).map(|n| us(1_000 + n % 97)).collect();
        let what_if = WhatIf::with_spares(vec![serving.clone()], vec![spare]).expect("two nodes");
        let at = |prediction: Prediction, rank: usize| prediction.latency[rank].expect("samples");
        assert!(at(what_if.baseline(), 0) < us(420) && at(what_if.baseline(), 2) > us(30_000));
        assert!(at(what_if.predict(us(500), 20, 10), 2) < us(1_700));
        assert!(WhatIf::with_spares(vec![serving.clone()], Vec::new()).is_err());
        assert!(WhatIf::with_spares(Vec::new(), vec![serving.clone(), serving]).is_err());
    }
}
