//! What is known of the nodes from moment to moment, over all cores.

use hedgerow_runtime::time::Instant;

use super::{NodeIndex, Role};
use crate::read::{FRESH, Published, Row};

/// What a node last said of itself, and how near it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeHealth {
    /// When it last answered ROLE; `None` before that, and after it failed to.
    pub checked: Option<Instant>,
    /// What it is, by that answer.
    pub role: Option<Role>,
    /// Of a replica: its link to its primary is up.
    pub linked: bool,
    /// Bytes of the replication stream that it has sent or taken.
    pub offset: Option<u64>,
    /// The round trip of PINGs over all cores (C-19).
    pub ping: Option<Published>,
}

/// A small row for each node, published many times a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    nodes: Vec<NodeHealth>,
    /// The latencies of each class of reads over all cores, and when that was.
    pub(crate) classes: Vec<Option<(Instant, Row)>>,
}

impl Health {
    /// The row of a node; an empty one for a node that it does not know yet.
    pub fn node(&self, index: NodeIndex) -> NodeHealth {
        self.nodes.get(index.0 as usize).copied().unwrap_or_default()
    }

    /// The same, to be filled.
    pub(crate) fn node_mut(&mut self, index: NodeIndex) -> &mut NodeHealth {
        let at = index.0 as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, NodeHealth::default());
        }
        &mut self.nodes[at]
    }
}

/// What one core has learnt, for the coordinator to merge: by node the round trip of PINGs, by class the
/// latencies of reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) pings: Vec<Option<Published>>,
    pub(crate) classes: Vec<Option<(Instant, Row)>>,
}

impl Report {
    /// An empty one, whose memory will do for so many nodes and classes.
    pub(crate) fn with_room(nodes: usize, classes: usize) -> Report {
        Report { pings: Vec::with_capacity(nodes), classes: Vec::with_capacity(classes) }
    }
}

/// Merges what cores have learnt into what is published.
pub(crate) fn merge(into: &mut Health, reports: &[std::sync::Arc<Report>]) {
    for at in 0..into.nodes.len() {
        let pings = reports.iter().filter_map(|report| report.pings.get(at).copied().flatten());
        into.nodes[at].ping = Published::of_all(pings);
    }
    let classes = reports.iter().map(|report| report.classes.len()).max().unwrap_or(0);
    into.classes = (0..classes)
        .map(|at| {
            let rows =
                reports.iter().filter_map(|report| report.classes.get(at).copied().flatten());
            let newest = rows.clone().map(|(at, _)| at).max()?;
            // What an idle core last saw is as fresh as that, whatever others see now.
            let fresh = rows.filter(|(at, _)| newest.since(*at) < FRESH).map(|(_, row)| row);
            let all = fresh.reduce(|mut all, one| {
                all.merge(&one);
                all
            });
            all.map(|row| (newest, row))
        })
        .collect();
}
