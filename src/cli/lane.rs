//! The start of a lane, the same on a pinned core and in a tokio runtime: load the keys, meet the
//! other lanes, make the load.

use super::bench::Run;
use super::drive::{Clock, LoadDoor};
use super::load::{Frame, Load};
use super::plan::Plan;

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
    let Some(begin) = run.loaded.pass(clock).await else { return Ok(None) };
    run.told.begin(begin);
    Load::new(plan, Frame::new(plan, begin), lane, run.number).map(Some)
}
