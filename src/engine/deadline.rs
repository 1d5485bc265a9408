//! Deadlines: one sweep for far ones, a timer wheel for near ones.
//!
//! Command timeouts nearly never fire, so a far deadline costs one comparison: the engine only
//! remembers the earliest, and looks through its cells when that comes. A near one gets an
//! entry in a wheel, whose insert and cancel are O(1).

use std::time::Duration;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::timer::{TimerKey, Wheel};

use super::cell::State;
use super::choose::Why;
use super::{CellId, Engine, Outside, Pressure, Stage};
use crate::error::{Error, ErrorKind, Fate};
use crate::read::Outcome;
use crate::route::Way;
use crate::topology::NodeIndex;

/// Deadlines nearer than this get a timer of their own; in nanoseconds, 50 ms.
const NEAR_NS: u64 = 50_000_000;

pub(super) struct Deadlines {
    near: Wheel<CellId>,
    /// The earliest far deadline, or an earlier instant.
    sweep_at: Instant,
    /// What the placement was last told.
    armed: Instant,
    due: Vec<CellId>,
}

impl Deadlines {
    pub(super) fn new(now: Instant) -> Deadlines {
        Deadlines {
            near: Wheel::new(now),
            sweep_at: Instant::NEVER,
            armed: Instant::NEVER,
            due: Vec::new(),
        }
    }

    pub(super) fn cancel(&mut self, timer: TimerKey) {
        self.near.cancel(timer);
    }
}

/// Times shorter than this are counted from the clock itself, which costs a read of it; for longer
/// ones the turn's clock does. In nanoseconds, 1 s.
const SHORT_NS: u64 = 1_000_000_000;

/// A command's time as nanoseconds; without a limit, longer than any clock runs.
pub(super) fn nanos(time: Option<Duration>) -> u64 {
    time.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(u64::MAX)
}

impl<O: Outside> Engine<O> {
    /// When a command that says nothing of its time has to be over.
    #[inline]
    pub(crate) fn default_deadline(&self, turn: Instant) -> Instant {
        self.after_nanos(turn, self.command_ns)
    }

    /// The instant `ns` from now. No time at all is over already, by the turn's clock too.
    #[inline]
    pub(crate) fn after_nanos(&self, turn: Instant, ns: u64) -> Instant {
        match ns {
            0 => turn,
            1..SHORT_NS => self.out.clock(turn).plus_nanos(ns),
            // Never too early, and late by next to nothing of such a time.
            _ => turn.plus_nanos(ns).plus_nanos(O::BEHIND_NS),
        }
    }

    /// The clock as it is, where a placement's `now` may be behind: what is measured in less than that needs
    /// it.
    #[inline]
    pub(super) fn exact(&self, now: Instant) -> Instant {
        if O::BEHIND_NS > 0 { self.out.clock(now) } else { now }
    }

    /// Sees to it that the request ends at `deadline` at the latest.
    #[inline]
    pub(super) fn watch(&mut self, id: CellId, now: Instant, deadline: Instant) {
        if deadline < now.plus_nanos(NEAR_NS) {
            self.watch_near(id, deadline);
        } else if deadline < self.deadlines.sweep_at {
            self.sweep_earlier(deadline);
        }
    }

    #[cold]
    fn sweep_earlier(&mut self, deadline: Instant) {
        self.deadlines.sweep_at = deadline;
        self.rearm();
    }

    #[inline(never)]
    fn watch_near(&mut self, id: CellId, deadline: Instant) {
        let timer = self.deadlines.near.insert(deadline, id);
        if let Some(cell) = self.cells.get(id) {
            cell.timer = Some(timer);
        }
        if self.deadlines.near.next() < self.deadlines.armed {
            self.rearm();
        }
    }

    /// Tells the placement when to call back, if that changed.
    pub(super) fn rearm(&mut self) {
        let near = self.deadlines.near.next();
        let links = self.links.iter().map(|l| l.timer).min().unwrap_or(Instant::NEVER);
        let near = near.min(self.next_hedge());
        let parked = self.cluster.as_ref().map_or(Instant::NEVER, |cluster| cluster.parked.next());
        let near = near.min(parked);
        let next = near.min(self.deadlines.sweep_at).min(links);
        if next != self.deadlines.armed {
            self.deadlines.armed = next;
            self.out.arm(next, near == next);
        }
    }

    /// A read was armed: the end of its delay may be the next thing due. Nothing is programmed where the
    /// placement will call before that anyway, which is nearly always.
    #[inline]
    pub(super) fn rearm_hedges(&mut self) {
        let next = self.races.last_armed();
        if next < self.deadlines.armed {
            self.deadlines.armed = next;
            self.out.arm(next, true);
        }
    }

    /// Reads were answered: what is armed may be the end of a delay that nobody waits for any more. Where
    /// more than half of it is over it is put off, so that no placement is woken for nothing.
    #[inline]
    pub(super) fn put_off_hedges(&mut self, now: Instant) {
        let Some(newest) = self.races.newest_due() else { return };
        let armed = self.deadlines.armed;
        if armed < newest && armed - now < (newest - now) / 2 {
            self.rearm();
        }
    }

    /// Ends what is overdue, and begins what is due, at `now`.
    pub fn handle_deadline(&mut self, now: Instant) {
        self.now = now;
        self.handle_link_timers(now);
        self.handle_hedges(now);
        self.handle_parked(now);
        let mut due = std::mem::take(&mut self.deadlines.due);
        self.deadlines.near.expire(now, &mut due);
        if self.deadlines.sweep_at <= now {
            let mut next = Instant::NEVER;
            for (id, cell) in self.cells.awaited() {
                if cell.timer.is_some() {
                    continue;
                }
                if cell.deadline <= now {
                    due.push(id);
                } else {
                    next = next.min(cell.deadline);
                }
            }
            self.deadlines.sweep_at = next;
        }
        if !due.is_empty() {
            // One look at the placement serves all that end in this sweep.
            let pressure = self.pressure();
            for id in due.drain(..) {
                self.expire(now, id, pressure);
            }
        }
        self.deadlines.due = due;
        self.deadlines.armed = Instant::NEVER;
        self.rearm();
    }

    pub(super) fn pressure(&self) -> Pressure {
        Pressure { requests: Some(self.live_requests()), ..self.out.pressure() }
    }

    pub(super) fn expire(&mut self, now: Instant, id: CellId, pressure: Pressure) {
        let Some(cell) = self.cells.get(id) else { return };
        let timer = cell.timer.take();
        let (stood, why, race) = (cell.stand(), cell.why(), cell.race);
        let (state, at) = (stood.state, stood.link);
        let stage = match state {
            State::InFlight => self.links[at.0 as usize].stage(stood.ordinal),
            State::Waiting | State::Admitted | State::Parked if self.is_up(at) => {
                Stage::WaitingForCapacity
            }
            State::Waiting | State::Admitted | State::Parked => Stage::Connecting,
            State::Free | State::Answered | State::Done | State::Abandoned => return,
        };
        if let Some(timer) = timer {
            self.deadlines.cancel(timer);
        }
        self.counters.timeouts += 1;
        if state == State::InFlight {
            self.suspect(now, at);
        }
        let error = match self.races.take_failure(race) {
            // Both copies failed, the hedge by running out of time.
            Some(error) => error,
            None if why == Some(Why::Sample) && state == State::Waiting => no_healthy_endpoint(),
            None if why == Some(Why::Search) && state == State::Waiting => self.none_found(id),
            None => self.timeout_error(now, at, stage, pressure),
        };
        self.fail(id, error);
        self.leave(now, id, stood, Some(Outcome::BothFailed));
    }

    /// A search for a replica took too long.
    fn none_found(&mut self, id: CellId) -> Error {
        let way = self.cells.get(id).map_or(Way::PRIMARY, |cell| cell.way());
        let shard = self.owner(way.slot).unwrap_or(NodeIndex(0));
        self.no_server(way.reads, shard)
    }

    /// Whether what waits for this link waits for room, and not for a connection.
    fn is_up(&self, at: super::LinkId) -> bool {
        match self.cluster {
            Some(_) => self.links[at.0 as usize].is_ready(),
            None => self.is_connected(),
        }
    }

    pub(super) fn timeout_error(
        &self,
        now: Instant,
        at: super::LinkId,
        stage: Stage,
        pressure: Pressure,
    ) -> Error {
        let fate = match stage {
            Stage::Writing | Stage::AwaitingReply => Fate::Unknown,
            Stage::Connecting | Stage::WaitingForCapacity | Stage::Buffered => Fate::NotSent,
        };
        let unknown = self.cluster.as_ref().and_then(|cluster| cluster.failure.as_ref());
        let cause = self.links[at.0 as usize].last_error.as_ref().or(unknown);
        let (kind, text) = match (stage, cause) {
            (Stage::Connecting, Some(cause)) => (
                ErrorKind::NotConnected,
                format!("not connected in time; last attempt: {}", cause.text()),
            ),
            (Stage::Connecting, None) => {
                (ErrorKind::NotConnected, "not connected in time".to_owned())
            }
            _ => (ErrorKind::Timeout, "the deadline passed".to_owned()),
        };
        let diagnostics = self.diagnostics(now, at, stage, pressure);
        let error = Error::new(kind, fate, text).with_diagnostics(diagnostics);
        error.with_node(&self.links[at.0 as usize].profile.endpoint)
    }
}

///
fn no_healthy_endpoint() -> Error {
    let text = "no healthy eligible endpoint: every candidate owes the answer to a PING for 1 s";
    Error::new(ErrorKind::NotConnected, Fate::NotSent, text)
}
