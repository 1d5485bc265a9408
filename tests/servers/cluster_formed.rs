//! The clusters themselves: they form, reshard and fail over as the tests that use them rely on.

use std::io::Write;
use std::net::TcpStream;

use futures::future::join_all;

use crate::cluster_fleet::{Cluster, key_of, slot_of};
use crate::placement::{Hosted, on_tokio};
use crate::server::{Flavor, read_until};

/// The makes that clusters are tested on.
const FLAVORS: [Flavor; 3] = [Flavor::Valkey91, Flavor::Redis70, Flavor::Redis82];

/// Runs a check on all makes at once, as it mostly waits for the nodes' own delays.
fn on_each_flavor(check: impl AsyncFn(&Hosted, Flavor)) {
    on_tokio(async |place| {
        join_all(FLAVORS.map(|flavor| check(&place, flavor))).await;
    });
}

/// The error by which node `n` is named as where to go with a slot.
fn redirect(cluster: &Cluster, word: &str, slot: u16, n: usize) -> String {
    format!("-{word} {slot} {}\r\n", cluster.node(n).address())
}

/// A node knows its cluster and answers for its own slots. Fails if a part of it does not serve, serves
/// another's slot, or is not where the harness says.
#[test]
fn a_cluster_forms() {
    on_each_flavor(async |place, flavor| {
        let cluster = Cluster::start(place, flavor, 3, 1).await;
        assert_eq!(cluster.nodes().len(), 6, "{flavor:?}");
        let slots: Vec<_> = (0..3).flat_map(|n| cluster.slots_of(n)).collect();
        assert_eq!(slots, [0..=5460, 5461..=10921, 10922..=16383], "{flavor:?}");
        for n in 0..3 {
            let key = cluster.key_in(n, "k");
            let slot = slot_of(&key);
            let own = cluster.node(n).tell(&["CLUSTER", "KEYSLOT", &key]);
            assert_eq!((own, cluster.owner_of(slot)), (format!(":{slot}\r\n"), n), "{flavor:?}");
            assert_eq!(cluster.node(n).tell(&["SET", &key, "v"]), "+OK\r\n", "{flavor:?}");
            let moved = redirect(&cluster, "MOVED", slot, n);
            assert_eq!(cluster.node((n + 1) % 3).tell(&["GET", &key]), moved, "{flavor:?}");
            cluster.in_step(place).await;
            let replica = n + 3;
            let shown = cluster.seen_by(0).into_iter().find(|seen| seen.id == cluster.id(replica));
            let primary = shown.and_then(|seen| seen.primary);
            assert_eq!(primary.as_deref(), Some(cluster.id(n)), "{flavor:?}");
            let replica = cluster.node(replica);
            assert_eq!(replica.tell(&["GET", &key]), moved, "{flavor:?}");
            let read = replica.tell_in_turn(&[&["READONLY"], &["GET", &key]]);
            assert_eq!(read, "+OK\r\n$1\r\nv\r\n", "{flavor:?}");
            assert_eq!(cluster.commands(n, "set"), 1, "{flavor:?}");
        }
        assert_eq!(cluster.keys(), 3, "{flavor:?}");
        assert_eq!(cluster.connections(1, "probe").len(), 0, "{flavor:?}");
        let mut probe = TcpStream::connect(cluster.node(1).address()).expect("TCP");
        probe.write_all(b"CLIENT SETNAME probe\r\n").expect("the request is sent");
        read_until(&mut probe, b"+OK\r\n").expect("a name");
        assert_eq!(cluster.connections(1, "probe").len(), 1, "{flavor:?}");
    });
}

/// In the middle of a move both owners say so, and after it the keys are where the slot is. Fails if a key
/// is lost, stays behind, or a node goes on naming the old owner.
#[test]
fn slots_move_with_their_keys() {
    on_each_flavor(async |place, flavor| {
        let lines = ["cluster-require-full-coverage yes"];
        let cluster = Cluster::of(place, flavor, 3, 0, &lines).await;
        let full = cluster.node(2).tell(&["CONFIG", "GET", "cluster-require-full-coverage"]);
        assert!(full.ends_with("\r\nyes\r\n"), "{flavor:?}: {full:?}");
        halfway(&cluster, flavor);
        let keys: Vec<_> = (100..104).map(|slot| key_of(slot, "moving")).collect();
        for key in &keys {
            assert_eq!(cluster.node(0).tell(&["SET", key, key]), "+OK\r\n", "{flavor:?}");
        }
        cluster.move_slots(place, 100..=102, 0, 2).await;
        if flavor == Flavor::Valkey91 {
            cluster.migrate_slots(place, 103..=110, 2).await;
        } else {
            cluster.move_slots(place, 103..=103, 0, 2).await;
        }
        for (slot, key) in (100..).zip(&keys) {
            assert_eq!(cluster.owner_of(slot), 2, "{flavor:?}");
            let value = format!("${}\r\n{key}\r\n", key.len());
            assert_eq!(cluster.node(2).tell(&["GET", key]), value, "{flavor:?}");
            for n in [0, 1] {
                let moved = redirect(&cluster, "MOVED", slot, 2);
                assert_eq!(cluster.node(n).tell(&["GET", key]), moved, "{flavor:?}");
            }
        }
        assert_eq!(cluster.keys(), 6, "{flavor:?}");
    });
}

/// A slot with two keys goes from node 0 to node 1, one key at a time.
fn halfway(cluster: &Cluster, flavor: Flavor) {
    let (from, to) = (cluster.node(0), cluster.node(1));
    let tag = cluster.key_in(0, "tag");
    let slot = slot_of(&tag);
    let keys = ["a", "b"].map(|end| format!("{{{tag}}}{end}"));
    let [a, b] = keys.each_ref().map(String::as_str);
    assert_eq!(from.tell(&["MSET", a, "A", b, "B"]), "+OK\r\n", "{flavor:?}");
    let asks = redirect(cluster, "ASK", slot, 1);
    cluster.begin_move(slot, 1);
    assert_eq!(from.tell(&["GET", &format!("{{{tag}}}new")]), asks, "{flavor:?}");
    assert_eq!(cluster.move_some_keys(slot, 1, 1), 1, "{flavor:?}");
    let here = |key: &&str| from.tell(&["GET", key]) != asks;
    let (stays, goes): (Vec<_>, Vec<_>) = [a, b].into_iter().partition(here);
    assert_eq!((stays.len(), goes.len(), cluster.owner_of(slot)), (1, 1, 0), "{flavor:?}");
    let both = ["MGET", a, b];
    assert!(from.tell(&both).starts_with("-TRYAGAIN "), "{flavor:?}");
    let asked = to.tell_in_turn(&[&["ASKING"], &both]);
    assert!(asked.starts_with("+OK\r\n-TRYAGAIN "), "{flavor:?}: {asked:?}");
    let moved = redirect(cluster, "MOVED", slot, 0);
    assert_eq!(to.tell(&["GET", goes[0]]), moved, "{flavor:?}");
    let asked = to.tell_in_turn(&[&["ASKING"], &["EXISTS", goes[0]]]);
    assert_eq!(asked, "+OK\r\n:1\r\n", "{flavor:?}");
    assert_eq!(cluster.move_some_keys(slot, 1, 10), 1, "{flavor:?}");
    assert_eq!(cluster.move_some_keys(slot, 1, 10), 0, "{flavor:?}");
    cluster.end_move(slot, 1);
    assert_eq!(to.tell(&both), "*2\r\n$1\r\nA\r\n$1\r\nB\r\n", "{flavor:?}");
    let moved = redirect(cluster, "MOVED", slot, 1);
    assert_eq!(cluster.node(2).tell(&["GET", a]), moved, "{flavor:?}");
}

/// A replica takes over when it is told to, when its primary dies, and when its primary stands still; the
/// old primary follows it later. Fails if another node is named, a key is lost, or the cluster does not
/// come to one view again.
#[test]
fn replicas_take_over() {
    on_each_flavor(async |place, flavor| {
        let mut cluster = Cluster::start(place, flavor, 3, 1).await;
        let keys: Vec<_> = (0..3).map(|n| cluster.key_in(n, "k")).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(cluster.node(n).tell(&["SET", key, "v"]), "+OK\r\n", "{flavor:?}");
        }
        cluster.in_step(place).await;
        cluster.fail_over(place, 3).await;
        cluster.settled(place).await;
        cluster.kill(1);
        assert_eq!(cluster.await_takeover(place, 1).await, 4, "{flavor:?}");
        cluster.settled(place).await;
        assert_eq!(cluster.awake(), [0, 2, 3, 4, 5], "{flavor:?}");
        cluster.restart(1);
        cluster.settled(place).await;
        let mut primaries = vec![2, 3, 4];
        if flavor == Flavor::Valkey91 {
            cluster.pause(2);
            assert_eq!(cluster.await_takeover(place, 2).await, 5, "{flavor:?}");
            cluster.resume(2);
            cluster.settled(place).await;
            primaries = vec![3, 4, 5];
        }
        assert_eq!(cluster.keys(), 3, "{flavor:?}");
        let now: Vec<_> = (0..6).filter(|n| cluster.is_primary(*n)).collect();
        assert_eq!(now, primaries, "{flavor:?}");
        for (n, key) in keys.iter().enumerate() {
            let owner = cluster.owner_of(slot_of(key));
            assert!(primaries.contains(&owner) && owner % 3 == n, "{flavor:?}: {owner}");
            assert_eq!(cluster.node(owner).tell(&["GET", key]), "$1\r\nv\r\n", "{flavor:?}");
        }
    });
}

/// Nodes are called by their names where that is preferred, and Valkey's have several databases. Fails if
/// a name is not passed on, is used where it is not preferred, or a database is refused.
#[test]
fn nodes_have_names_and_databases() {
    on_each_flavor(async |place, flavor| {
        let lines: &[&str] = match flavor {
            Flavor::Valkey91 => &["cluster-databases 16"],
            _ => &[],
        };
        let cluster = Cluster::of(place, flavor, 2, 0, lines).await;
        cluster.announce(place, 1, "localhost").await;
        let key = cluster.key_in(1, "k");
        let by_address = redirect(&cluster, "MOVED", slot_of(&key), 1);
        assert_eq!(cluster.node(0).tell(&["GET", &key]), by_address, "{flavor:?}");
        cluster.prefer(0, "hostname");
        let by_name = by_address.replace("127.0.0.1", "localhost");
        assert_eq!(cluster.node(0).tell(&["GET", &key]), by_name, "{flavor:?}");
        let slots = cluster.node(0).tell(&["CLUSTER", "SLOTS"]);
        assert!(slots.contains("$9\r\nlocalhost\r\n"), "{flavor:?}: {slots}");
        let chosen = cluster.node(0).tell(&["SELECT", "15"]);
        assert_eq!(chosen == "+OK\r\n", flavor == Flavor::Valkey91, "{flavor:?}: {chosen}");
    });
}
