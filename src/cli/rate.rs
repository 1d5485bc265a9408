//! Rates as typed: `1000`, `300_000`, `1e6`.

/// Highest rate: a request per nanosecond.
pub(crate) const HIGHEST: f64 = 1e9;

/// Parses requests per second: above 0, at most 1e9.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    match text.replace('_', "").parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= HIGHEST => Ok(rate),
        Ok(_) => Err("out of range: requests per second above 0, at most 1e9".into()),
        Err(_) => Err("not a number of requests per second: say 1000".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates. Fails if a rate that can never send or never end is let through.
    #[test]
    fn rates() {
        assert_eq!(parse("300_000"), Ok(300_000.0));
        assert_eq!(parse("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "1e10", "", "fast", "1k"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
