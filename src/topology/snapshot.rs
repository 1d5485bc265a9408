//! One view of the fleet. A core reads one snapshot per turn; a newer one replaces it whole.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hedgerow_runtime::time::Instant;

use super::slot_table::SlotTable;
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

impl Role {
    /// `primary` or `replica`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A server process.
#[derive(Clone, Debug)]
pub struct Node {
    /// Credentials, database, timeouts and address belong to the node, never to the engine.
    pub profile: Arc<Options>,
    /// What it is.
    pub role: Role,
    /// The primary of its shard: of a primary, itself.
    pub shard: NodeIndex,
    /// It left the deployment. Its index stays, for it may come back.
    pub is_removed: bool,
    /// The name that a cluster knows it by.
    pub id: Option<String>,
    /// Other addresses that lead to it.
    pub aliases: Vec<Endpoint>,
}

impl Node {
    /// A node with the settings of `of`.
    pub(super) fn new(of: &Options, endpoint: &Endpoint, role: Role, shard: NodeIndex) -> Node {
        let profile = Arc::new(Options { endpoint: endpoint.clone(), ..of.clone() });
        Node { profile, role, shard, is_removed: false, id: None, aliases: Vec::new() }
    }

    /// The address dialled.
    pub fn endpoint(&self) -> &Endpoint {
        &self.profile.endpoint
    }
}

/// The nodes that commands may go to.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(super) epoch: u64,
    /// When it was published; the beginning of time for the first.
    pub(super) published: Instant,
    pub(super) nodes: Vec<Node>,
    /// Of a cluster.
    pub(super) slots: Option<SlotTable>,
    /// Nodes of a cluster by the addresses that lead to them.
    pub(super) by_address: HashMap<Endpoint, NodeIndex>,
}

impl Topology {
    /// What is known before any node was asked: the primary with its `replica_endpoints`, which share its
    /// credentials and settings, or the seeds of a cluster.
    pub fn of(profile: &Arc<Options>) -> Topology {
        match &profile.cluster {
            Some(cluster) => Topology::seeds(profile, cluster),
            None => Topology::standalone(profile),
        }
    }

    fn standalone(profile: &Arc<Options>) -> Topology {
        let first = NodeIndex(0);
        let replica = |at| Node::new(profile, at, Role::Replica, first);
        let primary = Node::new(profile, &profile.endpoint, Role::Primary, first);
        let replicas = profile.replica_endpoints.iter().map(replica);
        Topology::new(std::iter::once(primary).chain(replicas).collect())
    }

    /// The first snapshot, with these nodes.
    pub(super) fn new(nodes: Vec<Node>) -> Topology {
        Topology {
            epoch: 1,
            published: Instant::ZERO,
            nodes,
            slots: None,
            by_address: HashMap::new(),
        }
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
        let replica = |of: &Arc<Options>, at| Node::new(of, at, Role::Replica, NodeIndex(0));
        let new: Vec<_> = of.iter().flat_map(|of| new.clone().map(|at| replica(of, at))).collect();
        nodes.extend(new);
        Topology { nodes, ..self.next(now) }
    }

    /// A copy that is to be published at `now`.
    pub(super) fn next(&self, now: Instant) -> Topology {
        Topology { epoch: self.epoch + 1, published: now, ..self.clone() }
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

    /// All nodes with their indices, the primary of a standalone deployment first; also those that were
    /// removed.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeIndex(at as u32), node))
    }
}
