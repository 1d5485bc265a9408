//! Commands that a node of a cluster sends elsewhere, or puts off, as no healthy cluster would.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, join_all, join3};
use hedgerow::command::slot::slot_of;
use hedgerow::config::{Endpoint, ProtocolChoice};
use hedgerow::prelude::*;
use hedgerow::{Error, ErrorKind, Fate, Options};

use crate::nodes::{Act, Nodes, say};
use crate::placement::{Client, Placement, on_every_placement};

const MS: Duration = Duration::from_millis(1);

/// So many nodes, the first of which has the half of the slots that `key` is in, the second the other.
fn halves(count: usize, key: &str) -> Nodes {
    let nodes = Nodes::start(count);
    let is_low = slot_of(key.as_bytes()) < 8192;
    let [low, high] = if is_low { [0, 1] } else { [1, 0] };
    nodes.map([(0..=8191, vec![low]), (8192..=16383, vec![high])]);
    nodes
}

/// Keys of the half that the second node has.
fn keys_of_the_other(key: &str, count: usize) -> Vec<String> {
    let is_low = |key: &str| slot_of(key.as_bytes()) < 8192;
    let others = (0..).map(|n| format!("other{n}")).filter(|k| is_low(k) != is_low(key));
    others.take(count).collect()
}

/// Two nodes between which the slot of `{t}` is on its way.
fn migrating() -> Nodes {
    let nodes = halves(2, "{t}");
    let ask = nodes.redirect("ASK", "{t}", 1);
    let moved = nodes.redirect("MOVED", "{t}", 0);
    nodes.rule(move |call| match (call.node, call.text) {
        (_, text) if !text.contains("{t}") => Act::Usual,
        (0, _) => say(&ask),
        _ if !call.is_asking => say(&moved),
        (_, text) if text.starts_with("SADD") => say(":1\r\n"),
        (_, text) if text.starts_with("SCARD") => say(":7\r\n"),
        _ => Act::Usual,
    });
    nodes
}

/// Whether each command for `{t}` that came to a node came right after an ASKING of its own.
#[track_caller]
fn asked_for_each(nodes: &Nodes, node: usize, count: usize) {
    let mut came = nodes.came();
    came.retain(|c| c.node == node);
    let mut asked = 0;
    for connection in 0..nodes.accepted(node) {
        let texts = came.iter().filter(|c| c.connection == connection).map(|c| &c.text);
        let texts: Vec<_> = texts.collect();
        for pair in texts.windows(2) {
            let is_moving = pair[1].contains("{t}");
            assert_eq!(pair[0] == "ASKING", is_moving, "{texts:?}");
            asked += usize::from(is_moving);
        }
    }
    assert_eq!((asked, nodes.count(node, "ASKING")), (count, count));
}

/// case behaviour/04, R-184. Fails if a command of a moving slot comes without an ASKING right before it,
/// if anything else comes between the two, or if the slot counts as moved already.
async fn each_command_asks_for_itself<P: Placement>(place: P) {
    for protocol in [ProtocolChoice::Resp2, ProtocolChoice::Resp3] {
        let nodes = migrating();
        nodes.password("s3cret");
        let mut options = nodes.options();
        (options.protocol, options.password) = (protocol, Some("s3cret".into()));
        let client = place.connect(&options).await.expect("up");
        let pipeline =
            join3(client.sadd("{t}a", ["v"]), client.scard("{t}a"), client.get::<String>("{t}b"));
        let others = keys_of_the_other("{t}", 50);
        let others = join_all(others.iter().map(|key| client.get::<String>(key)));
        let ((added, size, got), others) = join(pipeline, others).await;
        assert_eq!((added.expect("added"), size.expect("a size")), (1, 7));
        assert_eq!(got.expect("a value"), "1");
        others.into_iter().for_each(|got| assert_eq!(got.expect("a value"), "1"));
        asked_for_each(&nodes, 1, 3);
        let before = nodes.count(0, "GET");
        assert_eq!(client.get::<String>("{t}c").await.expect("a value"), "1");
        assert_eq!(nodes.count(0, "GET"), before + 1);
        asked_for_each(&nodes, 1, 4);
        assert_eq!(nodes.passes().len(), 1);
    }
}

/// Fails if a command that is sent again, twice even, is not to the byte what it was, whatever its
/// length and though others use the memory of its caller meanwhile.
async fn commands_keep_their_bytes<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let moved = nodes.redirect("ASK", "k", 1);
    let refused = std::sync::Mutex::new(std::collections::BTreeSet::new());
    nodes.rule(move |call| match (call.node, call.is("SET k")) {
        (0, true) => say(&moved),
        // Each for one more moment.
        (1, true) if refused.lock().expect("no panic").insert(call.text.to_owned()) => {
            say("-TRYAGAIN x\r\n")
        }
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    let values = (0..120).chain([4_000, 20_000]).map(|len| "x".repeat(len));
    let values: Vec<String> = values.collect();
    let calls = values.iter().map(async |value| {
        let other = client.get::<String>("other-key-in-the-same-memory");
        let (set, got) = join(client.set("k", value), other).await;
        set.expect("set");
        got.expect("a value");
    });
    join_all(calls).await;
    for value in &values {
        let text = format!("SET k {value}");
        let came = [0, 1]
            .map(|node| nodes.came().iter().filter(|c| c.node == node && c.text == text).count());
        assert_eq!(came, [1, 2], "{} bytes", value.len());
    }
}

/// case behaviour/04, R-184, R-164. Fails if ASK to a node that nobody has named yet is not followed, or
/// makes that node the owner of the slot.
async fn asked_to_a_stranger<P: Placement>(place: P) {
    let nodes = halves(3, "{t}");
    let ask = nodes.redirect("ASK", "{t}", 2);
    nodes.rule(move |call| match (call.node, call.is("GET {t}a")) {
        (0, true) => say(&ask),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    for n in 1..=3 {
        assert_eq!(client.get::<String>("{t}a").await.expect("a value"), "2");
        assert_eq!((nodes.count(0, "GET"), nodes.count(2, "GET")), (n, n));
        asked_for_each(&nodes, 2, n);
    }
    assert_eq!(nodes.accepted(2), 1);
}

/// The error of a GET of `k`, and that it came in time.
async fn fails<P: Placement>(client: &P::Client, within: Duration) -> Error {
    let begun = Instant::now();
    let got = Client::get_within(client, "k", within).await;
    assert!(begun.elapsed() < within + 1_000 * MS, "{:?}", begun.elapsed());
    got.expect_err("no node has it")
}

/// Fails if nodes that name each other are asked more than six times, if the caller does not
/// get the last one's error, or if the loop causes passes of discovery.
async fn circles_end<P: Placement>(place: P) {
    for word in ["MOVED", "ASK"] {
        let nodes = Nodes::start(2);
        let to = [nodes.redirect(word, "k", 1), nodes.redirect(word, "k", 0)];
        nodes.rule(move |call| if call.is("GET k") { say(&to[call.node]) } else { Act::Usual });
        let client = place.connect(&nodes.options()).await.expect("up");
        let error = fails::<P>(&client, 5_000 * MS).await;
        assert_eq!((error.kind(), error.code()), (ErrorKind::Server, Some(word)), "{error}");
        assert_eq!((nodes.count_all("GET k"), nodes.passes().len()), (6, 1));
        let [first, second] = [0, 1].map(|node| nodes.count(node, "GET k"));
        assert_eq!((first, second), (3, 3), "{word}");
        assert_eq!(client.get::<String>("other").await.expect("in step"), "0");
    }
}

/// Fails if a redirect that names no possible slot or address is anything but the caller's
/// error, or is followed anywhere.
async fn garbage_is_an_ordinary_error<P: Placement>(place: P) {
    let nodes = Nodes::start(1);
    let client = place.connect(&nodes.options()).await.expect("up");
    let port = nodes.address(0).port();
    let lines = [
        format!("MOVED 16384 127.0.0.1:{port}"),
        format!("MOVED -1 127.0.0.1:{port}"),
        format!("ASK 99999999999999999999 127.0.0.1:{port}"),
        "MOVED".to_owned(),
        "ASK 5".to_owned(),
        "MOVED  ".to_owned(),
        "MOVED 5 127.0.0.1".to_owned(),
        "MOVED 5 127.0.0.1:0".to_owned(),
        "ASK 5 127.0.0.1:65536".to_owned(),
        "MOVED five 127.0.0.1:x".to_owned(),
    ];
    for (n, line) in lines.into_iter().enumerate() {
        let (word, bytes) = (line[..line.len().min(5)].to_owned(), format!("-{line}\r\n"));
        nodes.rule(move |call| if call.is("GET k") { say(&bytes) } else { Act::Usual });
        let error = fails::<P>(&client, 5_000 * MS).await;
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Server, Fate::Answered), "{line}");
        assert!(word.starts_with(error.code().expect("a code")), "{line}: {error}");
        assert_eq!((nodes.count(0, "GET k"), nodes.passes().len()), (n + 1, 1), "{line}");
    }
}

/// Options whose commands have so long.
fn within(nodes: &Nodes, time: Duration) -> Options {
    let mut options = nodes.options();
    options.command_timeout = Some(time);
    options
}

/// Fails if MOVED to nobody (`?`) makes the client dial somewhere, or if a node that says so
/// again and again is asked more than six times, or without a pass in between.
async fn moved_to_nobody<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let line = format!("-MOVED {} ?:{}\r\n", slot_of(b"k"), nodes.address(1).port());
    nodes.rule(move |call| if call.is("GET k") { say(&line) } else { Act::Usual });
    let client = place.connect(&nodes.options()).await.expect("up");
    let error = fails::<P>(&client, 5_000 * MS).await;
    assert_eq!((error.kind(), error.code()), (ErrorKind::Server, Some("MOVED")), "{error}");
    assert_eq!((nodes.count(0, "GET k"), nodes.accepted(1)), (6, 0));
    assert!((2..=7).contains(&nodes.passes().len()), "{}", nodes.passes().len());
    assert_eq!(client.get::<String>("other").await.expect("in step"), "0");
}

/// Fails if a redirect to where nobody listens is not an error in time by which nothing ran,
/// if it takes anything else with it, or is asked for again and again.
async fn sent_to_where_nobody_listens<P: Placement>(place: P) {
    for word in ["MOVED", "ASK"] {
        let nodes = Nodes::start(1);
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = closed.local_addr().expect("an address");
        drop(closed);
        let line = format!("-{word} {} {address}\r\n", slot_of(b"k"));
        nodes.rule(move |call| if call.is("GET k") { say(&line) } else { Act::Usual });
        let client = place.connect(&within(&nodes, 3_000 * MS)).await.expect("up");
        let error = fails::<P>(&client, 3_000 * MS).await;
        assert_eq!(error.fate(), Fate::NotSent, "{error}");
        assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        assert_eq!(nodes.count(0, "GET k"), 1);
        assert_eq!(client.get::<String>("other").await.expect("in step"), "0");
        assert!(nodes.passes().len() <= 2, "{}", nodes.passes().len());
    }
}

/// Fails if a node that does not know ASKING puts its connection out of step, or is asked more often
/// than the budget allows.
async fn asking_is_refused<P: Placement>(place: P) {
    let nodes = halves(2, "{t}");
    let (ask, moved) = (nodes.redirect("ASK", "{t}", 1), nodes.redirect("MOVED", "{t}", 0));
    nodes.rule(move |call| match (call.node, call.text) {
        (_, "ASKING") => say("-ERR unknown command 'ASKING', with args beginning with: \r\n"),
        (0, "GET {t}a") => say(&ask),
        (1, "GET {t}a") => say(&moved),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    let error = client.get::<String>("{t}a").await.expect_err("it goes nowhere");
    assert_eq!((error.kind(), error.code()), (ErrorKind::Server, Some("MOVED")), "{error}");
    assert_eq!((nodes.count(0, "GET"), nodes.count(1, "GET"), nodes.count(1, "ASKING")), (3, 3, 3));
    for key in keys_of_the_other("{t}", 3) {
        assert_eq!(client.get::<String>(&key).await.expect("in step"), "1");
    }
}

/// Fails if a command whose connection ends between the answer to its ASKING and its own is
/// sent again, or is said not to have been sent.
async fn lost_after_asking<P: Placement>(place: P) {
    let nodes = halves(2, "{t}");
    let ask = nodes.redirect("ASK", "{t}", 1);
    nodes.rule(move |call| match (call.node, call.text) {
        (0, "INCR {t}n") => say(&ask),
        (1, "ASKING") => say("+OK\r\n"),
        (1, "INCR {t}n") => Act::End(String::new()),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    let error = client.incr("{t}n").await.expect_err("lost");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Disconnected, Fate::Unknown), "{error}");
    assert_eq!((nodes.count(0, "INCR"), nodes.count(1, "INCR")), (1, 1));
    let other = &keys_of_the_other("{t}", 1)[0];
    assert_eq!(client.get::<String>(other).await.expect("up again"), "1");
}

/// Answers the first `count` times with an error.
fn at_first(count: usize, error: &'static str) -> impl Fn() -> Act + Send + Sync {
    let left = AtomicUsize::new(count);
    move || {
        let is_left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if is_left.is_ok() { say(format!("-{error}\r\n")) } else { Act::Usual }
    }
}

const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const DOWN: &str = "CLUSTERDOWN The cluster is down";

/// Fails if a command that is put off five times is not sent a sixth time, if one is sent a seventh
/// time, at once, or if such an answer costs more than the one pass that may follow.
async fn put_off_five_times<P: Placement>(place: P) {
    let nodes = Nodes::start(1);
    let (five, six) = (at_first(5, TRY_AGAIN), at_first(6, TRY_AGAIN));
    let (down, dead) = (at_first(5, DOWN), at_first(usize::MAX, DOWN));
    nodes.rule(move |call| match call.text {
        "GET five" => five(),
        "SET six v" => six(),
        "GET down" => down(),
        "GET dead" => dead(),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    let begun = Instant::now();
    let (helped, not) = (
        join(client.get::<String>("five"), client.get::<String>("down")),
        join(client.set("six", "v"), client.get::<String>("dead")),
    );
    let ((five, down), (six, dead)) = join(helped, not).await;
    assert_eq!((five.expect("a value"), down.expect("a value")), ("0".to_owned(), "0".to_owned()));
    assert_eq!(six.expect_err("six times").code(), Some("TRYAGAIN"));
    assert_eq!(dead.expect_err("for ever").code(), Some("CLUSTERDOWN"));
    for text in ["GET five", "SET six v", "GET down", "GET dead"] {
        assert_eq!(nodes.count(0, text), 6, "{text}");
    }
    // Five waits, each at least three quarters of its length.
    assert!(begun.elapsed() >= (25 + 50 + 100 + 200 + 400) * 3 / 4 * MS, "{:?}", begun.elapsed());
    assert!(nodes.passes().len() <= 2);
}

/// Fails if a command that is put off by the node that it was asked to goes there the next time
/// without ASKING, or back to the owner.
async fn put_off_where_it_was_asked<P: Placement>(place: P) {
    let nodes = halves(2, "{t}");
    let (ask, later) = (nodes.redirect("ASK", "{t}", 1), at_first(2, TRY_AGAIN));
    nodes.rule(move |call| match (call.node, call.is("GET {t}a")) {
        (0, true) => say(&ask),
        (1, true) if call.is_asking => later(),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    assert_eq!(client.get::<String>("{t}a").await.expect("a value"), "1");
    assert_eq!((nodes.count(0, "GET"), nodes.count(1, "GET")), (1, 3));
    asked_for_each(&nodes, 1, 3);
}

/// Fails if a slot that moved, or a node that came with it, is not told, if what changes nothing is,
/// or if the stream does not end with its client.
async fn changes_are_told<P: Placement>(place: P) {
    let nodes = halves(3, "k");
    let moved = nodes.redirect("MOVED", "k", 2);
    nodes.rule(move |call| match (call.node, call.is("GET k")) {
        (0, true) => say(&moved),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    client.set("k", "v").await.expect("SET");
    let mut changes = client.topology_changes().expect("it is a cluster");
    assert_eq!(client.get::<String>("k").await.expect("a value"), "2");
    let (mut slots, mut added) = (0, Vec::new());
    while slots == 0 || added.is_empty() {
        let change = changes.next().await.expect("the client is there");
        assert!(change.removed.is_empty() && change.roles.is_empty(), "{change}");
        slots += change.slots;
        added.extend(change.added);
    }
    let at = nodes.address(2);
    assert_eq!((slots, added), (1, vec![Endpoint::tcp(at.ip().to_string(), at.port())]));
    client.close(5_000 * MS).await;
    drop(client);
    let more = changes.next().await;
    assert!(more.is_none(), "{more:?}");
}

/// Fails if a client of a single server is said to have a topology that may change.
async fn a_single_server_does_not_change<P: Placement>(place: P) {
    let nodes = Nodes::start(1);
    let mut options = nodes.options();
    options.cluster = None;
    let client = place.connect(&options).await.expect("up");
    assert!(client.topology_changes().is_none());
}

on_every_placement! {
    changes_are_told,
    a_single_server_does_not_change,
    each_command_asks_for_itself,
    commands_keep_their_bytes,
    asked_to_a_stranger,
    circles_end,
    garbage_is_an_ordinary_error,
    moved_to_nobody,
    sent_to_where_nobody_listens,
    asking_is_refused,
    lost_after_asking,
    put_off_five_times,
    put_off_where_it_was_asked,
}
