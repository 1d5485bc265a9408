//! Reads from the replicas of a real cluster: none ever leaves the shard of its key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hedgerow::ErrorKind;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};

use crate::cluster_client::{on_one_cluster, options_of};
use crate::cluster_fleet::Cluster;
use crate::fleet::{INTERVAL, PROTOCOLS, SETTLED, is_linked};
use crate::placement::{Client, Placement, until};
use crate::server::Flavor;

const MS: Duration = Duration::from_millis(1);

/// A key of each shard.
fn keys(cluster: &Cluster) -> Vec<String> {
    (0..3).map(|n| cluster.key_in(n, "read")).collect()
}

/// How many GETs each node has run; node `n + 3` is the replica of node `n`.
fn gets(cluster: &Cluster) -> Vec<u64> {
    (0..6).map(|n| cluster.commands(n, "get")).collect()
}

fn since(cluster: &Cluster, before: &[u64]) -> Vec<u64> {
    gets(cluster).iter().zip(before).map(|(now, before)| now - before).collect()
}

/// What `count` reads of a key are, as their number on each node.
async fn reads_of<C: Client>(cluster: &Cluster, client: &C, key: &str, count: u64) -> Vec<u64> {
    let before = gets(cluster);
    for _ in 0..count {
        client.get_within(key, 5_000 * MS).await.expect("a read");
    }
    since(cluster, &before)
}

/// So many reads on one node.
fn all_on(node: usize, count: u64) -> Vec<u64> {
    (0..6).map(|n| if n == node { count } else { 0 }).collect()
}

/// Writes all keys and reads them from the replicas, which are connected and in step afterwards.
async fn warmed<P: Placement>(place: &P, cluster: &Cluster, client: &P::Client) {
    for key in keys(cluster) {
        client.set(&key, "v").await.expect("SET");
    }
    cluster.in_step(place).await;
    for key in keys(cluster) {
        let value = client.view(ReadFrom::Replica).get_within(&key, 5_000 * MS).await;
        assert_eq!(value.expect("a replica's answer").as_deref(), Some("v"));
    }
}

/// Fails if a read is served by another node of the shard than its policy says, or by
/// a node of another shard, or if a write goes to a replica.
async fn policies_hold_in_each_shard<P: Placement>(
    place: P,
    flavor: Flavor,
    cluster: Arc<Cluster>,
) {
    for protocol in PROTOCOLS {
        let mut options = options_of(&cluster);
        options.protocol = protocol;
        let client = place.connect(&options).await.expect("up");
        warmed(&place, &cluster, &client).await;
        for policy in [
            ReadFrom::Primary,
            ReadFrom::PrimaryPreferred,
            ReadFrom::Replica,
            ReadFrom::ReplicaPreferred,
            ReadFrom::Nearest,
            ReadFrom::Quickest,
        ] {
            let view = client.view(policy);
            for (n, key) in keys(&cluster).iter().enumerate() {
                let what = format!("{flavor:?}, {protocol:?}, {policy}, shard {n}");
                view.set(key, "v").await.expect(&what);
                let reads = reads_of(&cluster, &view, key, 20).await;
                match policy {
                    ReadFrom::Primary | ReadFrom::PrimaryPreferred => {
                        assert_eq!(reads, all_on(n, 20), "{what}");
                    }
                    // Either of them is right.
                    ReadFrom::Nearest | ReadFrom::Quickest => {
                        assert_eq!(reads[n] + reads[n + 3], 20, "{what}: {reads:?}");
                        assert_eq!(reads.iter().sum::<u64>(), 20, "{what}: {reads:?}");
                    }
                    _ => assert_eq!(reads, all_on(n + 3, 20), "{what}"),
                }
            }
        }
        let counters = client.nodes().map(|_| client.counters());
        assert!(counters.is_none_or(|counters| counters.again == 0), "{flavor:?}: {counters:?}");
    }
}

/// Fails if the zones that the nodes name, in either protocol, do not decide within
/// each shard, or if nodes without one are not read from.
async fn the_own_zone_comes_first<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    let has_zones = flavor == Flavor::Valkey91;
    for (n, zone) in ["b", "a", "", "a", "b", "b"].iter().enumerate().filter(|_| has_zones) {
        let order = ["CONFIG", "SET", "availability-zone", zone];
        assert_eq!(cluster.node(n).tell(&order), "+OK\r\n", "node {n}");
    }
    for protocol in PROTOCOLS {
        let mut options = options_of(&cluster);
        options.protocol = protocol;
        options.client_availability_zone = Some("a".into());
        let client = place.connect(&options).await.expect("up");
        warmed(&place, &cluster, &client).await;
        let with_primary = if has_zones { [3, 1, 5] } else { [3, 4, 5] };
        for (policy, nodes) in [
            (ReadFrom::AzAffinity, [3, 4, 5]),
            (ReadFrom::AzAffinityReplicasAndPrimary, with_primary),
        ] {
            let view = client.view(policy);
            for (key, node) in keys(&cluster).iter().zip(nodes) {
                let reads = reads_of(&cluster, &view, key, 10).await;
                assert_eq!(reads, all_on(node, 10), "{flavor:?}, {protocol:?}, {policy}");
            }
        }
    }
}

/// Fails if a read whose node stands still waits for it, or if its hedge goes anywhere
/// but to the other node of its shard, or to one that its policy excludes.
async fn hedges_stay_in_their_shard<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    let mut options = options_of(&cluster);
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(10 * MS);
    hedging.max_extra_load_percent = 100;
    options.hedging = Some(hedging);
    let client = place.connect(&options).await.expect("up");
    warmed(&place, &cluster, &client).await;
    let key = keys(&cluster).remove(0);
    for (policy, paused) in [(ReadFrom::PrimaryPreferred, 0), (ReadFrom::ReplicaPreferred, 3)] {
        let what = format!("{flavor:?}, {policy}");
        let view = client.view(policy);
        reads_of(&cluster, &view, &key, 10).await;
        let (before, books) = (gets(&cluster), client.hedges());
        cluster.pause(paused);
        let begun = Instant::now();
        for _ in 0..5 {
            let value = view.get_within(&key, 1_000 * MS).await;
            assert_eq!(value.expect("the other's answer").as_deref(), Some("v"), "{what}");
        }
        let took = begun.elapsed();
        cluster.resume(paused);
        assert!(took < 1_000 * MS, "{what}: {took:?}");
        until(&place, "the originals", || since(&cluster, &before)[paused] >= 5).await;
        assert_eq!(since(&cluster, &before), [5, 0, 0, 5, 0, 0], "{what}");
        if let (Some(before), Some(now)) = (books, client.hedges()) {
            assert_eq!((now.sent - before.sent, now.won - before.won), (5, 5), "{what}");
        }
    }
    let before = gets(&cluster);
    cluster.pause(3);
    let late = client.view(ReadFrom::Replica).get_within(&key, 50 * MS).await;
    cluster.resume(3);
    assert_eq!(late.expect_err("nobody else may").kind(), ErrorKind::Timeout, "{flavor:?}");
    until(&place, "the original", || since(&cluster, &before)[3] >= 1).await;
    assert_eq!(since(&cluster, &before), all_on(3, 1), "{flavor:?}");
    cluster.settled(&place).await;
}

async fn until_ok<P: Placement>(place: &P, client: &P::Client, key: &str) {
    while client.get_within(key, SETTLED).await.is_err() {
        place.pause(INTERVAL / 10).await;
    }
}

/// Lets a replica find its primary or not.
fn set_login(cluster: &Cluster, replica: usize, password: &str) {
    let node = cluster.node(replica);
    assert_eq!(node.tell(&["CONFIG", "SET", "masterauth", password]), "+OK\r\n");
    node.tell(&["CLIENT", "KILL", "TYPE", "master"]);
}

/// Fails if a replica that its primary has left behind serves a read with a bound on staleness, or
/// if one of another shard is taken for it.
async fn staleness_is_bounded<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    let client = place.connect(&options_of(&cluster)).await.expect("up");
    warmed(&place, &cluster, &client).await;
    let strict = client.view(ReadFrom::Replica.behind_at_most(1_000));
    let either = client.view(ReadFrom::ReplicaPreferred.behind_at_most(1_000));
    let keys = keys(&cluster);
    for (n, key) in keys.iter().enumerate() {
        // The offsets are known after an interval.
        until_ok(&place, &strict, key).await;
        let reads = reads_of(&cluster, &either, key, 10).await;
        assert_eq!(reads, all_on(n + 3, 10), "{flavor:?}");
    }
    set_login(&cluster, 3, "wrong");
    until(&place, "the loss of its link", || !is_linked(cluster.node(3))).await;
    for _ in 0..10 {
        client.set(&keys[0], "x".repeat(1_000)).await.expect("SET");
    }
    place.pause(SETTLED).await;
    let reads = reads_of(&cluster, &either, &keys[0], 10).await;
    assert_eq!(reads, all_on(0, 10), "{flavor:?}");
    let error = strict.get_within(&keys[0], SETTLED).await.expect_err("it is too far behind");
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{flavor:?}: {error}");
    let reads = reads_of(&cluster, &strict, &keys[1], 10).await;
    assert_eq!(reads, all_on(4, 10), "{flavor:?}");
    set_login(&cluster, 3, "");
    until_ok(&place, &strict, &keys[0]).await;
    cluster.settled(&place).await;
}

on_one_cluster! {
    policies_hold_in_each_shard,
    the_own_zone_comes_first,
    hedges_stay_in_their_shard,
    staleness_is_bounded,
}
