//! When the nodes of a cluster are asked who serves what, and what becomes of answers of no use.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::{join_all, join4};
use hedgerow::command::slot::slot_of;
use hedgerow::config::{Endpoint, ProtocolChoice};
use hedgerow::prelude::*;
use hedgerow::testing::{Script, ScriptServer};
use hedgerow::{ErrorKind, Fate, Options};

use crate::nodes::{Act, Nodes, Switch, keys_in, late, say};
use crate::placement::{Client, Placement, on_every_placement, options_for, until};

const MS: Duration = Duration::from_millis(1);
const READ_ONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

/// Sends the key of a command to this address.
fn moved(text: &str, to: SocketAddr) -> Act {
    let key = text.split(' ').nth(1).unwrap_or_default();
    say(format!("-MOVED {} {to}\r\n", slot_of(key.as_bytes())))
}

/// case behaviour/05, R-174, R-177. Fails if one of a thousand calls is redirected twice or fails, or if
/// they cause more than three passes.
async fn a_storm_of_redirects<P: Placement>(place: P) {
    let nodes = Nodes::start(3);
    let client = place.connect(&nodes.options()).await.expect("up");
    client.get::<String>("first").await.expect("a value");
    nodes.map([(0..=16383, vec![1])]);
    let to = nodes.address(1);
    nodes.rule(move |call| match call.node {
        0 if call.is("GET") => moved(call.text, to),
        _ => Act::Usual,
    });
    let begun = Instant::now();
    let calls = (0..1000).map(|n| {
        let client = client.clone();
        place.spawn(async move { client.get::<String>(format!("k{n}")).await })
    });
    for got in join_all(calls).await {
        assert_eq!(got.expect("its task").expect("a value"), "1");
    }
    assert_eq!(nodes.count(1, "GET"), 1000);
    assert!(nodes.count(0, "GET") <= 1001, "{}", nodes.count(0, "GET"));
    place.pause((400 * MS).saturating_sub(begun.elapsed())).await;
    let at_first = nodes.passes().iter().filter(|c| c.at > begun).count();
    assert!(at_first <= 3, "{at_first}");
    // What is learnt holds for all placements' own next calls.
    let before = nodes.count(0, "GET");
    client.get::<String>("k1").await.expect("a value");
    assert_eq!(nodes.count(0, "GET"), before);
}

/// case behaviour/05, R-173. Fails if a primary that stopped answering causes a pass more often than once a
/// second, none at all, or if its successor is not found.
async fn a_silent_primary_is_succeeded<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    let silent = Switch::default();
    let is_silent = silent.clone();
    nodes.rule(move |call| match (call.node, is_silent.is_on()) {
        (0, true) => Act::Nothing,
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    options.command_timeout = Some(400 * MS);
    let client = place.connect(&options).await.expect("up");
    let begun = Instant::now();
    silent.turn_on();
    let mut values = Vec::new();
    while values.last().map(String::as_str) != Some("1") {
        assert!(begun.elapsed() < 8_000 * MS, "no successor");
        if begun.elapsed() > 1_200 * MS {
            nodes.map([(0..=16383, vec![1, 0])]);
        }
        match client.get::<String>("k").await {
            Ok(value) => values.push(value),
            Err(error) => assert!(error.kind() == ErrorKind::Timeout, "{error}"),
        }
    }
    spaced(&nodes, 1_000 * MS);
    assert!(nodes.passes().len() >= 2);
}

/// Whether passes that were answered, each by one CLUSTER SLOTS, are so far apart at least.
#[track_caller]
fn spaced(nodes: &Nodes, least: Duration) {
    let mut times: Vec<_> = nodes.passes().iter().map(|c| (c.node, c.at)).collect();
    times.sort_by_key(|(_, at)| *at);
    // The one that nobody answered is that of the same pass.
    let of = |node| times.iter().filter(move |(n, _)| *n == node).map(|(_, at)| *at);
    for node in 0..2 {
        let times: Vec<_> = of(node).collect();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap + 50 * MS >= least), "{gaps:?}");
    }
}

/// case behaviour/05, R-173. Fails if a primary that is gone is asked after but once, so that a successor
/// that is chosen a moment later is not found, or more than once a second.
async fn a_lost_primary_is_succeeded_later<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![0, 1])]);
    let client = place.connect(&nodes.options()).await.expect("up");
    client.get::<String>("k").await.expect("a value");
    // From here on nothing is left of the first pass's second.
    place.pause(1_000 * MS).await;
    let begun = Instant::now();
    nodes.refuse(0);
    loop {
        if begun.elapsed() > 300 * MS {
            nodes.map([(0..=16383, vec![1, 0])]);
        }
        match client.get::<String>("k").await {
            Ok(value) => break assert_eq!(value, "1"),
            Err(error) => {
                assert!(error.is_transient() || error.fate() != Fate::Answered, "{error}")
            }
        }
        assert!(begun.elapsed() < 5_000 * MS, "no successor");
        place.pause(10 * MS).await;
    }
    assert!(begun.elapsed() >= 300 * MS);
    spaced(&nodes, 1_000 * MS);
}

/// case behaviour/05, R-175. Fails if passes that fail follow each other sooner than in five seconds, though
/// connections are lost and commands redirected all the time.
async fn failed_passes_are_waited_out<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let client = place.connect(&nodes.options()).await.expect("up");
    let to = nodes.address(1);
    nodes.rule(move |call| match call.node {
        _ if call.is("CLUSTER") => say("-ERR not now\r\n"),
        0 if call.is("GET") => moved(call.text, to),
        1 if call.is("GET") => Act::End(String::new()),
        _ => Act::Usual,
    });
    let begun = Instant::now();
    for n in 0.. {
        let error = client.get::<String>(format!("k{n}")).await.expect_err("lost");
        assert!(error.fate() != Fate::Answered, "{error}");
        if begun.elapsed() > 1_500 * MS {
            break;
        }
        place.pause(10 * MS).await;
    }
    for node in 0..2 {
        let asked = nodes.passes().iter().filter(|c| c.node == node && c.at > begun).count();
        assert!(asked <= 1, "node {node}: {asked}");
    }
}

/// Three nodes: the second is the replica of the first, which says so when written to after the switch.
fn failing_over(slots_take: Duration) -> (Nodes, Switch) {
    let (nodes, over) = (Nodes::start(3), Switch::default());
    nodes.map([(0..=8191, vec![0, 1]), (8192..=16383, vec![2])]);
    let (is_over, to) = (over.clone(), nodes.address(1));
    nodes.rule(move |call| match call.node {
        _ if !is_over.is_on() => Act::Usual,
        _ if call.text == "CLUSTER SLOTS" => late(slots_take, Act::Usual),
        0 if call.is("SET") => say(READ_ONLY),
        0 if call.is("GET") => moved(call.text, to),
        _ => Act::Usual,
    });
    (nodes, over)
}

/// How long each of the calls of a task took, which goes on until the time is over.
async fn calls<C: Client>(client: C, key: String, words: &[&str], until: Instant) -> Vec<Duration> {
    let mut times = Vec::new();
    while Instant::now() < until {
        for word in words {
            let begun = Instant::now();
            match *word {
                "SET" => client.set(&key, "v").await.expect("it is sent to the successor"),
                _ => drop(client.get::<String>(&key).await.expect("a value")),
            }
            times.push(begun.elapsed());
        }
    }
    times
}

/// case behaviour/06, R-165, R-177. Fails if a write that READONLY answered fails, if more than the calls in
/// flight get that answer, if they cause more than a pass or two, or if other nodes' calls wait for it.
async fn a_demoted_primary_is_left<P: Placement>(place: P) {
    const WRITERS: usize = 8;
    let (nodes, over) = failing_over(200 * MS);
    let client = place.connect(&nodes.options()).await.expect("up");
    let end = Instant::now() + 600 * MS;
    let writers: Vec<_> = keys_in(0..=8191)
        .take(WRITERS)
        .enumerate()
        .map(|(n, key)| {
            // One that only writes has no MOVED to learn from.
            let words: &[_] = if n == 0 { &["SET"] } else { &["SET", "GET"] };
            place.spawn(calls(client.clone(), key, words, end))
        })
        .collect();
    let key = keys_in(8192..=16383).next().expect("a key");
    let reader = place.spawn(calls(client.clone(), key, &["GET"], end));
    place.pause(100 * MS).await;
    nodes.map([(0..=8191, vec![1, 0]), (8192..=16383, vec![2])]);
    let (begun, before) = (Instant::now(), nodes.passes().len());
    over.turn_on();
    for writer in join_all(writers).await {
        writer.expect("its task");
    }
    let refused = nodes.came().iter().filter(|c| c.at > begun && c.node == 0).count();
    // Each writer's one or two calls, and what belongs to the pass.
    assert!(refused <= 2 * WRITERS + 4, "{refused}");
    assert!(nodes.count(1, "SET") > WRITERS, "{}", nodes.count(1, "SET"));
    let passes = nodes.passes().len() - before;
    assert!((1..=2).contains(&passes), "{passes}");
    let mut times = reader.await.expect("its task");
    times.sort();
    assert!(times[times.len() * 99 / 100] < 100 * MS, "{:?}", times.last());
}

/// case behaviour/06. R-170. Fails if a standalone client keeps a connection that answered READONLY, repeats
/// the write by itself, or connects more than once for each such answer.
async fn a_demoted_server_is_connected_anew<P: Placement>(place: P) {
    let demoted = Script::new().answer("SET", READ_ONLY);
    let server = ScriptServer::builder().then(demoted.clone()).then(demoted);
    let server = server.then(Script::new().answer("SET", "+OK\r\n")).start().expect("a server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    for n in 0..2 {
        let error = client.set("k", "v").await.expect_err("it is a replica");
        assert_eq!((error.code(), error.fate()), (Some("READONLY"), Fate::Answered), "{error}");
        until(&place, "the end", || server.wait_ended(n, Duration::ZERO).is_some()).await;
    }
    client.set("k", "v").await.expect("another server by now");
    assert_eq!(server.accepted(), 3);
    let sets = server.received().iter().filter(|r| r.text() == "SET k v").count();
    assert_eq!(sets, 3);
}

/// Fails if a write that READONLY answered gets another error, is sent again, or waits longer
/// than a connect may take, where the pass fails or names the same node.
async fn no_successor_is_found<P: Placement>(place: P) {
    let acts =
        [Act::Usual, say("-ERR no\r\n"), say("*0\r\n"), Act::Nothing, Act::End(String::new())];
    let each = acts.map(async |act| {
        let nodes = Nodes::start(1);
        let over = Switch::default();
        let is_over = over.clone();
        nodes.rule(move |call| match is_over.is_on() {
            true if call.text == "CLUSTER SLOTS" => act.clone(),
            true if call.is("SET") => say(READ_ONLY),
            _ => Act::Usual,
        });
        let mut options = nodes.options();
        options.connect_timeout = 300 * MS;
        let client = place.connect(&options).await.expect("up");
        over.turn_on();
        let begun = Instant::now();
        let error = client.set("k", "v").await.expect_err("there is nobody else");
        assert_eq!((error.code(), error.fate()), (Some("READONLY"), Fate::Answered), "{error}");
        assert!(begun.elapsed() < 1_300 * MS, "{:?}", begun.elapsed());
        assert_eq!(nodes.count(0, "SET"), 1);
        assert_eq!(client.get::<String>("k").await.expect("the map is kept"), "0");
    });
    join_all(each).await;
}

/// Fails if a command that was sent to nobody (`?`) does not go to the owner that a pass finds,
/// which it causes at once.
async fn an_owner_is_found_for_the_homeless<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let nobody = format!("-MOVED {} ?:1\r\n", slot_of(b"k"));
    nodes.rule(move |call| match (call.node, call.text) {
        (0, "GET k") => say(&nobody),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    nodes.map([(0..=16383, vec![1])]);
    assert_eq!(client.get::<String>("k").await.expect("a value"), "1");
    assert_eq!((nodes.count(0, "GET k"), nodes.count(1, "GET k")), (1, 1));
    assert_eq!(nodes.passes().len(), 2);
}

/// Fails if passes that commands wait for all ask the same node, or come without a pause.
async fn passes_ask_others_in_turn<P: Placement>(place: P) {
    let nodes = Nodes::start(3);
    nodes.map([(0..=8191, vec![0]), (8192..=12000, vec![1]), (12001..=16383, vec![2])]);
    nodes.rule(|call| if call.is("SET") { say(READ_ONLY) } else { Act::Usual });
    let client = place.connect(&nodes.options()).await.expect("up");
    let begun = Instant::now();
    while begun.elapsed() < 1_000 * MS {
        client.set("k", "v").await.expect_err("nobody takes it");
    }
    let passes: Vec<_> = nodes.passes().into_iter().filter(|c| c.at > begun).collect();
    assert!((2..=12).contains(&passes.len()), "{}", passes.len());
    assert!(passes.iter().any(|c| c.node != passes[0].node), "always node {}", passes[0].node);
}

/// Answers to CLUSTER SLOTS that no cluster gives.
fn of_no_use() -> Vec<Act> {
    let lines = [
        "+OK\r\n",
        ":7\r\n",
        "*0\r\n",
        "_\r\n",
        "$5\r\nhello\r\n",
        "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' \r\n",
        "-LOADING server is loading the dataset in memory\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:16383\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:9\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:1\r\n",
        "*2\r\n*3\r\n",
        "?what\r\n",
    ];
    let mut acts: Vec<_> = lines.map(say).into();
    acts.extend([Act::Nothing, Act::End(String::new()), Act::End("*1\r\n*3\r\n".to_owned())]);
    acts
}

/// Short limits, as some answers never come.
fn impatient(nodes: &Nodes) -> Options {
    let mut options = nodes.options();
    (options.connect_timeout, options.command_timeout) = (500 * MS, Some(200 * MS));
    options
}

/// Fails if a seed whose answer is of no use keeps the next one from being asked, or if
/// without a next one `connect` does not end, or ends well.
async fn seeds_of_no_use<P: Placement>(place: P) {
    let each = of_no_use().into_iter().map(async |act| {
        let nodes = Nodes::start(2);
        let said = act.clone();
        nodes.map([(0..=16383, vec![1])]);
        nodes.rule(move |call| match (call.node, call.is("CLUSTER SLOTS")) {
            (0, true) => said.clone(),
            _ => Act::Usual,
        });
        let mut options = impatient(&nodes);
        let begun = Instant::now();
        let error = place.connect(&options).await.expect_err("nothing is known");
        assert!(begun.elapsed() < 2_000 * MS, "{act:?}: {:?}", begun.elapsed());
        assert!(!error.to_string().is_empty(), "{act:?}");
        let second = Endpoint::tcp("127.0.0.1", nodes.address(1).port());
        options.cluster.as_mut().expect("a cluster").seeds = vec![second];
        options.command_timeout = Some(500 * MS);
        let client = place.connect(&options).await.unwrap_or_else(|e| panic!("{act:?}: {e}"));
        let got = Client::get_within(&client, "k", 5_000 * MS).await;
        assert_eq!(got.expect("a value").as_deref(), Some("1"), "{act:?}");
    });
    join_all(each).await;
}

/// Fails if a later answer of no use changes the map or takes its connection's commands with
/// it.
async fn later_answers_of_no_use<P: Placement>(place: P) {
    let each = of_no_use().into_iter().map(async |act| {
        let nodes = Nodes::start(2);
        nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
        let over = Switch::default();
        let (is_over, said) = (over.clone(), act.clone());
        nodes.rule(move |call| match is_over.is_on() {
            true if call.is("CLUSTER SLOTS") => said.clone(),
            true if call.is("SET") => say(READ_ONLY),
            _ => Act::Usual,
        });
        let mut options = impatient(&nodes);
        options.command_timeout = Some(5_000 * MS);
        let client = place.connect(&options).await.expect("up");
        over.turn_on();
        let error = client.set("k", "v").await.expect_err("nobody takes it");
        assert_eq!(error.code(), Some("READONLY"), "{act:?}: {error}");
        for (slots, value) in [(0..=8191, "0"), (8192..=16383, "1")] {
            let key = keys_in(slots).next().expect("a key");
            assert_eq!(client.get::<String>(&key).await.expect("kept"), value, "{act:?}");
        }
    });
    join_all(each).await;
}

/// Fails if an answer that tells of a part of the slots does not hold for these, or takes the
/// owners of the others away.
async fn an_answer_in_part<P: Placement>(place: P) {
    for protocol in [ProtocolChoice::Resp2, ProtocolChoice::Resp3] {
        let (nodes, over) = failing_over(Duration::ZERO);
        let mut options = nodes.options();
        options.protocol = protocol;
        let client = place.connect(&options).await.expect("up");
        nodes.map([(0..=8191, vec![1])]);
        over.turn_on();
        let low = keys_in(0..=8191).next().expect("a key");
        client.set(&low, "v").await.expect("the successor takes it");
        assert_eq!((nodes.count(0, "SET"), nodes.count(1, "SET")), (1, 1));
        for key in keys_in(8192..=16383).take(5) {
            assert_eq!(client.get::<String>(&key).await.expect("a value"), "2");
        }
    }
}

/// The scenarios that are about seconds, at the same time.
async fn what_takes_seconds<P: Placement>(place: P) {
    let succeeded = a_silent_primary_is_succeeded(place.clone());
    let later = a_lost_primary_is_succeeded_later(place.clone());
    let failed = failed_passes_are_waited_out(place.clone());
    join4(succeeded, later, failed, passes_ask_others_in_turn(place)).await;
}

on_every_placement! {
    what_takes_seconds,
    a_storm_of_redirects,
    a_demoted_primary_is_left,
    a_demoted_server_is_connected_anew,
    no_successor_is_found,
    an_owner_is_found_for_the_homeless,
    seeds_of_no_use,
    later_answers_of_no_use,
    an_answer_in_part,
}
