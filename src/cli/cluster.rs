//! The figures of a load on a cluster: what each node had of it.

use super::nodes::{NodeAnswers, NodeBook};
use super::probe::coded;
use super::report::Spread;
use serde::Serialize;

/// What a load did to a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterFigures {
    /// The slot of all keys, where they have one slot in common.
    pub(crate) only_slot: Option<u16>,
    /// Slots that a redirect said to be elsewhere; loading and warm-up included, as in the next one.
    pub(crate) slots_moved: u64,
    /// Commands that were sent again, as a node would not have them: redirects that were followed.
    pub(crate) sent_again: u64,
    /// Answers of which it is not known who gave them.
    pub(crate) untold: u64,
    /// The nodes that answered, and those that might have.
    pub(crate) nodes: Vec<NodeFigures>,
}

/// What one node had of it.
#[derive(Debug, Serialize)]
pub(crate) struct NodeFigures {
    pub(crate) endpoint: String,
    /// `primary` or `replica`, when the load was over.
    pub(crate) role: &'static str,
    pub(crate) id: Option<String>,
    pub(crate) zone: Option<String>,
    /// How many slots it serves.
    pub(crate) slots: u32,
    /// Commands that it answered.
    pub(crate) requests: u64,
    /// Its part of all answers.
    pub(crate) share_percent: f64,
    /// From a command's way into a connection to its answer.
    pub(crate) service_us: Spread,
    /// The same in nanoseconds: HdrHistogram V2, in base64.
    pub(crate) service_histogram: String,
}

impl ClusterFigures {
    /// The figures of what the clients saw.
    pub(crate) fn new(book: &NodeBook, only_slot: Option<u16>) -> ClusterFigures {
        let nodes = book.nodes();
        let all: u64 = nodes.iter().map(|node| node.times.count()).sum();
        ClusterFigures {
            only_slot,
            slots_moved: book.slots_moved,
            sent_again: book.sent_again,
            untold: book.untold,
            nodes: nodes
                .into_iter()
                .filter(is_part)
                .map(|node| NodeFigures::new(node, all))
                .collect(),
        }
    }
}

/// Whether a node is one of the cluster, not only another address of one that is.
fn is_part(node: &&NodeAnswers) -> bool {
    node.seen.id.is_some() || !node.seen.slots.is_empty() || node.times.count() > 0
}

impl NodeFigures {
    fn new(node: &NodeAnswers, all: u64) -> NodeFigures {
        let (seen, requests) = (&node.seen, node.times.count());
        NodeFigures {
            endpoint: seen.endpoint.to_string(),
            role: seen.role.as_str(),
            id: seen.id.clone(),
            zone: seen.zone.clone(),
            slots: seen.slots.iter().map(|slots| slots.len() as u32).sum(),
            requests,
            share_percent: requests as f64 * 100.0 / all.max(1) as f64,
            service_us: Spread::new(&node.times),
            service_histogram: coded::encode(node.times.histogram()),
        }
    }
}
