//! Which replica serves a read, learnt from the replies themselves: no probes.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

/// Time in which a latency that is not confirmed falls to 1/e.
const TAU: Duration = Duration::from_secs(1);
/// Costs that differ by less than this are equal: one does not chase noise.
const BAND: f32 = 1.25;
/// A reply that took this many times the best of the others is a strike.
const OUTLIER: f32 = 4.0;
/// Strikes in a row that eject.
const STRIKES: u32 = 5;
/// First time out; it doubles with each ejection in a row.
const OUT_MIN: Duration = Duration::from_secs(1);
/// Longest time out.
const OUT_MAX: Duration = Duration::from_secs(30);

/// What is known of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Replica {
    /// Peak-sensitive mean latency in nanoseconds, 0 while unknown.
    latency_ns: f32,
    at: Instant,
    in_flight: u32,
    strikes: u32,
    ejections: u32,
    out_until: Instant,
    /// With whom it is compared; `None` while it cannot be read from.
    group: Option<u32>,
}

impl Replica {
    /// The mean as of `now`: it fades, so that a replica that nobody asks is tried again.
    fn latency_ns(&self, now: Instant) -> f32 {
        self.latency_ns * (-(now - self.at).as_secs_f32() / TAU.as_secs_f32()).exp()
    }

    fn observe(&mut self, now: Instant, ns: f32) {
        let faded = self.latency_ns(now);
        let weight = (-(now - self.at).as_secs_f32() / TAU.as_secs_f32()).exp();
        // A peak counts at once, an improvement as time passes.
        self.latency_ns = if ns >= faded { ns } else { faded + ns * (1.0 - weight) };
        self.at = self.at.max(now);
    }

    fn is_out(&self, now: Instant) -> bool {
        now < self.out_until
    }
}

/// Power of two choices on latency x (in flight + 1), per core.
///
/// Of two replicas drawn at random the read goes to the cheaper; where their costs are within a quarter,
/// to either. The latency is a mean that jumps to every peak and fades in a second. A replica that
/// fails, or takes four times as long as the best of the others, five times in a row is ejected for 1 s
/// (doubling to 30 s while that repeats); never more than half of them. The others are those of its group,
/// such as a shard's, that can be read from.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    replicas: Vec<Replica>,
}

impl Choice {
    /// For `replicas` replicas of one group, of which nothing is known.
    pub fn new(replicas: usize) -> Choice {
        Choice { replicas: vec![Replica { group: Some(0), ..Replica::default() }; replicas] }
    }

    /// The replica for a read, among those that `may` serve it; `random` are 64 random bits. `None` if
    /// none may. Ejected ones serve only if all are out.
    pub fn pick(&self, now: Instant, random: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        let inside = |index: &usize| may(*index) && !self.replicas[*index].is_out(now);
        let all = 0..self.replicas.len();
        match all.clone().filter(inside).count() {
            0 => {
                let count = all.clone().filter(|index| may(*index)).count() as u64;
                let nth = (random >> 32).checked_rem(count)?;
                all.filter(|index| may(*index)).nth(nth as usize)
            }
            1 => all.clone().find(inside),
            count => {
                let first = (random >> 32) as usize % count;
                let second = (first + 1 + (random >> 8) as usize % (count - 1)) % count;
                let nth = |n: usize| all.clone().filter(inside).nth(n);
                Some(self.cheaper(now, nth(first)?, nth(second)?, random & 1 == 1))
            }
        }
    }

    fn cheaper(&self, now: Instant, one: usize, two: usize, either: bool) -> usize {
        let [a, b] = [one, two].map(|index| self.replicas[index].latency_ns(now));
        // An unknown one is taken to be like the other: the number in flight decides.
        let (a, b) = (if a == 0.0 { b } else { a }, if b == 0.0 { a } else { b });
        let cost =
            |index: usize, ns: f32| ns.max(1.0) * (self.replicas[index].in_flight + 1) as f32;
        let (a, b) = (cost(one, a), cost(two, b));
        let one_wins = if a.max(b) <= BAND * a.min(b) { either } else { a < b };
        if one_wins { one } else { two }
    }

    /// A copy was sent to the replica.
    pub fn on_sent(&mut self, replica: usize) {
        self.replicas[replica].in_flight += 1;
    }

    /// It was answered after `latency`.
    pub fn on_reply(&mut self, now: Instant, replica: usize, latency: Duration) {
        let ns = latency.as_nanos().max(1) as f32;
        let best = self.best_other_ns(now, replica);
        let me = &mut self.replicas[replica];
        me.in_flight = me.in_flight.saturating_sub(1);
        me.observe(now, ns);
        if best.is_some_and(|best| ns > OUTLIER * best) {
            self.strike(now, replica);
        } else {
            (me.strikes, me.ejections) = (0, 0);
        }
    }

    /// Its connection failed, or it refused the copy.
    pub fn on_failure(&mut self, now: Instant, replica: usize) {
        let me = &mut self.replicas[replica];
        me.in_flight = me.in_flight.saturating_sub(1);
        self.strike(now, replica);
    }

    /// It was taken back before it was sent.
    pub fn on_cut(&mut self, replica: usize) {
        let me = &mut self.replicas[replica];
        me.in_flight = me.in_flight.saturating_sub(1);
    }

    /// Its caller waited for so long in vain: it takes at least that. It is still under way.
    pub fn on_given_up(&mut self, now: Instant, replica: usize, waited: Duration) {
        let ns = waited.as_nanos().max(1) as f32;
        let best = self.best_other_ns(now, replica);
        let me = &mut self.replicas[replica];
        // Of one that is unknown a short wait tells nothing.
        let known = if me.latency_ns > 0.0 { Some(me.latency_ns(now)) } else { best };
        if known.is_some_and(|known| ns > known) {
            me.observe(now, ns);
        }
        if best.is_some_and(|best| ns > OUTLIER * best) {
            self.strike(now, replica);
        }
    }

    /// From now on there are `replicas` replicas; what is known of those that stay is kept. New ones are in
    /// no group.
    pub fn resize(&mut self, replicas: usize) {
        self.replicas.resize(replicas, Replica::default());
    }

    /// A replica's connection was replaced: it starts unknown, with nothing in flight.
    pub fn forget(&mut self, replica: usize) {
        let me = &mut self.replicas[replica];
        *me = Replica { group: me.group, ..Replica::default() };
    }

    /// A replica may be read from, as one of `group`.
    pub fn join(&mut self, replica: usize, group: u32) {
        self.replicas[replica].group = Some(group);
    }

    /// A replica cannot be read from any more: no other is compared with it.
    pub fn leave(&mut self, replica: usize) {
        self.replicas[replica].group = None;
    }

    /// Whether the replica is out at `now`.
    pub fn is_ejected(&self, now: Instant, replica: usize) -> bool {
        self.replicas[replica].is_out(now)
    }

    /// The mean latency of the replica as of `now`; `None` before the first reply.
    pub fn latency(&self, now: Instant, replica: usize) -> Option<Duration> {
        let ns = self.replicas[replica].latency_ns(now);
        (ns > 0.0).then(|| Duration::from_nanos(ns as u64))
    }

    /// Copies that the replica has not answered yet.
    pub fn in_flight(&self, replica: usize) -> u32 {
        self.replicas[replica].in_flight
    }

    fn best_other_ns(&self, now: Instant, replica: usize) -> Option<f32> {
        let group = self.replicas[replica].group?;
        let others = self.replicas.iter().enumerate().filter(|(index, _)| *index != replica);
        let known = others.filter(|(_, other)| {
            other.group == Some(group) && other.latency_ns > 0.0 && !other.is_out(now)
        });
        // As it was when last heard: one that is not asked must not look ever faster.
        known.map(|(_, other)| other.latency_ns).min_by(f32::total_cmp)
    }

    fn strike(&mut self, now: Instant, replica: usize) {
        let group = self.replicas[replica].group;
        let all = self.replicas.iter().filter(|other| other.group == group);
        let (count, out) = all
            .fold((0, 0), |(count, out), other| (count + 1, out + usize::from(other.is_out(now))));
        let room = (out + 1) * 2 <= count;
        let me = &mut self.replicas[replica];
        me.strikes += 1;
        if me.strikes >= STRIKES && room && !me.is_out(now) {
            me.out_until = now + (OUT_MIN * (1 << me.ejections.min(5))).min(OUT_MAX);
            (me.strikes, me.ejections) = (0, me.ejections + 1);
            // It comes back unknown, and is judged by its next replies.
            me.latency_ns = 0.0;
        }
    }
}
