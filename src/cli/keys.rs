//! Which keys the load touches, and their names.

use rand_distr::{Distribution, Normal, Zipf};
use std::convert::Infallible;

/// How keys are drawn, as typed: `uniform`, `zipf:S`, `gaussian` or `sequential`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KeyDist {
    /// Every key as often as any other.
    Uniform,
    /// Key number r is drawn with a chance that falls as 1 / (r + 1)^S: the first are hot.
    Zipf(f64),
    /// A bell around the middle key; the standard deviation is a sixth of the number of keys.
    Gaussian,
    /// One after the other, none skipped and none twice before all had their turn.
    Sequential,
}

impl KeyDist {
    /// Parses the name, with the exponent of `zipf` behind a colon.
    pub(crate) fn parse(text: &str) -> Result<KeyDist, String> {
        match text.split_once(':') {
            None if text == "uniform" => Ok(KeyDist::Uniform),
            None if text == "gaussian" => Ok(KeyDist::Gaussian),
            None if text == "sequential" => Ok(KeyDist::Sequential),
            None if text == "zipf" => Err("the exponent is missing: say zipf:0.99".into()),
            Some(("zipf", exponent)) => match exponent.parse::<f64>() {
                Ok(s) if s > 0.0 && s <= 20.0 => Ok(KeyDist::Zipf(s)),
                _ => Err("the exponent of zipf is a number above 0, at most 20".into()),
            },
            _ => Err("use uniform, zipf:S, gaussian or sequential".into()),
        }
    }
}

impl std::fmt::Display for KeyDist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyDist::Uniform => f.write_str("uniform"),
            KeyDist::Zipf(s) => write!(f, "zipf:{s}"),
            KeyDist::Gaussian => f.write_str("gaussian"),
            KeyDist::Sequential => f.write_str("sequential"),
        }
    }
}

/// Draws key numbers from 0 to `keys` - 1.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    keys: u64,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    /// Rejection-inversion: needs no table, whatever the number of keys.
    Zipf(Zipf<f64>),
    Gaussian(Normal<f64>),
    /// From `first` on, every `step`-th: the other lanes have those between.
    Sequential {
        next: u64,
        first: u64,
        step: u64,
    },
}

impl Keys {
    /// A source over `keys` keys, at least one.
    pub(crate) fn new(keys: u64, dist: KeyDist) -> Result<Keys, String> {
        if keys == 0 {
            return Err("--keys: at least 1 key is needed".into());
        }
        let shape = match dist {
            KeyDist::Uniform => Shape::Uniform,
            KeyDist::Sequential => Shape::Sequential { next: 0, first: 0, step: 1 },
            KeyDist::Zipf(s) => {
                Shape::Zipf(Zipf::new(keys as f64, s).map_err(|e| format!("--key-dist: {e}"))?)
            }
            KeyDist::Gaussian => {
                let (middle, deviation) = ((keys - 1) as f64 / 2.0, keys as f64 / 6.0);
                Shape::Gaussian(
                    Normal::new(middle, deviation).map_err(|e| format!("--key-dist: {e}"))?,
                )
            }
        };
        Ok(Keys { keys, shape })
    }

    /// The part of one lane of several, where keys take turns.
    pub(crate) fn of_lane(mut self, lane: usize, lanes: usize) -> Keys {
        if let Shape::Sequential { next, first, step } = &mut self.shape {
            (*next, *first, *step) = (lane as u64, lane as u64, lanes.max(1) as u64);
        }
        self
    }

    /// Begins anew, where keys take turns.
    pub(crate) fn restart(&mut self) {
        if let Shape::Sequential { next, first, .. } = &mut self.shape {
            *next = *first;
        }
    }

    /// One key number.
    pub(crate) fn draw(&mut self, dice: &mut fastrand::Rng) -> u64 {
        let drawn = match &mut self.shape {
            Shape::Sequential { next, step, .. } => {
                let key = *next % self.keys;
                *next = next.wrapping_add(*step);
                return key;
            }
            Shape::Uniform => return dice.u64(0..self.keys),
            Shape::Zipf(zipf) => zipf.sample(&mut Bits(dice)) - 1.0,
            // The tails beyond three deviations are folded onto the end keys.
            Shape::Gaussian(normal) => normal.sample(&mut Bits(dice)).round(),
        };
        (drawn.max(0.0) as u64).min(self.keys - 1)
    }
}

/// The seeded generator in the form that `rand_distr` asks for.
struct Bits<'a>(&'a mut fastrand::Rng);

impl rand_core::TryRng for Bits<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.u32(..))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.u64(..))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

/// Digits in a key's name.
const DIGITS: usize = 12;
/// Most keys: as many as twelve digits can name.
pub(crate) const MOST_KEYS: u64 = 1_000_000_000_000;
/// Bytes of a key's name, the prefix aside.
pub(crate) const NAME_LEN: u64 = DIGITS as u64;

/// Most bytes of what is put before all names.
const PREFIX_MOST: usize = 32;
/// Most bytes of a whole name.
const NAME_MOST: usize = PREFIX_MOST + 8 + DIGITS;

/// What is put before the names of all keys, as typed.
pub(crate) fn parse_prefix(text: &str) -> Result<String, String> {
    match text.len() {
        1..=PREFIX_MOST => Ok(text.to_owned()),
        _ => Err(format!("from 1 to {PREFIX_MOST} bytes, such as {{acct}}")),
    }
}

/// A key's name in place, such as `key:000000000042`; writing one allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyName {
    bytes: [u8; NAME_MOST],
    len: u8,
}

impl KeyName {
    /// The name of key `number` (below [`MOST_KEYS`]): what all begin with, the word of its type, the
    /// number. No name at all for an empty word.
    pub(crate) fn new(before: &str, word: &[u8], number: u64) -> KeyName {
        let mut name = KeyName { bytes: [b'0'; NAME_MOST], len: 0 };
        let (from, to) = (before.len(), before.len() + word.len());
        if word.is_empty() || to + DIGITS > NAME_MOST {
            return name;
        }
        name.bytes[..from].copy_from_slice(before.as_bytes());
        name.bytes[from..to].copy_from_slice(word);
        let mut rest = number;
        for digit in name.bytes[to..to + DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        name.len = (to + DIGITS) as u8;
        name
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distributions as typed. Fails if a wrong exponent is let through.
    #[test]
    fn parsing() {
        assert_eq!(KeyDist::parse("uniform"), Ok(KeyDist::Uniform));
        assert_eq!(KeyDist::parse("zipf:0.99"), Ok(KeyDist::Zipf(0.99)));
        assert_eq!(KeyDist::parse("gaussian"), Ok(KeyDist::Gaussian));
        for wrong in ["", "zipf", "zipf:", "zipf:0", "zipf:nan", "zipf:-1", "zipf:inf", "flat"] {
            assert!(KeyDist::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Key names. Fails if a digit is lost or the prefix is overwritten.
    #[test]
    fn names() {
        assert_eq!(KeyName::new("", b"key:", 42).as_bytes(), b"key:000000000042");
        assert_eq!(
            KeyName::new("", b"counter:", MOST_KEYS - 1).as_bytes(),
            b"counter:999999999999"
        );
        assert_eq!(KeyName::new("", b"", 42).as_bytes(), b"");
        assert_eq!(KeyName::new("{acct}", b"hash:", 7).as_bytes(), b"{acct}hash:000000000007");
        let longest = "p".repeat(PREFIX_MOST);
        let name = KeyName::new(&longest, b"counter:", 1);
        assert_eq!(name.as_bytes(), format!("{longest}counter:000000000001").as_bytes());
        assert!(parse_prefix(&longest).is_ok() && parse_prefix(&format!("{longest}p")).is_err());
        assert!(parse_prefix("").is_err());
    }

    /// Every distribution stays in range, also for one key. Fails on an end that is off by one.
    #[test]
    fn draws_stay_in_range() {
        let mut dice = fastrand::Rng::with_seed(3);
        for dist in [KeyDist::Uniform, KeyDist::Zipf(0.99), KeyDist::Zipf(1.0), KeyDist::Gaussian] {
            for keys in [1, 2, 1000, MOST_KEYS] {
                let mut source = Keys::new(keys, dist).unwrap();
                assert!((0..2000).all(|_| source.draw(&mut dice) < keys), "{dist} {keys}");
            }
        }
        assert!(Keys::new(0, KeyDist::Uniform).is_err());
    }

    /// Case behaviour/29. Fails if lanes that take turns skip a key or draw one twice, or if a new beginning
    /// is none.
    #[test]
    fn sequences_cover_all_keys() {
        let mut dice = fastrand::Rng::with_seed(3);
        let all = Keys::new(10, KeyDist::Sequential).unwrap();
        let mut lanes = [0, 1, 2].map(|lane| all.clone().of_lane(lane, 3));
        let warm = lanes[1].draw(&mut dice);
        lanes[1].restart();
        let counts = [4, 3, 3];
        let drawn = lanes.iter_mut().zip(counts);
        let drawn =
            drawn.flat_map(|(lane, n)| (0..n).map(|_| lane.draw(&mut dice)).collect::<Vec<_>>());
        let mut drawn: Vec<u64> = drawn.collect();
        drawn.sort_unstable();
        assert_eq!((warm, drawn), (1, (0..10).collect()));
    }

    /// Shapes: zipf's first key is hot by its law, the bell is centred. Fails if a shape is flat.
    #[test]
    fn shapes() {
        let mut dice = fastrand::Rng::with_seed(3);
        let mut zipf = Keys::new(1000, KeyDist::Zipf(1.0)).unwrap();
        let first = (0..100_000).filter(|_| zipf.draw(&mut dice) == 0).count();
        assert!((12_700..14_000).contains(&first), "1 / H(1000) = 0.1336: {first}");
        let mut bell = Keys::new(1000, KeyDist::Gaussian).unwrap();
        let near = (0..100_000).filter(|_| bell.draw(&mut dice).abs_diff(500) <= 167).count();
        assert!((67_000..70_000).contains(&near), "one deviation is 68 %: {near}");
    }
}
