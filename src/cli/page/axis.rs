//! Axes of plots: from values to positions, and where the marks are.

/// What an axis holds at the least and at the most, in microseconds: a picosecond, and thirty years. It has
/// few marks, whatever it is asked for.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e15;

/// A logarithmic axis between two positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    /// From `low` at position `from` to `high` at position `to`, both widened to at least a factor of two.
    pub(super) fn new(low: f64, high: f64, from: f64, to: f64) -> LogAxis {
        let low = if low.is_finite() && low > 0.0 { low.clamp(LEAST, MOST) } else { 1.0 };
        let high = if high.is_finite() { high.min(MOST).max(low * 2.0) } else { low * 2.0 };
        LogAxis { low, high, from, to }
    }

    /// The position of a value; one beyond an end is at that end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * share
    }

    /// Values to mark: 1, 2 and 5 of each decade, or only 1 where those would crowd.
    pub(super) fn marks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let values =
            (first..=last).flat_map(|power| steps.iter().map(move |s| s * 10f64.powi(power)));
        values.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

/// The axis of percentiles: each further nine takes as much room as the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailAxis {
    nines: f64,
    from: f64,
    to: f64,
}

impl TailAxis {
    /// From 0 % at position `from` up to where one of `count` reads lies beyond, at position `to`.
    pub(super) fn new(count: u64, from: f64, to: f64) -> TailAxis {
        TailAxis { nines: (count.max(100) as f64).log10(), from, to }
    }

    /// The position of a quantile (0 to 1).
    pub(super) fn at(&self, quantile: f64) -> f64 {
        let nines = -(1.0 - quantile).max(1e-12).log10();
        self.from + (self.to - self.from) * (nines / self.nines).clamp(0.0, 1.0)
    }

    /// The quantile that is at `share` (0 to 1) of the axis.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        1.0 - 10f64.powf(-self.nines * share)
    }

    /// Quantiles to mark, with their names.
    pub(super) fn marks(&self) -> Vec<(f64, &'static str)> {
        let all = [
            (0.0, "0"),
            (0.5, "p50"),
            (0.9, "p90"),
            (0.99, "p99"),
            (0.999, "p99.9"),
            (0.9999, "p99.99"),
            (0.99999, "p99.999"),
            (0.999999, "p99.9999"),
        ];
        let known = |(quantile, _): &(f64, &str)| -(1.0 - quantile).log10() <= self.nines + 1e-9;
        all.into_iter().filter(known).collect()
    }
}

/// A mark of a latency in microseconds: `50 us`, `2 ms`, `1 s`.
pub(super) fn latency(us: f64) -> String {
    let text = |value: f64| {
        let rounded = format!("{value:.3}");
        rounded.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    match us {
        _ if us < 999.9995 => format!("{} us", text(us)),
        _ if us < 999_999.5 => format!("{} ms", text(us / 1e3)),
        _ => format!("{} s", text(us / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if an end is not where it belongs, a value beyond it leaves the plot, or marks lie outside.
    #[test]
    fn values_have_their_positions() {
        let axis = LogAxis::new(100.0, 10_000.0, 300.0, 0.0);
        assert_eq!((axis.at(100.0), axis.at(1e9), axis.at(0.0)), (300.0, 0.0, 300.0));
        assert!((axis.at(1_000.0) - 150.0).abs() < 1e-9);
        assert_eq!(axis.marks(), [100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0]);
        assert!(LogAxis::new(0.0, f64::NAN, 0.0, 1.0).at(3.0).is_finite());
        for (low, high) in [(f64::MAX, 0.0), (1e-300, 1e300), (f64::MAX * 0.8, f64::INFINITY)] {
            assert!(LogAxis::new(low, high, 0.0, 1.0).marks().len() < 100, "{low} to {high}");
        }
        let tail = TailAxis::new(10_000, 0.0, 400.0);
        assert!(
            (tail.at(0.99) - 200.0).abs() < 1e-6 && tail.at(1.0) == 400.0 && tail.at(0.0) == 0.0
        );
        assert!((tail.quantile(0.5) - 0.99).abs() < 1e-9);
        assert_eq!(tail.marks().last().map(|(_, name)| *name), Some("p99.99"));
        let marks = [50.0, 2_000.0, 1_500_000.0].map(latency);
        assert_eq!(marks, ["50 us", "2 ms", "1.5 s"]);
    }
}
