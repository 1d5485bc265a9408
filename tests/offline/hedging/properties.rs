//! What holds for the budget and for the whole of hedging, whatever happens in which order.

use std::time::Duration;

use hedgerow::read::{Budget, Delay, Due, Hedging, Outcome, Tail, Weather};
use hedgerow::runtime::time::Instant;

use super::model::SECOND;

/// C-23. Fails if for any settings, at any moment, more hedges started than percent x
/// reads + burst, or if a hedge is refused that this bound and the cap allow.
#[test]
fn starts_never_pass_the_budget() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (percent, burst) = (random.u32(1..=100), random.u32(1..=20));
        let mut budget = Budget::new(percent, burst);
        let (mut reads, mut starts) = (0_u64, 0_u64);
        // What the store may hold, by the words of the requirement.
        let mut stored = 0_u64;
        for _ in 0..3_000 {
            if random.f64() < 0.7 {
                budget.on_read();
                reads += 1;
                stored = (stored + u64::from(percent)).min(u64::from(burst) * 100);
            }
            if random.u8(..) % 8 < 3 {
                let started = budget.take();
                assert_eq!(started, stored >= 100, "seed {seed}");
                starts += u64::from(started);
                stored -= if started { 100 } else { 0 };
            }
            let allowed = reads * u64::from(percent) + u64::from(burst) * 100;
            assert!(starts * 100 <= allowed, "seed {seed}: {starts} of {reads} reads");
        }
    }
}

/// C-16. Fails if for any order of reads, late reads and outcomes a core starts more hedges
/// than its budget allows, a fixed delay asks again, or the books miss a hedge.
#[test]
fn a_core_keeps_its_books() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut hedging = Hedging::default();
        hedging.max_extra_load_percent = random.u32(1..=30);
        hedging.burst = random.u32(1..=5);
        let is_fixed = random.bool();
        hedging.delay = if is_fixed { Delay::default() } else { Delay::adaptive() };
        let mut tail = Tail::new(hedging, 2, 3);
        let (mut now, mut running) = (Instant::ZERO, 0_u64);
        for _ in 0..5_000 {
            now = now + Duration::from_micros(random.u64(1..500));
            tail.on_read(now, random.usize(0..3));
            if random.u8(..) < 90 {
                let waited = Duration::from_micros(random.u64(50..50_000));
                match tail.on_due(now, waited, random.bool()) {
                    Due::Start => running += 1,
                    Due::Again(after) => assert!(!is_fixed && after * 8 >= waited),
                    Due::Leave => {}
                }
            }
            if running > 0 && random.bool() {
                let outcomes = [Outcome::Won, Outcome::Lost, Outcome::Lost, Outcome::BothFailed];
                tail.on_outcome(now, random.choice(outcomes).expect("one of four"));
                running -= 1;
            }
            tail.on_reply(now, 0, random.usize(0..4), Duration::from_micros(random.u64(50..9_000)));
            let ledger = tail.ledger();
            let decided = ledger.won + ledger.lost + ledger.both_failed;
            assert_eq!(ledger.sent, decided + running);
            let allowed = ledger.reads * u64::from(hedging.max_extra_load_percent);
            assert!(ledger.sent * 100 <= allowed + 100 * u64::from(hedging.burst), "seed {seed}");
        }
        assert!(tail.ledger().sent > 0 && tail.ledger().reads == 5_000);
    }
}

/// Fails if with the guard on a hedge starts in a storm other than as a probe or most reads arm a
/// timer, if with it off losses stop hedging, or if a read held back by a storm is to ask again.
#[test]
fn the_guard_is_an_option() {
    for storm_guard in [true, false] {
        let mut hedging = Hedging::default();
        (hedging.storm_guard, hedging.max_extra_load_percent) = (storm_guard, 100);
        hedging.delay = Delay::adaptive();
        let mut tail = Tail::new(hedging, 1, 2);
        let (mut starts, mut armed) = (0, 0);
        for ms in 0..3_000 {
            let now = Instant::from_nanos(ms * 1_000_000);
            armed += u64::from(tail.on_read(now, 0).is_some());
            match tail.on_due(now, Duration::from_millis(5), false) {
                Due::Start => starts += 1,
                due => assert_eq!(due, Due::Leave),
            }
            tail.on_outcome(now, Outcome::Lost);
        }
        // Off after a thousand, then probes at 1,249 ms and so on to 2,999.
        assert_eq!(starts, if storm_guard { 1_008 } else { 3_000 });
        assert_eq!(tail.ledger().held_back, if storm_guard { 1_992 } else { 0 });
        // Reads that would be due (after 100 ms) when the next probe may go.
        assert!(if storm_guard { armed < 2_000 } else { armed == 3_000 }, "{armed}");
    }
}

/// 20,000 replies, one each half millisecond, of which three in a hundred take twice as long.
fn busy(hedging: Hedging) -> (Tail, Instant) {
    let mut tail = Tail::new(hedging, 1, 2);
    let mut now = Instant::from_nanos(SECOND);
    for n in 0..20_000_u64 {
        now = now + Duration::from_micros(500);
        tail.on_read(now, 0);
        let us = if n % 100 < 3 { 1_900 } else { 900 + n % 50 };
        tail.on_reply(now, 0, (n % 2) as usize, Duration::from_micros(us));
    }
    (tail, now)
}

/// Fails if a guard that is switched off still ends storms and with them what is known of latencies, or if
/// one does so that was raised while latencies were as usual.
#[test]
fn latencies_outlive_what_does_not_change_them() {
    for storm_guard in [false, true] {
        let mut hedging = Hedging::default();
        (hedging.delay, hedging.storm_guard) = (Delay::adaptive(), storm_guard);
        let (mut tail, mut now) = busy(hedging);
        let before = tail.on_read(now, 0);
        for _ in 0..1_000 {
            tail.on_outcome(now, Outcome::Lost);
        }
        assert_eq!(tail.weather() != Weather::Clear, storm_guard);
        now = now + Duration::from_millis(300);
        tail.on_outcome(now, Outcome::Won);
        assert_eq!(tail.weather(), Weather::Clear);
        assert_eq!(tail.on_read(now, 0), before, "guard: {storm_guard}");
    }
}

/// Fails if a storm in which all are slow is said to be over when nobody answers any more.
#[test]
fn silence_is_no_fair_weather() {
    let mut hedging = Hedging::default();
    (hedging.max_extra_load_percent, hedging.burst) = (100, 1_000);
    let (mut tail, mut now) = busy(hedging);
    for n in 0..300 {
        now = now + Duration::from_millis(1);
        tail.on_reply(now, 0, n % 2, Duration::from_millis(40));
    }
    for _ in 0..40 {
        tail.on_outcome(now, Outcome::Lost);
    }
    assert_ne!(tail.weather(), Weather::Clear);
    now = now + Duration::from_secs(11);
    assert_eq!(tail.on_due(now, Duration::from_millis(10), false), Due::Start, "a probe");
    now = now + Duration::from_secs(1);
    assert_eq!(tail.on_outcome(now, Outcome::BothFailed), None);
    assert_ne!(tail.weather(), Weather::Clear);
}

/// Fails if a read that is sent again earns a second credit.
#[test]
fn a_read_earns_once() {
    let mut tail = Tail::new(Hedging::default(), 1, 2);
    tail.on_read(Instant::from_nanos(SECOND), 0);
    assert_eq!(tail.delay(Instant::from_nanos(SECOND), 0), Some(Duration::from_millis(10)));
    assert_eq!(tail.ledger().reads, 1);
}
