//! How long a lost connection waits before it is tried again.

use std::time::Duration;

use crate::Error;

/// Delays between connection attempts.
///
/// The n-th delay is `initial x multiplier^n`, spread by plus or minus `jitter` of itself and then
/// capped at `max`, so that a fleet does not come back in step. The count starts again only after
/// the first reply to a command, or after one second up: a connection that is accepted and closed
/// at once does not reset it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reconnect {
    /// First delay, default 250 ms; at least 1 ms.
    pub initial: Duration,
    /// Growth per attempt, default 2; at least 1.
    pub multiplier: f64,
    /// Longest delay, default 5 s, at most a day.
    pub max: Duration,
    /// Share of the delay by which it varies both ways, 0 to 1, default 0.2.
    pub jitter: f64,
    /// Attempts in a row before giving up for good; `None` (the default) never gives up.
    ///
    /// In a cluster it also bounds how many nodes are asked, after the first, each time that something makes
    /// the client look for the owners of slots, with these delays before each. A refresh by the timer asks
    /// all that it needs to.
    pub attempts: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect {
            initial: Duration::from_millis(250),
            multiplier: 2.0,
            max: Duration::from_secs(5),
            jitter: 0.2,
            attempts: None,
        }
    }
}

impl Reconnect {
    /// The delay before attempt `n` (from 0), with `unit` a random number in `0.0..1.0`.
    pub fn delay(&self, n: u32, unit: f64) -> Duration {
        let (initial, max) = (self.initial.as_secs_f64(), self.max.as_secs_f64());
        let grown = (initial * self.multiplier.powi(n.min(1_000) as i32)).min(max);
        let spread = grown * (1.0 + self.jitter * (2.0 * unit - 1.0));
        Duration::from_secs_f64(spread.clamp(0.0, max))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let day = Duration::from_secs(86_400);
        let bad = if self.initial < Duration::from_millis(1) {
            "`reconnect.initial` must be at least 1 ms"
        } else if self.max < self.initial || self.max > day {
            "`reconnect.max` must be from `reconnect.initial` to one day"
        } else if !(self.multiplier >= 1.0 && self.multiplier.is_finite()) {
            "`reconnect.multiplier` must be a number of at least 1"
        } else if !(0.0..=1.0).contains(&self.jitter) {
            "`reconnect.jitter` must be from 0 to 1"
        } else if self.attempts == Some(0) {
            "`reconnect.attempts` must be at least 1, or None for no limit"
        } else {
            return Ok(());
        };
        Err(Error::config(bad))
    }
}
