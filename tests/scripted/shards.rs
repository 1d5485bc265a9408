//! What the shards of a cluster have to do with each other: nothing, but where a command is for all.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use futures::Stream;
use futures::future::{Either, join, select};
use hedgerow::config::Endpoint;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::resp::Value;
use hedgerow::{Error, ErrorKind, Fate, Options};

use crate::nodes::{Act, HIGH, LOW, Nodes, late, say};
use crate::placement::{Client, Placement, on_every_placement, on_tokio, until};

const MS: Duration = Duration::from_millis(1);
/// Two nodes with half of the slots each.
fn halves() -> Nodes {
    let nodes = Nodes::start(2);
    nodes.map([(0..=8191, vec![0]), (8192..=16383, vec![1])]);
    nodes
}

/// Options with these seeds besides the first node.
fn with_seeds(nodes: &Nodes, seeds: impl IntoIterator<Item = Endpoint>) -> Options {
    let mut options = nodes.options();
    if let Some(cluster) = &mut options.cluster {
        cluster.seeds = seeds.into_iter().collect();
    }
    options
}

/// A port where nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

async fn hscan<C: Client>(client: &C, key: &str, cursor: &str) -> Result<Value, Error> {
    client.command("HSCAN").arg(key).arg(cursor).send::<Value>().await
}

/// Fails if a raw scan of a key is sent where one of another shard was begun, so that
/// its cursor counts as lost.
async fn scans_of_two_shards<P: Placement>(place: P) {
    let nodes = halves();
    nodes.rule(|call| match call.is("HSCAN") {
        true => say("*2\r\n$2\r\n17\r\n*0\r\n"),
        false => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    for (key, cursor) in [(LOW, "0"), (HIGH, "0"), (HIGH, "17"), (LOW, "17")] {
        hscan(&client, key, cursor).await.unwrap_or_else(|error| panic!("{key} {cursor}: {error}"));
    }
    assert_eq!((nodes.count(0, "HSCAN"), nodes.count(1, "HSCAN")), (2, 2));
}

/// Fails if a scan whose first page was redirected does not go on where that was answered.
async fn a_redirected_scan_goes_on<P: Placement>(place: P) {
    let nodes = halves();
    let moved = nodes.redirect("MOVED", LOW, 1);
    nodes.rule(move |call| match (call.node, call.is("HSCAN")) {
        (0, true) => say(&moved),
        (_, true) => say("*2\r\n$2\r\n17\r\n*0\r\n"),
        _ => Act::Usual,
    });
    let client = place.connect(&nodes.options()).await.expect("up");
    for cursor in ["0", "17"] {
        hscan(&client, LOW, cursor).await.unwrap_or_else(|error| panic!("{cursor}: {error}"));
    }
}

/// Fails if connecting waits for ever where no primary of a cluster can be reached, although another
/// node says which there are.
async fn no_primary_can_be_reached<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    nodes.map([(0..=16383, vec![1, 0])]);
    nodes.refuse(1);
    let connecting = place.connect(&nodes.options());
    match select(connecting, place.pause(8_000 * MS)).await {
        Either::Left((outcome, _)) => assert!(outcome.is_err(), "{outcome:?}"),
        Either::Right(_) => panic!("connect waits for a primary that nobody can reach"),
    }
}

/// Fails if a command that came before anything was known of the cluster holds up one for another
/// shard.
async fn a_mute_shard_holds_up_no_other_from_the_start<P: Placement>(place: P) {
    let nodes = halves();
    nodes.rule(|call| match (call.node, call.is("HELLO")) {
        (1, true) => Act::Nothing,
        _ => Act::Usual,
    });
    let client = place.create(&nodes.options()).expect("valid options");
    let begun = Instant::now();
    let mute = Client::get_within(&client, HIGH, 2_000 * MS);
    let other = async {
        let got = Client::get_within(&client, LOW, 10_000 * MS).await;
        (got, begun.elapsed())
    };
    let (mute, (other, took)) = join(mute, other).await;
    assert_eq!(mute.expect_err("it is mute").kind(), ErrorKind::Timeout);
    assert_eq!(other.expect("its own node").as_deref(), Some("0"));
    assert!(took < 1_500 * MS, "{took:?}");
}

/// Fails if what goes to all nodes goes to a seed that is none, or to one of them twice as that has
/// two names.
async fn all_nodes_are_those_of_the_cluster<P: Placement>(place: P) {
    let nodes = halves();
    nodes.rule(|call| match call.is("SCRIPT LOAD") {
        true => say("$1\r\nx\r\n"),
        false => Act::Usual,
    });
    let second_name = Endpoint::tcp("localhost", nodes.address(1).port());
    let seeds = [Endpoint::tcp("127.0.0.1", closed_port()), second_name];
    let client = place.connect(&with_seeds(&nodes, seeds)).await.expect("up");
    client.set(HIGH, "v").await.expect("SET");
    let loaded = client.command("SCRIPT").arg("LOAD").arg("return 1").send::<String>().await;
    assert_eq!(loaded.expect("all of them have it"), "x");
    assert_eq!((nodes.count(0, "SCRIPT LOAD"), nodes.count(1, "SCRIPT LOAD")), (1, 1));
}

/// Fails if a command that one success is enough for fails since another node is away.
async fn one_success_is_enough<P: Placement>(place: P) {
    let nodes = halves();
    nodes.refuse(1);
    let client = place.connect(&nodes.options()).await.expect("up");
    let killed = client.command("SCRIPT").arg("KILL").send::<String>().await;
    assert_eq!(killed.expect("one had a script to kill"), "OK");
}

/// Fails if finding the nodes of a cluster does not count as part of a command's time.
async fn finding_the_nodes_takes_of_its_time<P: Placement>(place: P) {
    let nodes = halves();
    nodes.rule(|call| match call.text {
        "CLUSTER SLOTS" => late(300 * MS, Act::Usual),
        "DBSIZE" => Act::Nothing,
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    options.command_timeout = Some(500 * MS);
    let client = place.create(&options).expect("valid options");
    let begun = Instant::now();
    let error = client.dbsize().await.expect_err("nobody answers it");
    let took = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(took >= 499 * MS && took < 750 * MS, "{took:?}");
}

/// Fails if closing a client gracefully fails a command that was in flight, as a node would not
/// have it.
async fn a_close_waits_for_redirects<P: Placement>(place: P) {
    for word in ["MOVED", "ASK", "TRYAGAIN"] {
        let nodes = halves();
        let redirect = match word {
            "TRYAGAIN" => "-TRYAGAIN x\r\n".to_owned(),
            _ => nodes.redirect(word, LOW, 1),
        };
        let asked = AtomicUsize::new(0);
        nodes.rule(move |call| match (call.node, call.is("GET")) {
            (0, true) if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
                late(100 * MS, say(&redirect))
            }
            _ => Act::Usual,
        });
        let client = place.connect(&nodes.options()).await.expect("up");
        let got = Client::get_within(&client, LOW, 10_000 * MS);
        let closing = async {
            until(&place, "the GET", || nodes.count(0, "GET") > 0).await;
            Client::close(&client, 5_000 * MS).await;
        };
        let (got, ()) = join(got, closing).await;
        let node = if word == "TRYAGAIN" { "0" } else { "1" };
        assert_eq!(got.expect("it was in flight").as_deref(), Some(node), "{word}");
    }
}

/// Fails if the id of a node that a redirect named is not taken over from what is said of it
/// later.
async fn ids_are_learnt_later<P: Placement>(place: P) {
    let nodes = Nodes::start(2);
    let moved = nodes.redirect("MOVED", LOW, 1);
    nodes.rule(move |call| match (call.node, call.is("GET")) {
        (0, true) => say(&moved),
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    if let Some(cluster) = &mut options.cluster {
        cluster.refresh_interval = Some(300 * MS);
    }
    let client = place.connect(&options).await.expect("up");
    let got = Client::get_within(&client, LOW, 10_000 * MS).await;
    assert_eq!(got.expect("the other's").as_deref(), Some("1"));
    nodes.map([(0..=16383, vec![1])]);
    if Client::nodes(&client).is_none() {
        return;
    }
    let port = nodes.address(1).port();
    let has_id = || {
        let seen = Client::nodes(&client).unwrap_or_default();
        seen.iter().any(|n| n.endpoint == Endpoint::tcp("127.0.0.1", port) && n.id.is_some())
    };
    until(&place, "the id", has_id).await;
}

/// case behaviour/15, R-225, R-233. Fails if a node that becomes a replica while its connection is set up
/// gets reads without READONLY before them.
async fn demoted_while_it_is_set_up<P: Placement>(place: P) {
    let nodes = halves();
    nodes.rule(|call| match (call.node, call.is("HELLO")) {
        (1, true) => late(600 * MS, Act::Usual),
        _ => Act::Usual,
    });
    let mut options = nodes.options();
    if let Some(cluster) = &mut options.cluster {
        cluster.refresh_interval = Some(100 * MS);
    }
    let client = place.connect(&options).await.expect("up");
    let early = Client::get_within(&client, HIGH, 10_000 * MS);
    let demoted = async {
        until(&place, "the set-up", || nodes.count(1, "HELLO") > 0).await;
        nodes.map([(0..=16383, vec![0, 1])]);
    };
    let (early, ()) = join(early, demoted).await;
    early.expect("either's");
    let replicas = client.view(ReadFrom::Replica);
    let get = || Client::get_within(&replicas, HIGH, 5_000 * MS);
    let begun = Instant::now();
    // While it is set up there is no replica; the map comes with the next pass.
    while get().await.ok().flatten().as_deref() != Some("1") {
        assert!(begun.elapsed() < 10_000 * MS, "no read comes to the replica");
        place.pause(10 * MS).await;
    }
    let mut came = nodes.came();
    came.retain(|c| c.node == 1);
    let reader = came.iter().rfind(|c| c.text == format!("GET {HIGH}")).expect("it was read");
    let same = came.iter().filter(|c| c.connection == reader.connection);
    assert!(same.clone().any(|c| c.text == "READONLY"), "{:?}", same.collect::<Vec<_>>());
}

on_every_placement! {
    scans_of_two_shards,
    a_redirected_scan_goes_on,
    no_primary_can_be_reached,
    all_nodes_are_those_of_the_cluster,
    one_success_is_enough,
    a_close_waits_for_redirects,
    ids_are_learnt_later,
    demoted_while_it_is_set_up,
}

/// With clients that connect in the background, as none does over cores.
mod lazily {
    use super::{
        a_mute_shard_holds_up_no_other_from_the_start, finding_the_nodes_takes_of_its_time,
    };

    crate::placement::on_each_placement! {
        a_mute_shard_holds_up_no_other_from_the_start,
        finding_the_nodes_takes_of_its_time,
    }
}

/// Fails if a command of a cluster whose time is over before it is sent is sent all the same, where
/// the clock of a turn is behind.
#[test]
fn what_is_late_is_not_sent() {
    on_tokio(async |place| {
        let nodes = halves();
        let client = place.connect(&nodes.options()).await.expect("up");
        client.set(LOW, "v").await.expect("SET");
        for _ in 0..200 {
            let error = Client::get_within(&client, LOW, Duration::from_nanos(1)).await;
            assert_eq!(error.expect_err("it is late").fate(), Fate::NotSent);
        }
        client.set(LOW, "v").await.expect("SET");
        assert_eq!(nodes.count(0, "GET"), 0);
    });
}

/// Who is woken as the last client closes: it looks at that client.
struct Nosy(hedgerow::Client, AtomicUsize);

impl Wake for Nosy {
    fn wake(self: Arc<Nosy>) {
        let _ = self.0.is_connected();
        self.1.fetch_add(1, Ordering::SeqCst);
        panic!("in a waker");
    }
}

/// Fails if who waits for changes is woken where the client is locked, or if its panic goes further.
#[test]
fn watchers_are_woken_outside() {
    on_tokio(async |place| {
        let nodes = halves();
        let client = place.connect(&nodes.options()).await.expect("up");
        let mut changes = client.topology_changes().expect("a cluster");
        let nosy = Arc::new(Nosy(client.clone(), AtomicUsize::new(0)));
        let waker = Waker::from(nosy.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut changes).poll_next(&mut cx).is_pending());
        client.close(1_000 * MS).await;
        assert_eq!(nosy.1.load(Ordering::SeqCst), 1);
        assert!(changes.next().await.is_none());
    });
}
