//! Predictions against the brute force that they replace.

use std::time::Duration;

use hedgerow::ErrorKind;
use hedgerow::read::{Advice, Budget, Goal, Recorded, WhatIf};

use super::model::{MS, lognormal, quantile};

/// How one replica's times are drawn.
#[derive(Clone, Copy, Debug)]
struct Replica {
    median: f64,
    sigma: f64,
    stalls: f64,
}

impl Replica {
    fn any(random: &mut fastrand::Rng) -> Replica {
        let stalls = if random.bool() { random.f64() * 0.06 } else { 0.0 };
        let median = (0.3 + 2.0 * random.f64()) * MS;
        Replica { median, sigma: 0.1 + random.f64(), stalls }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        let stall = random.f64() < self.stalls;
        lognormal(random, if stall { 40.0 * MS } else { self.median }, self.sigma)
    }

    fn recorded(&self, count: u32, random: &mut fastrand::Rng) -> Recorded {
        (0..count).map(|_| Duration::from_nanos(self.draw(random))).collect()
    }
}

/// Latencies, and hedges started and refused for 100 reads, of reads that are drawn one after the other,
/// each hedged at once.
fn brute_force(
    replicas: &[Replica],
    delay_ns: u64,
    percent: u32,
    burst: u32,
    random: &mut fastrand::Rng,
) -> (Vec<u64>, f64, f64) {
    let mut budget = Budget::new(percent, burst);
    // As in the long run, not as at the start.
    (0..100 * burst).for_each(|_| budget.on_read());
    let (count, mut hedges, mut refused) = (400_000, 0, 0);
    let latencies = (0..count).map(|_| {
        budget.on_read();
        let first = random.usize(0..replicas.len());
        let takes = replicas[first].draw(random);
        if takes <= delay_ns {
            return takes;
        }
        if !budget.take() {
            refused += 1;
            return takes;
        }
        hedges += 1;
        let second = (first + 1 + random.usize(0..replicas.len() - 1)) % replicas.len();
        takes.min(delay_ns + replicas[second].draw(random))
    });
    let latencies = latencies.collect();
    let percent = |hedges: u32| f64::from(hedges) * 100.0 / f64::from(count);
    (latencies, percent(hedges), percent(refused))
}

/// Fails if for any replicas, delay, budget and burst a predicted percentile, the extra load or the share
/// without credit is further than the noise of both sides from what drawing every read gives.
#[test]
fn predictions_agree_with_brute_force() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let replicas: Vec<Replica> =
            (0..random.usize(2..=4)).map(|_| Replica::any(&mut random)).collect();
        let recorded: Vec<_> = replicas.iter().map(|r| r.recorded(200_000, &mut random)).collect();
        let what_if = WhatIf::new(recorded).expect("times of every replica");
        let grid = what_if.grid(random.choice([1, 4, 10, 100]).expect("one of four"));
        let pair = random.choice(grid).expect("a grid");
        let delay_ns = pair.delay.as_nanos() as u64;
        let (mut latencies, extra, refused) =
            brute_force(&replicas, delay_ns, pair.percent, pair.burst, &mut random);
        // Four deviations of two counts, and a little for the buckets.
        let hedges = extra / 100.0 * 400_000.0;
        let within = 4.0 * (2.0 / hedges).sqrt() + 0.01;
        assert!(
            (pair.extra_load_percent / extra - 1.0).abs() <= within,
            "seed {seed}: {extra} % more requests, predicted {pair:?}"
        );
        // Near the point where demand is what the budget earns, little more of it is refused much more often.
        let off = (pair.without_credit_percent - refused).abs();
        assert!(
            off <= 0.1 * refused + 0.05,
            "seed {seed}: {refused} % without credit, predicted {pair:?}"
        );
        for (index, rank, step) in
            [(0, 0.5, 0.005), (1, 0.9, 0.002), (2, 0.99, 0.0006), (3, 0.999, 0.0003)]
        {
            let predicted = pair.latency[index].expect("enough samples").as_nanos() as f64 / MS;
            // A little up and down the curve, which is steep at a wall.
            let low = quantile(&mut latencies, rank - step) * 0.98;
            let high = quantile(&mut latencies, rank + step) * 1.02;
            assert!(
                (low..=high).contains(&predicted),
                "seed {seed}: p{} is {low} to {high} ms, predicted {predicted}: {pair:?} {replicas:?}",
                rank * 100.0
            );
        }
    }
}

/// Fails if the share of late reads that is predicted to find credit is not what the budget gives them, for
/// any percentage, burst and share.
#[test]
fn credit_is_shared_as_the_budget_does() {
    let (quick, late) = (Duration::from_millis(1), Duration::from_millis(100));
    let mut random = fastrand::Rng::with_seed(11);
    for share in [0.02, 0.1, 0.3, 0.7] {
        let mut recorded = Recorded::new();
        recorded.record(late, (share * 1e6) as u64);
        recorded.record(quick, ((1.0 - share) * 1e6) as u64);
        let what_if = WhatIf::new(vec![recorded.clone(), recorded]).expect("two replicas");
        for (percent, burst) in
            [(1, 3), (5, 1), (20, 2), (30, 1), (30, 5), (50, 1), (50, 2), (100, 1)]
        {
            let mut budget = Budget::new(percent, burst);
            let (mut wanted, mut started) = (0.0, 0.0);
            for _ in 0..300_000 {
                budget.on_read();
                if random.f64() < share {
                    wanted += 1.0;
                    started += f64::from(u8::from(budget.take()));
                }
            }
            let pair = what_if.predict(Duration::from_millis(10), percent, burst);
            let predicted = pair.extra_load_percent / 100.0 / share;
            let off = (predicted - started / wanted).abs();
            let name = format!("{share} late, {percent} %, burst {burst}");
            assert!(off < 0.02, "{name}: {} find credit, predicted {predicted}", started / wanted);
        }
    }
}

/// Fails if the interval of the gain misses the gain over endless samples more often than 95 % allow for.
#[test]
fn the_interval_holds_the_true_gain() {
    let replicas = [0.02, 0.01].map(|stalls| Replica { median: MS, sigma: 0.4, stalls });
    let mut random = fastrand::Rng::with_seed(4);
    let recorded = |count: u32, random: &mut fastrand::Rng| {
        WhatIf::new(replicas.iter().map(|r| r.recorded(count, random)).collect())
            .expect("two replicas")
    };
    let endless = recorded(2_000_000, &mut random);
    let pair = endless.predict(Duration::from_millis(3), 5, 10);
    let truth = endless.gain(&pair, 0.99, &mut random).factor;
    let holds = (0..60).filter(|_| {
        let gain = recorded(4_000, &mut random).gain(&pair, 0.99, &mut random);
        assert!(gain.low <= gain.high);
        (gain.low..=gain.high).contains(&truth)
    });
    let count = holds.count();
    assert!((51..=60).contains(&count), "{count} of 60 intervals hold {truth}");
}

/// Fails if a clear win is not recommended within the budget, a loss is, or too few samples get an answer.
#[test]
fn advice_is_given_where_samples_reach() {
    let mut random = fastrand::Rng::with_seed(6);
    let advice = |stalls: f64, sigma: f64, count: u32, random: &mut fastrand::Rng| {
        let replica = Replica { median: MS, sigma, stalls };
        let recorded = vec![replica.recorded(count, random), replica.recorded(count, random)];
        WhatIf::new(recorded).expect("two replicas").recommend(&Goal::default(), random)
    };
    match advice(0.02, 0.3, 20_000, &mut random) {
        Advice::Hedge { prediction, gain } => {
            assert!(
                gain.low > 5.0 && gain.low <= gain.factor && gain.factor <= gain.high,
                "{gain:?}"
            );
            assert!(prediction.percent <= 5 && prediction.extra_load_percent <= 5.0);
            assert!(prediction.latency[2] < Some(Duration::from_millis(8)), "{prediction:?}");
        }
        other => panic!("{other:?}"),
    }
    // Hardly a tail: nothing to gain.
    let leave = advice(0.0, 0.02, 20_000, &mut random);
    assert!(matches!(leave, Advice::Leave { gain } if gain.factor < 1.1), "{leave:?}");
    let few = advice(0.02, 0.3, 400, &mut random);
    assert_eq!(few, Advice::TooFew { samples: 800, needed: 1_000 });
    let refused = WhatIf::new(vec![Recorded::new()]).expect_err("one replica, without times");
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("`replicas`"), "{refused}");
}

/// Fails if a percentile is given that fewer than ten samples lie beyond, if the grid leaves out a pair,
/// or if hedging without late reads changes anything.
#[test]
fn the_grid_is_whole() {
    let mut random = fastrand::Rng::with_seed(9);
    let replica = Replica { median: MS, sigma: 0.5, stalls: 0.0 };
    let recorded = |random: &mut fastrand::Rng| replica.recorded(3_000, random);
    let what_if = WhatIf::new(vec![recorded(&mut random), recorded(&mut random)]).expect("two");
    let baseline = what_if.baseline();
    assert!(baseline.latency[2].is_some() && baseline.latency[3].is_none(), "{baseline:?}");
    assert_eq!((baseline.extra_load_percent, baseline.without_credit_percent), (0.0, 0.0));
    let grid = what_if.grid(1);
    assert_eq!(grid.len(), 60);
    assert!(grid.iter().all(|pair| pair.extra_load_percent <= f64::from(pair.percent)));
    assert!(grid.iter().all(|pair| pair.latency[2] <= baseline.latency[2]));
    let idle = what_if.predict(Duration::from_secs(10), 5, 1);
    assert_eq!(idle.latency, baseline.latency);
    assert_eq!(idle.extra_load_percent, 0.0);
}
