//! Commands of a cluster that wait for more than a reply: their deadlines, and callers that leave.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join_all, select};
use hedgerow::command::slot::slot_of;
use hedgerow::prelude::*;
use hedgerow::{ErrorKind, Fate};

use crate::nodes::{Act, Nodes, late, say};
use crate::placement::{Client, Placement, on_every_placement, until};

const MS: Duration = Duration::from_millis(1);

/// What `SET k v` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// The redirect itself, in flight.
    Redirect,
    /// A moment, after TRYAGAIN.
    Moment,
    /// The same, after CLUSTERDOWN.
    Slot,
    /// The pass after READONLY.
    Pass,
    /// The pass after MOVED to nobody.
    Owner,
    /// The connection to the node that it was sent to.
    Connection,
}

const ALL: [Awaits; 6] = [
    Awaits::Redirect,
    Awaits::Moment,
    Awaits::Slot,
    Awaits::Pass,
    Awaits::Owner,
    Awaits::Connection,
];

/// Two nodes at which it does; the first has all slots.
fn nodes_at_which(it: Awaits) -> Nodes {
    let nodes = Nodes::start(2);
    let moved = nodes.redirect("MOVED", "k", 1);
    let nobody = format!("-MOVED {} ?:1\r\n", slot_of(b"k"));
    let passes = AtomicUsize::new(0);
    nodes.rule(move |call| match (it, call.node) {
        (Awaits::Pass | Awaits::Owner, _) if call.is("CLUSTER SLOTS") => {
            // The first pass is that of the start.
            let is_first = passes.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first { Act::Usual } else { Act::Nothing }
        }
        (Awaits::Connection, 1) if call.is("HELLO") => Act::Nothing,
        (_, 0) if call.is("SET k") => match it {
            Awaits::Redirect => late(400 * MS, say(&moved)),
            Awaits::Moment => say("-TRYAGAIN x\r\n"),
            Awaits::Slot => say("-CLUSTERDOWN x\r\n"),
            Awaits::Pass => say("-READONLY x\r\n"),
            Awaits::Owner => say(&nobody),
            Awaits::Connection => say(&moved),
        },
        _ => Act::Usual,
    });
    nodes
}

/// Nothing of what it was is left, and what comes after is in step.
async fn is_over<P: Placement>(place: &P, client: &P::Client, nodes: &Nodes, it: Awaits) {
    // What was sent before the end may still be on its way.
    place.pause(50 * MS).await;
    let sets = nodes.count(0, "SET");
    place.pause(200 * MS).await;
    if Client::nodes(client).is_some() {
        // What is in flight keeps its place until its reply has come.
        until(place, "the end of all", || Client::live_requests(client) == 0).await;
    }
    assert_eq!((nodes.count(0, "SET"), nodes.count(1, "SET")), (sets, 0), "{it:?}");
    let got = Client::get_within(client, "other", 5_000 * MS).await;
    assert_eq!(got.expect("in step").as_deref(), Some("0"), "{it:?}");
}

/// Fails if a command outlives its deadline while it waits to be sent again, if it is
/// sent after that, or if one that only ever was sent elsewhere counts as one that may have run.
async fn deadlines_hold_in_every_wait<P: Placement>(place: P) {
    let each = ALL.map(async |it| {
        let nodes = nodes_at_which(it);
        let client = place.connect(&nodes.options()).await.expect("up");
        let begun = Instant::now();
        let set = P::Client::within(client.set("k", "v"), 250 * MS);
        let error = set.await.expect_err("it waits for more");
        let took = begun.elapsed();
        assert!(took >= 249 * MS && took < 1_000 * MS, "{it:?}: {took:?}: {error}");
        let (kind, fate) = match it {
            Awaits::Redirect => (ErrorKind::Timeout, Fate::Unknown),
            Awaits::Connection => (ErrorKind::NotConnected, Fate::NotSent),
            _ => (ErrorKind::Timeout, Fate::NotSent),
        };
        assert_eq!((error.kind(), error.fate()), (kind, fate), "{it:?}: {error}");
        is_over(&place, &client, &nodes, it).await;
    });
    join_all(each).await;
}

/// Fails if a command whose caller left while it waited to be sent again is sent again, leaves
/// something behind, or shifts the replies of others.
async fn callers_leave_in_every_wait<P: Placement>(place: P) {
    let each = ALL.map(async |it| {
        let nodes = nodes_at_which(it);
        let client = place.connect(&nodes.options()).await.expect("up");
        let call = Box::pin(client.set("k", "v"));
        let sent = Box::pin(async {
            until(&place, "the command", || nodes.count(0, "SET k") > 0).await;
            place.pause(30 * MS).await;
        });
        drop(select(call, sent).await);
        is_over(&place, &client, &nodes, it).await;
    });
    join_all(each).await;
}

/// Fails if one caller that leaves takes others with it that wait for the same, or if these are
/// not sent where they belong as soon as that is known.
async fn others_go_on_waiting<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let passes = AtomicUsize::new(0);
    nodes.rule(move |call| match (call.node, call.text) {
        (_, "CLUSTER SLOTS") if passes.fetch_add(1, Ordering::SeqCst) > 0 => {
            late(300 * MS, Act::Usual)
        }
        (0, text) if text.starts_with("SET") => say("-READONLY x\r\n"),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    nodes.map([(0..=16383, vec![1])]);
    let calls: Vec<_> = (0..30)
        .map(|n| {
            let (client, key) = (client.clone(), format!("k{n}"));
            let limit = place.pause(if n % 3 == 0 { 100 * MS } else { 20_000 * MS });
            place.spawn(async move {
                let call = Box::pin(client.set(&key, n));
                match select(call, limit).await {
                    futures::future::Either::Left((outcome, _)) => Some(outcome),
                    futures::future::Either::Right(_) => None,
                }
            })
        })
        .collect();
    let outcomes = join_all(calls).await.into_iter().map(|outcome| outcome.expect("its task"));
    for (n, outcome) in outcomes.enumerate() {
        match (n % 3, outcome) {
            (0, None) => assert_eq!(nodes.count(1, &format!("SET k{n}")), 0),
            (1 | 2, Some(Ok(_))) => assert_eq!(nodes.count(1, &format!("SET k{n}")), 1),
            (_, other) => panic!("{n}: {other:?}"),
        }
    }
}

on_every_placement! {
    deadlines_hold_in_every_wait,
    callers_leave_in_every_wait,
    others_go_on_waiting,
}
