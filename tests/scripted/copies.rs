//! Second copies of reads in a cluster that sends reads elsewhere.

use std::time::Duration;

use futures::future::{join, join_all};
use hedgerow::Options;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};

use crate::nodes::{Act, LOW, Nodes, late, say};
use crate::placement::{Client, Placement, on_each_placement, until};

const MS: Duration = Duration::from_millis(1);

/// Two shards: nodes 0 and its replica 1, and node 2.
fn two_shards() -> Nodes {
    let nodes = Nodes::start(3);
    nodes.map([(0..=8191, vec![0, 1]), (8192..=16383, vec![2])]);
    nodes
}

fn hedged(nodes: &Nodes, from: ReadFrom) -> Options {
    let mut options = nodes.options();
    options.read_from = from.into();
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(5 * MS);
    (hedging.max_extra_load_percent, hedging.burst) = (100, 10);
    options.hedging = Some(hedging);
    options
}

/// Reads of another key until the replica serves them.
async fn warm<P: Placement>(place: &P, client: &P::Client, nodes: &Nodes) {
    for _ in 0..1_000 {
        let _ = client.get_within("{b}w", 5_000 * MS).await;
        if nodes.count(1, "GET {b}w") > 0 {
            break;
        }
        place.pause(5 * MS).await;
    }
    until(place, "a read from the replica", || nodes.count(1, "GET {b}w") > 0).await;
}

/// Fails if a read that went to the primary, as its replica was loading, and was sent on from
/// there, is hedged: to the very node that has it.
async fn a_read_of_the_primary_has_one_copy<P: Placement>(place: P) {
    let nodes = two_shards();
    let moved = nodes.redirect("MOVED", LOW, 2);
    nodes.rule(move |call| match (call.node, call.is("GET b")) {
        (1, true) => say("-LOADING x\r\n"),
        (0, true) => say(&moved),
        (2, true) => late(150 * MS, Act::Usual),
        _ => Act::Usual,
    });
    let client = place.connect(&hedged(&nodes, ReadFrom::ReplicaPreferred)).await.expect("up");
    warm(&place, &client, &nodes).await;
    client.get_within(LOW, 5_000 * MS).await.expect("a value");
    // Whoever had a second copy got it before this.
    client.set("a", "v").await.expect("SET");
    assert_eq!((1, 1), (nodes.count(0, "GET b"), nodes.count(2, "GET b")));
}

/// Fails if a read that its shard sent to another with ASK is hedged in the shard that does not
/// have the key any more.
async fn an_asked_read_has_one_copy<P: Placement>(place: P) {
    let nodes = two_shards();
    let ask = nodes.redirect("ASK", LOW, 2);
    nodes.rule(move |call| match (call.node, call.is("GET b")) {
        (0 | 1, true) => say(&ask),
        (2, true) => late(100 * MS, Act::Usual),
        _ => Act::Usual,
    });
    let client = place.connect(&hedged(&nodes, ReadFrom::ReplicaPreferred)).await.expect("up");
    warm(&place, &client, &nodes).await;
    for _ in 0..3 {
        client.get_within(LOW, 5_000 * MS).await.expect("a value");
    }
    let asked = [0, 1, 2].map(|node| nodes.count(node, "GET b"));
    assert_eq!((asked[0] + asked[1], asked[2]), (3, 3), "{asked:?}");
}

/// C-23. Fails if a read that is sent on earns more credit than one that is not.
async fn a_read_that_is_sent_on_earns_once<P: Placement>(place: P) {
    let nodes = two_shards();
    let moved = nodes.redirect("MOVED", LOW, 0);
    nodes.rule(move |call| match (call.node, call.is("GET b")) {
        (1, true) => say(&moved),
        _ => Act::Usual,
    });
    let client = place.connect(&hedged(&nodes, ReadFrom::ReplicaPreferred)).await.expect("up");
    warm(&place, &client, &nodes).await;
    let Some(before) = client.hedges() else { return };
    for _ in 0..20 {
        client.get_within(LOW, 5_000 * MS).await.expect("a value");
    }
    let after = client.hedges().expect("books");
    assert_eq!((nodes.count(1, "GET b"), after.reads - before.reads), (20, 20));
}

/// Fails if hedges that are granted together take more room in a connection than there is.
async fn granted_copies_keep_to_the_room<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    nodes.rule(|call| if call.is("GET b") { Act::Nothing } else { Act::Usual });
    let mut options = hedged(&nodes, ReadFrom::PrimaryPreferred);
    options.in_flight_max = 4;
    let client = place.connect(&options).await.expect("up");
    let replica = client.view(ReadFrom::Replica);
    warm(&place, &replica, &nodes).await;
    let held = join_all((0..3).map(|_| replica.get_within(LOW, 1_000 * MS)));
    let hedged = async {
        until(&place, "what the replica holds", || nodes.count(1, "GET b") == 3).await;
        join_all((0..4).map(|_| client.get_within(LOW, 500 * MS))).await
    };
    let _ = join(held, hedged).await;
    assert_eq!(nodes.count(1, "GET b"), 4, "three, and one hedge");
}

/// Fails if a read that prefers the primary, which is loading, takes what its bound on staleness forbids.
async fn a_bound_goes_along<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    nodes.rule(|call| match (call.node, call.text) {
        (0, "ROLE") => say("*3\r\n$6\r\nmaster\r\n:5000\r\n*0\r\n"),
        (1, "ROLE") => {
            say("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:100\r\n")
        }
        (0, "GET b") => say("-LOADING x\r\n"),
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    options.read_from = ReadFrom::ReplicaPreferred.into();
    let client = place.connect(&options).await.expect("up");
    warm(&place, &client, &nodes).await;
    let bound = client.view(ReadFrom::PrimaryPreferred.behind_at_most(10));
    bound.get_within("{b}x", 1_000 * MS).await.expect("a value");
    until(&place, "how far both are", || (0..2).all(|node| nodes.count(node, "ROLE") > 0)).await;
    let got = bound.get_within(LOW, 1_000 * MS).await;
    assert!(got.is_err(), "from a replica that is 4,900 bytes behind: {got:?}");
}

on_each_placement! {
    a_read_of_the_primary_has_one_copy,
    an_asked_read_has_one_copy,
    a_read_that_is_sent_on_earns_once,
    granted_copies_keep_to_the_room,
    a_bound_goes_along,
}
