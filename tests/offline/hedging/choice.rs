//! The choice of replicas by live latencies, over modelled replicas.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hedgerow::read::Choice;
use hedgerow::runtime::time::Instant;

use super::model::{MS, SECOND, lognormal};

/// A read every 100 us for `seconds`; `takes` says how long replica `i` takes at a time, or that it fails.
/// Returns how many reads each replica served, by tenths of the run.
fn served(
    seed: u64,
    replicas: usize,
    seconds: u64,
    takes: impl Fn(&mut fastrand::Rng, usize, u64) -> Option<u64>,
) -> Vec<Vec<u32>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut choice = Choice::new(replicas);
    let mut served = vec![vec![0; replicas]; 10];
    let mut replies: BinaryHeap<Reverse<(u64, usize, Option<u64>)>> = BinaryHeap::new();
    let end = seconds * SECOND;
    for at in (0..end).step_by(100_000) {
        while replies.peek().is_some_and(|Reverse((due, ..))| *due <= at) {
            let Some(Reverse((due, replica, latency))) = replies.pop() else { break };
            let now = Instant::from_nanos(due);
            match latency {
                Some(ns) => choice.on_reply(now, replica, Duration::from_nanos(ns)),
                None => choice.on_failure(now, replica),
            }
        }
        let now = Instant::from_nanos(at);
        let replica = choice.pick(now, random.u64(..), |_| true).expect("one may serve");
        choice.on_sent(replica);
        served[(at * 10 / end) as usize][replica] += 1;
        let latency = takes(&mut random, replica, at);
        replies.push(Reverse((at + latency.unwrap_or(1_000_000), replica, latency)));
    }
    served
}

fn sums(served: &[Vec<u32>]) -> Vec<u32> {
    let sum = |replica: usize| served.iter().map(|part| part[replica]).sum();
    (0..served[0].len()).map(sum).collect()
}

/// Fails if replicas alike do not get the same share within a tenth, or if two draws prefer a position.
#[test]
fn equal_replicas_share_alike() {
    for (seed, replicas) in [(1, 2), (2, 3), (3, 5), (4, 8)] {
        let sums =
            sums(&served(seed, replicas, 10, |random, _, _| Some(lognormal(random, MS, 0.4))));
        let fair = 100_000.0 / replicas as f64;
        assert!(sums.iter().all(|n| (f64::from(*n) / fair - 1.0).abs() < 0.1), "{sums:?}");
        // Nothing known at all: by random bits alone.
        let (choice, mut random) = (Choice::new(replicas), fastrand::Rng::with_seed(seed));
        let mut counts = vec![0; replicas];
        for _ in 0..40_000 {
            counts[choice.pick(Instant::ZERO, random.u64(..), |_| true).expect("one")] += 1;
        }
        let fair = 40_000.0 / replicas as f64;
        assert!(counts.iter().all(|n| (f64::from(*n) / fair - 1.0).abs() < 0.1), "{counts:?}");
    }
}

/// Fails if a replica twice as slow gets as much as the others, none at all, or is taken for an outlier.
#[test]
fn a_slower_replica_gets_less() {
    let sums = sums(&served(5, 3, 10, |random, replica, _| {
        Some(lognormal(random, if replica == 1 { 2.5 * MS } else { MS }, 0.1))
    }));
    assert!(sums[1] < 20_000 && sums[1] > 100, "{sums:?}");
    assert!(sums[0].abs_diff(sums[2]) < 8_000, "{sums:?}");
}

/// Fails if a replica that turns ten times as slow, or fails, keeps more than a trickle, or gets no reads
/// within three seconds of its recovery.
#[test]
fn an_outlier_is_out_until_it_recovers() {
    for fails in [false, true] {
        // Bad from 6 s to 12 s of 30 s.
        let served = served(6, 3, 30, |random, replica, at| {
            let bad = replica == 0 && (6 * SECOND..12 * SECOND).contains(&at);
            match (bad, fails) {
                (true, true) => None,
                (true, false) => Some(lognormal(random, 30.0 * MS, 0.1)),
                (false, _) => Some(lognormal(random, MS, 0.3)),
            }
        });
        let shares: Vec<f64> = served.iter().map(|part| f64::from(part[0]) / 30_000.0).collect();
        assert!(shares[0] > 0.3 && shares[1] > 0.3, "{shares:?}");
        assert!(shares[2] < 0.05 && shares[3] < 0.05, "{shares:?}");
        // Out for up to 4 s by then.
        assert!(shares[6..].iter().all(|share| *share > 0.28), "{shares:?}");
    }
}

/// Fails if fewer than five replies in a row of four times the best of the others eject, if one in time
/// between them does not count, or if a replica that is out twice is not out twice as long.
#[test]
fn five_slow_replies_eject() {
    let mut choice = Choice::new(3);
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    let ms = Duration::from_millis;
    (1..3).for_each(|replica| choice.on_reply(at(0), replica, ms(1)));
    let mut slow = |from: u64, count: u64| {
        (from..from + count).for_each(|n| choice.on_reply(at(n), 0, ms(5)));
        choice.is_ejected(at(from + count), 0)
    };
    assert!(!slow(1, 4), "four");
    assert!(slow(5, 1), "five");
    let mut choice = Choice::new(3);
    (1..3).for_each(|replica| choice.on_reply(at(0), replica, ms(1)));
    for (from, until) in [(0, 1_000), (2_000, 4_000)] {
        (1..5).for_each(|n| choice.on_reply(at(from + n), 0, ms(5)));
        if from == 0 {
            choice.on_reply(at(5), 0, ms(2));
            (6..10).for_each(|n| choice.on_reply(at(n), 0, ms(5)));
            assert!(!choice.is_ejected(at(11), 0), "one was in time");
        }
        choice.on_failure(at(from + 10), 0);
        assert!(choice.is_ejected(at(until + 9), 0) && !choice.is_ejected(at(until + 10), 0));
    }
}

/// Fails if more than half of the replicas are ejected, if a pick leaves those that may serve, or if none is
/// picked because all that may serve are out.
#[test]
fn half_stay_in() {
    let now = Instant::from_nanos(SECOND);
    let mut choice = Choice::new(4);
    for replica in [0, 1, 2, 3].into_iter().cycle().take(80) {
        choice.on_failure(now, replica);
    }
    let out = (0..4).filter(|replica| choice.is_ejected(now, *replica)).count();
    assert_eq!(out, 2);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..1_000 {
        let inside = choice.pick(now, random.u64(..), |_| true).expect("one is in");
        assert!(!choice.is_ejected(now, inside));
        let ejected = choice.pick(now, random.u64(..), |replica| choice.is_ejected(now, replica));
        assert!(ejected.is_some_and(|replica| choice.is_ejected(now, replica)));
        let may = |replica: usize| replica % 2 == 1;
        assert!(choice.pick(now, random.u64(..), may).is_some_and(may));
    }
    assert_eq!(choice.pick(now, 1, |_| false), None);
    assert!(!choice.is_ejected(Instant::from_nanos(2 * SECOND), 0), "back after a second");
}

/// Two groups of two replicas, a read of each in turn: of group 1 they take `b_us`, of group 0 `a_us`, but
/// its second one `stall_us` from the middle on. Answers reads of group 0 since then, those that went to the
/// second one, and how often both of the group were out.
fn grouped(a_us: u64, b_us: u64, stall_us: u64) -> (u32, u32, u32) {
    let mut choice = Choice::default();
    choice.resize(4);
    (0..4).for_each(|at| choice.join(at, at as u32 / 2));
    let mut random = fastrand::Rng::with_seed(1);
    let (mut all, mut stalled, mut both_out) = (0, 0, 0);
    for n in 0..40_000_u64 {
        let now = Instant::from_nanos(SECOND + n * 200_000);
        for group in [1, 0] {
            let at = choice.pick(now, random.u64(..), |at| at / 2 == group).expect("one");
            let is_late = n > 20_000 && at == 1;
            let us = if is_late { stall_us } else { [a_us, b_us][group] };
            choice.on_sent(at);
            choice.on_reply(now, at, Duration::from_micros(us));
            all += u32::from(group == 0 && n > 20_000);
            stalled += u32::from(is_late);
        }
        both_out += u32::from(choice.is_ejected(now, 0) && choice.is_ejected(now, 1));
    }
    (all, stalled, both_out)
}

/// Fails if replicas are compared with those of another shard, which no read can choose instead.
#[test]
fn groups_are_judged_apart() {
    let (all, stalled, both_out) = grouped(500, 100, 20_000);
    assert_eq!(both_out, 0);
    assert!(stalled * 10 < all, "{stalled} of {all} went to the slow one");
}

/// Fails if a replica that is gone stays what others are compared with.
#[test]
fn one_that_is_gone_is_no_measure() {
    let mut choice = Choice::new(3);
    for replica in 0..3 {
        choice.on_reply(Instant::from_nanos(SECOND), replica, Duration::from_micros(100));
    }
    choice.leave(2);
    for n in 0..100_000 {
        let now = Instant::from_nanos(3_600 * SECOND + n * 200_000);
        let replica = (n % 2) as usize;
        choice.on_reply(now, replica, Duration::from_micros(500));
        assert!(!choice.is_ejected(now, replica), "after {n}");
    }
}
