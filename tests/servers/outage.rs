//! Servers that die, come back, or stop answering for a while.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use hedgerow::engine::ConnectionState;
use hedgerow::prelude::*;
use hedgerow::{ErrorKind, Fate};

use crate::placement::{Client, Placement, States, on_each_placement, until};
use crate::server::{Flavor, Server};
use crate::typed::every_way;

/// Reads states until this one, and answers those before it.
async fn states_until(states: &mut dyn States, last: ConnectionState) -> Vec<ConnectionState> {
    let mut before = Vec::new();
    while let Some(change) = states.next().await {
        let lost = matches!(change.state, ConnectionState::Disconnected | ConnectionState::Failed);
        assert_eq!(change.error.is_some(), lost, "a loss has a reason");
        if change.state == last {
            return before;
        }
        before.push(change.state);
    }
    panic!("the states ended before {last:?}, after {before:?}");
}

/// Fails if the client does not come back by itself, a state is missing, a
/// fate is wrong, or a command that was in flight reaches the new server.
async fn a_killed_server_is_found_again<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let mut server = Server::start(flavor);
        for (way, options) in every_way(&server) {
            let what = format!("{flavor:?}, {way}");
            let client = place.connect(&options).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            client.ping().await.expect("PING");
            let mut states = client.states();
            server.pause();
            let sent = client.counters().commands;
            let in_flight = place.spawn(client.incr("n"));
            until(&place, "the command", || client.counters().commands > sent).await;
            // Written for sure once the client has had turns of its own.
            place.pause(Duration::from_millis(20)).await;
            server.kill();
            let error = in_flight.await.expect("an outcome").expect_err("the server died");
            let told = (error.kind(), error.fate());
            assert_eq!(told, (ErrorKind::Disconnected, Fate::Unknown), "{what}: {error}");
            let before = states_until(&mut *states, ConnectionState::Disconnected).await;
            assert_eq!(before, [], "{what}");
            assert!(!client.is_connected(), "{what}");
            let short = client.get_within("n", Duration::from_millis(30)).await;
            let error = short.expect_err("nobody is there");
            assert_eq!(error.fate(), Fate::NotSent, "{what}: {error}");
            let waits = place.spawn(client.incr("m"));
            server.restart();
            assert_eq!(waits.await.expect("an outcome").expect("sent when up"), 1, "{what}");
            let before = states_until(&mut *states, ConnectionState::Connected).await;
            assert_eq!(before.last(), Some(&ConnectionState::Connecting), "{what}: {before:?}");
            assert!(client.is_connected(), "{what}");
            assert_eq!(client.get::<Option<i64>>("n").await.expect("GET"), None, "{what}");
            assert_eq!(client.live_requests(), 0, "{what}");
        }
    }
}

/// Case behaviour/23, the stopped server. Fails if a passed deadline ends a request twice or not,
/// the connection is made anew, or a late reply goes to a later request.
async fn a_stopped_server_costs_only_deadlines<P: Placement>(place: P) {
    let server = Server::start(Flavor::Valkey91);
    for (way, options) in every_way(&server) {
        let client = place.connect(&options).await.expect("up");
        client.mset([("a", "A"), ("b", "B")]).await.expect("MSET");
        server.pause();
        let limit = Duration::from_millis(100);
        let calls = (0..50).map(|_| client.get_within("a", limit));
        for outcome in join_all(calls).await {
            let error = outcome.expect_err("the server is stopped");
            let told = (error.kind(), error.fate());
            assert_eq!(told, (ErrorKind::Timeout, Fate::Unknown), "{way}: {error}");
        }
        let waits = place.spawn(client.get::<String>("b"));
        server.resume();
        assert_eq!(waits.await.expect("an outcome").expect("GET"), "B", "{way}");
        for _ in 0..100 {
            assert_eq!(client.get::<String>("b").await.expect("GET"), "B", "{way}");
        }
        let counters = client.counters();
        assert_eq!((counters.connects, counters.timeouts), (1, 50), "{way}");
        assert_eq!(client.live_requests(), 0, "{way}");
    }
}

/// Fails if one of 10,000 commands at once is lost, answered twice, or gets another's
/// reply.
async fn ten_thousand_at_once<P: Placement>(place: P) {
    let server = Server::start(Flavor::Valkey91);
    for (way, mut options) in every_way(&server) {
        for connections in [1, 4] {
            options.connections = connections;
            let client = place.connect(&options).await.expect("up");
            client.del("n").await.expect("DEL");
            let counts = join_all((0..10_000).map(|_| client.incr("n"))).await;
            let counts: BTreeSet<i64> = counts.into_iter().map(|n| n.expect("INCR")).collect();
            assert!(counts.into_iter().eq(1..=10_000), "{way}");
            let echoes = (0..10_000u32).map(|n| client.echo::<u32>(n));
            let echoes: Vec<u32> =
                join_all(echoes).await.into_iter().map(|n| n.expect("ECHO")).collect();
            assert!(echoes.into_iter().eq(0..10_000), "{way}");
            assert_eq!(client.live_requests(), 0, "{way}");
        }
    }
}

on_each_placement! {
    a_killed_server_is_found_again,
    a_stopped_server_costs_only_deadlines,
    ten_thousand_at_once,
}
