//! The start of a lane, the same on a pinned core and in a tokio runtime: load the keys, meet the
//! other lanes, make the load.

use super::bench::Run;
use super::drive::{Clock, LoadDoor};
use super::load::{Frame, Load};
use super::plan::Plan;
use super::stop;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// How often a wait looks whether the user asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits for `connecting`; `None` if the user asked to stop first.
pub(crate) async fn unless_stopped<C: Clock, T>(
    clock: &C,
    connecting: impl Future<Output = T>,
) -> Option<T> {
    let mut connecting = pin!(connecting);
    while !stop::is_asked() {
        let mut pause = pin!(clock.sleep_until(clock.now() + LOOK_EVERY));
        let step = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => pause.as_mut().poll(cx).map(|()| None),
        });
        if let Some(outcome) = step.await {
            return Some(outcome);
        }
    }
    None
}

/// Loads this lane's share of the keys, meets the other lanes, and makes the load; `None` if the
/// user stopped the run or another lane failed.
pub(crate) async fn prepare<C: Clock, D: LoadDoor>(
    plan: &Plan,
    run: &Run,
    lane: usize,
    clock: &C,
    doors: &[D],
) -> Result<Option<Load>, String> {
    let _promise = run.loaded.promise();
    run.fill.run(clock, doors, &run.payload).await?;
    // No lane begins before the last one has come this far.
    if plan.reads.cluster {
        doors.iter().for_each(D::trace);
    }
    let Some(begin) = run.loaded.pass(clock).await else { return Ok(None) };
    run.told.begin(begin);
    Load::new(plan, Frame::new(plan, begin), lane, run.number).map(Some)
}
