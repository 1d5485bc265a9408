//! Sizes of values as typed: `64`, `1KiB`, or a range `16-1KiB`.

/// Largest value: what a server takes for one string by default (`proto-max-bulk-len`).
pub(crate) const LARGEST: u64 = 512 << 20;

/// Sizes that values are drawn from, evenly, both ends included. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueSize {
    /// Smallest value.
    pub(crate) min: usize,
    /// Largest value.
    pub(crate) max: usize,
}

impl ValueSize {
    /// Parses one size or a range of two.
    pub(crate) fn parse(text: &str) -> Result<ValueSize, String> {
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (bytes(min)?, bytes(max)?),
            None => (bytes(text)?, bytes(text)?),
        };
        if min > max {
            return Err("the range runs backwards: say the smaller size first".into());
        }
        Ok(ValueSize { min, max })
    }

    /// The mean of the sizes, in bytes.
    pub(crate) fn mean(self) -> u64 {
        (self.min as u64 + self.max as u64) / 2
    }

    /// One size, drawn evenly.
    pub(crate) fn draw(self, dice: &mut fastrand::Rng) -> usize {
        if self.min == self.max { self.min } else { dice.usize(self.min..=self.max) }
    }
}

impl std::fmt::Display for ValueSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.min == self.max {
            true => write!(f, "{} B", self.min),
            false => write!(f, "{}-{} B", self.min, self.max),
        }
    }
}

/// Parses one size in bytes; powers of 1,024 with `KiB`, `MiB`, powers of 1,000 with `kB`, `MB`.
fn bytes(text: &str) -> Result<usize, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let each: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "kB" => 1_000,
        "MB" => 1_000_000,
        _ => return Err(format!("unknown unit {unit:?}: use B, KiB, MiB, kB or MB")),
    };
    let number: u64 = number.parse().map_err(|_| "not a size: say 64, 1KiB or 16-1KiB")?;
    match number.checked_mul(each) {
        Some(size) if size <= LARGEST => Ok(size as usize),
        _ => Err("larger than a value may be (512 MiB)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and ranges. Fails if a unit is read wrongly or a range's ends are excluded.
    #[test]
    fn sizes() {
        assert_eq!(ValueSize::parse("64"), Ok(ValueSize { min: 64, max: 64 }));
        assert_eq!(ValueSize::parse("0"), Ok(ValueSize { min: 0, max: 0 }));
        assert_eq!(ValueSize::parse("1KiB"), Ok(ValueSize { min: 1024, max: 1024 }));
        assert_eq!(ValueSize::parse("16-1KiB"), Ok(ValueSize { min: 16, max: 1024 }));
        for wrong in ["", "x", "1K", "2-1", "513MiB", "99999999999999999999", "-", "1-", "1.5", "é"]
        {
            assert!(ValueSize::parse(wrong).is_err(), "{wrong}");
        }
        let mut dice = fastrand::Rng::with_seed(1);
        let drawn: Vec<usize> =
            (0..200).map(|_| ValueSize { min: 1, max: 3 }.draw(&mut dice)).collect();
        assert!((1..=3).all(|size| drawn.contains(&size)));
    }
}
