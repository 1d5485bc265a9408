//! All hedging decisions of one core, in the order in which a read meets them.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::adaptive::Adaptive;
use super::budget::Budget;
use super::hedging::Hedging;
use super::ledger::{Ledger, Outcome};
use super::storm::{Pace, Reason, Storm, Weather};

/// What to do with a read whose delay has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send the second copy now; its credit is spent.
    Start,
    /// No: ask again after this long, if the read is still unanswered.
    Again(Duration),
    /// No, and do not ask again: the read goes the ordinary way.
    Leave,
}

/// The hedging of one core: budget, delays, guard and books (C-16).
///
/// A read calls [`on_read`](Tail::on_read) when its first node is chosen, [`on_due`](Tail::on_due) if
/// it is unanswered after that delay, [`on_reply`](Tail::on_reply) for each answered copy, and, if it
/// was hedged, [`on_outcome`](Tail::on_outcome) when the caller has its answer.
#[derive(Clone, Debug)]
pub struct Tail {
    hedging: Hedging,
    budget: Budget,
    classes: Vec<Adaptive>,
    storm: Storm,
    paces: Vec<Pace>,
    ledger: Ledger,
}

impl Tail {
    /// For `classes` command classes (at least 1) and `replicas` nodes that may be read from, with
    /// settings that [passed their check](Hedging::check).
    pub fn new(hedging: Hedging, classes: usize, replicas: usize) -> Tail {
        let percent = hedging.max_extra_load_percent;
        Tail {
            hedging,
            budget: Budget::new(percent, hedging.burst),
            classes: vec![Adaptive::new(hedging.delay, percent, replicas); classes.max(1)],
            storm: Storm::default(),
            paces: vec![Pace::default(); replicas],
            ledger: Ledger::default(),
        }
    }

    /// An eligible read was given its first node at `now`. Returns how long to wait for it; `None` if the
    /// guard would not let a copy start then, so that no timer is needed.
    #[inline]
    pub fn on_read(&mut self, now: Instant, class: usize) -> Option<Duration> {
        self.budget.on_read();
        self.ledger.reads += 1;
        self.delay(now, class)
    }

    /// As [`Tail::on_read`], of a read that is sent again, as a node would not have it: nothing is earned.
    #[inline]
    pub fn delay(&mut self, now: Instant, class: usize) -> Option<Duration> {
        let delay = self.class(class).delay(now);
        self.storm.admits(now + delay).then_some(delay)
    }

    /// The read is unanswered `waited` after its first node was chosen. `again` is false the first time
    /// and true after [`Due::Again`], so that the books count it once.
    pub fn on_due(&mut self, now: Instant, waited: Duration, again: bool) -> Due {
        if !self.storm.admits(now) {
            // Not again: in a storm every read is late, and each would keep a timer busy.
            self.ledger.held_back += 1;
            return Due::Leave;
        }
        if self.budget.take() {
            self.storm.on_start(now);
            self.ledger.sent += 1;
            return Due::Start;
        }
        self.ledger.without_credit += u64::from(!again);
        self.hedging.again(waited).map_or(Due::Leave, Due::Again)
    }

    /// A hedge that was to start did not: its read was over before. Its credit comes back.
    pub fn on_unsent(&mut self) {
        self.budget.give_back();
        self.ledger.sent -= 1;
    }

    /// A copy was answered at `now`, `latency` after it was sent: original or hedge, winner or loser.
    pub fn on_reply(&mut self, now: Instant, class: usize, replica: usize, latency: Duration) {
        let class = class.min(self.classes.len() - 1);
        self.classes[class].record(now, replica, latency);
        if let Some(pace) = self.paces.get_mut(replica) {
            pace.record(now, latency);
        }
    }

    /// The race of a hedged read ended. Returns what the guard says if that changed: log it.
    pub fn on_outcome(&mut self, now: Instant, outcome: Outcome) -> Option<Weather> {
        self.ledger.record(outcome);
        if !self.hedging.storm_guard {
            // It hears of nothing, so that it admits everything.
            return None;
        }
        let (climate, before) = (Pace::of_all(&self.paces, now), self.storm.weather());
        let change = self.storm.on_outcome(now, outcome, climate);
        let were_slow = matches!(before, Weather::Storm { reason: Reason::AllSlow { .. }, .. });
        if change == Some(Weather::Clear) && were_slow {
            // Else the storm's latencies would keep the delay long for a second or two.
            self.classes.iter_mut().for_each(|class| class.fade(now));
        }
        change
    }

    /// The other copy was answered too, or given up; see [`Ledger::record_loser`].
    pub fn on_loser(&mut self, bytes: u64, time: Duration, margin: Option<Duration>) {
        self.ledger.record_loser(bytes, time, margin);
    }

    /// From now on there are `replicas` nodes; what is known of those that stay is kept.
    pub fn resize(&mut self, replicas: usize) {
        self.paces.resize(replicas, Pace::default());
        self.classes.iter_mut().for_each(|class| class.resize(replicas));
    }

    /// A node's connection was replaced, or its index means another one: what was learnt of it goes.
    pub fn forget(&mut self, replica: usize) {
        if let Some(pace) = self.paces.get_mut(replica) {
            *pace = Pace::default();
        }
        self.classes.iter_mut().for_each(|class| class.forget(replica));
    }

    /// The latencies and the delay of a class; the last one for an index that is not there.
    pub fn class(&self, class: usize) -> &Adaptive {
        &self.classes[class.min(self.classes.len() - 1)]
    }

    /// The same, to publish into.
    pub fn class_mut(&mut self, class: usize) -> &mut Adaptive {
        let last = self.classes.len() - 1;
        &mut self.classes[class.min(last)]
    }

    /// What the guard says; always clear if it is switched off.
    pub fn weather(&self) -> Weather {
        self.storm.weather()
    }

    /// The credit.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
