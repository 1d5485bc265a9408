/// Length of every key in bytes.
pub const KEY_LEN: usize = 16;

/// Uniform random keys `key:` + 12 digits, the same sequence for the same seed.
#[derive(Clone, Debug)]
pub struct Keys {
    rng: fastrand::Rng,
    count: u64,
    key: [u8; KEY_LEN],
}

impl Keys {
    /// Keys 0 to `count` - 1, drawn in the order that `seed` gives.
    pub fn new(count: u64, seed: u64) -> Self {
        Keys { rng: fastrand::Rng::with_seed(seed), count: count.max(1), key: *b"key:000000000000" }
    }

    /// The next key.
    #[inline]
    pub fn roll(&mut self) -> &[u8; KEY_LEN] {
        let mut number = self.rng.u64(0..self.count);
        for digit in self.key[4..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        &self.key
    }

    /// The next key as text, for clients that take only that.
    #[inline]
    pub fn roll_str(&mut self) -> &str {
        std::str::from_utf8(self.roll()).expect("keys are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a key leaves the range or the format that the servers are filled with.
    #[test]
    fn keys_stay_in_range() {
        let mut keys = Keys::new(10, 1);
        for _ in 0..100 {
            let key = keys.roll_str().to_string();
            assert!(key.starts_with("key:00000000000"), "{key}");
            assert_eq!(key.len(), KEY_LEN);
        }
    }
}
