//! One view of the fleet. A core reads one snapshot per turn; a newer one replaces it whole.

use std::sync::Arc;

use crate::config::Options;

/// A node's index: stable over the epochs of a client, so that a core's table of connections
/// survives a new snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

/// A server process.
#[derive(Clone, Debug)]
pub struct Node {
    /// Credentials, database, timeouts and address belong to the node, never to the engine.
    pub profile: Arc<Options>,
}

/// The nodes that commands may go to.
#[derive(Clone, Debug)]
pub struct Topology {
    epoch: u64,
    nodes: Vec<Node>,
}

impl Topology {
    /// A single server.
    pub fn standalone(profile: Arc<Options>) -> Topology {
        Topology { epoch: 1, nodes: vec![Node { profile }] }
    }

    /// Its number; later snapshots have higher ones.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The node, if this snapshot knows it.
    pub fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(index.0 as usize)
    }
}
