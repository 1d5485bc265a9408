//! Whether a core that has nothing to do spins or sleeps.
//!
//! Spinning took the median of a lone GET from 59 to 22 us, because a sleeping thread takes tens of
//! microseconds to run again; it also burns a cpu. So the default spins only where a reply is due and
//! recent ones came quickly, and nobody spins where that takes time from somebody else: under a CPU
//! quota the process would stand still for the rest of the period, on shared cpus it would keep the
//! very thread from running that it waits for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::quota::Quota;
use crate::time::Instant;

/// How a core waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkPolicy {
    /// Always sleep: least CPU, longest latency at low load.
    Park,
    /// Spin for at most `max_spin` at a time, while something is in flight and recent waits were
    /// shorter than that.
    Adaptive {
        /// Longest spin at a time; also the bound below which recent waits must lie.
        max_spin: Duration,
    },
    /// Always spin: shortest latency, one cpu for each core.
    Spin,
}

impl Default for ParkPolicy {
    /// Adaptive, 50 us.
    fn default() -> ParkPolicy {
        ParkPolicy::Adaptive { max_spin: Duration::from_micros(50) }
    }
}

/// A park policy that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("park policy {0:?} is not known; write park, adaptive or spin")]
pub struct ParkPolicyError(String);

impl FromStr for ParkPolicy {
    type Err = ParkPolicyError;

    /// `park`, `adaptive` (with the default spin) or `spin`.
    ///
    /// # Errors
    /// Names the word and the right ones.
    fn from_str(word: &str) -> Result<ParkPolicy, ParkPolicyError> {
        match word {
            "park" => Ok(ParkPolicy::Park),
            "adaptive" => Ok(ParkPolicy::default()),
            "spin" => Ok(ParkPolicy::Spin),
            _ => Err(ParkPolicyError(word.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for ParkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParkPolicy::Park => "park",
            ParkPolicy::Adaptive { .. } => "adaptive",
            ParkPolicy::Spin => "spin",
        })
    }
}

/// What a turn without work does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Take another turn at once.
    Spin,
    /// Wait in the kernel.
    Park,
}

/// After so many waits that were not tried spinning, one is. A wait that was slept through looks
/// longer than it was, by the time of waking up, so from sleeping alone one could never learn that
/// spinning pays again. Costs at most `max_spin` in so many waits.
const TRIAL_EVERY: u32 = 64;

/// A sample counts an eighth, and no sample counts as more than four times `max_spin`: a single pause
/// does not end the spinning, two in a row do.
const EWMA_SHARE: u32 = 8;
const SAMPLE_CAP: u32 = 4;

/// Decides, turn by turn, whether one core spins or sleeps. Pure: time comes from outside.
///
/// Call [`Parker::idle`] in each turn that found nothing to do, and [`Parker::worked`] in each that did.
#[derive(Clone, Debug)]
pub struct Parker {
    policy: ParkPolicy,
    obstacle: Option<String>,
    obstacle_told: bool,
    /// Mean length of recent waits with something in flight.
    wait_ewma: Duration,
    /// The present wait.
    wait: Option<Stretch>,
    /// Waits since spinning was last tried.
    since_trial: u32,
}

/// A stretch of turns without work.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    began: Instant,
    in_flight: bool,
    /// Spinning is allowed in this stretch (until it has lasted `max_spin`).
    spins: bool,
    /// Spinning is only being tried: recent waits speak against it.
    trial: bool,
}

impl Parker {
    /// A parker for one of `threads` cores that share `allowed` cpus under `quota`.
    ///
    /// Under any quota, and where cpus are fewer than threads, it always parks:
    /// [`Parker::take_reason`] says so.
    pub fn new(policy: ParkPolicy, quota: Option<Quota>, allowed: usize, threads: usize) -> Parker {
        let obstacle = match policy {
            ParkPolicy::Park => None,
            _ => obstacle(quota, allowed, threads),
        };
        Parker {
            policy,
            obstacle,
            obstacle_told: false,
            wait_ewma: Duration::ZERO,
            wait: None,
            since_trial: 0,
        }
    }

    /// Why spinning is off although the policy allows it, for the log; `Some` only the first time.
    pub fn take_reason(&mut self) -> Option<&str> {
        let told = std::mem::replace(&mut self.obstacle_told, true);
        if told { None } else { self.obstacle.as_deref() }
    }

    /// The policy that was asked for.
    pub fn policy(&self) -> ParkPolicy {
        self.policy
    }

    /// A turn found nothing to do at `now`; `in_flight` says whether a completion is due (a reply, a
    /// connect) rather than new work that may or may not come.
    pub fn idle(&mut self, now: Instant, in_flight: bool) -> Idle {
        let max_spin = match self.policy {
            _ if self.obstacle.is_some() => return Idle::Park,
            ParkPolicy::Park => return Idle::Park,
            ParkPolicy::Spin => return Idle::Spin,
            ParkPolicy::Adaptive { max_spin } => max_spin,
        };
        let stretch = match self.wait {
            Some(stretch) if stretch.in_flight == in_flight => stretch,
            _ => self.begin(now, in_flight, max_spin),
        };
        if stretch.spins && now.since(stretch.began) < max_spin { Idle::Spin } else { Idle::Park }
    }

    /// A turn found something to do at `now`: the wait, if there was one, is over.
    pub fn worked(&mut self, now: Instant) {
        let (Some(stretch), ParkPolicy::Adaptive { max_spin }) = (self.wait.take(), self.policy)
        else {
            return;
        };
        if !stretch.in_flight {
            return;
        }
        let lasted = now.since(stretch.began);
        if stretch.trial && lasted < max_spin {
            // The truth, where the mean holds only waits lengthened by waking up.
            self.wait_ewma = lasted;
            return;
        }
        let sample = lasted.min(max_spin * SAMPLE_CAP);
        self.wait_ewma = (self.wait_ewma * (EWMA_SHARE - 1) + sample) / EWMA_SHARE;
    }

    fn begin(&mut self, now: Instant, in_flight: bool, max_spin: Duration) -> Stretch {
        let short = self.wait_ewma < max_spin;
        let trial = in_flight && !short && self.since_trial >= TRIAL_EVERY;
        let spins = in_flight && (short || trial);
        if spins {
            self.since_trial = 0;
        } else if in_flight {
            self.since_trial += 1;
        }
        *self.wait.insert(Stretch { began: now, in_flight, spins, trial })
    }
}

fn obstacle(quota: Option<Quota>, allowed: usize, threads: usize) -> Option<String> {
    if let Some(Quota { cpus }) = quota {
        let unit = if cpus == 1.0 { "cpu" } else { "cpus" };
        let cpus = (cpus * 100.0).round() / 100.0;
        return Some(format!("CPU quota of {cpus} {unit}: spinning is off"));
    }
    if threads > allowed {
        let unit = if allowed == 1 { "cpu" } else { "cpus" };
        return Some(format!("{threads} cores on {allowed} {unit}: spinning is off"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    /// A core whose replies take a given time; a slept-through wait takes 37 us longer.
    struct Scene {
        parker: Parker,
        now: Instant,
    }

    impl Scene {
        fn new(policy: ParkPolicy) -> Scene {
            Scene { parker: Parker::new(policy, None, 2, 1), now: Instant::from_nanos(1) }
        }

        /// One request whose reply comes after `reply`; returns how long the core spun.
        fn round(&mut self, reply: Duration) -> Duration {
            let began = self.now;
            let due = began + reply;
            while self.now < due && self.parker.idle(self.now, true) == Idle::Spin {
                self.now = self.now + US(1);
            }
            let spun = self.now.since(began);
            if self.now < due {
                self.now = due + US(37);
            }
            self.parker.worked(self.now);
            spun
        }

        fn rounds(&mut self, count: usize, reply: Duration) -> Duration {
            (0..count).map(|_| self.round(reply)).sum()
        }
    }

    /// Design section 5. Fails if the default policy sleeps through replies that come quickly.
    #[test]
    fn spins_while_replies_come_quickly() {
        let mut scene = Scene::new(ParkPolicy::default());
        assert_eq!(scene.rounds(1_000, US(20)), US(20) * 1_000);
    }

    /// Design section 5. Fails if the default policy burns CPU on slow replies: more than 2 % of the time.
    #[test]
    fn parks_when_replies_are_slow() {
        let mut scene = Scene::new(ParkPolicy::default());
        scene.rounds(20, US(500));
        let began = scene.now;
        let spun = scene.rounds(10_000, US(500));
        assert!(spun < scene.now.since(began) / 50, "{spun:?} of {:?}", scene.now.since(began));
    }

    /// Design section 5. Fails if a pause ends the spinning for good: sleeping makes waits look longer
    /// than `max_spin`, so only a trial can find out.
    #[test]
    fn spins_again_after_a_pause() {
        let mut scene = Scene::new(ParkPolicy::default());
        scene.rounds(100, US(20));
        scene.rounds(20, Duration::from_secs(3600));
        scene.rounds(TRIAL_EVERY as usize + 1, US(20));
        assert_eq!(scene.rounds(100, US(20)), US(20) * 100);
    }

    /// Design section 5. Fails if a single slow reply among quick ones makes the core sleep.
    #[test]
    fn one_slow_reply_changes_nothing() {
        let mut scene = Scene::new(ParkPolicy::default());
        scene.rounds(100, US(20));
        assert_eq!(scene.round(Duration::from_secs(1)), US(50), "no spin beyond max_spin");
        assert_eq!(scene.round(US(20)), US(20));
    }

    /// Design section 5. Fails if an idle core spins although no reply is due, or if the time without
    /// requests counts as a slow reply.
    #[test]
    fn parks_when_nothing_is_in_flight() {
        let mut scene = Scene::new(ParkPolicy::default());
        for _ in 0..100 {
            assert_eq!(scene.parker.idle(scene.now, false), Idle::Park);
            scene.now = scene.now + Duration::from_secs(5);
            scene.parker.worked(scene.now);
            assert_eq!(scene.round(US(20)), US(20));
        }
    }

    /// case behaviour/23. Fails if a clock that jumps or goes back panics or upsets the decision.
    #[test]
    fn a_clock_jump_is_one_slow_reply() {
        let mut scene = Scene::new(ParkPolicy::default());
        scene.rounds(100, US(20));
        scene.parker.idle(scene.now, true);
        scene.parker.worked(scene.now + Duration::from_secs(86_400));
        scene.parker.idle(scene.now, true);
        scene.parker.worked(Instant::ZERO);
        assert_eq!(scene.round(US(20)), US(20));
    }

    /// Trap 23. Fails if any policy spins under a quota or on shared cpus, or says so more than once.
    #[test]
    fn never_spins_under_a_quota_or_on_shared_cpus() {
        let quota = Some(Quota { cpus: 1.5 });
        for policy in [ParkPolicy::default(), ParkPolicy::Spin] {
            for (quota, allowed, threads, reason) in [
                (quota, 8, 1, "CPU quota of 1.5 cpus: spinning is off"),
                (None, 1, 2, "2 cores on 1 cpu: spinning is off"),
            ] {
                let mut parker = Parker::new(policy, quota, allowed, threads);
                assert_eq!(parker.idle(Instant::ZERO, true), Idle::Park);
                assert_eq!(parker.take_reason(), Some(reason));
                assert_eq!(parker.take_reason(), None);
            }
        }
        assert_eq!(Parker::new(ParkPolicy::Park, quota, 8, 1).take_reason(), None);
        assert_eq!(Parker::new(ParkPolicy::Spin, None, 2, 2).take_reason(), None);
    }

    /// Design section 5. Fails if the plain policies do anything else than their names say.
    #[test]
    fn park_parks_and_spin_spins() {
        let mut scene = Scene::new(ParkPolicy::Park);
        assert_eq!(scene.rounds(200, US(5)), Duration::ZERO);
        let mut scene = Scene::new(ParkPolicy::Spin);
        assert_eq!(scene.round(US(5_000)), US(5_000));
        assert_eq!(scene.parker.idle(scene.now, false), Idle::Spin);
    }

    /// Design section 10. Fails if a policy's word is not read back, or a wrong one is not named.
    #[test]
    fn words_round_trip() {
        for word in ["park", "adaptive", "spin"] {
            assert_eq!(word.parse::<ParkPolicy>().unwrap().to_string(), word);
        }
        let error = "fast".parse::<ParkPolicy>().unwrap_err().to_string();
        assert_eq!(error, "park policy \"fast\" is not known; write park, adaptive or spin");
    }
}
