//! The storm guard: stops hedging while it cannot help.

use std::fmt;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::ledger::Outcome;
use super::sampler::Sampler;

/// While all replicas are slow, a tenth of the hedges must win; 40 lost in a row are enough to tell. A
/// service that wins one hedge in five (a lognormal of sigma 0.5) seems not to once in some 10,000 hedges.
const SLOW: Share = Share { percent: 10, losses: 40 };
/// Else one in a hundred must: where stalls are rare most hedges lose, and the few that win are what they
/// are for. A thousand lost in a row tell.
const ANY: Share = Share { percent: 1, losses: 1_000 };
/// Wins of probes that end a storm in which all replicas are slow, in hundredths, each lost one taking a
/// tenth off: four, as the odd hedge wins there too.
const SURPLUS: u32 = 300;
/// Powers of two by which replicas must be quicker than when the storm was noticed for it to be over.
const EASED: f32 = 1.0;
/// Between two probes while off.
const PROBE: Duration = Duration::from_millis(250);

/// Why hedging is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Every replica is more than three times as slow as it uses to be, and hedges lose: they only add load.
    AllSlow {
        /// Hedges that won.
        won: u32,
        /// Hedges that ended since wins fell short.
        decided: u32,
    },
    /// Not one hedge in a hundred wins.
    FewWins {
        /// Hedges that won.
        won: u32,
        /// Hedges that ended since wins fell short.
        decided: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::AllSlow { won, decided } => write!(
                f,
                "all replicas are slow together, and only {won} of the last {decided} hedges won"
            ),
            Reason::FewWins { won, decided } => {
                write!(f, "only {won} of the last {decided} hedges won")
            }
        }
    }
}

/// What the guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Hedges may start.
    Clear,
    /// Only a probe every 250 ms may.
    Storm {
        /// When it began.
        since: Instant,
        /// What showed it.
        reason: Reason,
    },
}

/// A share of hedges that must win, and after how many losses in a row it is clear that they do not.
#[derive(Clone, Copy, Debug)]
struct Share {
    percent: u32,
    losses: u32,
}

/// How far wins fall short of a share, in hundredths of a win: a sum that starts at zero and does not go
/// below (a CUSUM), so that past merits do not count.
#[derive(Clone, Copy, Debug, Default)]
struct Shortfall {
    sum: u32,
    won: u32,
    decided: u32,
}

impl Shortfall {
    /// A hedge ended. Returns wins and ends since the sum was last zero once they are too few.
    fn add(&mut self, share: Share, won: bool) -> Option<(u32, u32)> {
        self.sum = if won {
            self.sum.saturating_sub(100 - share.percent)
        } else {
            self.sum + share.percent
        };
        if self.sum == 0 {
            *self = Shortfall::default();
            return None;
        }
        (self.won, self.decided) = (self.won + u32::from(won), self.decided + 1);
        (self.sum >= share.losses * share.percent).then_some((self.won, self.decided))
    }
}

/// The storm guard of one core.
///
/// Off goes hedging when its copies lose: while all replicas are slow together, as soon as wins fall short
/// of a tenth by 40 losses' worth; else only if not one in a hundred wins. Then one hedge every 250 ms goes
/// out as a probe. The storm is over when a probe ends while replicas are twice as quick as when it was
/// noticed, or when probes win.
///
/// In simulated storms with 5 % and `burst` 1 it was off after 0.1 s at 10,000 reads a second, 0.5 to 1 s
/// at 2,000 and 1.2 to 3.6 s at 1,000, and on again 0.1 to 1.6 s after their end. Slower than that the budget
/// sends too few hedges to harm or to judge.
#[derive(Clone, Debug)]
pub struct Storm {
    weather: Weather,
    slow: Shortfall,
    any: Shortfall,
    /// What probes won so far.
    surplus: u32,
    /// The pace when the storm was noticed.
    level_log2: f32,
    next_probe: Instant,
}

impl Default for Storm {
    fn default() -> Storm {
        Storm {
            weather: Weather::Clear,
            slow: Shortfall::default(),
            any: Shortfall::default(),
            surplus: 0,
            level_log2: 0.0,
            next_probe: Instant::ZERO,
        }
    }
}

impl Storm {
    /// What it says now.
    pub fn weather(&self) -> Weather {
        self.weather
    }

    /// Whether a hedge may start at `now`. Ask before the budget, so that no credit is lost.
    #[inline]
    pub fn admits(&self, now: Instant) -> bool {
        self.weather == Weather::Clear || now >= self.next_probe
    }

    /// A hedge that was admitted started.
    #[inline]
    pub fn on_start(&mut self, now: Instant) {
        if self.weather != Weather::Clear {
            self.next_probe = now + PROBE;
        }
    }

    /// A race ended at `now`, at a pace of the replicas as [`Pace::of_all`] tells. Returns the new weather
    /// if it changed.
    pub fn on_outcome(
        &mut self,
        now: Instant,
        outcome: Outcome,
        climate: Climate,
    ) -> Option<Weather> {
        let won = outcome == Outcome::Won;
        let next = match self.weather {
            Weather::Clear => self.watch(now, won, climate),
            // Of hedges from before, which are no probes.
            Weather::Storm { since, .. } if now < since + PROBE => None,
            Weather::Storm { reason, .. } => self.probe(won, reason, climate),
        }?;
        *self = Storm { weather: next, next_probe: now + PROBE, ..Storm::default() };
        self.level_log2 = climate.level_log2;
        Some(next)
    }

    fn watch(&mut self, now: Instant, won: bool, climate: Climate) -> Option<Weather> {
        let any = self.any.add(ANY, won);
        if !climate.all_slow {
            self.slow = Shortfall::default();
        }
        let slow = if climate.all_slow { self.slow.add(SLOW, won) } else { None };
        let reason = match (slow, any) {
            (Some((won, decided)), _) => Reason::AllSlow { won, decided },
            (None, Some((won, decided))) => Reason::FewWins { won, decided },
            (None, None) => return None,
        };
        Some(Weather::Storm { since: now, reason })
    }

    fn probe(&mut self, won: bool, reason: Reason, climate: Climate) -> Option<Weather> {
        self.surplus = if won {
            self.surplus + 100 - SLOW.percent
        } else {
            self.surplus.saturating_sub(SLOW.percent)
        };
        let over = match reason {
            Reason::AllSlow { .. } => {
                climate.level_log2 < self.level_log2 - EASED || self.surplus >= SURPLUS
            }
            Reason::FewWins { .. } => won,
        };
        over.then_some(Weather::Clear)
    }
}

/// How much slower than usual, in powers of two, counts as slow: three times.
const SLOWER: f32 = 1.585;
/// Samples that "now" is the mean of, and that a judgement needs twice.
const NOW_SAMPLES: f32 = 32.0;
/// Time that "usual" is the mean of.
const USUAL: Duration = Duration::from_secs(30);

/// Silence after which a replica has no say.
const HEARD: Duration = Duration::from_secs(10);

/// Whether a replica is slower than it uses to be: the mean logarithm of its latencies over the last 32
/// replies against that over 30 s. Of logarithms, so that one stall does not count for a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    now_log2: f32,
    usual_log2: f32,
    seen: f32,
    last: Instant,
    sampler: Sampler,
}

impl Pace {
    /// A reply came at `now`, `latency` after its copy was sent.
    pub fn record(&mut self, now: Instant, latency: Duration) {
        if !self.sampler.takes(now) {
            return;
        }
        let log2 = (latency.as_nanos().max(1) as f32).log2();
        let elapsed = now.since(self.last).as_secs_f32();
        (self.last, self.seen) = (now, (self.seen + 1.0).min(1e6));
        let quick = (1.0 / NOW_SAMPLES).max(1.0 / self.seen);
        let steady = (elapsed / USUAL.as_secs_f32()).max(1.0 / self.seen).min(quick);
        self.now_log2 += (log2 - self.now_log2) * quick;
        self.usual_log2 += (log2 - self.usual_log2) * steady;
    }

    /// Whether it is more than three times as slow as it uses to be.
    pub fn is_slow(&self) -> bool {
        self.seen >= 2.0 * NOW_SAMPLES && self.now_log2 - self.usual_log2 > SLOWER
    }

    /// The pace of all replicas that were heard in the last 10 s.
    pub fn of_all(paces: &[Pace], now: Instant) -> Climate {
        let heard = |pace: &&Pace| pace.seen > 0.0 && now.since(pace.last) < HEARD;
        let heard = paces.iter().filter(heard);
        let (count, slow, sum) = heard.fold((0, 0, 0.0), |(count, slow, sum), pace| {
            (count + 1, slow + i32::from(pace.is_slow()), sum + pace.now_log2)
        });
        // Silence is not quick.
        let level_log2 = if count == 0 { f32::INFINITY } else { sum / count as f32 };
        Climate { all_slow: count > 0 && slow == count, level_log2 }
    }
}

/// The pace of all replicas together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Climate {
    /// Whether every one is slow; false if none was heard.
    pub all_slow: bool,
    /// The mean logarithm (base 2) of their latencies in nanoseconds; infinite if none was heard.
    pub level_log2: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Climate = Climate { all_slow: false, level_log2: 19.0 };
    const SLOW: Climate = Climate { all_slow: true, level_log2: 25.0 };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// When the guard speaks up, if every `win_every`th hedge wins, one ending each millisecond.
    fn off_after(climate: Climate, win_every: u64) -> Option<(u64, Weather)> {
        let mut storm = Storm::default();
        (1..=20_000).find_map(|n| {
            let outcome = if n % win_every == 0 { Outcome::Won } else { Outcome::Lost };
            storm.on_outcome(at(n), outcome, climate).map(|weather| (n, weather))
        })
    }

    /// Fails if losses do not switch hedging off with a reason, if slow replicas do not make that
    /// much sooner, or if rare wins are not enough to keep it on while replicas are at their usual pace.
    #[test]
    fn losses_switch_off() {
        let reason = Reason::AllSlow { won: 0, decided: 40 };
        let storm = Weather::Storm { since: at(40), reason };
        assert_eq!(off_after(SLOW, u64::MAX), Some((40, storm)));
        let reason = Reason::FewWins { won: 0, decided: 1_000 };
        let storm = Weather::Storm { since: at(1_000), reason };
        assert_eq!(off_after(USUAL, u64::MAX), Some((1_000, storm)));
        assert_eq!(reason.to_string(), "only 0 of the last 1000 hedges won");
        assert!(off_after(SLOW, 20).is_some(), "one in 20 is below a tenth");
        assert_eq!(off_after(SLOW, 7), None, "one in seven is above it");
        assert_eq!(off_after(USUAL, 60), None, "one in 60 is above a hundredth");
        assert!(off_after(USUAL, 300).is_some(), "one in 300 is below it");
    }

    /// Probes that start in 10 s from `from` (ms), each ending at once.
    fn probes(storm: &mut Storm, from: u64, outcome: Outcome, climate: Climate) -> u32 {
        let mut count = 0;
        for ms in from..from + 10_000 {
            if storm.weather() != Weather::Clear && storm.admits(at(ms)) {
                storm.on_start(at(ms));
                storm.on_outcome(at(ms), outcome, climate);
                count += 1;
            }
        }
        count
    }

    fn stormy(climate: Climate) -> Storm {
        let mut storm = Storm::default();
        for _ in 0..1_000 {
            storm.on_outcome(at(0), Outcome::Lost, climate);
        }
        (0..9).for_each(|_| {
            storm.on_outcome(at(249), Outcome::Won, USUAL);
        });
        assert_ne!(storm.weather(), Weather::Clear, "those are no probes");
        storm
    }

    /// Fails if more than a probe every 250 ms starts in a storm, if lost ones end it while replicas
    /// are slow, if one at a pace that has eased does not, or if wins do not.
    #[test]
    fn probes_find_the_way_back() {
        let mut storm = stormy(SLOW);
        assert_eq!(probes(&mut storm, 0, Outcome::Lost, SLOW), 39);
        assert_ne!(storm.weather(), Weather::Clear);
        let mut eased = storm.clone();
        assert_eq!(probes(&mut eased, 10_000, Outcome::Lost, USUAL), 1);
        assert_eq!(eased.weather(), Weather::Clear);
        assert_eq!(probes(&mut storm, 10_000, Outcome::Won, SLOW), 4);
        assert_eq!(storm.weather(), Weather::Clear);
        assert!(storm.admits(at(20_000)));
        let mut few = stormy(USUAL);
        assert_eq!(probes(&mut few, 0, Outcome::Lost, USUAL), 39);
        assert_eq!(probes(&mut few, 10_000, Outcome::Won, USUAL), 1);
        assert_eq!(few.weather(), Weather::Clear);
    }

    /// Fails if one stall makes a replica slow, if a lasting slowness does not, if that never
    /// becomes usual, if one usual replica does not make "all" false, or if one that is silent has a say.
    #[test]
    fn slow_is_relative_to_the_usual() {
        let mut pace = Pace::default();
        let us = |pace: &mut Pace, from, count, us| {
            (from..from + count).for_each(|ms| pace.record(at(ms), Duration::from_micros(us)));
        };
        us(&mut pace, 0, 5_000, 400);
        let usual = pace;
        us(&mut pace, 5_000, 1, 1_000_000);
        assert!(!pace.is_slow());
        us(&mut pace, 5_001, 200, 4_000);
        assert!(pace.is_slow());
        let all_slow = |paces: &[Pace], ms| Pace::of_all(paces, at(ms)).all_slow;
        assert!(all_slow(&[pace, Pace::default(), pace], 5_300));
        assert!(!all_slow(&[pace, usual], 5_300) && !all_slow(&[], 5_300));
        assert!(all_slow(&[pace, usual], 15_100), "one was not heard for 10 s");
        assert!(!all_slow(&[pace, usual], 60_000), "neither was");
        let level_log2 = Pace::of_all(&[pace, usual], at(5_300)).level_log2;
        assert!((level_log2 - (4e6_f32.log2() + 4e5_f32.log2()) / 2.0).abs() < 0.1);
        us(&mut pace, 5_201, 60_000, 4_000);
        assert!(!pace.is_slow(), "slow for a minute is usual");
    }
}
