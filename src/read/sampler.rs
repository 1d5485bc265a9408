//! Which of many latencies are recorded, so that recording costs the same at any load.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

/// Mean time between two recorded latencies that is aimed at: 10,000 a second are plenty.
const GAP: Duration = Duration::from_micros(100);
/// Records between two looks at the rate.
const LOOK: u32 = 64;
/// Most replies to one that is recorded.
const EVERY_MAX: u32 = 64;

/// Takes every reply up to about 14,000 a second, and one in 2 to 64 of more. Which ones is drawn, since
/// stalls may come in step with any fixed pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampler {
    /// Replies until the next that is taken.
    left: u32,
    every: u32,
    random: u32,
    taken: u32,
    last: Instant,
    looked: Instant,
}

impl Default for Sampler {
    fn default() -> Sampler {
        let (last, looked) = (Instant::ZERO, Instant::ZERO);
        Sampler { left: 1, every: 1, random: 0x9E37_79B9, taken: 0, last, looked }
    }
}

impl Sampler {
    /// Whether the reply that came at `now` is recorded.
    #[inline]
    pub(super) fn takes(&mut self, now: Instant) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.take(now);
        true
    }

    fn take(&mut self, now: Instant) {
        self.taken += 1;
        if now.since(self.last) > GAP * 10 {
            // The rush is over: do not wait for many more.
            self.every = (self.every / 2).max(1);
        } else if self.taken >= LOOK {
            if now.since(self.looked) < GAP * LOOK * 7 / 10 {
                self.every = (self.every * 2).min(EVERY_MAX);
            } else if now.since(self.looked) > GAP * LOOK * 2 {
                self.every = (self.every / 2).max(1);
            }
        }
        if self.taken >= LOOK {
            (self.taken, self.looked) = (0, now);
        }
        self.last = now;
        self.left = 1 + self.draw(2 * self.every - 1);
    }

    /// A number below `end`, by an xorshift.
    fn draw(&mut self, end: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if at 1,000 replies a second one is left out, at a million more than 20,000 are taken, or if
    /// after a rush those of a quiet second are.
    #[test]
    fn recording_costs_the_same_at_any_load() {
        let mut sampler = Sampler::default();
        let mut now = Instant::ZERO;
        let mut run = |gap_us: u64, count: u32| {
            let takes = (0..count).filter(|_| {
                now = now + Duration::from_micros(gap_us);
                sampler.takes(now)
            });
            takes.count()
        };
        assert_eq!(run(1_000, 1_000), 1_000);
        let rush = run(1, 1_000_000);
        assert!((10_000..25_000).contains(&rush), "{rush} taken in a second");
        let after = run(1_000, 1_000);
        assert!(after > 800, "{after} taken of 1,000");
        assert_eq!(run(1_000, 1_000), 1_000);
    }

    /// Fails if of replies of which every 16th stalls the share that is taken is another.
    #[test]
    fn patterns_are_seen_as_they_are() {
        let mut sampler = Sampler::default();
        let (mut taken, mut stalled) = (0, 0);
        for n in 0..2_000_000_u64 {
            if sampler.takes(Instant::from_nanos(n * 5_000)) {
                taken += 1;
                stalled += u32::from(n % 16 == 0);
            }
        }
        let share = f64::from(stalled) * 16.0 / f64::from(taken);
        assert!((0.95..1.05).contains(&share), "{share} of the stalls");
    }
}
