//! Where a command goes, and what an error reply means. Pure decisions, without any state of their
//! own: `Way::of` before a command is queued, `verdict` after it was answered with an error.

mod redirect;
mod verdict;
mod way;

pub(crate) use redirect::Redirect;
pub(crate) use verdict::{Verdict, is_final, verdict, verdict_in_cluster};
pub(crate) use way::{Cursor, PinId, QueueId, View, Way};

use crate::topology::{NodeIndex, Role, Topology};

/// The node that takes what only a primary may serve. A snapshot has one; the first node stands in.
pub(crate) fn primary(topology: &Topology) -> NodeIndex {
    let mut primaries = topology.nodes().filter(|(_, node)| node.role == Role::Primary);
    primaries.next().map_or(NodeIndex(0), |(index, _)| index)
}
