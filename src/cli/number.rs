//! Numbers as typed, in the words of their flag: what a number is read with knows no range.

use std::fmt::Display;
use std::str::FromStr;

/// A whole number; an error says which are right. One that is out of their range is left to the plan.
pub(crate) fn whole<N: FromStr>(
    text: &str,
    low: impl Display,
    high: impl Display,
) -> Result<N, String> {
    text.parse().map_err(|_| format!("a whole number from {low} to {high} is right"))
}

/// A count whose highest value depends on other flags.
pub(crate) fn count<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "a whole number from 1 up is right".into())
}

/// A seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

/// A percentile.
pub(crate) fn percentile(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "a number from 50 to 99.99 is right, such as 99.9".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if what is no number is taken, or the line does not say what would be right.
    #[test]
    fn numbers() {
        assert_eq!(whole::<u32>("5", 1, 100), Ok(5));
        for wrong in ["nan", "2.5", "5%", "-1", "", "99999999999"] {
            let line = whole::<u32>(wrong, 1, 100).unwrap_err();
            assert_eq!(line, "a whole number from 1 to 100 is right");
            assert_eq!(count::<u32>(wrong).unwrap_err(), "a whole number from 1 up is right");
        }
        assert_eq!((seed("7"), percentile("99.9")), (Ok(7), Ok(99.9)));
        assert!(seed("-1").is_err() && percentile("p99").unwrap_err().contains("99.9"));
    }
}
