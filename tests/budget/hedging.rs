//! Allocations of the decisions that an armed read goes through.

use std::time::Duration;

use hedgerow::read::{Choice, Delay, Due, Estimate, Hedging, Outcome, Tail, nearest};
use hedgerow::runtime::time::Instant;

use crate::allocator::asked;

/// R-244; C-16. Fails if a warm choice by Nearest or by live latencies, or any decision about a hedge,
/// allocates.
#[test]
fn decisions_of_an_armed_read_allocate_nothing() {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::adaptive();
    let (mut tail, mut choice) = (Tail::new(hedging, 2, 3), Choice::new(3));
    let mut estimates = [Estimate::UNKNOWN; 3];
    let before = asked();
    let mut started = 0;
    for n in 0..20_000_u64 {
        let now = Instant::from_nanos(n * 100_000);
        let latency = Duration::from_micros(100 + n % 900);
        let replica = choice.pick(now, n << 32 | n, |_| true).expect("all may serve");
        choice.on_sent(replica);
        choice.on_reply(now, replica, latency);
        estimates[replica].record(now, latency);
        let known = estimates.iter().map(|estimate| estimate.latency(now));
        assert!(nearest(known, n as usize).is_some());
        tail.on_read(now, 0);
        if tail.on_due(now, latency, false) == Due::Start {
            started += 1;
            let outcome = if n % 2 == 0 { Outcome::Won } else { Outcome::Lost };
            tail.on_outcome(now, outcome);
            tail.on_loser(100, latency, Some(latency));
        }
        tail.on_reply(now, 0, replica, latency);
    }
    assert_eq!(asked() - before, 0);
    assert!(started > 900, "{started} hedges");
}
