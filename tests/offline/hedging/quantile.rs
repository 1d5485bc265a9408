//! The fading quantiles and the delay that is taken from them.

use std::time::Duration;

use hedgerow::read::{Adaptive, Decay, Delay, Quantiles, Row};
use hedgerow::runtime::time::Instant;

use super::model::{MS, lognormal};

const SECOND: u64 = 1_000_000_000;

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// `count` samples of `draw`, `rate` a second from `from` seconds on.
fn feed(
    quantiles: &mut Quantiles,
    from: f64,
    rate: f64,
    count: u32,
    mut draw: impl FnMut() -> u64,
) {
    for index in 0..count {
        let at = Instant::from_nanos(((from + f64::from(index) / rate) * 1e9) as u64);
        quantiles.record(at, ns(draw()));
    }
}

/// Fails if over any distribution a quantile of what has not faded yet is further than a bucket
/// and the noise of a sample from the true one.
#[test]
fn quantiles_are_within_a_bucket() {
    let mut random = fastrand::Rng::with_seed(3);
    // So slow to fade that all samples count alike.
    let decay = Decay {
        half_life: Duration::from_secs(1 << 20),
        samples_min: 1 << 30,
        samples_max: 1 << 30,
    };
    for case in 0..60 {
        let (median, sigma) = (random.f64() * 20.0 * MS + 50_000.0, random.f64() * 1.5);
        let stalls = if case % 3 == 0 { random.f64() * 0.1 } else { 0.0 };
        let mut samples: Vec<u64> = Vec::new();
        let mut quantiles = Quantiles::new(decay);
        feed(&mut quantiles, 0.0, 1e4, 5_000, || {
            let stall = random.f64() < stalls;
            let sample = lognormal(&mut random, if stall { 10.0 * median } else { median }, sigma);
            samples.push(sample.max(20_000));
            sample.max(20_000)
        });
        samples.sort_unstable();
        let ranks = [0.1, 0.5, 0.9, 0.95, 0.99, 0.999];
        let found = quantiles.at_each(ranks);
        for (rank, found) in ranks.into_iter().zip(found) {
            let found = found.expect("there are samples").as_nanos() as f64;
            let exact =
                |rank: f64| samples[((rank * 5_000.0).ceil() as usize).clamp(1, 5_000) - 1] as f64;
            // One sample either way, and a bucket, which is an eighth of its start wide at most.
            let (low, high) = (exact(rank - 0.0002) * 0.888, exact(rank + 0.0002) * 1.126);
            assert!(
                (low..=high).contains(&found),
                "case {case}: {found} at {rank}, {low} to {high}"
            );
        }
        assert!((quantiles.count() - 5_000.0).abs() < 10.0, "{}", quantiles.count());
    }
}

/// Fails if seven half-lives after latencies rose or fell fivefold a high quantile is not within 15 %
/// of the new one, at 1,000 or at 20,000 reads a second.
#[test]
fn a_step_arrives_within_seconds() {
    let tail = 0.04;
    for (rate, seconds) in [(20_000.0, 0.9), (10_000.0, 1.8), (1_000.0, 3.5)] {
        for (before, after) in [(1.0, 5.0), (5.0, 1.0)] {
            let mut random = fastrand::Rng::with_seed(5);
            let mut quantiles = Quantiles::new(Decay::for_tail(tail));
            feed(&mut quantiles, 0.0, rate, (rate * 20.0) as u32, || {
                lognormal(&mut random, before * MS, 0.5)
            });
            feed(&mut quantiles, 20.0, rate, (rate * seconds) as u32, || {
                lognormal(&mut random, after * MS, 0.5)
            });
            let found = quantiles.at(1.0 - tail).expect("samples").as_nanos() as f64;
            let exact = after * MS * (0.5 * 1.7507_f64).exp();
            let off = (found / exact - 1.0).abs();
            assert!(off < 0.15, "{rate}/s, {before} to {after} ms: {found} for {exact}");
        }
    }
}

/// Fails if a rare class forgets faster than it learns, or a busy one keeps more than it needs.
#[test]
fn the_past_fades_by_time_and_by_samples() {
    let decay = Decay::for_tail(0.04);
    assert_eq!((decay.samples_min, decay.samples_max), (250, 2_500));
    for (rate, kept) in [(10.0, 360.7), (1_000.0, 721.3), (100_000.0, 3_606.7)] {
        let mut quantiles = Quantiles::new(decay);
        feed(&mut quantiles, 0.0, rate, 40_000, || 1_000_000);
        let off = (quantiles.count() / kept - 1.0).abs();
        assert!(off < 0.02, "{rate}/s: {} samples count, not {kept}", quantiles.count());
    }
}

/// Fails if a published row is not what the histogram says, if merging is not weighted by counts, or
/// if ranks between two published ones leave their range.
#[test]
fn rows_say_what_histograms_say() {
    let mut random = fastrand::Rng::with_seed(8);
    let rows = [1.0, 3.0].map(|median| {
        let mut quantiles = Quantiles::new(Decay::for_tail(0.01));
        feed(&mut quantiles, 0.0, 1e4, 50_000, || lognormal(&mut random, median * MS, 1.5));
        for rank in [0.5, 0.8, 0.9, 0.96, 0.985, 0.998, 0.999] {
            let (row, exact) =
                (quantiles.row().expect("samples"), quantiles.at(rank).expect("samples"));
            let off = (row.at(rank).as_secs_f64() / exact.as_secs_f64() - 1.0).abs();
            assert!(off < 0.08, "{:?} for {exact:?} at {rank}", row.at(rank));
        }
        quantiles.row().expect("samples")
    });
    let [mut merged, other] = rows;
    merged.count = 3.0 * other.count;
    merged.merge(&other);
    let expected = 0.75 * rows[0].latency_us[3] + 0.25 * other.latency_us[3];
    assert!((merged.latency_us[3] / expected - 1.0).abs() < 1e-3);
    assert_eq!(merged.count, 4.0 * other.count);
    let ranks = (0..=1_000).map(|part| merged.at(f64::from(part) / 1_000.0));
    assert!(ranks.clone().zip(ranks.skip(1)).all(|(a, b)| a <= b), "falls between two ranks");
    assert_eq!(Quantiles::new(Decay::for_tail(0.1)).row(), None);
}

const FLOOR: Duration = Duration::from_millis(1);
const CEILING: Duration = Duration::from_millis(50);

fn adaptive(q: f64, percent: u32) -> Adaptive {
    Adaptive::new(Delay::Quantile { q, floor: FLOOR, ceiling: CEILING }, percent, 2)
}

/// The delay after 20,000 reads in 2 s.
fn learnt(adaptive: &mut Adaptive, mut draw: impl FnMut() -> u64) -> Duration {
    for index in 0..20_000 {
        adaptive.record(Instant::from_nanos(index * 100_000), (index % 2) as usize, ns(draw()));
    }
    adaptive.delay(Instant::from_nanos(2 * SECOND))
}

/// Fails if the delay leaves floor or ceiling, asks for more hedges than the budget pays for, or is
/// not at the asked quantile where the budget does pay for it.
#[test]
fn the_delay_fits_the_budget() {
    let mut random = fastrand::Rng::with_seed(1);
    let near = |delay: Duration, tail_z: f64, median: f64| {
        let exact = median * MS * (1.0 * tail_z).exp();
        assert!((delay.as_nanos() as f64 / exact - 1.0).abs() < 0.15, "{delay:?} for {exact} ns");
    };
    // 0.8 x 5 % of the reads, though half of them are asked for.
    near(learnt(&mut adaptive(0.5, 5), || lognormal(&mut random, MS, 1.0)), 1.7507, 1.0);
    // 1 %, as asked for.
    near(learnt(&mut adaptive(0.99, 5), || lognormal(&mut random, MS, 1.0)), 2.3263, 1.0);
    assert_eq!(learnt(&mut adaptive(0.9, 20), || 300_000), FLOOR);
    assert_eq!(learnt(&mut adaptive(0.9, 20), || 900_000_000), CEILING);
}

/// Fails if, where every 20th read stalls for 50 ms, the delay is beyond the wall at 5 %, or if for a
/// mere steep tail it asks for more than the budget.
#[test]
fn the_delay_is_at_the_foot_of_a_wall() {
    let mut random = fastrand::Rng::with_seed(2);
    for share in [0.042, 0.046, 0.05, 0.054] {
        let delay = learnt(&mut adaptive(0.9, 5), || {
            let stall = random.f64() < share;
            lognormal(&mut random, if stall { 50.0 * MS } else { 2.0 * MS }, 0.2)
        });
        assert!((FLOOR..Duration::from_millis(5)).contains(&delay), "{share}: {delay:?}");
    }
}

/// Fails if the delay is another than the ceiling while little is known or nothing was heard for 10 s,
/// if what all cores know is not used then, or if a fixed delay moves.
#[test]
fn the_ceiling_counts_until_more_is_known() {
    let at = |s: u64| Instant::from_nanos(s * SECOND);
    let mut unknown = adaptive(0.95, 5);
    (0..240).for_each(|n| unknown.record(Instant::from_nanos(n * 1_000_000), 0, FLOOR * 2));
    assert_eq!(unknown.delay(at(1)), CEILING);
    let row = Row {
        count: 1_000.0,
        latency_us: [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0].map(|ms| ms * 1e3),
    };
    unknown.publish(at(1), row);
    let published = unknown.delay(at(1));
    assert!((FLOOR * 4..FLOOR * 6).contains(&published), "{published:?}");
    assert_eq!(unknown.delay(at(12)), CEILING);
    let mut few = adaptive(0.95, 5);
    few.publish(at(1), Row { count: 200.0, ..row });
    assert_eq!(few.delay(at(1)), CEILING);
    let mut known = adaptive(0.95, 5);
    let delay = learnt(&mut known, || 2_000_000);
    assert!(delay.abs_diff(FLOOR * 2) < FLOOR / 4, "{delay:?}");
    assert_eq!(known.delay(at(13)), CEILING);
    let mut fixed = Adaptive::new(Delay::Fixed(FLOOR * 7), 5, 2);
    assert_eq!(learnt(&mut fixed, || 90_000_000), FLOOR * 7);
    assert!(fixed.replica(0).is_none() && known.replica(1).is_some());
    known.forget(1);
    assert_eq!(known.replica(1).and_then(|replica| replica.at(0.5)), None);
}
