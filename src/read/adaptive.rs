//! The delay of hedges that follows the latencies seen.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::hedging::Delay;
use super::quantile::{Decay, Quantiles, Row};
use super::sampler::Sampler;

/// What part of the budget the chosen delay is to spend. Demand that only just fits finds no credit for
/// every second hedge at `burst` 1; with a fifth to spare the 99th and the 99.9th percentile are both
/// within 6 % of what the best delay for either gives (bursts of 1 and 10, 20 seeds, four shapes).
const SPEND: f64 = 0.8;
/// Parts of the budget at which the foot of a wall is looked for.
const WALL: [f64; 4] = [1.25, 1.1, 1.0, 0.9];
/// A delay that falls to less than half over such a small step of rank stands on a wall.
const STEEP: u32 = 2;
/// Share of the reads beyond twice the delay that must take four times as long for them to be stalls.
const STALLS: f64 = 0.7;
/// Reads that are hedged before rare stalls, for each that stalls.
const REST: f64 = 6.0;
/// Samples that make stalls.
const STALLS_MIN: f64 = 4.0;
/// Samples of the tail that a quantile needs to be believed.
const TAIL_MIN: f64 = 10.0;
/// Samples between two looks at the histogram, which then cost a few nanoseconds each.
const LOOK_SAMPLES: u32 = 64;
/// Time after which a sample leads to a look anyway.
const LOOK_TIME: Duration = Duration::from_millis(10);
/// Age at which latencies say nothing any more, as for Nearest.
const FRESH: Duration = Duration::from_secs(10);

/// The delay of one command class on one core, and the latencies that it comes from.
///
/// For [`Delay::Fixed`] it is that delay, and nothing is kept. For [`Delay::Quantile`] it is the
/// quantile `q` of the class over all replicas, raised to `1 - 0.8 x percent / 100` where the budget
/// would not pay for it, and kept between floor and ceiling. Over all, since a caller waits for its class
/// wherever the read went: a delay of its own would let a slow replica take longer.
///
/// - Where a wall stands close to that rank (latency more than doubles over a few reads in a hundred, as
///   with a stall on every 20th read), the delay is at its foot, even if up to 1.25 times the budget asks
///   for hedges then: past the wall no hedge would help any of them.
/// - Where what takes twice the delay mostly takes four times as well (rare stalls over a quick body), the
///   delay is raised until stalls are a sixth of the reads that are hedged: the credit is there when one
///   comes, and the load is a fraction of the budget.
///
/// Until there are ten samples of the tail, the row that `Health` published counts, and without one the
/// **ceiling**, not the fixed default: it is the longest delay that the user accepts, so that what is
/// not known costs no credit.
#[derive(Clone, Debug)]
pub struct Adaptive {
    delay: Delay,
    /// `q`, or what the budget allows.
    rank: f64,
    budget: f64,
    sampler: Sampler,
    all: Quantiles,
    replicas: Vec<Quantiles>,
    published: Option<(Instant, Row)>,
    current: Duration,
    looked: Instant,
    unseen: u32,
}

impl Adaptive {
    /// Without any latency, for `replicas` replicas and a budget of `percent` (1 to 100).
    pub fn new(delay: Delay, percent: u32, replicas: usize) -> Adaptive {
        let budget = f64::from(percent) / 100.0;
        let (rank, kept, current) = match delay {
            Delay::Fixed(delay) => (1.0 - SPEND * budget, 0, delay),
            Delay::Quantile { q, ceiling, .. } => (q.max(1.0 - SPEND * budget), replicas, ceiling),
        };
        let empty = Quantiles::new(Decay::for_tail(1.0 - rank));
        Adaptive {
            delay,
            rank,
            budget,
            sampler: Sampler::default(),
            replicas: vec![empty.clone(); kept],
            all: empty,
            published: None,
            current,
            looked: Instant::ZERO,
            unseen: 0,
        }
    }

    /// The delay of a read that starts now.
    #[inline]
    pub fn delay(&self, now: Instant) -> Duration {
        match self.delay {
            Delay::Fixed(delay) => delay,
            // Samples that stopped coming leave the last delay behind: too old, it goes.
            Delay::Quantile { ceiling, .. } if now.since(self.looked) >= FRESH => {
                self.published_delay(now).unwrap_or(ceiling)
            }
            Delay::Quantile { .. } => self.current,
        }
    }

    /// A reply came at `now`, `latency` after its own copy was sent: of an original or a hedge, first or
    /// last. A copy that was given up counts with the time until then. Above some 10,000 a second a drawn
    /// part of them is recorded, so that the others cost nothing.
    pub fn record(&mut self, now: Instant, replica: usize, latency: Duration) {
        if matches!(self.delay, Delay::Fixed(_)) || !self.sampler.takes(now) {
            return;
        }
        self.all.record(now, latency);
        if let Some(kept) = self.replicas.get_mut(replica) {
            kept.record(now, latency);
        }
        self.unseen += 1;
        if self.unseen >= LOOK_SAMPLES || now.since(self.looked) >= LOOK_TIME {
            self.look(now);
        }
    }

    /// Takes over what all cores have seen of this class, as of `now`.
    pub fn publish(&mut self, now: Instant, row: Row) {
        self.published = Some((now, row));
        if self.all.count() < self.needed() {
            self.look(now);
        }
    }

    /// The latencies of the class, over all replicas.
    pub fn quantiles(&self) -> &Quantiles {
        &self.all
    }

    /// The latencies of one replica; `None` with a fixed delay, or for one that is not there.
    pub fn replica(&self, replica: usize) -> Option<&Quantiles> {
        self.replicas.get(replica)
    }

    /// From now on there are `replicas` replicas; what is known of those that stay is kept.
    pub fn resize(&mut self, replicas: usize) {
        if let Delay::Quantile { .. } = self.delay {
            self.replicas.resize(replicas, Quantiles::new(Decay::for_tail(1.0 - self.rank)));
        }
    }

    /// A replica's connection was replaced, or its index means another one: what was learnt goes.
    pub fn forget(&mut self, replica: usize) {
        if let Some(kept) = self.replicas.get_mut(replica) {
            *kept = Quantiles::new(Decay::for_tail(1.0 - self.rank));
        }
    }

    /// What was seen before `now` says little about what comes: a storm is over.
    pub fn fade(&mut self, now: Instant) {
        self.all.fade();
        self.look(now);
    }

    fn needed(&self) -> f64 {
        TAIL_MIN / (1.0 - self.rank)
    }

    fn look(&mut self, now: Instant) {
        let Delay::Quantile { floor, ceiling, .. } = self.delay else { return };
        (self.looked, self.unseen) = (now, 0);
        let own = (self.all.count() >= self.needed()).then(|| self.choose()).flatten();
        let chosen = own.or_else(|| self.published_delay(now)).unwrap_or(ceiling);
        self.current = chosen.clamp(floor, ceiling);
    }

    fn published_delay(&self, now: Instant) -> Option<Duration> {
        let Delay::Quantile { floor, ceiling, .. } = self.delay else { return None };
        let (at, row) = self.published.as_ref()?;
        let known = now.since(*at) < FRESH && f64::from(row.count) >= self.needed();
        known.then(|| row.at(self.rank).clamp(floor, ceiling))
    }

    /// The delay at the rank, or at the foot of a wall just below it.
    fn choose(&self) -> Option<Duration> {
        let Delay::Quantile { q, .. } = self.delay else { return None };
        let [a, b, c, d] = WALL.map(|part| (1.0 - part * self.budget).max(q).min(self.rank));
        let [delays @ .., top] = self.all.at_each([a, b, c, d, self.rank]);
        let top = top?;
        let foot = delays.into_iter().flatten().rev().find(|delay| *delay * STEEP <= top);
        foot.or_else(|| self.before_stalls(top)).or(Some(top))
    }

    /// A longer delay than `top` that still comes before the stalls, if they are few.
    fn before_stalls(&self, top: Duration) -> Option<Duration> {
        let [near, far] = [top * 2, top * 4].map(|latency| self.all.beyond(latency));
        let are_stalls = far >= STALLS * near && far * self.all.count() >= STALLS_MIN;
        let few = REST * near < 1.0 - self.rank;
        (are_stalls && few).then(|| self.all.at(1.0 - REST * near)).flatten()
    }
}
