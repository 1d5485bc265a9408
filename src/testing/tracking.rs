//! Which connections are told when a key changes (CLIENT TRACKING).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

use super::keyspace::Bytes;
use super::reply::{self, Protocol};

/// How one connection tracks.
#[derive(Clone, Debug, Default)]
pub(super) struct Mode {
    /// Told of every key with one of these prefixes; all keys when there is none.
    pub(super) broadcast: bool,
    pub(super) prefixes: Vec<Bytes>,
    /// Remembers a read only after CLIENT CACHING YES, or only without CLIENT CACHING NO.
    pub(super) opt_in: bool,
    pub(super) opt_out: bool,
    /// Not told of its own changes.
    pub(super) no_loop: bool,
    /// What CLIENT CACHING said about the next command.
    pub(super) next: Option<bool>,
}

impl Mode {
    /// Whether the reads of the next command are remembered.
    fn remembers(&self) -> bool {
        match (self.broadcast, self.opt_in, self.opt_out) {
            (true, _, _) => false,
            (_, true, _) => self.next == Some(true),
            (_, _, true) => self.next != Some(false),
            _ => true,
        }
    }

    /// Whether a change of this key is told without a read before.
    fn wants(&self, key: &[u8]) -> bool {
        let any = self.prefixes.is_empty();
        self.broadcast && (any || self.prefixes.iter().any(|prefix| key.starts_with(prefix)))
    }
}

/// One invalidation: the connection, and its key; `None` for all keys.
pub(super) type Notice = (u64, Option<Bytes>);

/// Who tracks, what was read, and what is still to be told.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    modes: BTreeMap<u64, Mode>,
    readers: HashMap<Bytes, BTreeSet<u64>, RandomState>,
    notices: Vec<Notice>,
}

impl Tracking {
    pub(super) fn is_off(&self) -> bool {
        self.modes.is_empty()
    }

    pub(super) fn mode(&mut self, id: u64) -> Option<&mut Mode> {
        self.modes.get_mut(&id)
    }

    pub(super) fn start(&mut self, id: u64, mode: Mode) {
        self.modes.insert(id, mode);
    }

    /// Forgets a connection. What it read stays noted until the key changes, and is then skipped.
    pub(super) fn stop(&mut self, id: u64) {
        self.modes.remove(&id);
        if self.modes.is_empty() {
            *self = Self::default();
        }
    }

    /// Notes that a connection read these keys.
    pub(super) fn read<'a>(&mut self, id: u64, keys: impl Iterator<Item = &'a [u8]>) {
        if self.modes.get(&id).is_some_and(Mode::remembers) {
            for key in keys {
                self.readers.entry(key.to_vec()).or_default().insert(id);
            }
        }
    }

    /// Notes that a connection changed a key.
    pub(super) fn changed(&mut self, by: u64, key: &[u8]) {
        let readers = self.readers.remove(key).unwrap_or_default();
        for (&id, mode) in &self.modes {
            let told = readers.contains(&id) || mode.wants(key);
            if told && !(mode.no_loop && id == by) {
                self.notices.push((id, Some(key.to_vec())));
            }
        }
    }

    /// Notes that all keys are gone.
    pub(super) fn emptied(&mut self) {
        self.readers.clear();
        self.notices.extend(self.modes.keys().map(|&id| (id, None)));
    }

    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}

/// Writes an invalidation. Nothing in RESP2, which has no pushes.
pub(super) fn write(out: &mut Vec<u8>, protocol: Protocol, key: Option<&[u8]>) {
    if protocol == Protocol::Resp2 {
        return;
    }
    reply::push(out, protocol, 2);
    reply::bulk(out, b"invalidate");
    match key {
        Some(key) => {
            reply::array(out, 1);
            reply::bulk(out, key);
        }
        None => reply::null(out, protocol),
    }
}
