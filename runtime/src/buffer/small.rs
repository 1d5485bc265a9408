//! Copies of small values, in memory that the thread uses again.
//!
//! A value of a few dozen bytes is nearly always looked at and dropped before the next one comes: a
//! list of spares, last in, first out, gives it the same warm cache lines for a fraction of what the
//! allocator's way there and back costs.

use std::cell::RefCell;

/// What a spare holds.
const SIZE: usize = 128;
/// Shorter values are left to the allocator, whose memory fits them better when they are kept.
const LEAST: usize = 33;
/// Spares that a thread keeps.
const SPARES_MAX: usize = 64;

type Memory = Box<[u8; SIZE]>;

thread_local! {
    static SPARES: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// A copied value of 33 to 128 bytes.
pub(crate) struct Small {
    /// Always there until it is dropped.
    memory: Option<Memory>,
    len: usize,
}

impl Small {
    /// A copy, if the value is of that size.
    #[inline(always)]
    pub(crate) fn copy_from(bytes: &[u8]) -> Option<Small> {
        if !(LEAST..=SIZE).contains(&bytes.len()) {
            return None;
        }
        // Without thread-local storage (a thread that ends) there is nothing to use again.
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        let mut memory = spare.unwrap_or_else(|| Box::new([0; SIZE]));
        memory[..bytes.len()].copy_from_slice(bytes);
        Some(Small { memory: Some(memory), len: bytes.len() })
    }
}

impl Drop for Small {
    #[inline]
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARES_MAX {
                spares.push(memory);
            }
        });
    }
}

impl AsRef<[u8]> for Small {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares() -> usize {
        SPARES.with_borrow(Vec::len)
    }

    /// Fails if a value of some length comes back changed, or in memory that does not fit it.
    #[test]
    fn values_of_the_size_are_held() {
        for len in 0..200 {
            let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let held = Small::copy_from(&value);
            assert_eq!(held.is_some(), (LEAST..=SIZE).contains(&value.len()), "{len}");
            assert!(held.is_none_or(|held| held.as_ref() == value), "{len}");
        }
    }

    /// Fails if memory is not used again, is used while its value lives, or is hoarded.
    #[test]
    fn memory_is_used_again() {
        let all: Vec<Small> = (0..100).filter_map(|i| Small::copy_from(&[i; 64])).collect();
        assert!(all.iter().zip(0..).all(|(small, i)| small.as_ref() == [i; 64]));
        assert_eq!(spares(), 0);
        drop(all);
        assert_eq!(spares(), SPARES_MAX);
        let again = Small::copy_from(&[7; 40]);
        assert_eq!(spares(), SPARES_MAX - 1);
        assert!(again.is_some_and(|again| again.as_ref() == [7; 40]));
    }
}
