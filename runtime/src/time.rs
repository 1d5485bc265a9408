//! The monotonic clock as one 64-bit count of nanoseconds.
//!
//! A core compares and stores instants on every command, so an instant is a plain integer here
//! and not `std::time::Instant` (which is two fields and a checked subtraction). The simulator
//! makes its own instants; nothing below reads a clock by itself.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point of the monotonic clock, in nanoseconds since an unspecified start (on Linux: boot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// An instant later than every other: "no deadline".
    pub const NEVER: Instant = Instant(u64::MAX);
    /// The start of the clock.
    pub const ZERO: Instant = Instant(0);

    /// The instant `ns` nanoseconds after the clock's start.
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(ns)
    }

    /// Nanoseconds since the clock's start.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `ns` nanoseconds later; saturates at [`Instant::NEVER`].
    #[inline]
    pub const fn plus_nanos(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Reads `CLOCK_MONOTONIC`.
    pub fn now() -> Instant {
        Instant::read(libc::CLOCK_MONOTONIC)
    }

    /// The same clock as of the kernel's last timer tick, for a fifth of the cost: behind
    /// [`Instant::now`] by at most [`Instant::COARSE_BEHIND_NS`].
    pub fn coarse() -> Instant {
        Instant::read(libc::CLOCK_MONOTONIC_COARSE)
    }

    /// A tick of the slowest kernels, which count 100 a second; in nanoseconds.
    pub const COARSE_BEHIND_NS: u64 = 10_000_000;

    fn read(clock: libc::clockid_t) -> Instant {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a valid, writable timespec; both clocks exist on every Linux.
        unsafe { libc::clock_gettime(clock, &mut t) };
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same instant on `std`'s clock, for callers that hold `std::time::Instant`s.
    pub fn from_std(at: std::time::Instant) -> Instant {
        let (std_now, now) = (std::time::Instant::now(), Instant::now());
        match at.checked_duration_since(std_now) {
            Some(ahead) => now + ahead,
            None => Instant(now.0.saturating_sub(nanos(std_now - at))),
        }
    }
}

/// A duration as nanoseconds, capped at the clock's range (584 years).
#[inline]
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Saturates at [`Instant::NEVER`].
    #[inline]
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
