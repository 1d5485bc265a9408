//! Replicas of a cluster that redirect, and nodes that are known by several names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hedgerow::Options;
use hedgerow::config::{Endpoint, ProtocolChoice};
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::resp::Value;

use crate::nodes::{Act, Nodes, say};
use crate::placement::{Client, Placement, on_every_placement};

const MS: Duration = Duration::from_millis(1);

/// A primary and its replica, which knows of READONLY unless it forgets it.
fn pair(forgets: bool) -> (Nodes, Options) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    let moved = nodes.redirect("MOVED", "k", 0);
    nodes.rule(move |call| match (call.node, call.is("GET k")) {
        (1, true) if call.may_read && !forgets => Act::Usual,
        (1, _) if call.text.contains(" k") => say(&moved),
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    options.read_from = ReadFrom::ReplicaPreferred.into();
    (nodes, options)
}

/// Whether READONLY came before the first read on each connection that had one.
#[track_caller]
fn read_only_came_first(nodes: &Nodes) {
    let mut came = nodes.came();
    came.retain(|c| c.node == 1);
    for connection in 0..nodes.accepted(1) {
        let texts: Vec<_> =
            came.iter().filter(|c| c.connection == connection).map(|c| c.text.as_str()).collect();
        let place = |text: &str| texts.iter().position(|t| *t == text);
        if let Some(read) = place("GET k") {
            assert!(place("READONLY").is_some_and(|said| said < read), "{texts:?}");
        }
    }
}

/// Reads until it is the replica that answers.
async fn read_from_the_replica<P: Placement>(place: &P, client: &P::Client) {
    for _ in 0..1_000 {
        // One may be in flight when the connection ends.
        let got = Client::get_within(client, "k", 5_000 * MS).await;
        if got.is_ok_and(|value| value.as_deref() == Some("1")) {
            return;
        }
        place.pause(MS).await;
    }
    panic!("no read comes to the replica");
}

/// case behaviour/15, R-225, R-272. Fails if a write or an unknown command goes to a replica, if a read
/// comes there before READONLY, on a new connection too, or if any of that costs passes or loops.
async fn replicas_serve_reads_alone<P: Placement>(place: P) {
    for protocol in [ProtocolChoice::Resp2, ProtocolChoice::Resp3] {
        let (nodes, mut options) = pair(false);
        options.protocol = protocol;
        let client = place.connect(&options).await.expect("up");
        client.set("k", "v").await.expect("set");
        read_from_the_replica(&place, &client).await;
        client.command("FROB").arg("k").send::<Value>().await.expect("the primary takes it");
        let at_replica = ["SET k v", "FROB k"].map(|text| nodes.count(1, text));
        assert_eq!(
            (nodes.count(0, "SET k v"), nodes.count(0, "FROB k"), at_replica),
            (1, 1, [0, 0])
        );
        nodes.end_connections(1);
        read_from_the_replica(&place, &client).await;
        read_only_came_first(&nodes);
        assert!(nodes.accepted(1) >= 2);
        assert!(nodes.passes().len() <= 3, "{}", nodes.passes().len());
    }
}

/// case behaviour/15, R-174. Fails if the redirect of a replica that forgot READONLY is not followed to the
/// node that it names, goes round, or causes a pass, since it says what was known.
async fn a_forgetful_replica_is_followed<P: Placement>(place: P) {
    let (nodes, options) = pair(true);
    let client = place.connect(&options).await.expect("up");
    for _ in 0..30 {
        assert_eq!(client.get::<String>("k").await.expect("a value"), "0");
        place.pause(MS).await;
    }
    assert!(nodes.count(1, "GET k") > 0);
    assert_eq!((nodes.count(0, "GET k"), nodes.passes().len()), (30, 1));
}

/// Options with this host for the first node.
fn by_name(nodes: &Nodes, host: &str) -> Options {
    let mut options = nodes.options();
    options.endpoint = Endpoint::tcp(host, nodes.address(0).port());
    options
}

/// Fails if a node that a seed names `localhost` and the cluster 127.0.0.1 is connected to
/// twice: once for the client and once for its coordinator is enough.
async fn a_seed_has_another_name<P: Placement>(place: P) {
    for host in ["localhost", "LOCALhost", "127.0.0.1"] {
        let nodes = Nodes::start(2);
        let client = place.connect(&by_name(&nodes, host)).await.expect("up");
        for n in 0..20 {
            assert_eq!(client.get::<String>(format!("k{n}")).await.expect("a value"), "0");
        }
        assert_eq!((nodes.accepted(0), nodes.accepted(1)), (2, 0), "{host}");
        assert_eq!(nodes.count(0, "CLUSTER SLOTS"), 1);
    }
}

/// Fails if a node that may not say which one it is cannot be used, or a redirect to its other name
/// is not followed.
async fn a_seed_may_not_say_its_id<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let moved = nodes.redirect("MOVED", "k", 1);
    nodes.rule(move |call| match (call.node, call.text) {
        (_, "CLUSTER MYID") => say("-NOPERM this user has no permissions\r\n"),
        (0, "GET k") => say(&moved),
        _ => Act::Usual,
    });
    let client = place.connect(&by_name(&nodes, "localhost")).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a value"), "1");
    assert_eq!(client.get::<String>("other").await.expect("a value"), "0");
}

/// Fails if a redirect to the address of a node that was announced by its name, in whatever case,
/// makes new connections.
async fn an_address_is_another_name<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.announce("LocalHost");
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
    let is_moved = Arc::new(AtomicBool::new(false));
    let (begins, to) = (is_moved.clone(), nodes.address(1));
    nodes.rule(move |call| match call.text.strip_prefix("GET ") {
        Some(key) if call.node == 0 && begins.load(Ordering::SeqCst) => {
            let slot = hedgerow::command::slot::slot_of(key.as_bytes());
            say(format!("-MOVED {slot} {to}\r\n"))
        }
        _ => Act::Usual,
    });
    let client = place.connect(&by_name(&nodes, "localhost")).await.expect("up");
    for n in 0..20 {
        client.get::<String>(format!("k{n}")).await.expect("a value");
    }
    let before = [0, 1].map(|node| nodes.accepted(node));
    is_moved.store(true, Ordering::SeqCst);
    for n in 0..20 {
        assert_eq!(client.get::<String>(format!("k{n}")).await.expect("a value"), "1");
    }
    assert_eq!([0, 1].map(|node| nodes.accepted(node)), before);
    assert_eq!(before, [2, 1]);
}

on_every_placement! {
    replicas_serve_reads_alone,
    a_forgetful_replica_is_followed,
    a_seed_has_another_name,
    a_seed_may_not_say_its_id,
    an_address_is_another_name,
}
