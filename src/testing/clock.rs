//! The time that keys expire by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A wall clock that moves only when told, for tests of expiry without sleeping.
///
/// Clones share the same time. Give one to [`Builder::clock`](super::Builder::clock).
///
/// ```
/// use hedgerow::testing::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before_ms = clock.now_ms();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now_ms() - before_ms, 60_000);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    now_ms: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at 2023-11-14 22:13:20 UTC.
    #[must_use]
    pub fn new() -> Self {
        Self { now_ms: Arc::new(AtomicU64::new(1_700_000_000_000)) }
    }

    /// Moves the clock forward, in whole milliseconds. Seen by every command that arrives
    /// afterwards.
    pub fn advance(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.now_ms.fetch_add(by_ms, Ordering::AcqRel);
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Acquire)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a server takes its wall time from.
#[derive(Clone, Debug, Default)]
pub(super) enum Clock {
    #[default]
    System,
    Manual(ManualClock),
}

impl Clock {
    pub(super) fn now_ms(&self) -> u64 {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            Self::Manual(clock) => clock.now_ms(),
        }
    }
}
