//! A topology in its final form: what the table shows and the JSON file holds.

use super::super::machine::Machine;
use super::super::role::Role;
use super::dial::Dialled;
use hedgerow::command::slot::SLOT_COUNT;
use hedgerow::engine::SeenNode;
use hedgerow::topology::Role as Part;
use serde::Serialize;
use std::time::Duration;

/// The form of the JSON report; scripts look at it first.
const SCHEMA: &str = "hedgerow.topology/1";

/// A whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    schema: &'static str,
    version: &'static str,
    machine: Machine,
    target: &'a str,
    #[serde(flatten)]
    view: &'a View,
}

impl<'a> Report<'a> {
    /// The report of what was seen from `target`, an address without credentials.
    pub(crate) fn new(target: &'a str, view: &'a View) -> Report<'a> {
        let (schema, version) = (SCHEMA, env!("CARGO_PKG_VERSION"));
        Report { schema, version, machine: Machine::new(), target, view }
    }
}

/// A deployment at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// `cluster` or `standalone`.
    pub(crate) kind: &'static str,
    /// Primaries.
    pub(crate) shards: usize,
    /// Slots that a primary serves; `null` for no cluster.
    pub(crate) slots_served: Option<u32>,
    /// Nodes that say that their cluster is down.
    pub(crate) say_down: Vec<String>,
    /// By shard, its primary first.
    pub(crate) nodes: Vec<NodeView>,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeView {
    /// What a change of makes a change of the topology.
    #[serde(flatten)]
    pub(crate) facts: NodeFacts,
    /// Round trips of PINGs; `null` where none was answered.
    pub(crate) ping_us: Option<Pings>,
}

/// What is known of a node, but for how fast it is just now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeFacts {
    pub(crate) endpoint: String,
    /// Its number from 1, where that of its primary is known.
    pub(crate) shard: Option<usize>,
    /// `primary`, `replica`, or the server's word.
    pub(crate) role: String,
    /// Of a replica: its own link to the primary is up, where it tells.
    pub(crate) linked: Option<bool>,
    pub(crate) id: Option<String>,
    /// Of a replica: its primary.
    pub(crate) primary: Option<String>,
    /// Runs of slots, first and last.
    pub(crate) slots: Vec<(u16, u16)>,
    pub(crate) zone: Option<String>,
    /// It takes connections and answers.
    pub(crate) connected: bool,
    /// Why not.
    pub(crate) error: Option<String>,
}

/// Round trips, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pings {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl View {
    /// What the client sees, and what each node said, in one order.
    pub(crate) fn new(in_cluster: bool, mut seen: Vec<(SeenNode, Dialled)>) -> View {
        // An address that no node of the cluster has is only another name of one.
        seen.retain(|(node, _)| !in_cluster || node.id.is_some() || !node.slots.is_empty());
        let first = |node: &SeenNode| node.slots.first().map_or(u16::MAX, |slots| *slots.start());
        seen.sort_by_key(|(node, _)| (first(node), node.endpoint.to_string()));
        let primaries = seen.iter().map(|(node, _)| node);
        let primaries =
            primaries.filter(|node| node.role == Part::Primary && node.primary.is_none());
        let primaries: Vec<SeenNode> = primaries.cloned().collect();
        let shard_of = |node: &SeenNode| {
            let primary = node.primary.as_ref().unwrap_or(&node.endpoint);
            let place = primaries.iter().position(|other| other.endpoint == *primary);
            // Named replicas follow the one primary that there is.
            place.or((!in_cluster).then_some(0)).map(|place| place + 1)
        };
        let say_down = seen.iter().filter(|(_, said)| said.says_down);
        let say_down = say_down.map(|(node, _)| node.endpoint.to_string()).collect();
        let mut nodes: Vec<NodeView> = seen
            .iter()
            .map(|(node, said)| NodeView::new(node, said, shard_of(node), in_cluster))
            .collect();
        nodes.sort_by_key(|node| {
            let facts = &node.facts;
            (facts.shard.unwrap_or(usize::MAX), facts.role != "primary", facts.endpoint.clone())
        });
        let served =
            primaries.iter().flat_map(|node| &node.slots).map(|slots| slots.len() as u32).sum();
        View {
            kind: if in_cluster { "cluster" } else { "standalone" },
            shards: primaries.len(),
            slots_served: in_cluster.then_some(served),
            say_down,
            nodes,
        }
    }

    /// What a reader should not overlook: why the deployment does not serve as it should.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Some(node) = self.say_down.first() {
            return Some(format!("the cluster is down: {node} says cluster_state:fail"));
        }
        let missing = u32::from(SLOT_COUNT) - self.slots_served.unwrap_or(u32::from(SLOT_COUNT));
        if missing > 0 {
            return Some(format!("the cluster is down in part: no node serves {missing} slots"));
        }
        let answers = self.nodes.iter().any(|node| node.facts.connected);
        (!answers).then(|| "no node answers".to_owned())
    }

    /// Whether it is the same topology as another one.
    pub(crate) fn is_same(&self, other: &View) -> bool {
        let facts = |view: &View| -> Vec<NodeFacts> {
            view.nodes.iter().map(|node| node.facts.clone()).collect()
        };
        self.say_down == other.say_down && facts(self) == facts(other)
    }
}

impl NodeView {
    fn new(seen: &SeenNode, said: &Dialled, shard: Option<usize>, in_cluster: bool) -> NodeView {
        let role = match &said.role {
            // A cluster is what its slots say, not what one node thinks.
            Some(role) if !in_cluster => match role {
                Role::Primary => "primary".to_owned(),
                Role::Replica { .. } => "replica".to_owned(),
                Role::Other(word) => word.clone(),
            },
            _ => seen.role.to_string(),
        };
        let linked = match said.role {
            Some(Role::Replica { linked }) => Some(linked),
            _ => None,
        };
        let facts = NodeFacts {
            endpoint: seen.endpoint.to_string(),
            shard,
            role,
            linked,
            id: seen.id.clone(),
            primary: seen.primary.as_ref().map(ToString::to_string),
            slots: seen.slots.iter().map(|slots| (*slots.start(), *slots.end())).collect(),
            zone: said.zone.clone().or_else(|| seen.zone.clone()),
            connected: said.error.is_none(),
            error: said.error.clone(),
        };
        NodeView { facts, ping_us: Pings::new(&said.pings) }
    }
}

impl Pings {
    /// Of round trips in order.
    fn new(pings: &[Duration]) -> Option<Pings> {
        let us = |time: &Duration| time.as_nanos() as f64 / 1e3;
        Some(Pings {
            count: pings.len(),
            min: us(pings.first()?),
            median: us(pings.get(pings.len() / 2)?),
            max: us(pings.last()?),
        })
    }
}
