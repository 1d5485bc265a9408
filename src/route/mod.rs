//! Where a command goes, and what an error reply means. Pure decisions, without any state of their
//! own: `pick` before a command is queued, `verdict` after it was answered with an error.

mod verdict;

pub(crate) use verdict::{Verdict, verdict};

use crate::topology::{NodeIndex, Topology};

/// Where a command is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The node.
    pub(crate) node: NodeIndex,
}

/// Chooses the node. A standalone server is its own only choice.
#[inline]
pub(crate) fn pick(_topology: &Topology) -> Target {
    Target { node: NodeIndex(0) }
}
