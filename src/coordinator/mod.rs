//! The control plane of a deployment: asks its nodes what they are, merges what cores have learnt, and
//! publishes both. One for each deployment in a process, and never on the road of a command.
//!
//! It is a task like any other, over a client of its own with one connection to each node: on a thread
//! and a ring of its own in a program, on the simulated core in a simulation.

mod discovery;
mod refresh;
mod roles;
mod round;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use crate::client::LocalContext;
use crate::topology::{Board, Hint};
use discovery::Discovery;
use roles::Roles;

/// Between two looks at reports, while anything changes.
const TICK: Duration = Duration::from_millis(20);
/// The same when nothing has changed for [`QUIET`].
const TICK_QUIET: Duration = Duration::from_millis(200);
/// Without any change for this long it is quiet.
const QUIET: Duration = Duration::from_secs(2);

/// Coordinates a deployment until no core uses it any more.
pub(crate) async fn coordinate(core: LocalContext, board: Arc<Board>) {
    let Ok(client) = core.control(&board) else { return };
    let roles = Rc::new(RefCell::new(Roles::default()));
    let discovery = Discovery::new(&core, &client, &board);
    let mut changed = core.now();
    loop {
        let now = core.now();
        board.free_old();
        take_hints(&board, &roles, discovery.as_ref(), now);
        if let Some(discovery) = &discovery {
            discovery.step(now);
        }
        roles::ask(&core, &client, &board, &roles, now);
        if roles::publish(&board, &roles) {
            changed = now;
        }
        if !board.is_used() && board.end() {
            return;
        }
        let tick = if now.since(changed) < QUIET { TICK } else { TICK_QUIET };
        let due = discovery.as_ref().map_or(Instant::NEVER, Discovery::due);
        wait(&core, &board, tick.min(due.since(now))).await;
    }
}

/// Until there is a hint, for so long at most.
async fn wait(core: &LocalContext, board: &Board, time: Duration) {
    let mut sleep = pin!(core.sleep(time));
    poll_fn(|cx| match board.poll_hinted(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => sleep.as_mut().poll(cx),
    })
    .await;
}

fn take_hints(board: &Board, roles: &RefCell<Roles>, discovery: Option<&Discovery>, now: Instant) {
    // One publication serves for all redirects of a moment.
    let mut redirects = Vec::new();
    while let Some(hint) = board.next_hint() {
        match (hint, discovery) {
            (Hint::Check(index), _) => roles.borrow_mut().ask_soon(index, now),
            (Hint::Replicas(endpoints), _) => {
                board.publish_topology(board.topology().with_replicas(now, &endpoints));
            }
            (Hint::Moved { slot, to }, Some(_)) => redirects.push((Some(slot), to)),
            (Hint::Known(to), Some(_)) => redirects.push((None, to)),
            (Hint::Lost(index), Some(discovery)) => discovery.on_lost(now, index),
            (Hint::Stale, Some(discovery)) => discovery.on_stale(now),
            (Hint::ReadOnly(index), Some(discovery)) => discovery.on_read_only(now, index),
            (Hint::Awaited, Some(discovery)) => discovery.on_awaited(now),
            (Hint::Sought(slot), Some(discovery)) => discovery.on_sought(slot),
            (_, None) => {}
        }
    }
    if let Some(discovery) = discovery.filter(|_| !redirects.is_empty()) {
        discovery.on_redirects(now, redirects);
    }
}
