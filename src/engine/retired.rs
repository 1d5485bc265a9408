//! What went wrong while connections of replicas finished what they had accepted.

use crate::error::Error;

/// Errors that are kept whole.
const KEPT: usize = 64;

/// The failures of retired connections: the first distinct ones, and how many there were besides.
#[derive(Clone, Debug, Default)]
pub(super) struct Retired {
    errors: Vec<Error>,
    more: u64,
}

impl Retired {
    pub(super) fn add(&mut self, error: &Error) {
        let is_same = |other: &Error| other.text() == error.text() && other.node() == error.node();
        if self.errors.len() < KEPT && !self.errors.iter().any(is_same) {
            self.errors.push(error.clone());
        } else {
            self.more += 1;
        }
    }

    /// The errors, and the count of the rest.
    pub(super) fn told(&self) -> (Vec<Error>, u64) {
        (self.errors.clone(), self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Fate};

    /// Fails if more than 64 errors are kept, the same one twice, or if one is not counted.
    #[test]
    fn distinct_errors_are_kept_and_the_rest_counted() {
        let mut retired = Retired::default();
        for round in 0..2 {
            for n in 0..100 {
                let text = format!("failure {n}");
                retired.add(&Error::new(ErrorKind::Disconnected, Fate::Unknown, text));
            }
            let (errors, more) = retired.told();
            assert_eq!((errors.len(), more), (64, 36 + round * 100));
            assert_eq!(errors[63].text(), "failure 63");
        }
    }
}
