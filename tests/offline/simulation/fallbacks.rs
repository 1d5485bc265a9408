//! Reads of a cluster whose node is not in a state to serve them.

use std::time::Duration;

use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelCluster, Reaction, Simulation};
use hedgerow::{ErrorKind, Options};

use super::clock::pass;
use super::fleet::MS;

/// One shard of a cluster with a replica, in which `bar` has a value.
struct Shard {
    simulation: Simulation,
    cluster: ModelCluster,
    primary: usize,
    replica: usize,
}

impl Shard {
    fn new() -> Shard {
        let simulation = Simulation::new(4);
        let cluster = simulation.cluster(3, 1);
        cluster.set_value("bar", "v");
        let primary = cluster.owner_of("bar");
        let replica = cluster.replicas_of(primary)[0];
        Shard { simulation, cluster, primary, replica }
    }

    fn options(&self, from: ReadFrom) -> Options {
        let mut options = self.cluster.options();
        options.cluster = Some(Cluster::default());
        options.read_from = from.into();
        options
    }
}

/// A node that answers each GET with this error.
fn answers(cluster: &ModelCluster, node: usize, code: &'static str) {
    cluster.server(node).on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"GET" => Reaction::Answer(format!("-{code} x\r\n").into_bytes()),
        _ => Reaction::Serve,
    });
}

/// Fails if a read that prefers one role is not served by the other when a node of the first is
/// loading, has lost its primary or says that the cluster is down.
#[test]
fn the_other_role_serves() {
    for code in ["LOADING", "MASTERDOWN", "CLUSTERDOWN"] {
        for from in [ReadFrom::ReplicaPreferred, ReadFrom::PrimaryPreferred] {
            let shard = Shard::new();
            let options = shard.options(from);
            let (first, other) = match from {
                ReadFrom::ReplicaPreferred => (shard.replica, shard.primary),
                _ => (shard.primary, shard.replica),
            };
            let cluster = shard.cluster.clone();
            let outcome = shard.simulation.run(async move |core| {
                let client = core.connect(&options).await.expect("a connection");
                for from in [ReadFrom::Replica, ReadFrom::Primary] {
                    let view = client.read_from(from).expect("a view");
                    view.get::<Option<String>>("bar").await.expect("a value");
                }
                answers(&cluster, first, code);
                let before = [first, other].map(|node| cluster.server(node).count("GET"));
                let begun = core.now();
                let value: Option<String> = client.get("bar").await.expect("from the other role");
                assert_eq!(value.as_deref(), Some("v"));
                assert!(core.now().since(begun) < 5 * MS, "no wait between");
                let after = [first, other].map(|node| cluster.server(node).count("GET"));
                [after[0] - before[0], after[1] - before[1]]
            });
            assert_eq!(outcome.checked(), [1, 1], "{code} {from}");
        }
    }
}

/// Fails if a read that went to the other role comes back to the first.
#[test]
fn a_read_stays_in_its_new_role() {
    let shard = Shard::new();
    let options = shard.options(ReadFrom::ReplicaPreferred);
    let (cluster, primary, replica) = (shard.cluster.clone(), shard.primary, shard.replica);
    let outcome = shard.simulation.run(async move |core| {
        let client = core.connect(&options).await.expect("a connection");
        let strict = client.read_from(ReadFrom::Replica).expect("a view");
        strict.get::<Option<String>>("bar").await.expect("a value");
        answers(&cluster, replica, "LOADING");
        let mut left = 2;
        cluster.server(primary).on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"GET" if left > 0 => {
                left -= 1;
                Reaction::Answer(b"-TRYAGAIN x\r\n".to_vec())
            }
            _ => Reaction::Serve,
        });
        let before = cluster.server(replica).count("GET");
        client.get::<Option<String>>("bar").await.expect("a value");
        (cluster.server(replica).count("GET") - before, cluster.server(primary).count("GET"))
    });
    assert_eq!(outcome.checked(), (1, 3));
}

/// Fails if the caller of a read that no other role can serve does not get what its node said.
#[test]
fn a_rejection_is_kept() {
    let shard = Shard::new();
    let options = shard.options(ReadFrom::PrimaryPreferred);
    let (cluster, primary, replica) = (shard.cluster.clone(), shard.primary, shard.replica);
    let outcome = shard.simulation.run(async move |core| {
        let client = core.connect(&options).await.expect("a connection");
        client.get::<Option<String>>("bar").await.expect("a value");
        cluster.kill(replica);
        pass(&core, 2_000 * MS).await;
        answers(&cluster, primary, "LOADING");
        client.get::<Option<String>>("bar").await.expect_err("nobody can serve it")
    });
    let error = outcome.checked();
    assert_eq!(error.kind(), ErrorKind::Server, "{error}");
    assert!(error.to_string().contains("LOADING"), "{error}");
}

/// C-23. Fails if reads that are sent again earn credit each time, so that more hedges start
/// than the share of reads and the burst.
#[test]
fn reads_earn_once() {
    let shard = Shard::new();
    let mut options = shard.options(ReadFrom::PrimaryPreferred);
    let mut hedging = Hedging::default();
    (hedging.max_extra_load_percent, hedging.storm_guard) = (5, false);
    hedging.delay = Delay::Fixed(2 * MS);
    options.hedging = Some(hedging);
    let (cluster, primary) = (shard.cluster.clone(), shard.primary);
    let outcome = shard.simulation.run(async move |core| {
        let client = core.connect(&options).await.expect("a connection");
        let strict = client.read_from(ReadFrom::Replica).expect("a view");
        strict.get::<Option<String>>("bar").await.expect("a value");
        client.get::<Option<String>>("bar").await.expect("a value");
        let before = client.hedges();
        let mut n = 0;
        cluster.server(primary).on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"GET" => {
                n += 1;
                match n % 4 {
                    0 => Reaction::ServeAfter(10 * MS),
                    _ => Reaction::Answer(b"-TRYAGAIN x\r\n".to_vec()),
                }
            }
            _ => Reaction::Serve,
        });
        for _ in 0..100 {
            client.get::<Option<String>>("bar").await.expect("a value");
        }
        let after = client.hedges();
        (after.reads - before.reads, after.sent - before.sent)
    });
    let (reads, sent) = outcome.checked();
    assert_eq!(reads, 100);
    assert!((1..=6).contains(&sent), "{sent} hedges");
}

/// Fails if a replica of a cluster that could not be had is tried again later than after a second,
/// or at once.
#[test]
fn a_replica_is_tried_again_after_a_second() {
    let shard = Shard::new();
    let mut options = shard.options(ReadFrom::Nearest);
    options.replica_refresh_interval = Duration::from_secs(60);
    let (cluster, replica) = (shard.cluster.clone(), shard.replica);
    let outcome = shard.simulation.run(async move |core| {
        cluster.kill(replica);
        let client = core.connect(&options).await.expect("a connection");
        client.get::<Option<String>>("bar").await.expect("from the primary");
        pass(&core, 50 * MS).await;
        cluster.revive(replica);
        let begun = core.now();
        while cluster.server(replica).count("READONLY") == 0 {
            pass(&core, 10 * MS).await;
            client.get::<Option<String>>("bar").await.expect("a value");
            assert!(core.now().since(begun) < Duration::from_secs(50), "it is left alone");
        }
        core.now().since(begun)
    });
    let took = outcome.checked();
    assert!((700 * MS..1_200 * MS).contains(&took), "{took:?}");
}
