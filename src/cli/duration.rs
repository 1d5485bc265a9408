//! Lengths of time as typed: `10s`, `500ms`, `2m`.

use std::time::Duration;

/// Longest length of time that a flag takes: a year. Longer ones are typing errors.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a number with a unit: `us`, `ms`, `s`, `m` or `h`. A fraction is fine: `1.5s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds_each = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("a unit is missing: say {text}s or {text}ms")),
        _ => return Err(format!("unknown unit {unit:?}: use us, ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "not a length of time: say 10s or 500ms")?;
    match Duration::try_from_secs_f64(number * seconds_each) {
        Ok(length) if length <= LONGEST => Ok(length),
        _ => Err("out of range: between 0 and a year".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flag's length of time. Fails if a unit is read wrongly or a missing one is guessed.
    #[test]
    fn units() {
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["10", "s", "", "-1s", "1e300h", "nans", "infs", "10 s", "5days", "1ß", "é"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
