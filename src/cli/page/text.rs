//! Text in a page.

use std::fmt;

/// A text with what HTML gives a meaning to taken out of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ => fmt::Write::write_char(f, letter)?,
            }
        }
        Ok(())
    }
}

/// A date and time of day in UTC, of seconds since 1970: `2026-01-31 09:30 UTC`.
pub(super) fn date(at_s: u64) -> String {
    let (days, of_day) = ((at_s / 86_400) as i64, at_s % 86_400);
    // Days to a date: years that begin in March put the leap day last (Howard Hinnant's algorithm).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3_600, of_day % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a server's text can end a tag or an attribute.
    #[test]
    fn text_stays_text() {
        let shown = Escaped("<b a=\"x\">&'").to_string();
        assert_eq!(shown, "&lt;b a=&quot;x&quot;&gt;&amp;&#39;");
    }

    /// Fails if a leap day or the turn of a year is off by one.
    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_735_689_600, "2025-01-01 00:00 UTC"),
        ];
        for (at_s, expected) in cases {
            assert_eq!(date(at_s), expected);
        }
    }
}
