//! A real cluster for one test. It is formed, resharded and failed over with the servers' own commands,
//! and what it says of itself is what its nodes say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hedgerow::command::slot::{self, SLOT_COUNT};

use crate::fleet::{self, is_linked, offset, quick};
use crate::placement::{LIMIT, Placement};
use crate::server::{Builder, Flavor, Server};

/// How long a node may be silent before the others call it dead: short, as tests wait for that, and
/// longer than a busy machine keeps a node from answering.
const NODE_TIMEOUT_MS: u32 = 1_500;

/// How often nodes are asked for what is to come. They think about their cluster every 100 ms.
const STEP: Duration = Duration::from_millis(10);

/// Slots that follow each other.
pub(crate) type Slots = RangeInclusive<u16>;

/// A cluster. Its nodes have numbers: the primaries that it began with are the first.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    /// The nodes that answer nothing now, and the slots that each had when it went.
    away: Mutex<BTreeMap<usize, Vec<Slots>>>,
}

/// A server that can be a node, for [`Cluster::formed`].
pub(crate) fn node(flavor: Flavor) -> Builder {
    // Without the frequent pings a replica's offset stays zero until something is written, and Redis does
    // not list a replica at offset zero.
    quick(flavor)
        .line("cluster-enabled yes")
        .line("cluster-config-file nodes.conf")
        .line(&format!("cluster-node-timeout {NODE_TIMEOUT_MS}"))
        .line("cluster-require-full-coverage no")
        .line("repl-ping-replica-period 1")
}

/// Its making.
impl Cluster {
    /// A cluster with the slots divided evenly, in which every node knows all others and every replica
    /// has what its primary has.
    pub(crate) async fn start<P: Placement>(
        place: &P,
        flavor: Flavor,
        primaries: usize,
        replicas_each: usize,
    ) -> Cluster {
        Cluster::of(place, flavor, primaries, replicas_each, &[]).await
    }

    /// As [`Cluster::start`], with further lines in the configuration of every node; the last line
    /// about a thing holds.
    pub(crate) async fn of<P: Placement>(
        place: &P,
        flavor: Flavor,
        primaries: usize,
        replicas_each: usize,
        lines: &[&str],
    ) -> Cluster {
        let server = |_| lines.iter().fold(node(flavor), |node, line| node.line(line)).start();
        let servers = (0..primaries * (1 + replicas_each)).map(server).collect();
        Cluster::formed(place, servers, primaries).await
    }

    /// A cluster of these servers, the primaries first; its replicas go round the primaries.
    pub(crate) async fn formed<P: Placement>(
        place: &P,
        nodes: Vec<Server>,
        primaries: usize,
    ) -> Cluster {
        let id = |node: &Server| texts(&node.tell(&["CLUSTER", "MYID"])).remove(0);
        let ids = nodes.iter().map(id).collect();
        let cluster = Cluster { nodes, ids, away: Mutex::default() };
        cluster.divide_slots(primaries);
        cluster.introduce_all();
        for replica in primaries..cluster.nodes.len() {
            cluster.follow(place, replica, replica % primaries).await;
        }
        cluster.settled(place).await;
        cluster
    }

    fn divide_slots(&self, primaries: usize) {
        let first = |n: usize| usize::from(SLOT_COUNT) * n / primaries;
        for n in 0..self.nodes.len() {
            // Only before it meets others does a node take an epoch; with different ones nothing is
            // left to be settled between them later.
            self.order(n, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            if n < primaries {
                let [from, to] = [first(n), first(n + 1) - 1].map(|slot| slot.to_string());
                self.order(n, &["CLUSTER", "ADDSLOTSRANGE", &from, &to]);
            }
        }
    }

    /// Each meets each: that is faster than to wait for the word to spread.
    fn introduce_all(&self) {
        for n in 1..self.nodes.len() {
            for other in &self.nodes[..n] {
                let at = other.address();
                let (host, port) = (at.ip().to_string(), at.port().to_string());
                self.order(n, &["CLUSTER", "MEET", &host, &port]);
            }
        }
    }

    /// Makes a node without slots a replica of another, as soon as it knows that one.
    pub(crate) async fn follow<P: Placement>(&self, place: &P, replica: usize, primary: usize) {
        let order = ["CLUSTER", "REPLICATE", &self.ids[primary]];
        let follows = || (self.node(replica).tell(&order) == "+OK\r\n").then_some(());
        comes(place, "a replica that knows its primary", follows).await;
    }

    /// Waits until all nodes that answer see the same: state ok, all nodes, who has which slots, and
    /// which replicas serve; and until the replicas' links are up.
    pub(crate) async fn settled<P: Placement>(&self, place: &P) {
        comes(place, "one view of the cluster", || self.is_settled().then_some(())).await;
    }

    fn is_settled(&self) -> bool {
        let awake = self.awake();
        let owners = |n: usize| -> BTreeMap<String, Vec<Slots>> {
            let seen = self.seen_by(n).into_iter().filter(|seen| !seen.slots.is_empty());
            seen.map(|seen| (seen.id, seen.slots)).collect()
        };
        let first = owners(awake[0]);
        awake.into_iter().all(|n| self.is_well(n) && owners(n) == first)
    }

    /// Whether a node finds its cluster in order, and lists all that serve in it.
    fn is_well(&self, n: usize) -> bool {
        let state = self.node(n).tell(&["CLUSTER", "INFO"]);
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        let seen = self.seen_by(n);
        let owners: BTreeSet<_> =
            seen.iter().filter(|seen| !seen.slots.is_empty()).map(|seen| &seen.id).collect();
        let serves = |seen: &&Seen| owners.contains(seen.primary.as_ref().unwrap_or(&seen.id));
        let is_awake = |seen: &&Seen| self.awake().into_iter().any(|n| self.ids[n] == seen.id);
        let listed = self.node(n).tell(&["CLUSTER", "SLOTS"]);
        state.contains("cluster_state:ok\r\n")
            && state.contains(&known)
            && seen.iter().filter(serves).filter(is_awake).all(|seen| listed.contains(&seen.id))
            && (self.is_primary(n) || is_linked(self.node(n)))
    }
}

/// Its nodes.
impl Cluster {
    /// All nodes.
    pub(crate) fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A node.
    pub(crate) fn node(&self, n: usize) -> &Server {
        &self.nodes[n]
    }

    /// What a node is called by the others.
    pub(crate) fn id(&self, n: usize) -> &str {
        &self.ids[n]
    }

    /// What one node says of all that it knows.
    pub(crate) fn seen_by(&self, n: usize) -> Vec<Seen> {
        self.node(n).tell(&["CLUSTER", "NODES"]).lines().filter_map(seen_in).collect()
    }

    fn own(&self, n: usize) -> Seen {
        let own = self.seen_by(n).into_iter().find(|seen| seen.has("myself"));
        own.expect("a node knows itself")
    }

    /// Whether a node calls itself a primary.
    pub(crate) fn is_primary(&self, n: usize) -> bool {
        self.own(n).has("master")
    }

    /// The slots that a node says are its own.
    pub(crate) fn slots_of(&self, n: usize) -> Vec<Slots> {
        self.own(n).slots
    }

    /// The node that has a slot.
    pub(crate) fn owner_of(&self, slot: u16) -> usize {
        self.claimant(slot).unwrap_or_else(|| panic!("nobody has slot {slot}"))
    }

    /// The node that says it has a slot. A primary that does not know yet that it was replaced says so
    /// too, with an older epoch.
    fn claimant(&self, slot: u16) -> Option<usize> {
        let owns = |(_, own): &(usize, Seen)| own.has("master") && has(&own.slots, slot);
        let claims = self.awake().into_iter().map(|n| (n, self.own(n))).filter(owns);
        claims.max_by_key(|(_, own)| own.epoch).map(|(n, _)| n)
    }

    /// A key that begins with `tag` and whose slot is node `n`'s. In braces, as the tag of other keys, it
    /// gives them its slot.
    pub(crate) fn key_in(&self, n: usize, tag: &str) -> String {
        let slots = self.slots_of(n);
        assert!(!slots.is_empty(), "node {n} has no slots");
        key_where(tag, |slot| has(&slots, slot))
    }

    /// How many of a command, in small letters, a node has run.
    pub(crate) fn commands(&self, n: usize, name: &str) -> u64 {
        fleet::commands(self.node(n), name)
    }

    /// How many errors with this code all nodes have given.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let start = format!("errorstat_{code}:count=");
        let of = |n: usize| {
            let said = self.node(n).tell(&["INFO", "errorstats"]);
            let count = said.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
            count.unwrap_or(0_u64)
        };
        self.awake().into_iter().map(of).sum()
    }

    /// The connections of a client by its name that a node has.
    pub(crate) fn connections(&self, n: usize, name: &str) -> Vec<String> {
        fleet::connections(self.node(n), name)
    }

    /// How many keys all primaries hold, in database 0.
    pub(crate) fn keys(&self) -> u64 {
        let primaries = self.awake().into_iter().filter(|n| self.is_primary(*n));
        primaries.map(|n| number(&self.node(n).tell(&["DBSIZE"]))).sum()
    }

    /// Waits until all replicas have what their primaries were given so far.
    pub(crate) async fn in_step<P: Placement>(&self, place: &P) {
        let own: Vec<_> = self.awake().into_iter().map(|n| (n, self.own(n))).collect();
        for (n, primary) in own.iter().filter(|(_, own)| own.has("master")) {
            let goal = offset(self.node(*n));
            let follows = |own: &Seen| own.primary.as_ref() == Some(&primary.id);
            for (replica, _) in own.iter().filter(|(_, own)| follows(own)) {
                let is_there = || (offset(self.node(*replica)) >= goal).then_some(());
                comes(place, "a replica's offset", is_there).await;
            }
        }
    }

    /// Sends a node an order that has no answer but OK.
    fn order(&self, n: usize, order: &[&str]) {
        assert_eq!(self.node(n).tell(order), "+OK\r\n", "{order:?}, node {n}");
    }
}

/// Its slots on the move.
impl Cluster {
    /// Moves slots with their keys of database 0 one by one, as a tool that reshards does, and waits
    /// until all nodes know it. The calling thread's other tasks go on between two slots.
    pub(crate) async fn move_slots<P: Placement>(
        &self,
        place: &P,
        slots: Slots,
        from: usize,
        to: usize,
    ) {
        // Asked once: what is asked for every slot takes longer than its move.
        let primaries = self.primaries_but(&[from, to]);
        for slot in slots {
            assert!(has(&self.slots_of(from), slot), "slot {slot} is not node {from}'s");
            self.begin_move_from(slot, from, to);
            self.finish_move_from(slot, from, to, &primaries);
            place.pause(Duration::from_millis(1)).await;
        }
        self.settled(place).await;
    }

    fn primaries_but(&self, these: &[usize]) -> Vec<usize> {
        let others = self.awake().into_iter().filter(|n| !these.contains(n));
        others.filter(|n| self.is_primary(*n)).collect()
    }

    /// From now on the slot's owner sends those that ask for a key it does not hold to node `to`.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) {
        self.begin_move_from(slot, self.owner_of(slot), to);
    }

    fn begin_move_from(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.order(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.order(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves at most `count` keys of a slot on the move; answers how many it were.
    pub(crate) fn move_some_keys(&self, slot: u16, to: usize, count: usize) -> usize {
        self.move_some_keys_from(slot, self.owner_of(slot), to, count)
    }

    fn move_some_keys_from(&self, slot: u16, from: usize, to: usize, count: usize) -> usize {
        let from = self.node(from);
        let [slot, count] = [usize::from(slot), count].map(|number| number.to_string());
        let keys = texts(&from.tell(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]));
        if !keys.is_empty() {
            let at = self.node(to).address();
            let (host, port) = (at.ip().to_string(), at.port().to_string());
            let mut order = vec!["MIGRATE", &host, &port, "", "0", "5000", "KEYS"];
            order.extend(keys.iter().map(String::as_str));
            // A key that expired meanwhile is no error.
            let reply = from.tell(&order);
            assert!(["+OK\r\n", "+NOKEY\r\n"].contains(&reply.as_str()), "{reply:?}");
        }
        keys.len()
    }

    /// Makes node `to` the owner of a slot on the move, whose keys must all have moved.
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        self.end_move_from(slot, from, to, &self.primaries_but(&[from, to]));
    }

    /// Moves the keys that are left, too, and makes node `to` the owner.
    pub(crate) fn finish_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        self.finish_move_from(slot, from, to, &self.primaries_but(&[from, to]));
    }

    fn finish_move_from(&self, slot: u16, from: usize, to: usize, others: &[usize]) {
        while self.move_some_keys_from(slot, from, to, 100) > 0 {}
        self.end_move_from(slot, from, to, others);
    }

    fn end_move_from(&self, slot: u16, from: usize, to: usize, others: &[usize]) {
        let slot = slot.to_string();
        // The new owner first: else a lost order leaves the slot without one.
        for n in [to, from].iter().chain(others).copied() {
            self.order(n, &["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]);
        }
    }

    /// Moves slots of one owner as a whole, with the keys of all databases, in the way that Valkey has
    /// since 9.0: without ASK. Waits until all nodes know it.
    pub(crate) async fn migrate_slots<P: Placement>(&self, place: &P, slots: Slots, to: usize) {
        let (first, last) = slots.into_inner();
        let [from, until] = [first, last].map(|slot| slot.to_string());
        let range = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &from, &until, "NODE", &self.ids[to]];
        self.order(self.owner_of(first), &range);
        let moved = || (self.claimant(last) == Some(to)).then_some(());
        comes(place, "the slots' new owner", moved).await;
        self.settled(place).await;
    }
}

/// Its accidents.
impl Cluster {
    /// The nodes that were neither killed nor paused, or are back.
    pub(crate) fn awake(&self) -> Vec<usize> {
        let away = self.away();
        (0..self.nodes.len()).filter(|n| !away.contains_key(n)).collect()
    }

    fn away(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Slots>>> {
        self.away.lock().expect("no test goes on after another's failure")
    }

    fn goes(&self, n: usize) {
        if !self.away().contains_key(&n) {
            let slots = self.slots_of(n);
            self.away().insert(n, slots);
        }
    }

    /// As [`Server::pause`].
    pub(crate) fn pause(&self, n: usize) {
        self.goes(n);
        self.node(n).pause();
    }

    /// As [`Server::resume`].
    pub(crate) fn resume(&self, n: usize) {
        self.node(n).resume();
        self.away().remove(&n);
    }

    /// As [`Server::kill`].
    pub(crate) fn kill(&mut self, n: usize) {
        self.goes(n);
        self.nodes[n].kill();
    }

    /// As [`Server::restart`]: the same node, with what it last knew of the cluster, and no keys.
    pub(crate) fn restart(&mut self, n: usize) {
        self.nodes[n].restart();
        self.away().remove(&n);
    }

    /// Makes a replica change roles with its primary, which answers; waits until it is a primary.
    pub(crate) async fn fail_over<P: Placement>(&self, place: &P, replica: usize) {
        self.order(replica, &["CLUSTER", "FAILOVER"]);
        let is_so = || self.is_primary(replica).then_some(());
        comes(place, "the replica's new role", is_so).await;
    }

    /// Waits until a node has taken over the slots of one that was killed or paused, and is itself sure
    /// that the cluster is well; answers which.
    pub(crate) async fn await_takeover<P: Placement>(&self, place: &P, of: usize) -> usize {
        let slots = self.away()[&of].clone();
        let slot = *slots.first().expect("it had slots").start();
        let taken = || {
            let heir = self.claimant(slot)?;
            let state = self.node(heir).tell(&["CLUSTER", "INFO"]);
            state.contains("cluster_state:ok\r\n").then_some(heir)
        };
        comes(place, "the takeover", taken).await
    }
}

/// Its names.
impl Cluster {
    /// Gives a node a name, and waits until all know it.
    pub(crate) async fn announce<P: Placement>(&self, place: &P, n: usize, hostname: &str) {
        self.order(n, &["CONFIG", "SET", "cluster-announce-hostname", hostname]);
        let is_known_to = |other: usize| {
            let seen = self.seen_by(other).into_iter().find(|seen| seen.id == self.ids[n]);
            seen.is_some_and(|seen| seen.hostname == hostname)
        };
        let is_known = || self.awake().into_iter().all(is_known_to).then_some(());
        comes(place, "the node's name", is_known).await;
    }

    /// What a node calls all nodes by from now on: `ip`, `hostname` or `unknown-endpoint`. This is not
    /// passed on to the others.
    pub(crate) fn prefer(&self, n: usize, kind: &str) {
        self.order(n, &["CONFIG", "SET", "cluster-preferred-endpoint-type", kind]);
    }
}

/// What a node says of one that it knows: a line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) hostname: String,
    flags: Vec<String>,
    pub(crate) primary: Option<String>,
    pub(crate) epoch: u64,
    /// Without those on the move to it.
    pub(crate) slots: Vec<Slots>,
}

impl Seen {
    /// Whether it has a flag, in the servers' words: `myself`, `master`, `slave`, `fail?`, `fail`.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

fn seen_in(line: &str) -> Option<Seen> {
    let words: Vec<&str> = line.split(' ').collect();
    let [id, address, flags, primary, _, _, epoch, _, slots @ ..] = &words[..] else {
        return None;
    };
    Some(Seen {
        id: (*id).to_owned(),
        hostname: address.split(',').nth(1).unwrap_or_default().to_owned(),
        flags: flags.split(',').map(str::to_owned).collect(),
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        epoch: epoch.parse().expect("an epoch"),
        slots: slots.iter().filter_map(|slots| slots_in(slots)).collect(),
    })
}

/// `5`, `5-9`, or in brackets what is on the move.
fn slots_in(text: &str) -> Option<Slots> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let slot = |text: &str| text.parse().expect("a slot");
    (!text.starts_with('[')).then(|| slot(first)..=slot(last))
}

fn has(slots: &[Slots], slot: u16) -> bool {
    slots.iter().any(|slots| slots.contains(&slot))
}

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    slot::slot_of(key.as_bytes())
}

/// A key that begins with `tag` and is in `slot`.
pub(crate) fn key_of(slot: u16, tag: &str) -> String {
    key_where(tag, |other| other == slot)
}

fn key_where(tag: &str, is_right: impl Fn(u16) -> bool) -> String {
    let keys = (0..).map(|number: u32| format!("{tag}-{number}"));
    keys.into_iter().find(|key| is_right(slot_of(key))).expect("there is one for every slot")
}

/// The texts in a reply that is one or a list of them.
fn texts(reply: &str) -> Vec<String> {
    let mut lines = reply.lines().skip(usize::from(reply.starts_with('*')));
    let next = || lines.next().and_then(|_| lines.next()).map(str::to_owned);
    std::iter::from_fn(next).collect()
}

fn number(reply: &str) -> u64 {
    reply.trim_start_matches(':').trim_end().parse().expect("a number")
}

/// As [`until`](crate::placement::until) of a thing that comes with the nodes' next thought, and not each
/// millisecond, as every look asks every node.
async fn comes<P: Placement, T>(place: &P, what: &str, find: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT / 2, "{what} does not come");
        place.pause(STEP).await;
    }
}
