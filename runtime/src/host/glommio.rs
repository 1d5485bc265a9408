//! Inside glommio, in a latency queue.

use std::array;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use glommio::timer::Timer;
use glommio::{Latency, Shares, Task};

use super::{Hosted, Next, step};

/// How long other queues may run before glommio comes back to the driver's.
const LATENCY: Duration = Duration::from_millis(1);
/// The driver's share of a contended executor, the most that glommio grants.
const SHARES: usize = 1000;

/// The wait after work, and the longest when idle; it doubles in between.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);

/// How many guards there are, and how soon the first one may end a sleep.
const GUARDS: usize = 6;
const FIRST_GUARD: Duration = Duration::from_millis(4);

/// Spawns [`drive`] into a latency queue of its own, which is where it belongs: in the common queue
/// replies wait behind whatever the application computes. Dropping the task, or cancelling it, shuts
/// the driver down.
///
/// # Errors
/// When glommio refuses the queue.
///
/// # Panics
/// As glommio does: outside of its executor.
pub fn spawn(driver: impl Hosted + 'static) -> io::Result<Task<io::Error>> {
    let matters = Latency::Matters(LATENCY);
    let queue = glommio::executor().create_task_queue(Shares::Static(SHARES), matters, "hedgerow");
    glommio::spawn_local_into(drive(driver), queue).map_err(|e| io::Error::other(e.to_string()))
}

/// Turns `driver` for as long as the returned future is polled. Ends only with the error that made the
/// driver unusable. Dropping it shuts the driver down, which waits up to a second for the kernel to
/// let go of its sockets. Prefer [`spawn`].
///
/// glommio 0.9 has no readiness call for foreign descriptors, so the driver looks for itself: 50 us
/// after it last found work, then after 100 us, and so on, doubling up to 10 ms. A reply, a push or a
/// deadline is noticed late by no more than it was waited for before, plus 50 us, and by 10 ms at most;
/// an idle driver takes 100 turns a second. What a task of this executor sends goes out at once.
///
/// All of it is later where tasks keep the thread: they should yield (`glommio::yield_if_needed`), and
/// an executor that computes should be built with a `preempt_timer` of about 1 ms. glommio looks at its
/// timers no more often than that while tasks are ready. It also sometimes goes to sleep with tasks
/// ready, when a preemption timer ends before the first of them ran (the thread lost its processor, say).
/// Timers that stand guard end such a sleep after 4 to 40 ms.
///
/// # Panics
/// As glommio does: outside of its executor.
pub async fn drive(driver: impl Hosted) -> io::Error {
    match turn_for_ever(driver).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn turn_for_ever(mut driver: impl Hosted) -> io::Result<Infallible> {
    let (mut timer, mut wait) = (None::<Timer>, SHORTEST);
    let mut guards = Guards::new();
    poll_fn(|cx| {
        if timer.as_mut().is_some_and(|timer| Pin::new(timer).poll(cx).is_ready()) {
            (timer, wait) = (None, (wait * 2).min(LONGEST));
        }
        if step(&mut driver, cx.waker())? == Next::Turn {
            (timer, wait) = (None, SHORTEST);
            // At the queue's end, so that the tasks which the turn woke run first and share a send.
            cx.waker().wake_by_ref();
        } else if Pin::new(timer.get_or_insert_with(|| Timer::new(wait))).poll(cx).is_ready() {
            // It ended while it was set, and so was not kept by glommio.
            timer = None;
            cx.waker().wake_by_ref();
        }
        guards.stand(cx, wait);
        Poll::Pending
    })
    .await
}

/// Timers that end a sleep which glommio 0.9 should not have begun.
///
/// Its loop arms the preemption timer, then runs the ready queues until that timer ends. When it ends
/// before the first queue has run, the loop takes this for "nothing is ready" and sleeps until the next
/// event, with the driver's task among those that wait. The timer that woke the task is gone by then, so
/// others must stand: each ends one such sleep, after which the loop tries anew. They double, as what
/// took the processor away once may do so again.
struct Guards {
    timers: [Timer; GUARDS],
    /// When the first of them ends.
    first: Option<Instant>,
}

impl Guards {
    fn new() -> Guards {
        Guards { timers: array::from_fn(|_| Timer::new(FIRST_GUARD)), first: None }
    }

    /// Sees to it that the first one ends well after a wait of `wait`, but not much later. Rarely has
    /// anything to do.
    fn stand(&mut self, cx: &mut Context<'_>, wait: Duration) {
        let now = Instant::now();
        let mut after = FIRST_GUARD.max(wait * 4);
        if self.first.is_some_and(|first| (now + wait * 2..=now + after).contains(&first)) {
            return;
        }
        self.first = Some(now + after);
        for timer in &mut self.timers {
            timer.reset(after);
            // Only to register it: the time is not up.
            let _ = Pin::new(timer).poll(cx);
            after *= 2;
        }
    }
}
