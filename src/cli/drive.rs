//! The tasks of a lane: they give a `Load` a clock, sleep and a client.

use super::load::{Dispatch, Load, LoadFigures, Next, Order};
use super::nodes::NodeBook;
use super::record::Outcome;
use hedgerow::read::Ledger;
use hedgerow_runtime::time::Instant;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Replies that are due when the load ends are awaited this long.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How often a lane looks whether it was stopped, and tells its progress.
const LOOK: Duration = Duration::from_millis(100);
/// A task of a closed loop pauses this long after an error, so that a dead server gets no storm.
const PAUSE: Duration = Duration::from_millis(1);

/// A lane's clock.
pub(crate) trait Clock {
    /// Reads the clock.
    fn now(&self) -> Instant;
    /// Sleeps.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;
}

/// What a lane's load stands on.
pub(crate) trait Ground: Clock + Clone {
    /// The lane's load; the closure must not call back into the ground.
    fn load<R>(&self, f: impl FnOnce(&mut Load) -> R) -> R;
    /// What the load cost so far.
    fn cost(&self) -> Cost;
    /// Whether the user asked to stop.
    fn is_stopped(&self) -> bool;
    /// Tells successes and errors so far.
    fn tell(&self, progress: (u64, u64));
}

/// Where a lane's requests go. The request's type has a name, so that a host can ask for `Send`.
pub(crate) trait LoadDoor: Clone {
    /// A request on its way.
    type Request: Future;
    /// Sends one request with `value` (empty where it has none).
    fn send(&self, order: &Order, value: &[u8]) -> Self::Request;
    /// From now on it remembers which node answered, where it can.
    fn trace(&self) {}

    /// Moves what it remembers of requests from `start` on into `book`.
    fn collect(&self, _book: &mut NodeBook, _start: Instant) {}

    /// Adds what it counted to `book`, once the load is over.
    fn close(&self, _book: &mut NodeBook) {}

    /// What became of it.
    fn outcome(answer: <Self::Request as Future>::Output) -> Outcome;
}

/// What a load cost: the lane's own threads and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// CPU time of the threads that put on load, user and system, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Calls into the kernel that submit or wait; `None` where nobody counts them.
    pub(crate) enters: Option<u64>,
}

impl Cost {
    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Cost) -> Cost {
        Cost {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            enters: self.enters.zip(earlier.enters).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Both together; enters stay unknown if they are for either.
    pub(crate) fn plus(self, other: Cost) -> Cost {
        Cost {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            enters: self.enters.zip(other.enters).map(|(one, two)| one + two),
        }
    }
}

/// A task that sends: one request in flight, until the load is over.
pub(crate) async fn sender<G: Ground, D: LoadDoor>(
    ground: G,
    door: D,
    index: usize,
    payload: std::sync::Arc<[u8]>,
) {
    let mut now = ground.now();
    while let Some((order, sent)) = next_order(&ground, index, now).await {
        let value = payload.get(..order.value_len).unwrap_or(&payload);
        let outcome = D::outcome(door.send(&order, value).await);
        let failed = matches!(outcome, Outcome::Failed(_) | Outcome::Lost(_));
        now = ground.now();
        let open = ground.load(|load| {
            load.done(&order, sent, now, outcome);
            load.is_open()
        });
        if failed && !open {
            ground.sleep_until(now + PAUSE).await;
            now = ground.now();
        }
    }
    let watcher = ground.load(Load::sender_ended);
    watcher.into_iter().for_each(Waker::wake);
}

/// The next order of a sender and the instant at which it goes out; `None` when it is over.
async fn next_order<G: Ground>(ground: &G, index: usize, now: Instant) -> Option<(Order, Instant)> {
    match ground.load(|load| load.next(now)) {
        Next::Send(order) => return Some((order, now)),
        Next::Over => return None,
        Next::Wait(_) => {}
    }
    let dispatcher = ground.load(|load| load.set_idle(index));
    dispatcher.into_iter().for_each(Waker::wake);
    let next = poll_fn(|cx| {
        let mut waker = Some(cx.waker().clone());
        let assigned = ground.load(|load| load.assigned(index, &mut waker));
        assigned.map_or(Poll::Pending, Poll::Ready)
    });
    match next.await {
        Next::Send(order) => Some((order, ground.now())),
        Next::Wait(_) | Next::Over => None,
    }
}

/// The dispatcher of an open loop: gives arrivals to idle senders when they are due. What finds
/// no idle sender waits in the schedule, and counts from its planned instant.
/// `clock` is one that sleeps finely.
pub(crate) async fn dispatcher<G: Ground, C: Clock>(ground: G, clock: C) {
    let mut wake = Vec::new();
    loop {
        let now = ground.now();
        let next = ground.load(|load| load.dispatch(now, &mut wake));
        wake.drain(..).for_each(Waker::wake);
        match next {
            Dispatch::Sleep(at) => clock.sleep_until(at).await,
            Dispatch::Busy => wait_for_idle(&ground).await,
            Dispatch::Over => return,
        }
    }
}

async fn wait_for_idle<G: Ground>(ground: &G) {
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        let (wanted, _old) =
            ground.load(|load| (load.wants_dispatch(), load.set_dispatcher(waker)));
        if wanted { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Watches a lane from its begin to its end, and gives what it measured. The senders (and the
/// dispatcher) were started before; what they still wait for at the end counts as unanswered. `collect`
/// is called with the start of the measurement, now and then and at the end.
pub(crate) async fn watch<G: Ground>(ground: &G, mut collect: impl FnMut(Instant)) -> Measured {
    let mut wake = Vec::new();
    let mut at_start = None;
    loop {
        let now = ground.now();
        let frame = ground.load(|load| load.frame());
        if now >= frame.start && at_start.is_none() {
            at_start = Some(ground.cost());
        }
        let stop = ground.is_stopped();
        let (finished, closed_at, progress) = ground.load(|load| {
            load.check(now, stop, &mut wake);
            (load.is_finished(), load.closed_at(), load.progress())
        });
        wake.drain(..).for_each(Waker::wake);
        ground.tell(progress);
        collect(frame.start);
        if finished || closed_at.is_some_and(|at| now >= at + GRACE) {
            break;
        }
        let look = now + LOOK;
        let at =
            if now < frame.start { look.min(frame.start) } else { look.min(last(frame.end, now)) };
        sleep_or_finish(ground, at).await;
    }
    let cost = ground.cost().since(at_start.unwrap_or_else(|| ground.cost()));
    let now = ground.now();
    let load = ground.load(|load| load.finish(now));
    Measured { load, cost, interrupted: ground.is_stopped(), hedges: None, nodes: None }
}

/// The end, if it is still ahead.
fn last(end: Instant, now: Instant) -> Instant {
    if end > now { end } else { Instant::NEVER }
}

async fn sleep_or_finish<G: Ground>(ground: &G, at: Instant) {
    let mut sleep = pin!(ground.sleep_until(at));
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        let (finished, _old) = ground.load(|load| (load.is_finished(), load.set_watcher(waker)));
        if finished { Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
    })
    .await;
}

/// What one lane measured, or several merged.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The load's figures.
    pub(crate) load: LoadFigures,
    /// Its cost within the measurement.
    pub(crate) cost: Cost,
    /// The user ended it.
    pub(crate) interrupted: bool,
    /// The books of hedged reads, warm-up included; `None` without hedging.
    pub(crate) hedges: Option<Ledger>,
    /// Who answered; `None` but for a cluster.
    pub(crate) nodes: Option<NodeBook>,
}

impl Measured {
    /// Lanes of one run: they measured at the same time.
    pub(crate) fn merge_lane(&mut self, lane: Measured) {
        self.load.elapsed = self.load.elapsed.max(lane.load.elapsed);
        self.merge_counts(&lane);
    }

    /// Runs: one measured after the other.
    pub(crate) fn merge_run(&mut self, run: &Measured) {
        self.load.elapsed += run.load.elapsed;
        self.merge_counts(run);
    }

    fn merge_counts(&mut self, other: &Measured) {
        self.load.recorder.merge(&other.load.recorder);
        self.load.unsent += other.load.unsent;
        self.load.unanswered += other.load.unanswered;
        self.load.stalled |= other.load.stalled;
        self.cost = self.cost.plus(other.cost);
        self.interrupted |= other.interrupted;
        if let Some(hedges) = &other.hedges {
            self.hedges.get_or_insert_default().merge(hedges);
        }
        if let Some(nodes) = &other.nodes {
            self.nodes.get_or_insert_default().merge(nodes);
        }
    }

    /// Merges all; the first one's enters decide whether they are known.
    pub(crate) fn of_lanes(lanes: impl IntoIterator<Item = Measured>) -> Measured {
        let mut lanes = lanes.into_iter();
        let mut all = lanes.next().unwrap_or_default();
        lanes.for_each(|lane| all.merge_lane(lane));
        all
    }
}
