//! The control plane of a deployment: asks its nodes what they are, merges what cores have learnt, and
//! publishes both. One for each deployment in a process, and never on the road of a command.
//!
//! It is a task like any other, over a client of its own with one connection to each node: on a thread
//! and a ring of its own in a program, on the simulated core in a simulation.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use crate::client::{LocalClient, LocalContext};
use crate::command::raw;
use crate::connection::RoleReply;
use crate::topology::{Board, Health, Hint, NodeHealth, NodeIndex, merge};

/// Between two looks at reports and hints, while anything changes.
const TICK: Duration = Duration::from_millis(20);
/// The same when nothing has changed for [`QUIET`].
const TICK_QUIET: Duration = Duration::from_millis(200);
/// Without any change for this long it is quiet.
const QUIET: Duration = Duration::from_secs(2);
/// Longest wait for the answer to ROLE.
const ROLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Coordinates a deployment until no core uses it any more.
pub(crate) async fn coordinate(core: LocalContext, board: Arc<Board>) {
    let Ok(client) = core.control(&board) else { return };
    let nodes = Rc::new(RefCell::new(Nodes::default()));
    let mut changed = core.now();
    loop {
        let now = core.now();
        board.free_old();
        take_hints(&board, &nodes, now);
        let interval = board.profile().replica_refresh_interval;
        let topology = board.topology();
        for (index, node) in topology.nodes() {
            if !node.is_removed && !interval.is_zero() && nodes.borrow_mut().begin(index, now) {
                core.spawn(check(core.clone(), client.clone(), nodes.clone(), index, interval));
            }
        }
        if publish(&board, &nodes) {
            changed = now;
        }
        if !board.is_used() && board.end() {
            return;
        }
        core.sleep(if now.since(changed) < QUIET { TICK } else { TICK_QUIET }).await;
    }
}

/// What is known of the nodes, and when they are asked next.
#[derive(Default)]
struct Nodes {
    health: Health,
    /// By node; `None` while an answer is awaited.
    due: Vec<Option<Instant>>,
}

impl Nodes {
    fn due(&mut self, index: NodeIndex) -> &mut Option<Instant> {
        let at = index.0 as usize;
        if at >= self.due.len() {
            self.due.resize(at + 1, Some(Instant::ZERO));
        }
        &mut self.due[at]
    }

    /// Whether the node is to be asked now; the next time is up to [`Nodes::end`].
    fn begin(&mut self, index: NodeIndex, now: Instant) -> bool {
        let due = self.due(index);
        let begins = due.is_some_and(|at| at <= now);
        if begins {
            *due = None;
        }
        begins
    }

    /// The node answered, or did not.
    fn end(&mut self, index: NodeIndex, now: Instant, reply: Option<RoleReply>, next: Instant) {
        *self.due(index) = Some(next);
        let health = self.health.node_mut(index);
        let (ping, offset) = (health.ping, health.offset);
        *health = match reply {
            Some(reply) => NodeHealth {
                checked: Some(now),
                role: reply.role,
                linked: reply.linked,
                // One that is cut off tells none: it is where it was.
                offset: reply.offset.or(offset),
                ping,
            },
            // Not known is not the same as gone: cores go by their own connections.
            None => NodeHealth { ping, offset, ..NodeHealth::default() },
        };
    }
}

fn take_hints(board: &Board, nodes: &RefCell<Nodes>, now: Instant) {
    while let Some(hint) = board.next_hint() {
        match hint {
            Hint::Check(index) => {
                if let due @ Some(_) = nodes.borrow_mut().due(index) {
                    *due = Some(now);
                }
            }
            Hint::Replicas(endpoints) => {
                board.publish_topology(board.topology().with_replicas(now, &endpoints));
            }
        }
    }
}

async fn check(
    core: LocalContext,
    client: LocalClient,
    nodes: Rc<RefCell<Nodes>>,
    index: NodeIndex,
    interval: Duration,
) {
    let request = client.to_node(index, raw("ROLE").build::<()>()).timeout(ROLE_TIMEOUT);
    let reply = request.with(|frame| RoleReply::of(&frame)).await;
    let now = core.now();
    nodes.borrow_mut().end(index, now, reply.ok().flatten(), now + interval);
}

/// Publishes what is known if that has changed.
fn publish(board: &Board, nodes: &RefCell<Nodes>) -> bool {
    let mut nodes = nodes.borrow_mut();
    merge(&mut nodes.health, &board.reports());
    let changed = *board.health() != nodes.health;
    if changed {
        board.publish_health(nodes.health.clone());
    }
    changed
}
