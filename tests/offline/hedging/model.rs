//! Replicas as a discrete-event model: reads arrive, copies take drawn times, the shipping logic
//! decides. The draws of a read are the same under every rule, so that rules compare without noise.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hedgerow::read::{Budget, Due, Hedging, Ledger, Outcome, Tail, Weather};
use hedgerow::runtime::time::Instant;

pub(crate) const MS: f64 = 1e6;
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Reads a second, where nothing else is said.
const RATE: f64 = 1e4;
const REPLICAS: u64 = 3;
/// Correlated slowness: all replicas answer 40 ms later for 4 s of every 25 s.
pub(crate) const SLOW_FROM: u64 = 8 * SECOND;
pub(crate) const SLOW_UNTIL: u64 = 12 * SECOND;
pub(crate) const SLOW_EVERY: u64 = 25 * SECOND;
const SLOW_NS: u64 = 40_000_000;

/// How long replicas take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Median 1 ms, sigma 1: p99 10 ms.
    Lognormal,
    /// About 1 ms, but about 30 ms for 1, 3 and 5 % of the reads of the three replicas.
    Bimodal,
    /// Median 1 ms and sigma 0.5 for the first half, then five times as much.
    Step,
    /// Median 5 ms and sigma 0.5 for the first half, then about 1 ms, but about 30 ms for 2 %.
    Fall,
    /// As `Bimodal` with 0.2 %.
    RareStalls,
    /// As `Bimodal` with 1 %, and slow together at times.
    Correlated,
}

/// A read, with what its two copies would take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) at: u64,
    pub(crate) replicas: [u8; 2],
    pub(crate) bodies: [u64; 2],
}

pub(crate) struct Load {
    pub(crate) reads: Vec<Read>,
    slow: bool,
}

/// A normal deviate.
pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Nanoseconds around `median` (nanoseconds too).
pub(crate) fn lognormal(random: &mut fastrand::Rng, median: f64, sigma: f64) -> u64 {
    (median * (sigma * normal(random)).exp()) as u64
}

/// An exponential deviate of that mean.
fn exponential(random: &mut fastrand::Rng, mean: f64) -> f64 {
    -(1.0 - random.f64()).ln() * mean
}

impl Load {
    pub(crate) fn new(shape: Shape, count: usize, seed: u64) -> Load {
        Load::at_rate(RATE, shape, count, seed)
    }

    /// `rate` reads a second, one by one at random.
    pub(crate) fn at_rate(rate: f64, shape: Shape, count: usize, seed: u64) -> Load {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = 0.0;
        let mut reads = Vec::with_capacity(count);
        for index in 0..count {
            at += exponential(&mut random, 1e9 / rate);
            let first = random.u64(0..REPLICAS);
            let second = (first + 1 + random.u64(0..REPLICAS - 1)) % REPLICAS;
            let late = index * 2 >= count;
            let bodies = [first, second].map(|r| body(shape, r, late, &mut random));
            reads.push(Read { at: at as u64, replicas: [first as u8, second as u8], bodies });
        }
        Load { reads, slow: shape == Shape::Correlated }
    }

    /// Reads as they are.
    pub(crate) fn of(reads: Vec<Read>) -> Load {
        Load { reads, slow: false }
    }

    /// What a copy that starts at `at` takes.
    fn takes(&self, read: &Read, copy: usize, at: u64) -> u64 {
        let slow = self.slow && (SLOW_FROM..SLOW_UNTIL).contains(&(at % SLOW_EVERY));
        read.bodies[copy] + if slow { SLOW_NS } else { 0 }
    }

    /// Latencies without hedging.
    pub(crate) fn plain(&self) -> Vec<u64> {
        self.reads.iter().map(|read| self.takes(read, 0, read.at)).collect()
    }
}

fn body(shape: Shape, replica: u64, late: bool, random: &mut fastrand::Rng) -> u64 {
    let stalls = |random: &mut fastrand::Rng, share: f64| {
        let (median, sigma) = if random.f64() < share { (30.0, 0.3) } else { (1.0, 0.3) };
        lognormal(random, median * MS, sigma)
    };
    match shape {
        Shape::Lognormal => lognormal(random, MS, 1.0),
        Shape::Bimodal => stalls(random, [0.01, 0.03, 0.05][replica as usize]),
        Shape::Step => lognormal(random, if late { 5.0 * MS } else { MS }, 0.5),
        Shape::RareStalls => stalls(random, 0.002),
        Shape::Fall if late => stalls(random, 0.02),
        Shape::Fall => lognormal(random, 5.0 * MS, 0.5),
        Shape::Correlated => stalls(random, 0.01),
    }
}

/// What came of a load under a rule.
pub(crate) struct Run {
    pub(crate) latencies: Vec<u64>,
    pub(crate) ledger: Ledger,
    /// When the guard changed, and whether it then said storm.
    pub(crate) weather: Vec<(u64, bool)>,
    /// By how much starts passed percent x reads + burst, in hundredths of a hedge: at most 0.
    pub(crate) excess: i64,
}

impl Run {
    pub(crate) fn at(&mut self, rank: f64) -> f64 {
        quantile(&mut self.latencies, rank)
    }
}

/// The nearest-rank quantile, in milliseconds.
pub(crate) fn quantile(latencies: &mut [u64], rank: f64) -> f64 {
    let index = (latencies.len() as f64 * rank).ceil() as usize - 1;
    let (_, value, _) = latencies.select_nth_unstable(index);
    *value as f64 / MS
}

/// The latencies under a fixed delay, that asks for credit once or, if `again`, as the adaptive mode
/// does: only the events of late reads, for sweeps.
pub(crate) fn fixed(load: &Load, delay_ns: u64, hedging: &Hedging, again: bool) -> Vec<u64> {
    let mut budget = Budget::new(hedging.max_extra_load_percent, hedging.burst);
    let mut latencies = load.plain();
    let mut due: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, read) in load.reads.iter().enumerate() {
        while due.peek().is_some_and(|Reverse((at, _))| *at <= read.at) {
            let Some(Reverse((at, late))) = due.pop() else { break };
            let read = &load.reads[late];
            if budget.take() {
                let second = at - read.at + load.takes(read, 1, at);
                latencies[late] = latencies[late].min(second);
            } else if again {
                let next = at + ((at - read.at) / 8).max(50_000);
                if next < read.at + latencies[late] {
                    due.push(Reverse((next, late)));
                }
            }
        }
        budget.on_read();
        if latencies[index] > delay_ns {
            due.push(Reverse((read.at + delay_ns, index)));
        }
    }
    latencies
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reply { read: usize, copy: usize },
    Due { read: usize, again: bool },
}

/// A run of the shipping [`Tail`].
struct Simulated<'a> {
    load: &'a Load,
    hedging: Hedging,
    tail: Tail,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// When each read's hedge started, 0 if none did.
    hedged_at: Vec<u64>,
    run: Run,
}

/// Runs a load through the shipping logic, with every reply as an event.
pub(crate) fn tail(load: &Load, hedging: Hedging) -> Run {
    let count = load.reads.len();
    let run = Run {
        latencies: vec![0; count],
        ledger: Ledger::default(),
        weather: Vec::new(),
        excess: i64::MIN,
    };
    let tail = Tail::new(hedging, 1, REPLICAS as usize);
    let hedged_at = vec![0; count];
    let mut simulated =
        Simulated { load, hedging, tail, events: BinaryHeap::new(), hedged_at, run };
    for index in 0..count {
        simulated.until(load.reads[index].at);
        simulated.start(index);
    }
    simulated.until(u64::MAX);
    simulated.run.ledger = simulated.tail.ledger().clone();
    simulated.run
}

impl Simulated<'_> {
    fn until(&mut self, end: u64) {
        while self.events.peek().is_some_and(|Reverse((at, _))| *at <= end) {
            let Some(Reverse((at, event))) = self.events.pop() else { break };
            match event {
                Event::Reply { read, copy } => self.reply(at, read, copy),
                Event::Due { read, again } => self.due(at, read, again),
            }
        }
    }

    fn start(&mut self, index: usize) {
        let read = &self.load.reads[index];
        let delay = self.tail.on_read(Instant::from_nanos(read.at), 0);
        let delay = delay.map_or(u64::MAX, |delay| delay.as_nanos() as u64);
        let takes = self.load.takes(read, 0, read.at);
        self.events.push(Reverse((read.at + takes, Event::Reply { read: index, copy: 0 })));
        // A timer that the reply would have cancelled has no effect: it is left out.
        if takes > delay {
            self.events.push(Reverse((read.at + delay, Event::Due { read: index, again: false })));
        }
    }

    fn due(&mut self, at: u64, index: usize, again: bool) {
        let read = &self.load.reads[index];
        let waited = Duration::from_nanos(at - read.at);
        match self.tail.on_due(Instant::from_nanos(at), waited, again) {
            Due::Start => {
                self.hedged_at[index] = at;
                let end = at + self.load.takes(read, 1, at);
                self.events.push(Reverse((end, Event::Reply { read: index, copy: 1 })));
                self.check_bound();
            }
            Due::Again(after) => {
                let next = at + after.as_nanos() as u64;
                if next < read.at + self.load.takes(read, 0, read.at) {
                    self.events.push(Reverse((next, Event::Due { read: index, again: true })));
                }
            }
            Due::Leave => {}
        }
    }

    fn check_bound(&mut self) {
        let ledger = self.tail.ledger();
        let earned = ledger.reads * u64::from(self.hedging.max_extra_load_percent);
        let allowed = earned + 100 * u64::from(self.hedging.burst);
        self.run.excess = self.run.excess.max(ledger.sent as i64 * 100 - allowed as i64);
    }

    fn reply(&mut self, at: u64, index: usize, copy: usize) {
        let read = &self.load.reads[index];
        let now = Instant::from_nanos(at);
        let hedged_at = self.hedged_at[index];
        let sent_at = if copy == 0 { read.at } else { hedged_at };
        let latency = Duration::from_nanos(at - sent_at);
        self.tail.on_reply(now, 0, read.replicas[copy].into(), latency);
        let answered = self.run.latencies[index];
        if answered == 0 {
            self.run.latencies[index] = (at - read.at).max(1);
            if hedged_at > 0 {
                let outcome = if copy == 1 { Outcome::Won } else { Outcome::Lost };
                let change = self.tail.on_outcome(now, outcome);
                self.run.weather.extend(change.map(|weather| (at, weather != Weather::Clear)));
            }
        } else {
            let margin = (copy == 0).then(|| Duration::from_nanos(at - read.at - answered));
            self.tail.on_loser(300, latency, margin);
        }
    }
}
