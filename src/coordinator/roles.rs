//! What the nodes of a deployment say of their role.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use crate::client::{LocalClient, LocalContext};
use crate::command::raw;
use crate::connection::RoleReply;
use crate::topology::{Board, Health, NodeHealth, NodeIndex, merge};

/// Longest wait for the answer to ROLE.
const ROLE_TIMEOUT: Duration = Duration::from_secs(2);

/// What is known of the nodes, and when they are asked next.
#[derive(Default)]
pub(super) struct Roles {
    health: Health,
    /// By node; `None` while an answer is awaited.
    due: Vec<Option<Instant>>,
}

impl Roles {
    fn due(&mut self, index: NodeIndex) -> &mut Option<Instant> {
        let at = index.0 as usize;
        if at >= self.due.len() {
            self.due.resize(at + 1, Some(Instant::ZERO));
        }
        &mut self.due[at]
    }

    /// Whether the node is to be asked now; the next time is up to [`Roles::end`].
    fn begin(&mut self, index: NodeIndex, now: Instant) -> bool {
        let due = self.due(index);
        let begins = due.is_some_and(|at| at <= now);
        if begins {
            *due = None;
        }
        begins
    }

    /// The node is worth a look now.
    pub(super) fn ask_soon(&mut self, index: NodeIndex, now: Instant) {
        if let due @ Some(_) = self.due(index) {
            *due = Some(now);
        }
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

/// Asks the nodes whose answer is due.
pub(super) fn ask(
    core: &LocalContext,
    client: &LocalClient,
    board: &Board,
    roles: &Rc<RefCell<Roles>>,
    now: Instant,
) {
    let interval = board.profile().replica_refresh_interval;
    let in_cluster = board.profile().cluster.is_some();
    if interval.is_zero() || (in_cluster && !board.wants_roles()) {
        return;
    }
    let topology = board.topology();
    for (index, node) in topology.nodes() {
        if !node.is_removed && roles.borrow_mut().begin(index, now) {
            core.spawn(check(core.clone(), client.clone(), roles.clone(), index, interval));
        }
    }
}

async fn check(
    core: LocalContext,
    client: LocalClient,
    roles: Rc<RefCell<Roles>>,
    index: NodeIndex,
    interval: Duration,
) {
    let request = client.to_node(index, raw("ROLE").build::<()>()).timeout(ROLE_TIMEOUT);
    let reply = request.with(|frame| RoleReply::of(&frame)).await;
    let now = core.now();
    roles.borrow_mut().end(index, now, reply.ok().flatten(), now + interval);
}

/// Publishes what is known if that has changed.
pub(super) fn publish(board: &Board, roles: &RefCell<Roles>) -> bool {
    let mut roles = roles.borrow_mut();
    merge(&mut roles.health, &board.reports());
    let changed = *board.health() != roles.health;
    if changed {
        board.publish_health(roles.health.clone());
    }
    changed
}
