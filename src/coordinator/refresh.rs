//! When the nodes of a cluster are asked for its slots. Pure: time comes from outside.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

/// From the first redirect to the pass that it causes; one that succeeded so lately serves for it
///
const DEBOUNCE: Duration = Duration::from_secs(5);
/// Between passes that lost connections cause.
const LOST_EVERY: Duration = Duration::from_secs(1);
/// After a pass that failed: so long the first time, twice as long each time, up to the second.
const FAILED_FIRST: Duration = Duration::from_secs(5);
const FAILED_MOST: Duration = Duration::from_secs(60);
/// Between passes that commands wait for, as a primary is none any more or nobody named the one to ask.
const URGENT_EVERY: Duration = Duration::from_millis(100);
/// Between passes while nothing is known at all: so long the first time, and at most.
const FIRST_FIRST: Duration = Duration::from_millis(100);
const FIRST_MOST: Duration = Duration::from_secs(5);

/// Why a pass begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was time for it.
    Timer,
    /// Something happened, or nothing is known yet.
    Need,
}

/// When the next pass is due.
#[derive(Clone, Debug)]
pub(super) struct Refresh {
    period: Option<Duration>,
    /// By the timer.
    periodic: Instant,
    /// By a redirect.
    redirected: Instant,
    /// By a lost connection.
    lost: Instant,
    /// By commands that wait for it.
    urgent: Instant,
    /// No other pass before this, but an urgent one: the last one failed.
    failed_until: Instant,
    failures: u32,
    last_begun: Option<Instant>,
    last_success: Option<Instant>,
    in_flight: bool,
}

impl Refresh {
    /// Begins with a pass that is due at once.
    pub(super) fn new(period: Option<Duration>) -> Refresh {
        Refresh {
            period,
            periodic: Instant::ZERO,
            redirected: Instant::NEVER,
            lost: Instant::NEVER,
            urgent: Instant::NEVER,
            failed_until: Instant::ZERO,
            failures: 0,
            last_begun: None,
            last_success: None,
            in_flight: false,
        }
    }

    /// A node redirected a command, or said that the cluster does not serve it.
    pub(super) fn on_redirect(&mut self, now: Instant) {
        // A stream of them cannot postpone it.
        self.redirected = self.redirected.min(now + DEBOUNCE);
    }

    /// The connection to a primary was lost, or it stopped answering.
    pub(super) fn on_lost(&mut self, now: Instant) {
        let earliest = self.last_begun.map_or(now, |last| last + LOST_EVERY);
        self.lost = self.lost.min(earliest.max(now));
    }

    /// Commands wait for the successor of a primary, or for the address of a node.
    pub(super) fn on_awaited(&mut self, now: Instant) {
        // A pass that is under way serves for it.
        if !self.in_flight {
            let earliest = self.last_begun.map_or(now, |last| last + URGENT_EVERY);
            self.urgent = self.urgent.min(earliest.max(now));
        }
    }

    /// When the next pass is due; never while one is under way.
    pub(super) fn due(&self) -> Instant {
        if self.in_flight {
            return Instant::NEVER;
        }
        let others = self.periodic.min(self.redirected).min(self.lost);
        let others = if others == Instant::NEVER { others } else { others.max(self.failed_until) };
        others.min(self.urgent)
    }

    /// The pass that begins now, if one is due. It serves all who asked for one.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Cause> {
        if self.redirected <= now && self.is_fresh(now) {
            self.redirected = Instant::NEVER;
        }
        if self.due() > now {
            return None;
        }
        let is_periodic = self.redirected.min(self.lost).min(self.urgent) > now;
        // What follows a failure goes on with what that was for.
        let is_plain = self.failures == 0 && self.last_begun.is_some();
        (self.redirected, self.lost, self.urgent) =
            (Instant::NEVER, Instant::NEVER, Instant::NEVER);
        self.periodic = Instant::NEVER;
        (self.last_begun, self.in_flight) = (Some(now), true);
        Some(if is_periodic && is_plain { Cause::Timer } else { Cause::Need })
    }

    /// A pass succeeded since the first redirect that is on record.
    fn is_fresh(&self, now: Instant) -> bool {
        self.last_success.is_some_and(|last| now.since(last) < DEBOUNCE)
    }

    /// The pass ended; `random` from 0 to 1 spreads the next periodic one.
    pub(super) fn end(&mut self, now: Instant, succeeded: bool, random: f64) {
        self.in_flight = false;
        // Shortened by up to a tenth, never lengthened.
        let period = self.period.map(|period| period.mul_f64(1.0 - random / 10.0));
        self.periodic = period.map_or(Instant::NEVER, |period| now + period);
        if succeeded {
            (self.failures, self.failed_until) = (0, Instant::ZERO);
            self.last_success = Some(now);
            return;
        }
        let (first, most) = match self.last_success {
            Some(_) => (FAILED_FIRST, FAILED_MOST),
            None => (FIRST_FIRST, FIRST_MOST),
        };
        let delay = first.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures += 1;
        // Spread, so that many clients do not ask in step; never sooner than documented.
        self.failed_until = now + delay.mul_f64(1.0 + random / 10.0).min(most.max(delay));
        self.periodic = self.failed_until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(seconds)
    }

    /// One after its first pass, at one second.
    fn known(period: Option<Duration>) -> Refresh {
        let mut refresh = Refresh::new(period);
        assert!(refresh.begin(at(1.0)).is_some());
        refresh.end(at(1.0), true, 0.0);
        refresh
    }

    /// Fails if the period is lengthened, shortened by more than a tenth, or if switching it
    /// off switches anything else off.
    #[test]
    fn the_period_is_shortened_by_up_to_a_tenth() {
        for random in [0.0, 0.5, 1.0] {
            let mut refresh = Refresh::new(Some(60 * S));
            assert_eq!(refresh.due(), Instant::ZERO);
            refresh.begin(at(1.0));
            refresh.end(at(1.0), true, random);
            assert_eq!(refresh.due(), at(61.0 - 6.0 * random));
        }
        let mut off = known(None);
        assert_eq!(off.due(), Instant::NEVER);
        off.on_redirect(at(10.0));
        assert_eq!(off.due(), at(15.0));
    }

    /// Fails if a stream of redirects postpones the pass, if it comes early, or if one that
    /// succeeded meanwhile does not serve for it.
    #[test]
    fn redirects_wait_from_the_first_on() {
        let mut refresh = known(None);
        for n in 0..100 {
            refresh.on_redirect(at(20.0 + f64::from(n) / 10.0));
        }
        assert_eq!(refresh.due(), at(25.0));
        assert!(refresh.begin(at(25.0)).is_some());
        refresh.end(at(25.1), true, 0.0);
        refresh.on_redirect(at(30.0));
        refresh.on_awaited(at(31.0));
        assert!(refresh.begin(at(31.0)).is_some());
        refresh.end(at(31.0), true, 0.0);
        refresh.on_redirect(at(31.5));
        assert!(refresh.begin(at(35.0)).is_none());
        assert!(refresh.begin(at(36.5)).is_some());
    }

    /// Fails if lost connections cause a pass more than once a second.
    #[test]
    fn losses_cause_one_pass_a_second() {
        let mut refresh = known(None);
        let mut passes = Vec::new();
        for n in 0..400 {
            let now = at(10.0 + f64::from(n) / 100.0);
            refresh.on_lost(now);
            if refresh.begin(now).is_some() {
                passes.push(now);
                refresh.end(now, true, 0.0);
            }
        }
        assert_eq!(passes, [at(10.0), at(11.0), at(12.0), at(13.0)]);
    }

    /// Fails if anything but commands that wait for it causes a pass while a failure is
    /// waited out, or if that wait does not grow from 5 s to 60 s.
    #[test]
    fn failures_are_waited_out() {
        let mut refresh = known(Some(2 * S));
        let (mut now, mut waits, mut last) = (at(10.0), Vec::new(), at(0.0));
        for _ in 0..6 {
            last = now;
            assert!(refresh.begin(now).is_some());
            refresh.end(now, false, 0.0);
            refresh.on_redirect(now);
            refresh.on_lost(now);
            waits.push((refresh.due() - now).as_secs());
            now = refresh.due();
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
        refresh.on_awaited(last + S);
        assert!(refresh.begin(last + S).is_some());
    }

    /// Fails if a second pass begins while one is under way.
    #[test]
    fn passes_are_shared() {
        let mut refresh = known(None);
        refresh.on_awaited(at(10.0));
        assert!(refresh.begin(at(10.0)).is_some());
        refresh.on_awaited(at(10.1));
        refresh.on_lost(at(10.1));
        assert_eq!((refresh.due(), refresh.begin(at(10.5))), (Instant::NEVER, None));
        refresh.end(at(11.0), true, 0.0);
        assert_eq!(refresh.due(), at(11.0));
    }
}
