//! Databases other than 0 in a cluster: each connection has its server say what it is first.

use std::time::Duration;

use hedgerow::config::{Endpoint, ProtocolChoice};
use hedgerow::prelude::*;
use hedgerow::{ErrorKind, Fate, Options};

use crate::nodes::{Act, Nodes, bulk, late, say};
use crate::placement::{Placement, on_each_placement, on_every_placement, options_for};

const MS: Duration = Duration::from_millis(1);

const VALKEY_9: &str = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n\
    valkey_release_stage:ga\r\nredis_mode:cluster\r\nserver_mode:cluster\r\n";
const VALKEY_8: &str = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\n\
    redis_mode:cluster\r\nserver_mode:cluster\r\n";
const REDIS_7: &str = "redis_version:7.2.5\r\nredis_mode:cluster\r\n";
const REDIS_10: &str = "redis_version:10.0.0\r\nredis_mode:cluster\r\n";
const ALONE: &str = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n\
    redis_mode:standalone\r\nserver_mode:standalone\r\n";

fn told(text: &str) -> Act {
    say(bulk(&format!("# Server\r\n{text}")))
}

/// As a RESP3 connection gets it.
fn told_verbatim(text: &str) -> Act {
    let text = format!("txt:# Server\r\n{text}");
    say(format!("={}\r\n{text}\r\n", text.len()))
}

/// Options with database 2.
fn second_of(nodes: &Nodes) -> Options {
    let mut options = nodes.options();
    options.database = 2;
    options
}

/// What came first on each connection of a node, without the library's own name.
fn firsts(nodes: &Nodes, node: usize) -> Vec<Vec<String>> {
    let mut came = nodes.came();
    came.retain(|c| c.node == node && !c.text.starts_with("CLIENT"));
    let of = |n| came.iter().filter(move |c| c.connection == n).map(|c| c.text.clone()).take(4);
    (0..nodes.accepted(node)).map(|n| of(n).collect()).collect()
}

/// Fails if any connection, that to a stranger or one that replaces another too, selects
/// its database before its own server's answer to INFO, or sends a command before SELECT.
async fn each_connection_asks_first<P: Placement>(place: P) {
    for protocol in [ProtocolChoice::Resp2, ProtocolChoice::Resp3] {
        let nodes = Nodes::start(3);
        nodes.password("s3cret");
        nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
        let ask = nodes.redirect("ASK", "stranger", 2);
        nodes.rule(move |call| match (call.node, call.text) {
            (_, "INFO SERVER") if protocol == ProtocolChoice::Resp3 => {
                late(20 * MS, told_verbatim(VALKEY_9))
            }
            (_, "INFO SERVER") => late(20 * MS, told(VALKEY_9)),
            (0 | 1, "GET stranger") => say(&ask),
            _ => Act::Usual,
        });
        let mut options = second_of(&nodes);
        (options.protocol, options.password) = (protocol, Some("s3cret".into()));
        let client = place.connect(&options).await.expect("up");
        for key in ["a", "b", "c", "d", "stranger"] {
            client.get::<String>(key).await.expect("a value");
        }
        nodes.end_connections(0);
        while nodes.accepted(0) < 4 {
            let _ = client.get::<String>("k1").await;
            place.pause(MS).await;
        }
        for key in ["a", "b", "c", "d", "stranger"] {
            client.get::<String>(key).await.expect("a value");
        }
        let hello = if protocol == ProtocolChoice::Resp3 { "HELLO 3 AUTH default" } else { "AUTH" };
        for first in (0..3).flat_map(|node| firsts(&nodes, node)) {
            // One that is new may not have come to the end yet.
            let wanted = [&format!("{hello} s3cret"), "INFO SERVER", "SELECT 2"];
            assert!(first.iter().zip(wanted).all(|(text, wanted)| text == wanted), "{first:?}");
        }
        assert!((0..3).all(|node| nodes.accepted(node) > 0));
        one_after_the_other(&nodes);
    }
}

/// Whether SELECT came only after the answer to INFO, which takes 20 ms.
#[track_caller]
fn one_after_the_other(nodes: &Nodes) {
    let came = nodes.came();
    for select in came.iter().filter(|c| c.text == "SELECT 2") {
        let is_its = |c: &&crate::nodes::Came| {
            (c.node, c.connection, c.text.as_str())
                == (select.node, select.connection, "INFO SERVER")
        };
        let asked = came.iter().find(is_its).expect("it was asked");
        assert!(select.at - asked.at >= 19 * MS, "{:?}", select.at - asked.at);
    }
}

/// Fails if a server that cannot have databases in a cluster is selected one, if the error is
/// not one of the options that names server, version and mode, or if the next seed is asked.
async fn others_are_refused_at_once<P: Placement>(place: P) {
    for (text, words) in [
        (VALKEY_8, ["valkey", "8.1.3", "cluster"]),
        (REDIS_7, ["redis", "7.2.5", "cluster"]),
        (REDIS_10, ["redis", "10.0.0", "cluster"]),
        (ALONE, ["valkey", "9.0.1", "standalone"]),
        ("", ["redis", "database", "Valkey 9"]),
    ] {
        let nodes = Nodes::start(2);
        nodes.rule(move |call| match (call.node, call.text) {
            (0, "INFO SERVER") => told(text),
            (1, "INFO SERVER") => told(VALKEY_9),
            _ => Act::Usual,
        });
        let mut options = second_of(&nodes);
        let second = Endpoint::tcp("127.0.0.1", nodes.address(1).port());
        options.cluster.as_mut().expect("a cluster").seeds = vec![second];
        let error = place.connect(&options).await.expect_err("it has no database 2");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Config, Fate::NotSent), "{error}");
        let told = error.to_string();
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert_eq!((nodes.count_all("SELECT"), nodes.count_all("CLUSTER SLOTS")), (0, 0), "{told}");
        assert_eq!(nodes.accepted(1), 0, "{told}");
    }
}

/// Fails if a connection that may not ask or select is used, in database 0 then.
async fn denials_fail_the_set_up<P: Placement>(place: P) {
    use ErrorKind::{Config, Handshake};
    for (word, line, code, kind) in [
        (
            "INFO",
            "-NOPERM this user has no permissions to run the 'info' command\r\n",
            "NOPERM",
            Handshake,
        ),
        (
            "SELECT",
            "-NOPERM this user has no permissions to run the 'select' command\r\n",
            "NOPERM",
            Handshake,
        ),
        ("SELECT", "-ERR DB index is out of range\r\n", "ERR", Config),
        (
            "HELLO",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            "WRONGPASS",
            Handshake,
        ),
    ] {
        let nodes = Nodes::start(1);
        nodes.rule(move |call| match call.is(word) {
            true => say(line),
            false if call.is("INFO") => told(VALKEY_9),
            false => Act::Usual,
        });
        let error = place.connect(&second_of(&nodes)).await.expect_err(line);
        assert_eq!(error.code(), Some(code), "{error}");
        assert_eq!((error.kind(), error.fate()), (kind, Fate::NotSent), "{error}");
        assert_eq!(nodes.count_all("CLUSTER SLOTS"), 0, "{line}");
    }
}

/// Fails if a seed that does not listen, or closes, keeps the next one from being asked.
async fn transient_failures_try_the_next_seed<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![1])]);
    nodes.rule(|call| if call.is("INFO") { told(VALKEY_9) } else { Act::Usual });
    nodes.refuse(0);
    let mut options = second_of(&nodes);
    let second = Endpoint::tcp("127.0.0.1", nodes.address(1).port());
    let cluster = options.cluster.as_mut().expect("a cluster");
    cluster.seeds = vec![Endpoint::tcp("127.0.0.1", 1), second];
    let client = place.connect(&options).await.expect("the third seed is fine");
    assert_eq!(client.get::<String>("k").await.expect("a value"), "1");
}

/// Fails if a node that is discovered or named by a redirect later is taken for what the others
/// are, gets a command or SELECT, or if its error is another one.
async fn later_nodes_are_refused_alone<P: Placement>(place: P) {
    let nodes = Nodes::start(3);
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
    let low = |n: &usize| hedgerow::command::slot::slot_of(format!("k{n}").as_bytes()) < 8192;
    let key = |is_low: bool| (0..).find(|n| low(n) == is_low).map(|n| format!("k{n}"));
    let (low, high) = (key(true).expect("a key"), key(false).expect("a key"));
    let moved = nodes.redirect("MOVED", &low, 2);
    let text = format!("SET {low} v");
    nodes.rule(move |call| match (call.node, call.text) {
        (0, "INFO SERVER") => told(VALKEY_9),
        (_, "INFO SERVER") => told(VALKEY_8),
        (0, line) if line == text => say(&moved),
        _ => Act::Usual,
    });
    let client = place.connect(&second_of(&nodes)).await.expect("the seed is fine");
    for outcome in [client.set(&high, "v").await, client.set(&low, "v").await] {
        let error = outcome.expect_err("it has no database 2");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Config, Fate::NotSent), "{error}");
        assert!(error.to_string().contains("8.1.3"), "{error}");
    }
    for node in [1, 2] {
        assert_eq!((nodes.count(node, "SELECT"), nodes.count(node, "SET")), (0, 0));
    }
}

/// Fails if a client that connects in the background does not tell its first caller, or tells a later
/// one something else.
async fn a_lazy_client_tells_its_caller<P: Placement>(place: P) {
    let nodes = Nodes::start(1);
    nodes.rule(|call| if call.is("INFO") { told(REDIS_7) } else { Act::Usual });
    let client = place.create(&second_of(&nodes)).expect("valid options");
    for _ in 0..3 {
        let error = client.get::<String>("k").await.expect_err("it has no database 2");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Config, Fate::NotSent), "{error}");
    }
    assert_eq!(nodes.count_all("SELECT") + nodes.count_all("GET"), 0);
}

/// Fails if database 0 of a cluster, or any of a server on its own, costs an INFO.
async fn nothing_is_asked_for_database_0<P: Placement>(place: P) {
    let nodes = Nodes::start(1);
    nodes.rule(|call| if call.is("INFO") { say("-NOPERM no\r\n") } else { Act::Usual });
    let client = place.connect(&nodes.options()).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a value"), "0");
    assert_eq!(nodes.count_all("SELECT"), 0);
    let mut options = options_for(nodes.address(0));
    options.database = 2;
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a value"), "0");
    assert_eq!((nodes.count_all("SELECT 2"), nodes.count_all("INFO")), (1, 0));
}

on_every_placement! {
    each_connection_asks_first,
    others_are_refused_at_once,
    denials_fail_the_set_up,
    transient_failures_try_the_next_seed,
    later_nodes_are_refused_alone,
    nothing_is_asked_for_database_0,
}

mod lazy {
    use super::{a_lazy_client_tells_its_caller, on_each_placement};

    on_each_placement!(a_lazy_client_tells_its_caller);
}
