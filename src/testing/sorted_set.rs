//! A sorted set: members with scores, in the order of score and then of bytes.

use std::cmp::Ordering;

use foldhash::fast::RandomState;
use std::collections::{BTreeSet, HashMap};

use super::keyspace::Bytes;

/// The place of a member: its score, then its bytes.
#[derive(Clone, Debug)]
struct Place {
    score: f64,
    member: Bytes,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        // No NaN gets in, and both zeros are one score; total_cmp would tell them apart.
        let scores = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member.cmp(&other.member))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

/// Members by name and by place.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedSet {
    scores: HashMap<Bytes, f64, RandomState>,
    places: BTreeSet<Place>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a score and returns the one before.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let before = self.scores.insert(member.to_vec(), score);
        if let Some(old) = before {
            self.places.remove(&Place { score: old, member: member.to_vec() });
        }
        self.places.insert(Place { score, member: member.to_vec() });
        before
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        match self.scores.remove(member) {
            Some(score) => self.places.remove(&Place { score, member: member.to_vec() }),
            None => false,
        }
    }

    /// All members in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.places.iter().map(|place| (place.member.as_slice(), place.score))
    }
}
