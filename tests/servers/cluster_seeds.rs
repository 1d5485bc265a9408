//! How a client finds a real cluster, and its nodes by whatever name they have.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use hedgerow::prelude::*;
use hedgerow::{Endpoint, Error, ErrorKind, Fate};

use crate::cluster_client::{FLAVORS, endpoint_of, on_one_cluster, options_of, options_with_seeds};
use crate::cluster_fleet::{Cluster, slot_of};
use crate::fleet::commands;
use crate::placement::{Client, Placement, on_each_placement};
use crate::server::{Flavor, Server};

const MS: Duration = Duration::from_millis(1);

/// Writes and reads a key of each shard.
async fn serves<P: Placement>(cluster: &Cluster, client: &P::Client, tag: &str) {
    for n in 0..3 {
        let key = cluster.key_in(n, tag);
        client.set(&key, &key).await.expect("SET");
        assert_eq!(client.get::<String>(&key).await.expect("GET"), key);
    }
}

/// Moves the slot of a key from node 0 to node 1, of which the client learns by a redirect; answers how
/// long its next command took.
async fn moved<P: Placement>(place: &P, cluster: &Cluster, client: &P::Client) -> Duration {
    let key = cluster.key_in(0, "moved");
    client.set(&key, "v").await.expect("SET");
    let slot = slot_of(&key);
    cluster.move_slots(place, slot..=slot, 0, 1).await;
    let begun = Instant::now();
    assert_eq!(client.get::<String>(&key).await.expect("GET"), "v");
    begun.elapsed()
}

/// Gives all nodes the same name, and has all call the others by this kind of it.
async fn name_all<P: Placement>(place: &P, cluster: &Cluster, name: &str, kind: &str) {
    (0..6).for_each(|n| cluster.prefer(n, kind));
    // At once, as the word spreads in its own time.
    join_all((0..6).map(|n| cluster.announce(place, n, name))).await;
}

/// Fails if nodes that are announced by names, by no host (`?`) or by an empty one are not
/// found, neither at first nor by a redirect, or are connected twice under two names.
async fn nodes_are_found_by_any_name<P: Placement>(
    place: P,
    flavor: Flavor,
    cluster: Arc<Cluster>,
) {
    for (kind, names) in [
        ("ip", ""),
        // Of nodes without a name the others say `?`.
        ("hostname", ""),
        ("unknown-endpoint", ""),
        ("hostname", "LocalHost"),
    ] {
        let what = format!("{flavor:?}, {kind}, {names:?}");
        name_all(&place, &cluster, names, kind).await;
        let mut options = options_of(&cluster);
        let name = format!("{kind}-{names}");
        options.client_name = Some(name.clone());
        let client = place.connect(&options).await.expect("up");
        serves::<P>(&cluster, &client, "k").await;
        let took = moved(&place, &cluster, &client).await;
        assert!(took < 1_000 * MS, "{what}: {took:?}");
        serves::<P>(&cluster, &client, "l").await;
        for n in 0..3 {
            // The coordinator has one, too.
            let links = cluster.connections(n, &name).len();
            assert!(links <= 2, "{what}: {links} to node {n}");
        }
        client.close(1_000 * MS).await;
    }
    name_all(&place, &cluster, "", "ip").await;
}

on_one_cluster!(nodes_are_found_by_any_name);

/// One line that says what is wrong with the options.
fn assert_config(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Config, Fate::NotSent), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

/// Fails if databases of a cluster are not apart on every node that a command may go
/// to, replicas and the targets of redirects among them.
async fn databases_are_apart<P: Placement>(place: P) {
    let cluster = three_shards_on(&place, &["cluster-databases 16"]).await;
    let mut options = options_of(&cluster);
    let zero = place.connect(&options).await.expect("up");
    options.database = 3;
    let three = place.connect(&options).await.expect("up");
    serves::<P>(&cluster, &three, "k").await;
    let from_replicas = three.view(hedgerow::read::ReadFrom::Replica);
    cluster.in_step(&place).await;
    for n in 0..3 {
        let key = cluster.key_in(n, "k");
        assert_eq!(zero.get::<Option<String>>(&key).await.expect("GET"), None);
        let value = from_replicas.get::<Option<String>>(&key).await.expect("a replica's answer");
        assert_eq!(value.as_deref(), Some(&key[..]));
    }
    let key = cluster.key_in(0, "k");
    cluster.migrate_slots(&place, slot_of(&key)..=slot_of(&key), 1).await;
    assert_eq!(three.get::<String>(&key).await.expect("GET"), key);
    assert_eq!((zero.dbsize().await.expect("DBSIZE"), cluster.keys()), (0, 0));
    assert_eq!(three.dbsize().await.expect("DBSIZE"), 3);
}

async fn three_shards_on<P: Placement>(place: &P, lines: &[&str]) -> Cluster {
    Cluster::of(place, Flavor::Valkey91, 3, 1, lines).await
}

/// Fails if a database of a cluster that has none but 0 is anything but one clear
/// error of the options, or if another seed is asked after that.
async fn missing_databases_are_told<P: Placement>(place: P) {
    let other = Server::start(Flavor::Valkey91);
    for flavor in [Flavor::Valkey91, Flavor::Valkey90, Flavor::Redis70] {
        let cluster = Cluster::start(&place, flavor, 1, 0).await;
        let mut options = options_with_seeds(&[cluster.node(0), &other]);
        options.database = 3;
        let error = place.connect(&options).await.expect_err("there is no such database");
        let address = cluster.node(0).address().to_string();
        assert_config(&error, &["`database`", "cluster-databases", &address]);
        assert_eq!(commands(&other, "hello"), 0, "{flavor:?}");
    }
}

/// Fails if a server that is no node of a cluster is taken for one, or if the error does not name it.
async fn no_cluster_is_told<P: Placement>(place: P) {
    for flavor in FLAVORS {
        let server = Server::start(flavor);
        let error = place.connect(&options_with_seeds(&[&server])).await;
        let address = server.address().to_string();
        assert_config(&error.expect_err("it is no cluster"), &["cluster", &address]);
    }
}

/// Fails if a seed that is down, or stands still, keeps a client from a cluster that another
/// one knows, or if without any the error does not come in time or names none.
async fn one_seed_is_enough<P: Placement>(place: P) {
    let mut dead = Server::start(Flavor::Valkey91);
    dead.kill();
    let still = Server::start(Flavor::Redis70);
    still.pause();
    let cluster = Cluster::start(&place, Flavor::Redis70, 3, 0).await;
    let mut options = options_with_seeds(&[&dead, &still, cluster.node(1)]);
    (options.connect_timeout, options.command_timeout) = (1_000 * MS, Some(500 * MS));
    let begun = Instant::now();
    let client = place.connect(&options).await.expect("up");
    assert!(begun.elapsed() < 2_000 * MS, "{:?}", begun.elapsed());
    serves::<P>(&cluster, &client, "k").await;
    let mut options = options_with_seeds(&[&dead]);
    (options.connect_timeout, options.command_timeout) = (1_000 * MS, Some(500 * MS));
    if let Some(settings) = &mut options.cluster {
        settings.seeds = vec![endpoint_of(&still), Endpoint::tcp("127.0.0.1", 1)];
    }
    let begun = Instant::now();
    let error = place.connect(&options).await.expect_err("nobody is there");
    assert!(begun.elapsed() < 3_000 * MS, "{:?}: {error}", begun.elapsed());
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    assert!(error.is_transient() && error.node().is_some(), "{error}");
}

on_each_placement! {
    databases_are_apart,
    missing_databases_are_told,
    no_cluster_is_told,
    one_seed_is_enough,
}
