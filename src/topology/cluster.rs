//! How the view of a cluster changes: by what a node says of its slots, and by redirects.
//!
//! A node is known by its id, which it keeps when its address changes; before that is known by its
//! addresses, which are compared without regard to case. The same address under another id is another
//! node.

use std::sync::Arc;

use hedgerow_runtime::time::Instant;

use super::slot_table::SlotTable;
use super::slots_reply::{Named, SlotsReply};
use super::snapshot::{Node, NodeIndex, Role, Topology};
use crate::config::{Cluster, Endpoint, Options};

impl Topology {
    /// The seeds of a cluster, of which nothing else is known yet.
    pub(super) fn seeds(profile: &Arc<Options>, cluster: &Cluster) -> Topology {
        let mut topology = Topology::new(Vec::new());
        for seed in std::iter::once(&profile.endpoint).chain(&cluster.seeds) {
            topology.find_or_add(profile, seed);
        }
        topology
    }

    /// The next snapshot, by what a node said. Slots that it says nothing of keep the owner that they had
    /// nodes that nothing is known of any more are removed, but not the seeds.
    pub(crate) fn with_slots(
        &self,
        now: Instant,
        profile: &Options,
        said: &SlotsReply,
    ) -> Topology {
        let mut next = self.next(now);
        let mut table = self.slots.clone().unwrap_or_else(SlotTable::empty);
        let mut named = vec![false; next.nodes.len()];
        for range in &said.0 {
            let Some(primary) = &range.primary else { continue };
            let owner = next.named(profile, primary, &mut named);
            next.set_role(owner, Role::Primary, owner);
            table.set(range.slots.clone(), owner);
            for replica in &range.replicas {
                let index = next.named(profile, replica, &mut named);
                if index != owner {
                    next.set_role(index, Role::Replica, owner);
                }
            }
        }
        next.remove_unknown(profile, &table, &named);
        next.slots = Some(table);
        next.index_addresses();
        next
    }

    /// The next snapshot, in which the node at `to` has a slot.
    pub(crate) fn with_moved(
        &self,
        now: Instant,
        profile: &Options,
        slot: u16,
        to: &Endpoint,
    ) -> Topology {
        let mut next = self.with_node(now, profile, to);
        if let Some(owner) = next.find(to) {
            next.set_role(owner, Role::Primary, owner);
            let mut table = self.slots.clone().unwrap_or_else(SlotTable::empty);
            table.set(slot..=slot, owner);
            next.slots = Some(table);
        }
        next
    }

    /// The next snapshot, which knows the node at this address.
    pub(crate) fn with_node(&self, now: Instant, profile: &Options, at: &Endpoint) -> Topology {
        let mut next = self.next(now);
        let index = next.find_or_add(profile, at);
        next.nodes[index.0 as usize].is_removed = false;
        next.index_addresses();
        next
    }

    /// The node at `of` said that its id is `id`: if that is another node's, they are one, which keeps the
    /// connections of the first. Has to come before what it says of slots.
    pub(crate) fn with_id(&self, now: Instant, of: NodeIndex, id: &str) -> Option<Topology> {
        let node = self.node(of)?;
        if node.id.is_some() || self.nodes.iter().any(|other| other.id.as_deref() == Some(id)) {
            return None;
        }
        let mut next = self.next(now);
        next.nodes[of.0 as usize].id = Some(id.to_owned());
        Some(next)
    }

    /// The node that an address leads to.
    pub(crate) fn find(&self, at: &Endpoint) -> Option<NodeIndex> {
        self.by_address.get(&folded(at)).copied()
    }

    /// The slots, once they are known.
    pub(crate) fn slots(&self) -> Option<&SlotTable> {
        self.slots.as_ref()
    }

    /// Whether both say the same of slots, of roles and of the nodes' names.
    pub(crate) fn serves_as(&self, other: &Topology) -> bool {
        let roles = |topology: &Topology| -> Vec<_> {
            let nodes = topology.nodes.iter().filter(|node| !node.is_removed);
            let said = |node: &Node| (node.endpoint().clone(), node.role, node.shard);
            nodes.map(|node| (said(node), node.id.clone(), node.aliases.clone())).collect()
        };
        self.slots == other.slots && roles(self) == roles(other)
    }

    /// The node that an answer names, marked as named.
    fn named(&mut self, profile: &Options, node: &Named, marks: &mut Vec<bool>) -> NodeIndex {
        let index = match self.known(node) {
            Some(index) => index,
            None => self.add(profile, &node.endpoint),
        };
        let at = index.0 as usize;
        if at >= marks.len() {
            marks.resize(at + 1, false);
        }
        marks[at] = true;
        self.take_names(profile, at, node);
        index
    }

    fn known(&self, node: &Named) -> Option<NodeIndex> {
        let by_id = |other: &Node| other.id.is_some() && other.id == node.id;
        let is_same = |other: &Node| other.id.is_none() || node.id.is_none();
        let by_address = |other: &Node| is_same(other) && leads_to(other, &node.endpoint);
        let at = self.nodes.iter().position(by_id);
        at.or_else(|| self.nodes.iter().position(by_address)).map(|at| NodeIndex(at as u32))
    }

    /// Takes the id, the preferred address and the other names of a node.
    fn take_names(&mut self, profile: &Options, at: usize, node: &Named) {
        let Some(known) = self.nodes.get_mut(at) else { return };
        known.is_removed = false;
        if node.id.is_some() {
            known.id.clone_from(&node.id);
        }
        let mut aliases = Vec::new();
        if *known.endpoint() != node.endpoint {
            if is_seed(profile, known.endpoint()) {
                aliases.push(known.endpoint().clone());
            }
            let endpoint = node.endpoint.clone();
            known.profile = Arc::new(Options { endpoint, ..(*known.profile).clone() });
        }
        aliases.extend(known.aliases.drain(..).filter(|alias| is_seed(profile, alias)));
        if let Endpoint::Tcp { port, .. } = &node.endpoint {
            aliases.extend(node.aliases.iter().map(|host| Endpoint::tcp(host, *port)));
        }
        aliases.dedup();
        known.aliases = aliases;
        // The address leads to this node now, and to no other.
        let (endpoint, index) = (node.endpoint.clone(), at);
        for (other, node) in self.nodes.iter_mut().enumerate() {
            if other != index && node.id.is_some() && *node.endpoint() == endpoint {
                node.is_removed = true;
            }
        }
    }

    fn set_role(&mut self, node: NodeIndex, role: Role, shard: NodeIndex) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            (node.role, node.shard) = (role, shard);
        }
    }

    fn remove_unknown(&mut self, profile: &Options, table: &SlotTable, named: &[bool]) {
        let mut owns = vec![false; self.nodes.len()];
        for (_, owner) in table.ranges() {
            owns[owner.0 as usize] = true;
        }
        let is_named = |at: usize| named.get(at).copied().unwrap_or(false);
        let taken = self.nodes.iter().enumerate().filter(|(at, _)| is_named(*at));
        let taken: Vec<_> = taken.map(|(_, node)| node.endpoint().clone()).collect();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let shard = node.shard.0 as usize;
            // Its primary was not spoken of, so that nothing is known of it either.
            let is_kept = owns[at] || (shard != at && owns[shard] && !is_named(shard));
            // It can always be asked, unless its address is another node's by now.
            let is_seed = is_seed(profile, node.endpoint()) && !taken.contains(node.endpoint());
            node.is_removed = !(is_named(at) || is_kept || is_seed);
        }
    }

    fn find_or_add(&mut self, profile: &Options, at: &Endpoint) -> NodeIndex {
        let known = self.nodes.iter().position(|node| leads_to(node, at));
        let index = known.map(|at| NodeIndex(at as u32));
        let index = index.unwrap_or_else(|| self.add(profile, at));
        self.index_addresses();
        index
    }

    fn add(&mut self, profile: &Options, at: &Endpoint) -> NodeIndex {
        let index = NodeIndex(self.nodes.len() as u32);
        self.nodes.push(Node::new(profile, at, Role::Primary, index));
        index
    }

    fn index_addresses(&mut self) {
        self.by_address.clear();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.is_removed) {
            for address in std::iter::once(node.endpoint()).chain(&node.aliases) {
                self.by_address.entry(folded(address)).or_insert(NodeIndex(at as u32));
            }
        }
    }
}

/// Whether the user named this address.
fn is_seed(profile: &Options, at: &Endpoint) -> bool {
    let seeds = profile.cluster.iter().flat_map(|cluster| &cluster.seeds);
    std::iter::once(&profile.endpoint).chain(seeds).any(|seed| folded(seed) == folded(at))
}

fn leads_to(node: &Node, at: &Endpoint) -> bool {
    let at = folded(at);
    !node.is_removed
        && std::iter::once(node.endpoint()).chain(&node.aliases).any(|a| folded(a) == at)
}

/// Names of hosts are the same in any case.
fn folded(at: &Endpoint) -> Endpoint {
    match at {
        Endpoint::Tcp { host, port } => Endpoint::tcp(host.to_ascii_lowercase(), *port),
        other => other.clone(),
    }
}
