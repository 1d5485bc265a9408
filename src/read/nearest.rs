//! The arithmetic of Nearest: what a connection's latency is taken to be, and which is the lowest.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

/// Age at which what was measured says nothing any more (R-244, C-19).
pub(crate) const FRESH: Duration = Duration::from_secs(10);

/// The estimated round trip of one connection, from its PINGs. It includes the queues on both sides; it
/// is not distance, lag or the time that a read takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Nanoseconds and when the last sample came.
    sample: Option<(u64, Instant)>,
    count: u64,
}

impl Estimate {
    /// Without any sample, as a new connection starts.
    pub const UNKNOWN: Estimate = Estimate { sample: None, count: 0 };

    /// A PING came back after `rtt`. The first one is the estimate; a later one counts for a quarter
    ///
    pub fn record(&mut self, now: Instant, rtt: Duration) {
        let new = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        let merged = match self.sample {
            None => new,
            Some((old, _)) => (new / 4).saturating_add(old - old / 4),
        };
        (self.sample, self.count) = (Some((merged, now)), self.count + 1);
    }

    /// The PING failed or was refused: the estimate goes, the connection stays.
    pub fn forget(&mut self) {
        *self = Estimate::UNKNOWN;
    }

    /// The estimate, if its last sample is less than 10 s old.
    #[inline]
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        let (ns, at) = self.sample?;
        (now.since(at) < FRESH).then(|| Duration::from_nanos(ns))
    }

    /// The estimate, or where there is none that of all cores (C-19).
    pub fn latency_or(&self, now: Instant, published: Option<&Published>) -> Option<Duration> {
        self.latency(now).or_else(|| published?.latency(now))
    }

    /// What is published of it.
    pub fn published(&self) -> Option<Published> {
        self.sample.map(|(ns, at)| Published { ns, count: self.count, at })
    }
}

/// The estimate of a node over several cores, as `Health` carries it (C-19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    ns: u64,
    count: u64,
    at: Instant,
}

impl Published {
    /// That of several cores: the mean weighted by counts, as old as the newest. A core that stopped
    /// measuring 10 s before that has no say.
    pub fn of_all(cores: impl Iterator<Item = Published> + Clone) -> Option<Published> {
        let newest = cores.clone().map(|one| one.at).max()?;
        let fresh = cores.filter(|one| newest.since(one.at) < FRESH);
        fresh.reduce(|mut all, one| {
            all.merge(&one);
            all
        })
    }

    fn merge(&mut self, other: &Published) {
        let count = self.count.saturating_add(other.count);
        let sum = u128::from(self.ns) * u128::from(self.count)
            + u128::from(other.ns) * u128::from(other.count);
        self.ns = (sum / u128::from(count.max(1))) as u64;
        (self.count, self.at) = (count, self.at.max(other.at));
    }

    /// The estimate, if its newest sample is less than 10 s old.
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        (now.since(self.at) < FRESH).then(|| Duration::from_nanos(self.ns))
    }
}

/// The index of the lowest latency. A known one beats all unknown; among equal ones, and among unknown
/// ones if none is known, `turn` (a number that goes up) rotates. `None` without candidates.
///
/// Candidates with an unanswered PING are not to be among them. Nothing is allocated.
pub fn nearest(
    latencies: impl Iterator<Item = Option<Duration>> + Clone,
    turn: usize,
) -> Option<usize> {
    let lowest = latencies.clone().flatten().min();
    let best = || latencies.clone().enumerate().filter(|(_, latency)| *latency == lowest);
    let count = best().count();
    let (index, _) = best().nth(turn.checked_rem(count)?)?;
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    /// Fails if the first sample is not the estimate, a later one does not count for
    /// a quarter, one of 10 s still counts, or a failed PING leaves it.
    #[test]
    fn samples_make_an_estimate() {
        let us = Duration::from_micros;
        let mut estimate = Estimate::UNKNOWN;
        assert_eq!(estimate.latency(at(0)), None);
        estimate.record(at(1), us(400));
        assert_eq!(estimate.latency(at(1)), Some(us(400)));
        estimate.record(at(2), us(800));
        assert_eq!(estimate.latency(at(2)), Some(us(500)));
        assert_eq!(estimate.latency(at(11)), Some(us(500)));
        assert_eq!(estimate.latency(at(12)), None);
        estimate.forget();
        assert_eq!(estimate, Estimate::UNKNOWN);
    }

    /// C-19. Fails if the merge of two cores is not weighted by their counts, or if it stands in for an
    /// own sample that is there, or after 10 s.
    #[test]
    fn cores_share_estimates() {
        let us = Duration::from_micros;
        let (mut one, mut two) = (Estimate::UNKNOWN, Estimate::UNKNOWN);
        one.record(at(5), us(100));
        (0..3).for_each(|_| two.record(at(3), us(500)));
        let mut published = one.published().expect("a sample");
        published.merge(&two.published().expect("samples"));
        assert_eq!(Estimate::UNKNOWN.latency_or(at(6), Some(&published)), Some(us(400)));
        assert_eq!(one.latency_or(at(6), Some(&published)), Some(us(100)));
        assert_eq!(Estimate::UNKNOWN.latency_or(at(15), Some(&published)), None);
        assert_eq!(Estimate::UNKNOWN.published(), None);
    }

    /// Fails if an unknown candidate beats a measured one, a slower one a faster, or if equal or
    /// unknown ones do not take turns evenly.
    #[test]
    fn lowest_first_and_ties_rotate() {
        let [a, b] = [Some(Duration::from_micros(100)), Some(Duration::from_micros(90))];
        let wins = |candidates: &[Option<Duration>]| {
            let mut wins = vec![0; candidates.len()];
            for turn in 0..60 {
                wins[nearest(candidates.iter().copied(), turn).expect("a candidate")] += 1;
            }
            wins
        };
        assert_eq!(wins(&[a, b, None]), [0, 60, 0]);
        assert_eq!(wins(&[None, a, a]), [0, 30, 30]);
        assert_eq!(wins(&[None, None, None]), [20, 20, 20]);
        assert_eq!(nearest([].into_iter(), 7), None);
    }

    /// R-244, C-19. Fails if what a core measured long ago counts as fresh again because another one
    /// measures, or if two that measure do not share.
    #[test]
    fn an_idle_core_has_no_say() {
        let (mut idle, mut busy, mut other) =
            (Estimate::UNKNOWN, Estimate::UNKNOWN, Estimate::UNKNOWN);
        (0..40_000).for_each(|n| idle.record(at(n), Duration::from_micros(100)));
        busy.record(at(43_600), Duration::from_millis(5));
        other.record(at(43_595), Duration::from_millis(3));
        let seen = |cores: &[Estimate]| {
            let published = Published::of_all(cores.iter().filter_map(Estimate::published));
            Estimate::UNKNOWN.latency_or(at(43_601), published.as_ref())
        };
        assert_eq!(seen(&[idle, busy]), Some(Duration::from_millis(5)));
        assert_eq!(seen(&[busy, idle, other]), Some(Duration::from_millis(4)));
    }
}
