use crate::now_ns;

/// Poisson arrivals. A latency counts from the arrival, so a client that falls behind cannot hide
/// it.
#[derive(Debug)]
pub struct Arrivals {
    rng: fastrand::Rng,
    mean_ns: f64,
    next_ns: f64,
}

impl Arrivals {
    /// Arrivals from now on, `rate` a second on average.
    pub fn new(rate: f64, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed ^ 0xA076_1D64_78BD_642F);
        Arrivals { rng, mean_ns: 1e9 / rate, next_ns: now_ns() as f64 }
    }

    /// The time of the next arrival, if it has come by `now_ns`.
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.next_ns > now_ns as f64 {
            return None;
        }
        let at_ns = self.next_ns as u64;
        self.next_ns -= self.mean_ns * (1.0 - self.rng.f64()).ln();
        Some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the arrivals of one second are far from the rate that was asked for.
    #[test]
    fn rate_is_kept() {
        let mut arrivals = Arrivals::new(100_000.0, 3);
        let until = now_ns() + 1_000_000_000;
        let mut count = 0;
        while arrivals.due(until).is_some() {
            count += 1;
        }
        assert!((98_000..102_000).contains(&count), "{count}");
    }
}
