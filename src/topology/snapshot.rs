//! One view of the fleet. A core reads one snapshot per turn; a newer one replaces it whole.

use std::sync::Arc;

use hedgerow_runtime::time::Instant;

use crate::config::{Endpoint, Options};

/// A node's index: stable over the epochs of a client, so that a core's table of connections
/// survives a new snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

/// What a node is for its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Copies its primary, and may serve reads.
    Replica,
}

/// A server process.
#[derive(Clone, Debug)]
pub struct Node {
    /// Credentials, database, timeouts and address belong to the node, never to the engine.
    pub profile: Arc<Options>,
    /// What it is.
    pub role: Role,
    /// It left the deployment. Its index stays, for it may come back.
    pub is_removed: bool,
}

impl Node {
    fn replica(of: &Options, endpoint: &Endpoint) -> Node {
        let profile = Arc::new(Options { endpoint: endpoint.clone(), ..of.clone() });
        Node { profile, role: Role::Replica, is_removed: false }
    }

    /// The address dialled.
    pub fn endpoint(&self) -> &Endpoint {
        &self.profile.endpoint
    }
}

/// The nodes that commands may go to.
#[derive(Clone, Debug)]
pub struct Topology {
    epoch: u64,
    /// When it was published; the beginning of time for the first.
    published: Instant,
    nodes: Vec<Node>,
}

impl Topology {
    /// A single primary with its `replica_endpoints`, which share its credentials and settings.
    pub fn standalone(profile: Arc<Options>) -> Topology {
        let replicas = profile.replica_endpoints.iter().map(|at| Node::replica(&profile, at));
        let primary = Node { profile: profile.clone(), role: Role::Primary, is_removed: false };
        let nodes = std::iter::once(primary).chain(replicas).collect();
        Topology { epoch: 1, published: Instant::ZERO, nodes }
    }

    /// The next snapshot, as of `now`, with these replicas: those that stay keep their indices, others are
    /// removed, new ones are added at the end.
    pub(crate) fn with_replicas(&self, now: Instant, endpoints: &[Endpoint]) -> Topology {
        let mut nodes = self.nodes.clone();
        for node in nodes.iter_mut().filter(|node| node.role == Role::Replica) {
            node.is_removed = !endpoints.contains(&node.profile.endpoint);
        }
        let new = endpoints.iter().filter(|at| !nodes.iter().any(|node| node.endpoint() == *at));
        let of = nodes.first().map(|primary| primary.profile.clone());
        let new: Vec<_> =
            of.iter().flat_map(|of| new.clone().map(|at| Node::replica(of, at))).collect();
        nodes.extend(new);
        Topology { epoch: self.epoch + 1, published: now, nodes }
    }

    /// Its number; later snapshots have higher ones.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When it was published.
    pub fn published(&self) -> Instant {
        self.published
    }

    /// The node, if this snapshot knows it.
    pub fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(index.0 as usize)
    }

    /// All nodes with their indices, the primary first; also those that were removed.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeIndex(at as u32), node))
    }
}
