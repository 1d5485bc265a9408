//! What a server counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters with one writer, the server's thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) commands: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
}

/// Adds with a plain load and store: there is one writer.
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Takes off as [`add`] adds.
pub(super) fn subtract(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_sub(by), Ordering::Relaxed);
}

impl Counters {
    pub(super) fn snapshot(&self) -> Stats {
        Stats {
            accepted: self.accepted.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}

/// A snapshot of a server's counters, since it started.
///
/// Requests are counted before their replies are sent: who has read a reply finds its request counted.
/// Bytes written are counted right after the write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Connections accepted, those closed at once by a fault included.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests read, those answered with an error included.
    pub commands: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
}
