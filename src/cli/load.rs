//! The load of one lane (a core, or a share of a hosted client): what to send next and when it
//! ends. Plain state without clock, task or socket; `drive` gives it those.

use super::arrival::Schedule;
use super::keys::{KeyName, Keys};
use super::mix::{Mix, Verb};
use super::plan::{Pace, Plan, Until, share};
use super::record::{Done, Outcome, Recorder};
use super::size::ValueSize;
use hedgerow_runtime::time::Instant;
use std::task::Waker;
use std::time::Duration;

/// A run that counts requests gives up when no reply came for this long.
const STALL: Duration = Duration::from_secs(15);
/// Arrivals that were never sent are counted one by one up to here, and by the rate beyond.
const COUNTED_UNSENT: u64 = 1_000_000;

/// One request to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Which command.
    pub(crate) verb: Verb,
    /// Its key.
    pub(crate) key: KeyName,
    /// Bytes of its value; 0 where it has none.
    pub(crate) value_len: usize,
    /// When it was due; in a closed loop: now.
    pub(crate) planned: Instant,
    /// Whether it counts: false in the warm-up.
    measured: bool,
}

impl Order {
    /// An order that loads key number `key` before the run.
    pub(crate) fn loading(
        verb: Verb,
        prefix: &str,
        key: u64,
        value_len: usize,
        now: Instant,
    ) -> Order {
        let key = KeyName::new(prefix, verb.prefix(), key);
        Order { verb, key, value_len, planned: now, measured: false }
    }
}

/// What a task does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Send this.
    Send(Order),
    /// Nothing is due before this instant.
    Wait(Instant),
    /// The load is over.
    Over,
}

/// What the dispatcher of an open loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// Sleep until the next arrival.
    Sleep(Instant),
    /// Arrivals are due, but every task is busy: wait for one.
    Busy,
    /// The load is over.
    Over,
}

/// The time frame of a run, the same for all lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// When the load begins.
    pub(crate) begin: Instant,
    /// When the warm-up ends and the measurement starts.
    pub(crate) start: Instant,
    /// When it ends; `NEVER` where requests are counted.
    pub(crate) end: Instant,
}

impl Frame {
    /// The frame of a plan that begins at `begin`.
    pub(crate) fn new(plan: &Plan, begin: Instant) -> Frame {
        let start = begin + plan.warmup;
        let end = match plan.until {
            Until::Time(time) => start + time,
            Until::Requests(_) => Instant::NEVER,
        };
        Frame { begin, start, end }
    }
}

/// A task that sends, seen from the dispatcher.
#[derive(Debug, Default)]
struct Sender {
    order: Option<Order>,
    waker: Option<Waker>,
}

/// The load of one lane.
#[derive(Debug)]
pub(crate) struct Load {
    frame: Frame,
    schedule: Option<Schedule>,
    rate_per_s: f64,
    /// Requests that are still to be measured.
    left: u64,
    mix: Mix,
    keys: Keys,
    key_prefix: String,
    /// An order was made that counts.
    measures: bool,
    value_size: ValueSize,
    dice: fastrand::Rng,
    recorder: Recorder,
    senders: Vec<Sender>,
    /// Idle senders by connection, so that connections take turns.
    idle: Vec<Vec<usize>>,
    turn: usize,
    dispatcher: Option<Waker>,
    /// Who waits for the last sender to end.
    watcher: Option<Waker>,
    running: usize,
    in_flight: u64,
    answered: u64,
    failed: u64,
    /// Requests that got no reply since the last one that did.
    lost: u64,
    last_reply: Instant,
    last_end: Instant,
    closed_at: Option<Instant>,
    /// Ended before its time: by the user, or because no reply came.
    cut: bool,
    stalled: bool,
}

impl Load {
    /// Lane `lane`'s part of the plan, in run `run`.
    pub(crate) fn new(plan: &Plan, frame: Frame, lane: usize, run: u32) -> Result<Load, String> {
        let lanes = plan.lanes();
        // Each lane and run draws from a stream of its own, fixed by the seed.
        let stream = (lane as u64) << 32 | u64::from(run);
        let mut dice =
            fastrand::Rng::with_seed(plan.seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (schedule, rate_per_s) = match plan.pace {
            Pace::Closed => (None, 0.0),
            Pace::Open { rate_per_s, arrivals } => {
                let rate = rate_per_s / lanes as f64;
                let place = (lane, lanes);
                (Some(Schedule::new(arrivals, rate, frame.begin, place, &mut dice)), rate)
            }
        };
        let connections = (plan.connections as usize).max(1);
        let senders = plan.tasks(lane);
        Ok(Load {
            frame,
            schedule,
            rate_per_s,
            left: match plan.until {
                Until::Time(_) => u64::MAX,
                Until::Requests(all) => share(all, lane, lanes),
            },
            mix: plan.mix.clone(),
            keys: Keys::new(plan.keys, plan.key_dist)?.of_lane(lane, lanes),
            key_prefix: plan.key_prefix.clone(),
            measures: false,
            value_size: plan.value_size,
            dice,
            recorder: Recorder::new(plan.mix.parts().iter().map(|(verb, _)| *verb)),
            senders: (0..senders).map(|_| Sender::default()).collect(),
            idle: vec![Vec::new(); connections],
            turn: 0,
            dispatcher: None,
            watcher: None,
            running: senders,
            in_flight: 0,
            answered: 0,
            failed: 0,
            lost: 0,
            last_reply: frame.begin,
            last_end: frame.begin,
            closed_at: None,
            cut: false,
            stalled: false,
        })
    }

    /// Whether requests follow a schedule.
    pub(crate) fn is_open(&self) -> bool {
        self.schedule.is_some()
    }

    /// What to send at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.closed_at.is_some() || now >= self.frame.end {
            return Next::Over;
        }
        let planned = self.schedule.as_ref().map_or(now, Schedule::next);
        let measured = planned >= self.frame.start;
        if planned >= self.frame.end || (measured && self.left == 0) {
            return Next::Over;
        }
        if planned > now {
            return Next::Wait(planned);
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.take(&mut self.dice);
        }
        if measured && !std::mem::replace(&mut self.measures, true) {
            self.keys.restart();
        }
        self.left -= u64::from(measured);
        self.in_flight += u64::from(measured);
        Next::Send(self.order(planned, measured))
    }

    fn order(&mut self, planned: Instant, measured: bool) -> Order {
        let verb = self.mix.draw(&mut self.dice);
        let number = match verb.prefix() {
            b"" => 0,
            _ => self.keys.draw(&mut self.dice),
        };
        let key = KeyName::new(&self.key_prefix, verb.prefix(), number);
        let value_len = if verb.has_value() { self.value_size.draw(&mut self.dice) } else { 0 };
        Order { verb, key, value_len, planned, measured }
    }

    /// Notes what became of an order that was sent at `sent`.
    pub(crate) fn done(&mut self, order: &Order, sent: Instant, at: Instant, outcome: Outcome) {
        self.last_end = self.last_end.max(at);
        match outcome {
            Outcome::Lost(_) => self.lost += 1,
            _ => (self.lost, self.last_reply) = (0, at),
        }
        if !order.measured {
            return;
        }
        self.in_flight -= 1;
        match outcome {
            Outcome::Failed(_) | Outcome::Lost(_) => self.failed += 1,
            Outcome::Hit | Outcome::Miss => self.answered += 1,
        }
        let done = Done { verb: order.verb, planned: order.planned, sent, at, outcome };
        self.recorder.add(done, self.frame.start);
    }

    /// What an idle sender does next; `None` while it waits: `waker` then stays with the
    /// dispatcher, and the caller drops the one that comes back in its place.
    pub(crate) fn assigned(&mut self, index: usize, waker: &mut Option<Waker>) -> Option<Next> {
        let over = self.closed_at.is_some();
        let sender = self.senders.get_mut(index)?;
        if let Some(order) = sender.order.take() {
            return Some(Next::Send(order));
        }
        if over {
            return Some(Next::Over);
        }
        std::mem::swap(&mut sender.waker, waker);
        None
    }

    /// Sender `index` has nothing to do; gives the dispatcher to wake, if it waits for one.
    pub(crate) fn set_idle(&mut self, index: usize) -> Option<Waker> {
        let connections = self.idle.len();
        if let Some(idle) = self.idle.get_mut(index % connections) {
            idle.push(index);
        }
        self.dispatcher.take()
    }

    /// Gives every due arrival to an idle sender; whom to wake is put into `wake`.
    pub(crate) fn dispatch(&mut self, now: Instant, wake: &mut Vec<Waker>) -> Dispatch {
        loop {
            if self.idle.iter().all(Vec::is_empty) && self.closed_at.is_none() {
                return match self.schedule.as_ref().map(Schedule::next) {
                    Some(at) if at > now && at < self.frame.end => Dispatch::Sleep(at),
                    _ => Dispatch::Busy,
                };
            }
            match self.next(now) {
                Next::Send(order) => {
                    let Some(index) = self.take_idle() else { return Dispatch::Busy };
                    let sender = &mut self.senders[index];
                    sender.order = Some(order);
                    wake.extend(sender.waker.take());
                }
                Next::Wait(at) => return Dispatch::Sleep(at),
                Next::Over => {
                    self.close(now, wake);
                    return Dispatch::Over;
                }
            }
        }
    }

    /// An idle sender of the connection whose turn it is, or of the next one that has any.
    fn take_idle(&mut self) -> Option<usize> {
        let connections = self.idle.len();
        (0..connections).find_map(|_| {
            self.turn = (self.turn + 1) % connections;
            self.idle[self.turn].pop()
        })
    }

    /// Keeps the dispatcher's waker; gives the old one to drop.
    pub(crate) fn set_dispatcher(&mut self, waker: Waker) -> Option<Waker> {
        self.dispatcher.replace(waker)
    }

    /// Whether a sender is idle, or the load closed.
    pub(crate) fn wants_dispatch(&self) -> bool {
        self.closed_at.is_some() || self.idle.iter().any(|idle| !idle.is_empty())
    }

    /// Ends the load: nothing more is sent.
    pub(crate) fn close(&mut self, now: Instant, wake: &mut Vec<Waker>) {
        if self.closed_at.is_none() {
            self.closed_at = Some(now.min(self.frame.end));
        }
        wake.extend(self.senders.iter_mut().filter_map(|sender| sender.waker.take()));
        wake.extend(self.dispatcher.take());
    }

    /// Looks at the time: closes the load at its end, or when no reply came for too long.
    pub(crate) fn check(&mut self, now: Instant, stop: bool, wake: &mut Vec<Waker>) {
        let counts = self.frame.end == Instant::NEVER;
        let quiet = now.since(self.last_reply);
        let waits = self.in_flight > 0 || self.lost > 0;
        let stalled = counts && waits && quiet > STALL;
        self.stalled |= stalled;
        self.cut |= (stop || stalled) && now < self.frame.end && self.closed_at.is_none();
        if stop || stalled || now >= self.frame.end {
            self.close(now, wake);
        }
    }

    /// When the load was closed.
    pub(crate) fn closed_at(&self) -> Option<Instant> {
        self.closed_at
    }

    /// A sender ended; gives the watcher to wake if it was the last.
    pub(crate) fn sender_ended(&mut self) -> Option<Waker> {
        self.running -= 1;
        if self.running == 0 { self.watcher.take() } else { None }
    }

    /// Whether every sender ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.running == 0
    }

    /// Keeps the watcher's waker; gives the old one to drop.
    pub(crate) fn set_watcher(&mut self, waker: Waker) -> Option<Waker> {
        self.watcher.replace(waker)
    }

    /// Successes and errors so far.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.answered, self.failed)
    }

    /// The time frame.
    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    /// Ends the load and gives its figures. A sender that comes back later finds it closed.
    pub(crate) fn finish(&mut self, now: Instant) -> LoadFigures {
        self.closed_at.get_or_insert(now);
        let closed_at = self.closed_at.unwrap_or(now).min(self.frame.end);
        let ends = match self.frame.end {
            _ if self.cut => closed_at,
            // Counted requests: the run ends with the last reply.
            Instant::NEVER => self.last_end,
            end => end,
        };
        let until = ends.max(if self.in_flight == 0 { self.last_end } else { now });
        LoadFigures {
            elapsed: until.since(self.frame.start),
            unsent: self.unsent(closed_at),
            unanswered: self.in_flight,
            stalled: self.stalled,
            recorder: std::mem::take(&mut self.recorder),
        }
    }

    /// Arrivals of the measurement that were due before the load closed and never sent.
    fn unsent(&mut self, closed_at: Instant) -> u64 {
        let Some(schedule) = &mut self.schedule else { return 0 };
        let mut unsent = 0;
        while schedule.next() < closed_at && unsent < self.left {
            if unsent == COUNTED_UNSENT {
                let rest = closed_at.since(schedule.next()).as_secs_f64() * self.rate_per_s;
                return (unsent + rest.round() as u64).min(self.left);
            }
            let due = schedule.take(&mut self.dice);
            unsent += u64::from(due >= self.frame.start);
        }
        unsent
    }
}

/// What one lane's load measured.
#[derive(Debug, Default)]
pub(crate) struct LoadFigures {
    /// All requests that ended.
    pub(crate) recorder: Recorder,
    /// From the start of the measurement to its end (the last reply, if that was later).
    pub(crate) elapsed: Duration,
    /// Due, but never sent: the load ended first.
    pub(crate) unsent: u64,
    /// Sent, but without a reply when the run ended.
    pub(crate) unanswered: u64,
    /// Gave up because no reply came.
    pub(crate) stalled: bool,
}
