//! Who has which slots in a model of a cluster, and what a node says to keys that it does not have.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::model_server::Values;
use crate::command::slot::{SLOT_COUNT, slot_of};

/// A run of slots with one owner: first, last, owner.
pub(super) type SlotRange = (u16, u16, usize);

/// What CLUSTER SLOTS tells: owners, roles and addresses.
#[derive(Clone)]
pub(super) struct Layout {
    /// The primary of each slot.
    pub(super) owners: Vec<usize>,
    pub(super) listings: Vec<Listing>,
}

/// What CLUSTER SLOTS tells of one node.
#[derive(Clone)]
pub(super) struct Listing {
    /// The primary of a replica.
    pub(super) follows: Option<usize>,
    /// `None` for a null.
    pub(super) host: Option<String>,
    pub(super) port: u16,
    /// Left out.
    pub(super) hidden: bool,
}

/// One node of a cluster.
pub(super) struct Node {
    pub(super) at: SocketAddr,
    /// Those of its shard.
    pub(super) values: Rc<RefCell<Values>>,
    /// A primary that refuses writes.
    pub(super) read_only: bool,
    /// What its CLUSTER SLOTS answers instead of the truth.
    pub(super) view: Option<Rc<Layout>>,
}

/// A whole cluster.
pub(super) struct ClusterMap {
    pub(super) layout: Layout,
    pub(super) nodes: Vec<Node>,
    /// Where the slots go that are on the move.
    pub(super) migrations: BTreeMap<u16, usize>,
    pub(super) down: bool,
    pub(super) databases: u32,
    /// Rises with every change.
    pub(super) epoch: u64,
}

/// A node's place in its cluster.
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) map: Rc<RefCell<ClusterMap>>,
}

/// What a command needs of the node that is to run it.
pub(super) struct Demand<'a> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) writes: bool,
    pub(super) database: u32,
    /// Its connection said READONLY.
    pub(super) reads_replicas: bool,
    /// ASKING came just before it.
    pub(super) asking: bool,
}

impl Layout {
    /// The node itself if it is a primary, else its primary.
    pub(super) fn primary_of(&self, node: usize) -> usize {
        self.listings[node].follows.unwrap_or(node)
    }

    pub(super) fn replicas_of(&self, node: usize) -> Vec<usize> {
        let all = 0..self.listings.len();
        all.filter(|other| self.listings[*other].follows == Some(node)).collect()
    }

    /// All slots, in order, without those of hidden primaries.
    pub(super) fn ranges(&self) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for (slot, owner) in (0..SLOT_COUNT).zip(&self.owners) {
            match ranges.last_mut() {
                Some((_, last, of)) if of == owner => *last = slot,
                _ => ranges.push((slot, slot, *owner)),
            }
        }
        ranges.retain(|(_, _, owner)| !self.listings[*owner].hidden);
        ranges
    }
}

impl ClusterMap {
    /// Shards with equal shares of the slots: the primaries are the first nodes, then come the replicas
    /// of the first one, of the second one, and so on.
    pub(super) fn new(primaries: usize, replicas_each: usize, at: &[SocketAddr]) -> ClusterMap {
        let follows = |node: usize| {
            let replica = node.checked_sub(primaries)?;
            Some(replica / replicas_each)
        };
        let listings = at.iter().enumerate().map(|(node, at)| Listing {
            follows: follows(node),
            host: Some(at.ip().to_string()),
            port: at.port(),
            hidden: false,
        });
        let values: Vec<Rc<RefCell<Values>>> = (0..primaries).map(|_| Rc::default()).collect();
        let nodes = at.iter().enumerate().map(|(node, at)| Node {
            at: *at,
            values: values[follows(node).unwrap_or(node)].clone(),
            read_only: false,
            view: None,
        });
        let slots = usize::from(SLOT_COUNT);
        ClusterMap {
            layout: Layout {
                owners: (0..slots).map(|slot| slot * primaries / slots).collect(),
                listings: listings.collect(),
            },
            nodes: nodes.collect(),
            migrations: BTreeMap::new(),
            down: false,
            databases: 1,
            epoch: 1,
        }
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        self.layout.owners[usize::from(slot % SLOT_COUNT)]
    }

    /// Gives slots to the shard of a node, with all values in them.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, to: usize) {
        let to = self.layout.primary_of(to);
        for from in 0..self.nodes.len() {
            self.move_values(from, to, |key| slots.contains(&slot_of(key)));
        }
        for (slot, owner) in (0..SLOT_COUNT).zip(&mut self.layout.owners) {
            if slots.contains(&slot) {
                *owner = to;
            }
        }
        self.migrations.retain(|slot, _| !slots.contains(slot));
    }

    /// Moves the values of keys from one shard to another.
    pub(super) fn move_values(&self, from: usize, to: usize, goes: impl Fn(&[u8]) -> bool) {
        let (from, to) = (&self.nodes[from].values, &self.nodes[to].values);
        if Rc::ptr_eq(from, to) {
            return;
        }
        let all = from.take();
        let (gone, kept): (Values, Values) = all.into_iter().partition(|((_, key), _)| goes(key));
        from.replace(kept);
        to.borrow_mut().extend(gone);
    }

    /// Makes a replica the primary of its shard, and the primary its replica.
    pub(super) fn fail_over(&mut self, replica: usize) {
        let Some(old) = self.layout.listings[replica].follows else { return };
        for listing in &mut self.layout.listings {
            if listing.follows == Some(old) {
                listing.follows = Some(replica);
            }
        }
        self.layout.listings[replica].follows = None;
        self.layout.listings[old].follows = Some(replica);
        self.nodes[replica].read_only = false;
        let nodes = self.layout.owners.iter_mut().chain(self.migrations.values_mut());
        nodes.filter(|node| **node == old).for_each(|node| *node = replica);
    }

    /// What a node answers instead of running a command, if it is not to run there. The order of the
    /// checks is that of the servers.
    pub(super) fn refusal(&self, node: usize, demand: &Demand<'_>) -> Option<String> {
        let slot = slot_of(demand.keys.first()?);
        if demand.keys.iter().any(|key| slot_of(key) != slot) {
            return Some("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        if self.down {
            return Some("CLUSTERDOWN The cluster is down".to_owned());
        }
        let (owner, shard) = (self.owner(slot), self.layout.primary_of(node));
        let serves_slots = shard == node || demand.reads_replicas;
        if let Some(to) = self.migrations.get(&slot).filter(|_| serves_slots) {
            let here = self.present(node, demand);
            let partly = demand.keys.len() > 1 && here < demand.keys.len();
            let try_again = "TRYAGAIN Multiple keys request during rehashing of slot".to_owned();
            if owner == shard && here < demand.keys.len() {
                return Some(if here > 0 { try_again } else { self.redirect("ASK", slot, *to) });
            }
            if *to == node && demand.asking {
                return partly.then_some(try_again);
            }
        }
        let reads_here = demand.reads_replicas && !demand.writes && owner == shard;
        (owner != node && !reads_here).then(|| self.redirect("MOVED", slot, owner))
    }

    /// How many of the keys a node has.
    fn present(&self, node: usize, demand: &Demand<'_>) -> usize {
        let values = self.nodes[node].values.borrow();
        let is_here = |key: &&&[u8]| values.contains_key(&(demand.database, key.to_vec()));
        demand.keys.iter().filter(is_here).count()
    }

    fn redirect(&self, word: &str, slot: u16, to: usize) -> String {
        let Listing { host, port, .. } = &self.layout.listings[to];
        format!("{word} {slot} {}:{port}", host.as_deref().unwrap_or_default())
    }
}

impl Place {
    pub(super) fn values(&self) -> Rc<RefCell<Values>> {
        self.map.borrow().nodes[self.node].values.clone()
    }

    pub(super) fn refusal(&self, demand: &Demand<'_>) -> Option<String> {
        self.map.borrow().refusal(self.node, demand)
    }

    /// Whether writes that it would run are refused.
    pub(super) fn refuses_writes(&self) -> bool {
        let map = self.map.borrow();
        map.nodes[self.node].read_only || map.layout.listings[self.node].follows.is_some()
    }

    pub(super) fn databases(&self) -> u32 {
        self.map.borrow().databases
    }

    /// Where its primary is, if it is a replica.
    pub(super) fn follows(&self) -> Option<SocketAddr> {
        let map = self.map.borrow();
        map.layout.listings[self.node].follows.map(|primary| map.nodes[primary].at)
    }

    /// Where its replicas are.
    pub(super) fn replicas(&self) -> Vec<SocketAddr> {
        let map = self.map.borrow();
        let replicas = map.layout.replicas_of(self.node);
        replicas.into_iter().map(|replica| map.nodes[replica].at).collect()
    }
}
