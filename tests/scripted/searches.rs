//! Reads of a cluster that only replicas may serve, where none is known that can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::future::join_all;
use hedgerow::config::Reconnect;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::{Error, ErrorKind, Options};

use crate::nodes::{Act, HIGH, LOW, Nodes, late, say};
use crate::placement::{Client, Placement, on_every_placement, until};

const MS: Duration = Duration::from_millis(1);

/// Options of a client that reads from replicas alone.
fn strict(nodes: &Nodes) -> Options {
    let mut options = nodes.options();
    options.read_from = ReadFrom::Replica.into();
    options
}

/// A read beside what its task does.
fn read_beside<P: Placement>(
    place: &P,
    client: &P::Client,
    key: &'static str,
) -> oneshot::Receiver<Result<String, Error>> {
    let client = client.clone();
    place.spawn(async move { client.get::<String>(key).await })
}

/// Fails if reads do not find a replica that came since the nodes were asked, or if each of
/// them asks for itself.
async fn a_replica_is_found<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let client = place.connect(&strict(&nodes)).await.expect("up");
    nodes.map([(0..=16383, vec![0, 1])]);
    let calls = join_all((0..50).map(|_| client.get::<String>("k"))).await;
    for call in calls {
        assert_eq!(call.expect("a value"), "1");
    }
    assert_eq!(nodes.passes().len(), 2);
}

/// Fails if a shard without replicas is not asked for at all nodes before a read fails, if it
/// is asked for again and again, or if what the others may serve waits for it.
async fn there_is_no_replica<P: Placement>(place: P) {
    let nodes = Nodes::start(3);
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1, 2])]);
    let client = place.connect(&strict(&nodes)).await.expect("up");
    let begun = Instant::now();
    for _ in 0..20 {
        let error = client.get::<String>(LOW).await.expect_err("no replica");
        assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        assert!(error.to_string().contains("no server can take the read (replica)"), "{error}");
        assert_eq!(client.get::<String>(HIGH).await.expect("a value"), "2");
    }
    // All three were asked by each search, and one at the start.
    let searches = 1 + begun.elapsed().as_secs() as usize;
    assert!((4..=1 + 3 * searches).contains(&nodes.passes().len()), "{:?}", nodes.passes());
    let preferring = client.view(ReadFrom::ReplicaPreferred);
    assert_eq!(preferring.get::<String>(LOW).await.expect("the primary serves"), "0");
}

/// Fails if an answer that says nothing of a slot ends the search for its replicas, or takes
/// away what is known of it.
async fn an_answer_in_part_ends_no_search<P: Placement>(place: P) {
    let nodes = Nodes::start(4);
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
    let client = place.connect(&strict(&nodes)).await.expect("up");
    let part = nodes.slots([(0..=8191, vec![0, 2])]);
    nodes.map([(0..=8191, vec![0, 2]), (8192..=16383, vec![1, 3])]);
    let asked = AtomicUsize::new(0);
    nodes.rule(move |call| match call.is("CLUSTER SLOTS") {
        true if asked.fetch_add(1, Ordering::SeqCst) == 0 => say(&part),
        _ => Act::Usual,
    });
    assert_eq!(client.get::<String>(HIGH).await.expect("a value"), "3");
    assert_eq!(client.get::<String>(LOW).await.expect("a value"), "2");
    assert_eq!(nodes.passes().len(), 3);
}

/// Fails if nodes that say nothing take the time of one that knows.
async fn mute_nodes_hold_up_no_search<P: Placement>(place: P) {
    let nodes = Nodes::start(5);
    let slots = [0..=4000, 4001..=8000, 8001..=12000, 12001..=16383];
    nodes.map(slots.clone().into_iter().zip((0..4).map(|node| vec![node])));
    let client = place.connect(&strict(&nodes)).await.expect("up");
    nodes.map(slots.into_iter().zip([vec![0], vec![1, 4], vec![2], vec![3]]));
    let asked = AtomicUsize::new(0);
    nodes.rule(move |call| match call.is("CLUSTER SLOTS") {
        true if asked.fetch_add(1, Ordering::SeqCst) < 2 => Act::Nothing,
        _ => Act::Usual,
    });
    let begun = Instant::now();
    assert_eq!(client.get::<String>("k").await.expect("a value"), "4");
    assert!(begun.elapsed() < 1_900 * MS, "{:?}", begun.elapsed());
}

/// Fails if a search that a mute node draws out holds up that for another shard's
/// replica, or the pass that a write waits for.
async fn a_search_holds_up_nothing_else<P: Placement>(place: P) {
    let nodes = Nodes::start(5);
    let slots = [0..=4000, 4001..=8191, 8192..=16383];
    nodes.map(slots.clone().into_iter().zip([vec![0], vec![1, 2], vec![3]]));
    let client = place.connect(&strict(&nodes)).await.expect("up");
    nodes.rule(|call| match (call.node, call.is("CLUSTER SLOTS")) {
        (2, true) => Act::Nothing,
        _ => Act::Usual,
    });
    let vain = read_beside(&place, &client, LOW);
    until(&place, "the mute node is asked", || nodes.count(2, "CLUSTER SLOTS") > 0).await;
    let begun = Instant::now();
    nodes.map(slots.clone().into_iter().zip([vec![0], vec![1, 2], vec![3, 4]]));
    assert_eq!(client.get::<String>(HIGH).await.expect("a value"), "4");
    nodes.map(slots.into_iter().zip([vec![0], vec![1, 2], vec![4, 3]]));
    nodes.rule(|call| match call.node {
        2 if call.is("CLUSTER SLOTS") => Act::Nothing,
        3 if call.is("SET") => say("-READONLY x\r\n"),
        _ => Act::Usual,
    });
    client.set(HIGH, "v").await.expect("its successor takes it");
    assert!(begun.elapsed() < 5_000 * MS, "{:?}", begun.elapsed());
    vain.await.expect("its task").expect_err("no replica");
}

/// R-235, C-22. Fails if what a search was told before a redirect is taken for newer than that.
async fn a_redirect_is_newer_than_a_search<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
    let client = place.connect(&strict(&nodes)).await.expect("up");
    let moved = nodes.redirect("MOVED", HIGH, 0);
    // One answers at once, the other later than it takes to redirect.
    let asked = AtomicUsize::new(0);
    nodes.rule(move |call| match (call.node, call.is("CLUSTER SLOTS")) {
        (_, true) if asked.fetch_add(1, Ordering::SeqCst) > 0 => late(400 * MS, Act::Usual),
        (1, false) if call.text.ends_with(&format!(" {HIGH}")) => say(&moved),
        _ => Act::Usual,
    });
    let vain = read_beside(&place, &client, LOW);
    until(&place, "both are asked", || nodes.passes().len() >= 3).await;
    let primary = client.view(ReadFrom::Primary);
    assert_eq!(primary.get::<String>(HIGH).await.expect("a value"), "0");
    vain.await.expect("its task").expect_err("no replica");
    // What was published is taken over by now, or with the next command.
    for _ in 0..5 {
        assert_eq!(primary.get::<String>(HIGH).await.expect("a value"), "0");
        place.pause(10 * MS).await;
    }
    assert_eq!(nodes.count(1, &format!("GET {HIGH}")), 1);
}

/// Fails if reads wait again and again for a replica that takes connections and says nothing.
async fn a_mute_replica_is_not_waited_for_again_and_again<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    nodes.rule(|call| if call.node == 1 { Act::Nothing } else { Act::Usual });
    let mut options = strict(&nodes);
    (options.connect_timeout, options.command_timeout) = (400 * MS, Some(400 * MS));
    let client = place.connect(&options).await.expect("up");
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    while begun.elapsed() < 4_000 * MS {
        let read = Instant::now();
        client.get::<String>("k").await.expect_err("it says nothing");
        waited += if read.elapsed() > 100 * MS { read.elapsed() } else { Duration::ZERO };
        place.pause(5 * MS).await;
    }
    assert!(waited < 2_800 * MS, "{waited:?} of {:?}", begun.elapsed());
}

/// Fails if a search that goes on holds up reads that replicas which are known can serve.
async fn known_replicas_serve_meanwhile<P: Placement>(place: P) {
    let nodes = Nodes::start(5);
    nodes.map([(0..=8191, vec![0, 2, 3]), (8192..=16383, vec![1])]);
    let mut options = strict(&nodes);
    (options.connect_timeout, options.command_timeout) = (500 * MS, Some(1_000 * MS));
    let client = place.connect(&options).await.expect("up");
    nodes.rule(|call| if call.is("CLUSTER SLOTS") { Act::Nothing } else { Act::Usual });
    nodes.refuse(2);
    let seeking = read_beside(&place, &client, HIGH);
    until(&place, "the search", || nodes.passes().len() > 1).await;
    for _ in 0..50 {
        // One may be in flight to the node that is gone.
        let got = Client::get_within(&client, LOW, 1_000 * MS).await;
        assert!(
            got.as_ref().is_ok_and(|v| v.as_deref() == Some("3")) || nodes.count(2, "GET") > 0,
            "{got:?}"
        );
    }
    let error = seeking.await.expect("its task").expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
}

/// Fails if replicas that were lost are not tried again once the nodes were asked, though they are
/// back where they were.
async fn a_replica_is_back_where_it_was<P: Placement>(place: P) {
    let nodes = Arc::new(Nodes::start(2));
    nodes.map([(0..=16383, vec![0, 1])]);
    let mut options = strict(&nodes);
    options.replica_refresh_interval = Duration::from_secs(60);
    nodes.refuse(1);
    let client = place.connect(&options).await.expect("up");
    client.get::<String>("k").await.expect_err("it is away");
    place.pause(1_050 * MS).await;
    let back = Arc::downgrade(&nodes);
    nodes.rule(move |call| {
        if let (true, Some(nodes)) = (call.is("CLUSTER SLOTS"), back.upgrade()) {
            nodes.admit(1);
        }
        Act::Usual
    });
    assert_eq!(client.get::<String>("k").await.expect("a value"), "1");
}

/// Writes to a node that would not have it, where no node says who would. Answers when it began.
async fn write_in_vain<P: Placement>(place: &P, nodes: &Nodes, options: &Options) -> Instant {
    let client = place.connect(options).await.expect("up");
    nodes.rule(|call| match (call.is("CLUSTER SLOTS"), call.is("SET")) {
        (true, _) => say("-LOADING x\r\n"),
        (_, true) => say("-READONLY x\r\n"),
        _ => Act::Usual,
    });
    let begun = Instant::now();
    let error = client.set("k", "v").await.expect_err("no successor");
    assert_eq!(error.code(), Some("READONLY"), "{error}");
    begun
}

/// Fails if a round over the nodes asks more of them than the policy allows, or without its delays.
async fn a_round_is_bounded<P: Placement>(place: P) {
    let nodes = Nodes::start(6);
    let slots = (0..6_u16).map(|n| n * 2_000..=if n == 5 { 16383 } else { n * 2_000 + 1_999 });
    nodes.map(slots.zip((0..6).map(|node| vec![node])));
    let mut options = nodes.options();
    options.reconnect =
        Reconnect { attempts: Some(2), initial: 300 * MS, jitter: 0.0, ..Reconnect::default() };
    let begun = write_in_vain(&place, &nodes, &options).await;
    let asked: Vec<_> = nodes.passes().into_iter().filter(|came| came.at > begun).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps[0] >= 150 * MS && gaps[1] >= 300 * MS, "{gaps:?}");
}

/// Fails if the delays of the policy draw out a round that commands wait for.
async fn delays_end_with_the_round<P: Placement>(place: P) {
    let nodes = Nodes::start(4);
    let slots = (0..4_u16).map(|n| n * 4_096..=n * 4_096 + 4_095);
    nodes.map(slots.zip((0..4).map(|node| vec![node])));
    let mut options = nodes.options();
    options.connect_timeout = 600 * MS;
    options.reconnect = Reconnect { attempts: Some(10), initial: 500 * MS, ..Reconnect::default() };
    let begun = write_in_vain(&place, &nodes, &options).await;
    assert!(begun.elapsed() < 2_000 * MS, "{:?}", begun.elapsed());
}

on_every_placement! {
    a_replica_is_found,
    there_is_no_replica,
    an_answer_in_part_ends_no_search,
    mute_nodes_hold_up_no_search,
    known_replicas_serve_meanwhile,
    a_search_holds_up_nothing_else,
    a_redirect_is_newer_than_a_search,
    a_mute_replica_is_not_waited_for_again_and_again,
    a_replica_is_back_where_it_was,
    a_round_is_bounded,
    delays_end_with_the_round,
}
