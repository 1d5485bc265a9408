//! What a server is for its deployment: primary or replica, how far it has come, where it stands.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Commands of the test server that change data, in order: a replica refuses them.
const WRITES: [&str; 42] = [
    "append",
    "decr",
    "decrby",
    "del",
    "expire",
    "expireat",
    "flushall",
    "flushdb",
    "getdel",
    "getex",
    "getset",
    "hdel",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "lpop",
    "lpush",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "psetex",
    "rename",
    "renamenx",
    "rpop",
    "rpush",
    "sadd",
    "set",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "zadd",
    "zincrby",
    "zrem",
];

/// The role and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A primary, with the addresses of its replicas.
    Primary(Vec<SocketAddr>),
    /// A replica of the server at this address.
    Replica {
        /// Where its primary is.
        of: SocketAddr,
        /// Its link to the primary is up.
        linked: bool,
    },
}

/// What a server tells of itself.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) part: Part,
    /// Bytes of the replication stream that it has.
    pub(super) offset: u64,
    pub(super) zone: Option<String>,
    /// A replica takes writes all the same, as with `replica-read-only no`.
    pub(super) writable: bool,
}

/// The standing of one server; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    facts: Arc<Mutex<Facts>>,
    /// Looked at by every command, so apart from the lock.
    is_read_only: Arc<AtomicBool>,
}

impl Default for Standing {
    fn default() -> Standing {
        let facts =
            Facts { part: Part::Primary(Vec::new()), offset: 0, zone: None, writable: false };
        Standing { facts: Arc::new(Mutex::new(facts)), is_read_only: Arc::default() }
    }
}

impl Standing {
    /// What it is now.
    pub(super) fn facts(&self) -> Facts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes it; in force for every command that is sent after the call.
    pub(super) fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut facts);
        let is_replica = matches!(facts.part, Part::Replica { .. });
        self.is_read_only.store(is_replica && !facts.writable, Ordering::Release);
    }

    /// Whether a command of this name (in small letters) is refused.
    pub(super) fn refuses(&self, name: &str) -> bool {
        self.is_read_only.load(Ordering::Acquire) && WRITES.binary_search(&name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the names are out of order, so that a search misses one, if a primary refuses a write, or
    /// if a replica runs one.
    #[test]
    fn replicas_refuse_writes() {
        assert!(WRITES.is_sorted());
        let standing = Standing::default();
        assert!(!WRITES.iter().any(|name| standing.refuses(name)));
        let of = SocketAddr::from(([127, 0, 0, 1], 1));
        standing.change(|facts| facts.part = Part::Replica { of, linked: true });
        assert!(WRITES.iter().all(|name| standing.refuses(name)));
        assert!(
            !["get", "type", "scan", "role", "hello"].iter().any(|name| standing.refuses(name))
        );
    }
}
