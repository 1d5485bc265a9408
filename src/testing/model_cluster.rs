//! A model of a cluster inside a [`Simulation`](super::Simulation).

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use hedgerow_runtime::time::Instant;

use super::cluster_commands::id_of;
use super::cluster_map::{ClusterMap, Layout, Place};
use super::model_server::ModelServer;
use crate::command::slot::slot_of;
use crate::config::Options;

/// A cluster of [`ModelServer`]s, made by [`Simulation::cluster`](super::Simulation::cluster): its nodes
/// know their slots, redirect what they do not have, and answer CLUSTER SLOTS, MYID, INFO and KEYSLOT,
/// ASKING, READONLY and READWRITE. Clones are the same cluster.
///
/// Nodes are named by their number from 0, which lasts whatever becomes of their role: the first primaries
/// come first, then the replicas of the first shard, of the second, and so on. A method that takes a node
/// panics if there is none of that number. All methods may be called at any instant, also by a rule of a
/// server; but [`ModelCluster::kill`] and [`ModelCluster::slots_asked`] not by a rule of the very server
/// that they are about.
///
/// ```
/// let simulation = hedgerow::testing::Simulation::new(1);
/// let cluster = simulation.cluster(3, 1);
/// let owner = cluster.owner_of("k");
/// assert_eq!((owner, cluster.replicas_of(owner)), (1, vec![4]));
/// cluster.fail_over(4);
/// assert_eq!((cluster.owner_of("k"), cluster.replicas_of(4)), (4, vec![1]));
/// let mut visitor = cluster.server(1).visit();
/// assert_eq!(visitor.ask(&["GET", "k"]), "-MOVED 7629 10.0.0.5:6379\r\n");
/// ```
#[derive(Clone)]
pub struct ModelCluster {
    map: Rc<RefCell<ClusterMap>>,
    servers: Rc<[ModelServer]>,
}

/// What CLUSTER SLOTS answered at some instant; made by [`ModelCluster::view`].
#[derive(Clone)]
pub struct ClusterView(Rc<Layout>);

impl ModelCluster {
    /// Makes shards of the servers, which are as many as all nodes.
    pub(super) fn new(
        primaries: usize,
        replicas_each: usize,
        servers: Vec<ModelServer>,
    ) -> ModelCluster {
        let at: Vec<_> = servers.iter().map(ModelServer::addr).collect();
        let map = Rc::new(RefCell::new(ClusterMap::new(primaries, replicas_each, &at)));
        for (node, server) in servers.iter().enumerate() {
            server.join(Place { node, map: map.clone() });
        }
        ModelCluster { map, servers: servers.into() }
    }

    /// All nodes.
    pub fn servers(&self) -> &[ModelServer] {
        &self.servers
    }

    /// A node by its number from 0.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn server(&self, node: usize) -> &ModelServer {
        &self.servers[node]
    }

    /// Default options for the first node.
    pub fn options(&self) -> Options {
        self.servers[0].options()
    }

    /// The nodes that are primaries now.
    pub fn primaries(&self) -> Vec<usize> {
        let map = self.map.borrow();
        let all = 0..self.servers.len();
        all.filter(|node| map.layout.listings[*node].follows.is_none()).collect()
    }

    /// The replicas of a primary now.
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        self.map.borrow().layout.replicas_of(primary)
    }

    /// The primary that has a slot now.
    pub fn owner(&self, slot: u16) -> usize {
        self.map.borrow().owner(slot)
    }

    /// The primary that has the slot of a key now.
    pub fn owner_of(&self, key: impl AsRef<[u8]>) -> usize {
        self.owner(slot_of(key.as_ref()))
    }

    /// The id of a node, as CLUSTER MYID tells.
    pub fn id(&self, node: usize) -> String {
        id_of(node)
    }

    /// Sets the value under `key` in database 0 of the shard that has its slot, without a client.
    pub fn set_value(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let values = self.map.borrow().nodes[self.owner_of(key)].values.clone();
        values.borrow_mut().insert((0, key.to_vec()), value.as_ref().to_vec());
    }

    /// The value under `key` in database 0 of the shard that has its slot.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let key = key.as_ref();
        let values = self.map.borrow().nodes[self.owner_of(key)].values.clone();
        let values = values.borrow();
        values.get(&(0, key.to_vec())).cloned()
    }

    /// Moves slots with their values to the shard of a node at once; ends migrations of them.
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: usize) {
        self.change(|map| map.give(slots, to));
    }

    /// Begins to move a slot to the shard of a node: the owner redirects with ASK what it does not have
    /// (any more), and the importing primary serves what comes behind ASKING.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        self.change(|map| {
            let to = map.layout.primary_of(to);
            if to != map.owner(slot) {
                map.migrations.insert(slot, to);
            }
        });
    }

    /// Moves the value of a key whose slot migrates.
    pub fn move_key(&self, key: impl AsRef<[u8]>) {
        let (map, key) = (self.map.borrow(), key.as_ref());
        let slot = slot_of(key);
        if let Some(to) = map.migrations.get(&slot) {
            map.move_values(map.owner(slot), *to, |other| other == key);
        }
    }

    /// Moves what is left of a slot that migrates, and the slot itself.
    pub fn end_migration(&self, slot: u16) {
        self.change(|map| {
            if let Some(to) = map.migrations.get(&slot).copied() {
                map.give(slot..=slot, to);
            }
        });
    }

    /// Makes a replica the primary of its shard, and its primary (and that one's other replicas) its
    /// replicas. Connections stay open. Nothing happens to a node that is a primary already.
    pub fn fail_over(&self, replica: usize) {
        self.change(|map| map.fail_over(replica));
    }

    /// Whether a primary answers READONLY to writes that it would run, as one that was demoted and has
    /// not heard of its successor, default `false`. What it says of itself does not change.
    pub fn set_read_only(&self, node: usize, read_only: bool) {
        self.map.borrow_mut().nodes[node].read_only = read_only;
    }

    /// Whether all nodes answer CLUSTERDOWN to commands with keys, default `false`.
    pub fn set_down(&self, down: bool) {
        self.map.borrow_mut().down = down;
    }

    /// How many databases SELECT knows, default 1.
    pub fn set_databases(&self, databases: u32) {
        self.map.borrow_mut().databases = databases;
    }

    /// Resets a node's connections and refuses new ones. The others go on as if they had not noticed:
    /// see [`ModelCluster::fail_over`] and [`ModelCluster::set_hidden`].
    pub fn kill(&self, node: usize) {
        self.servers[node].stop();
    }

    /// Lets a killed node listen again, with the values and the role that it has by now.
    pub fn revive(&self, node: usize) {
        self.servers[node].resume();
    }

    /// What CLUSTER SLOTS answers now.
    pub fn view(&self) -> ClusterView {
        ClusterView(Rc::new(self.map.borrow().layout.clone()))
    }

    /// Lets CLUSTER SLOTS of one node answer an older view, or with `None` the truth again. What it
    /// serves and how it redirects stays true.
    pub fn set_view(&self, node: usize, view: Option<ClusterView>) {
        self.map.borrow_mut().nodes[node].view = view.map(|view| view.0);
    }

    /// The host and port by which a node is announced in CLUSTER SLOTS and redirects: a name, an empty
    /// text, `?`, or `None` for a null (empty in redirects).
    pub fn set_host(&self, node: usize, host: Option<&str>, port: u16) {
        let mut map = self.map.borrow_mut();
        let listing = &mut map.layout.listings[node];
        (listing.host, listing.port) = (host.map(str::to_owned), port);
    }

    /// Whether CLUSTER SLOTS leaves a node out, default `false`; of a primary, its slots too.
    pub fn set_hidden(&self, node: usize, hidden: bool) {
        self.map.borrow_mut().layout.listings[node].hidden = hidden;
    }

    /// When a node has read CLUSTER SLOTS so far.
    pub fn slots_asked(&self, node: usize) -> Vec<Instant> {
        let seen = self.servers[node].seen().into_iter();
        let seen = seen.filter(|seen| seen.name == "CLUSTER");
        seen.filter(|seen| seen.key.eq_ignore_ascii_case(b"SLOTS")).map(|seen| seen.at).collect()
    }

    fn change(&self, change: impl FnOnce(&mut ClusterMap)) {
        let mut map = self.map.borrow_mut();
        map.epoch += 1;
        change(&mut map);
    }
}

impl fmt::Debug for ModelCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCluster").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterView").field(&self.0.ranges()).finish()
    }
}
