//! The data: sixteen databases of typed values with expiry.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};

use super::sorted_set::SortedSet;

/// Databases of a server.
pub(super) const DATABASES: usize = 16;

pub(super) type Bytes = Vec<u8>;
pub(super) type Hash = IndexMap<Bytes, Bytes, RandomState>;
pub(super) type Set = IndexSet<Bytes, RandomState>;

/// A value of a key.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Bytes),
    Hash(Hash),
    List(VecDeque<Bytes>),
    Set(Set),
    Sorted(SortedSet),
}

impl Value {
    /// The word that TYPE answers.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Sorted(_) => "zset",
        }
    }

    /// True for a container without members, which a server never keeps.
    pub(super) fn is_hollow(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Sorted(sorted) => sorted.len() == 0,
        }
    }
}

/// A value and the moment at which it goes, in milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) expires_ms: Option<u64>,
}

impl Entry {
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| at <= now_ms)
    }
}

/// One database. Expired keys are dropped when met, and before anything that counts or lists keys.
#[derive(Debug, Default)]
pub(super) struct Database {
    entries: IndexMap<Bytes, Entry, RandomState>,
    /// True once a key got an expiry: while false, nothing needs a sweep.
    may_expire: bool,
}

impl Database {
    /// The live entry of a key.
    pub(super) fn get(&mut self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        if self.may_expire && self.entries.get(key).is_some_and(|entry| entry.is_expired(now_ms)) {
            self.entries.swap_remove(key);
            return None;
        }
        self.entries.get(key)
    }

    /// As [`Database::get`], to change it. A change of the expiry goes through
    /// [`Database::expire`].
    pub(super) fn get_mut(&mut self, key: &[u8], now_ms: u64) -> Option<&mut Entry> {
        self.get(key, now_ms)?;
        self.entries.get_mut(key)
    }

    /// The value of a key, put there first if there is none.
    pub(super) fn value_or_insert(
        &mut self,
        key: &[u8],
        now_ms: u64,
        make: impl FnOnce() -> Value,
    ) -> &mut Value {
        // Drops the entry if it has expired.
        self.get(key, now_ms);
        let entry = self.entries.entry(key.to_vec());
        &mut entry.or_insert_with(|| Entry { value: make(), expires_ms: None }).value
    }

    /// Puts a value, in the place of whatever was there.
    pub(super) fn put(&mut self, key: &[u8], value: Value, expires_ms: Option<u64>) {
        self.may_expire |= expires_ms.is_some();
        match self.entries.get_mut(key) {
            Some(entry) => *entry = Entry { value, expires_ms },
            None => {
                self.entries.insert(key.to_vec(), Entry { value, expires_ms });
            }
        }
    }

    /// Takes a key out; `None` when it was absent or had expired.
    pub(super) fn remove(&mut self, key: &[u8], now_ms: u64) -> Option<Entry> {
        self.entries.swap_remove(key).filter(|entry| !entry.is_expired(now_ms))
    }

    /// Sets or clears the expiry of a live key; false when there is no such key.
    pub(super) fn expire(&mut self, key: &[u8], at_ms: Option<u64>, now_ms: u64) -> bool {
        self.may_expire |= at_ms.is_some();
        match self.get_mut(key, now_ms) {
            Some(entry) => {
                entry.expires_ms = at_ms;
                true
            }
            None => false,
        }
    }

    /// Number of live keys.
    pub(super) fn len(&mut self, now_ms: u64) -> usize {
        self.sweep(now_ms);
        self.entries.len()
    }

    /// Number of live keys with an expiry.
    pub(super) fn expiring(&self) -> usize {
        if !self.may_expire {
            return 0;
        }
        self.entries.values().filter(|entry| entry.expires_ms.is_some()).count()
    }

    /// The live keys with their entries, by position; positions shift only downward, and only from
    /// the end.
    pub(super) fn list(&mut self, now_ms: u64) -> &IndexMap<Bytes, Entry, RandomState> {
        self.sweep(now_ms);
        &self.entries
    }

    pub(super) fn clear(&mut self) {
        self.entries = IndexMap::default();
        self.may_expire = false;
    }

    fn sweep(&mut self, now_ms: u64) {
        if self.may_expire {
            // From the end, so that the entry swapped into a hole is one already looked at (SCAN
            // relies on it).
            for index in (0..self.entries.len()).rev() {
                let expired = |(_, entry): (&Bytes, &Entry)| entry.is_expired(now_ms);
                if self.entries.get_index(index).is_some_and(expired) {
                    self.entries.swap_remove_index(index);
                }
            }
        }
    }
}
