//! Second copies of slow reads, against scripted servers (case 16) and servers that stall at random.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::{join_all, select};
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::runtime::park::ParkPolicy;
use hedgerow::testing::{self, Gate, Script, ScriptServer, Server};
use hedgerow::{Client, Cores, Endpoint, Error, ErrorKind, Options};
use tokio::runtime::{Builder, Runtime};

use crate::placement::{self, Placement, on_every_placement, on_tokio, options_for, until};

const MS: Duration = Duration::from_millis(1);
/// The delay of case 16.
const DELAY: Duration = Duration::from_millis(20);
const ROLE: &str = "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:0\r\n";

fn hedging(delay: Duration) -> Hedging {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(delay);
    (hedging.max_extra_load_percent, hedging.burst) = (100, 10);
    hedging
}

/// A script that serves as a replica.
fn replica() -> Script {
    Script::new().answer("ROLE", ROLE)
}

/// A server that plays the script on its first two connections, the client's and its coordinator's in
/// whatever order they come, and only greets on later ones.
fn once(script: Script) -> ScriptServer {
    let builder = ScriptServer::builder().then(script.clone()).then(script).then(replica());
    builder.start().expect("a server")
}

fn options_of(primary: &ScriptServer, others: &[&ScriptServer]) -> Options {
    let mut options = options_for(primary.addr());
    let endpoint = |s: &&ScriptServer| Endpoint::tcp("127.0.0.1", s.addr().port());
    options.replica_endpoints = others.iter().map(endpoint).collect();
    options.read_from = ReadFrom::PrimaryPreferred.into();
    options.hedging = Some(hedging(DELAY));
    options
}

/// How often a server was sent a command.
fn count(server: &ScriptServer, text: &str) -> usize {
    server.received().iter().filter(|r| r.text() == text).count()
}

/// A client whose replica answered ROLE.
async fn ready<P: Placement>(place: &P, options: &Options, other: &ScriptServer) -> P::Client {
    let client = place.connect(options).await.expect("up");
    until(place, "the replica's set-up", || count(other, "ROLE") > 0).await;
    let is_up = || {
        let nodes = placement::Client::nodes(&client);
        nodes.is_none_or(|nodes| nodes.iter().all(|node| node.connections > 0))
    };
    until(place, "the replica's link", is_up).await;
    // Over cores nobody tells.
    place.pause(20 * MS).await;
    client
}

/// What came of one hedged GET, after how long, and how many GETs each server was sent.
struct Raced {
    got: Result<Option<String>, Error>,
    took: Duration,
    gets: [usize; 2],
}

/// One GET of case 16 from a primary and a replica with these scripts.
async fn race<P: Placement>(place: &P, primary: Script, other: Script) -> Raced {
    let [primary, other] = [once(primary), once(other)];
    let options = options_of(&primary, &[&other]);
    let client = ready(place, &options, &other).await;
    let begun = Instant::now();
    let got = placement::Client::get_within(&client, "k", 500 * MS).await;
    let took = begun.elapsed();
    // The loser's reply comes, and reaches nobody.
    place.pause(150 * MS).await;
    if let Some(ledger) = placement::Client::hedges(&client) {
        let ended = ledger.won + ledger.lost + ledger.both_failed;
        assert_eq!(ledger.sent, ended, "{ledger:?}");
    }
    Raced { got, took, gets: [&primary, &other].map(|server| count(server, "GET k")) }
}

/// Answers GET after so long.
fn says(script: Script, after: Duration, reply: &str) -> Script {
    script.expect("GET k").delay(after).reply(reply)
}

const P: &str = "$1\r\nP\r\n";
const R: &str = "$1\r\nR\r\n";

#[track_caller]
fn is_value(raced: &Raced, value: &str, at: Duration) {
    let got = raced.got.as_ref().expect("a value");
    assert_eq!(got.as_deref(), Some(value), "after {:?}", raced.took);
    // Who answered is certain; when only roughly, on a busy machine.
    assert!(raced.took + MS >= at, "{:?}", raced.took);
    assert_eq!(raced.gets, [1, 1]);
}

/// case behaviour/16, A and B. R-260. Fails if one copy's lost connection beats the other's later success,
/// whichever of them it is.
async fn a_lost_copy_does_not_win<P: Placement>(place: P) {
    let a = race(&place, says(Script::new(), 200 * MS, P), replica().expect("GET k").close());
    is_value(&a.await, "P", 200 * MS);
    let closes = Script::new().expect("GET k").delay(40 * MS).close();
    let b = race(&place, closes, says(replica(), 80 * MS, R));
    is_value(&b.await, "R", 100 * MS);
}

/// case behaviour/16, C, D and E.. Fails if the original's error beats the hedge's later
/// success, if of two errors the hedge's is returned, or if what every node says is not believed.
async fn an_error_does_not_win<P: Placement>(place: P) {
    let loads = |after| says(Script::new(), after, "-LOADING x\r\n");
    let c = race(&place, loads(30 * MS), says(replica(), 40 * MS, R)).await;
    is_value(&c, "R", 60 * MS);
    for (original, hedge) in [(30 * MS, 40 * MS), (90 * MS, Duration::ZERO)] {
        let d = race(&place, loads(original), says(replica(), hedge, "-BUSY y\r\n")).await;
        assert_eq!(d.got.expect_err("both failed").code(), Some("LOADING"));
        assert_eq!(d.gets, [1, 1]);
    }
    let wrong = "-WRONGTYPE x\r\n";
    let e =
        race(&place, says(Script::new(), 30 * MS, wrong), says(replica(), 40 * MS, wrong)).await;
    assert_eq!(e.got.expect_err("both failed").code(), Some("WRONGTYPE"));
}

/// case behaviour/16, F and G.. Fails if a hedge that has nowhere to go harms the original, or
/// if a read that is answered within the delay is sent twice.
async fn no_copy_where_none_can_help<P: Placement>(place: P) {
    let server = once(says(Script::new(), 100 * MS, P));
    let mut options = options_of(&server, &[]);
    // Nothing listens there.
    options.replica_endpoints = vec![Endpoint::tcp("127.0.0.1", 1)];
    let client = place.connect(&options).await.expect("up");
    let value = placement::Client::get_within(&client, "k", 500 * MS).await;
    assert_eq!(value.expect("the original's").as_deref(), Some("P"));
    let [primary, other] = [once(says(Script::new(), 5 * MS, P)), once(says(replica(), MS, R))];
    let mut options = options_of(&primary, &[&other]);
    options.hedging = Some(hedging(400 * MS));
    let client = ready(&place, &options, &other).await;
    let value = placement::Client::get_within(&client, "k", 5_000 * MS).await;
    assert_eq!(value.expect("the original's").as_deref(), Some("P"));
    place.pause(450 * MS).await;
    assert_eq!(count(&other, "GET k"), 0);
}

/// case behaviour/16.. Fails if what writes, waits, is a script, or is not in the table goes
/// out twice or to a replica.
async fn only_reads_are_sent_twice<P: Placement>(place: P) {
    for text in ["SET k v", "INCR n", "GETEX k", "GETDEL k", "EVAL x 0", "NOSUCH k"] {
        let script = Script::new().expect(text).delay(60 * MS).reply("+OK\r\n");
        let [primary, other] = [once(script), once(replica())];
        let client = ready(&place, &options_of(&primary, &[&other]), &other).await;
        let mut words = text.split(' ');
        let name = words.next().expect("a name").to_owned();
        let args: Vec<_> = words.map(str::to_owned).collect();
        let sent = client.command(&name).args(args).send::<hedgerow::resp::Value>();
        sent.await.expect(text);
        assert_eq!((count(&primary, text), count(&other, text)), (1, 0), "{text}");
    }
}

/// Fails if a hedge that has to wait for a full socket delays the original's reply, or
/// harms what comes after it.
async fn a_hedge_behind_a_full_socket<P: Placement>(place: P) {
    let deaf = replica().expect("GET first").reply(R).stop_reading();
    let script = (0..3).fold(Script::new(), |s, _| s.expect("GET k").delay(60 * MS).reply(P));
    let [primary, other] = [once(script), once(deaf)];
    let client = ready(&place, &options_of(&primary, &[&other]), &other).await;
    let strict = placement::Client::view(&client, ReadFrom::Replica);
    placement::Client::get_within(&strict, "first", 5_000 * MS).await.expect("an answer");
    let fills: Vec<_> = (0..64)
        .map(|n| {
            let (strict, key) = (strict.clone(), format!("{n}{}", "x".repeat(1 << 18)));
            place.spawn(async move { placement::Client::get_within(&strict, &key, 800 * MS).await })
        })
        .collect();
    place.pause(100 * MS).await;
    for _ in 0..3 {
        let value = placement::Client::get_within(&client, "k", 5_000 * MS).await;
        assert_eq!(value.expect("the original's").as_deref(), Some("P"));
    }
    for fill in fills {
        let error = fill.await.expect("its end").expect_err("nobody reads it");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    if let Some(ledger) = placement::Client::hedges(&client) {
        assert!(ledger.sent >= 1 && ledger.lost >= 1, "{ledger:?}");
    }
}

on_every_placement! {
    a_lost_copy_does_not_win,
    an_error_does_not_win,
    no_copy_where_none_can_help,
    only_reads_are_sent_twice,
    a_hedge_behind_a_full_socket,
    closed_while_hedges_are_out,
    closed_after_the_losers_reply,
}

fn several() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
}

/// A primary and two replicas with a value under each of so many keys, which stall at random.
struct Stalling {
    servers: Vec<Server>,
    options: Options,
}

const KEYS: usize = 100;

impl Stalling {
    fn start(runtime: &Runtime) -> Stalling {
        let delay = testing::Delay::Uniform(Duration::ZERO, 2 * MS);
        let builders = [false, true, true].map(|is_replica| {
            let builder = Server::builder();
            if is_replica { builder.replica() } else { builder }
        });
        let servers: Vec<_> = builders.map(|b| b.start().expect("a server")).into();
        let port = |server: &Server| server.addr().expect("tcp").port();
        for server in &servers {
            runtime.block_on(async {
                let client = Client::connect(&options_for(server.addr().expect("tcp"))).await;
                let client = client.expect("up");
                let pairs = (0..KEYS).map(|n| (format!("k:{n}"), format!("v:{n}")));
                client.mset(pairs.collect::<Vec<_>>()).await.expect("MSET");
            });
            server.faults().delay(delay);
            server.faults().stall_every(97, 30 * MS);
        }
        let mut options = options_for(servers[0].addr().expect("tcp"));
        let replicas = servers[1..].iter().map(|s| Endpoint::tcp("127.0.0.1", port(s)));
        options.replica_endpoints = replicas.collect();
        options.read_from = ReadFrom::Quickest.into();
        let mut often = hedging(Duration::from_micros(500));
        (often.burst, often.storm_guard) = (1_000, false);
        options.hedging = Some(often);
        Stalling { servers, options }
    }

    /// A client whose nodes are all connected.
    fn client(&self, runtime: &Runtime) -> Client {
        runtime.block_on(async {
            let client = Client::connect(&self.options).await.expect("up");
            let _ = client.get::<Option<String>>("k:0").await;
            let is_up = || client.nodes().is_some_and(|n| n.iter().all(|n| n.connections > 0));
            until(&placement::Hosted, "all nodes", is_up).await;
            client
        })
    }
}

/// Fails if one of 10,000 hedged reads at once, of several threads and over nodes that
/// stall at random, is lost or gets another's value, or if anything is left behind.
#[test]
fn ten_thousand_hedged_at_once() {
    let runtime = several();
    let stalling = Stalling::start(&runtime);
    let client = stalling.client(&runtime);
    let tasks: Vec<_> = (0..10_000)
        .map(|n| {
            let client = client.clone();
            runtime.spawn(async move {
                let key = n % KEYS;
                let value: String = client.get(format!("k:{key}")).await.expect("a value");
                assert_eq!(value, format!("v:{key}"));
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("its end");
    }
    let ledger = client.hedges().expect("hosted");
    assert!(ledger.sent > 100, "{ledger:?}");
    assert_eq!(ledger.sent, ledger.won + ledger.lost + ledger.both_failed, "{ledger:?}");
    let served: Vec<_> = stalling.servers.iter().map(|s| s.stats().commands).collect();
    // Each takes part, however late it came on a busy machine.
    assert!(served.iter().all(|commands| *commands > 20), "{served:?}, {ledger:?}");
    // The losers' replies end what is left of the reads.
    let nothing = || client.live_requests() == Some(0);
    runtime.block_on(until(&placement::Hosted, "the losers' replies", nothing));
}

/// Fails if reads whose callers give up at any moment, before, between and after both
/// copies, leave anything behind or have another read their reply.
#[test]
fn dropped_at_any_moment_of_a_race() {
    let runtime = several();
    let stalling = Stalling::start(&runtime);
    let client = stalling.client(&runtime);
    let tasks: Vec<_> = (0..64)
        .map(|task: usize| {
            let client = client.clone();
            runtime.spawn(async move {
                for step in 0..100 {
                    let key = (task * 31 + step) % KEYS;
                    let limit = Duration::from_micros(((task * 37 + step * 101) % 4_000) as u64);
                    let read = client.get::<String>(format!("k:{key}"));
                    let until = tokio::time::Instant::now() + limit;
                    if let Ok(value) = tokio::time::timeout_at(until, read).await {
                        assert_eq!(value.expect("a value"), format!("v:{key}"));
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("its end");
    }
    let nothing = || client.live_requests() == Some(0);
    runtime.block_on(until(&placement::Hosted, "the late replies", nothing));
    let ledger = client.hedges().expect("hosted");
    assert!(ledger.sent > 50, "{ledger:?}");
}

/// Never answers a GET.
fn silent() -> [ScriptServer; 2] {
    [once(Script::new()), once(replica())]
}

/// Design section 3. Fails if a read whose runtime ends while its hedge is out hangs, or does not say why.
#[test]
fn the_runtime_ends_while_hedges_are_out() {
    let runtime = several();
    let [primary, other] = silent();
    let mut options = options_of(&primary, &[&other]);
    options.command_timeout = None;
    let mut calls = Vec::new();
    runtime.block_on(async {
        let client = ready(&placement::Hosted, &options, &other).await;
        calls.extend((0..20).map(|_| Box::pin(client.get::<Option<String>>("k"))));
        let out = until(&placement::Hosted, "the hedges", || count(&other, "GET k") > 0);
        select(join_all(&mut calls), Box::pin(out)).await;
    });
    runtime.shutdown_background();
    let begun = Instant::now();
    for outcome in block_on(join_all(calls)) {
        let error = outcome.expect_err("nobody answers");
        assert!(matches!(error.kind(), ErrorKind::Runtime | ErrorKind::Closed), "{error}");
    }
    assert!(begun.elapsed() < placement::LIMIT);
}

/// Fails if a client that is closed while hedges are out waits for longer than it may, or
/// leaves a read without an end.
async fn closed_while_hedges_are_out<P: Placement>(place: P) {
    let [primary, other] = silent();
    let mut options = options_of(&primary, &[&other]);
    options.command_timeout = None;
    let client = ready(&place, &options, &other).await;
    let reads = (0..20).map(|_| place.spawn(client.get::<Option<String>>("k")));
    let reads: Vec<_> = reads.collect();
    until(&place, "a hedge", || count(&other, "GET k") > 0).await;
    let begun = Instant::now();
    placement::Client::close(&client, 50 * MS).await;
    assert!(begun.elapsed() >= 49 * MS && begun.elapsed() < placement::LIMIT / 2);
    for read in reads {
        let error = read.await.expect("its end").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    let error = placement::Client::get_within(&client, "k", 500 * MS).await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
}

/// Fails if a client that is closed with time to spare does not wait for what is in flight,
/// a loser's reply among it.
async fn closed_after_the_losers_reply<P: Placement>(place: P) {
    let [primary, other] = [once(says(Script::new(), 150 * MS, P)), once(says(replica(), MS, R))];
    let client = ready(&place, &options_of(&primary, &[&other]), &other).await;
    let value = placement::Client::get_within(&client, "k", 500 * MS).await;
    assert_eq!(value.expect("the hedge's").as_deref(), Some("R"));
    let begun = Instant::now();
    placement::Client::close(&client, 10_000 * MS).await;
    assert!(begun.elapsed() < 5_000 * MS, "{:?}", begun.elapsed());
    if let Some(ledger) = placement::Client::hedges(&client) {
        assert_eq!((ledger.won, ledger.margins.count()), (1, 1), "{ledger:?}");
    }
}

/// Fails if a read whose future is not polled when its hedge is due holds up others, loses its reply,
/// or is hedged in spite of nobody who would take the reply.
#[test]
fn reads_that_are_never_polled_again() {
    on_tokio(async |place| {
        let gate = Gate::new();
        let waits = Script::new().expect("GET k").wait(&gate).reply(P);
        let script = waits.expect("GET k").reply(P).expect("GET l").reply(P);
        let [primary, other] = [once(script), once(replica())];
        let client = ready(&place, &options_of(&primary, &[&other]), &other).await;
        let mut first = Box::pin(client.get::<Option<String>>("k"));
        let mut second = Box::pin(client.get::<Option<String>>("k"));
        for call in [&mut first, &mut second] {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        place.pause(3 * DELAY).await;
        gate.open();
        let value = client.get::<Option<String>>("l").await.expect("not held up");
        assert_eq!(value.as_deref(), Some("P"));
        assert_eq!(first.await.expect("a value").as_deref(), Some("P"));
        assert_eq!(second.await.expect("a value").as_deref(), Some("P"));
        assert_eq!(count(&other, "GET k"), 0);
        let ledger = client.hedges().expect("hosted");
        assert_eq!(ledger.sent, 0, "{ledger:?}");
    });
}

/// Fails if a request that is never polled again, and so never sends what it has promised to,
/// keeps a new connection from being set up.
#[test]
fn a_promise_does_not_outlive_its_connection() {
    on_tokio(async |place| {
        let gate = Gate::new();
        let first = Script::new().expect("GET k").wait(&gate).close();
        let second = Script::new().expect("GET l").reply(P);
        let server = ScriptServer::builder().then(first).then(second).start().expect("a server");
        let mut options = options_for(server.addr());
        options.command_timeout = Some(3_000 * MS);
        let client = Client::connect(&options).await.expect("up");
        let mut calls: Vec<_> =
            (0..3).map(|_| Box::pin(client.get::<Option<String>>("k"))).collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        until(&place, "the GET", || count(&server, "GET k") > 0).await;
        gate.open();
        until(&place, "the second connection", || server.accepted() == 2).await;
        let begun = Instant::now();
        let value = client.get::<Option<String>>("l").await.expect("the new connection serves");
        assert_eq!(value.as_deref(), Some("P"));
        assert!(begun.elapsed() < 1_000 * MS, "{:?}", begun.elapsed());
    });
}

/// Reads through a client, and what its parts say of them.
async fn figures_of(client: &Client) -> (u64, usize) {
    for _ in 0..20 {
        client.get::<Option<String>>("k").await.expect("a reply");
    }
    let parts = client.figures().await;
    for part in &parts {
        assert_eq!(part.hedge_delays, Some([DELAY, DELAY]));
        assert_eq!((part.nodes.len(), part.live_requests), (2, 0));
    }
    (parts.iter().map(|part| part.hedges.reads).sum(), parts.len())
}

/// Fails if the books of a client over pinned cores cannot be read, or not those of each core, or if
/// those of its connections inside tokio cannot.
#[test]
fn figures_of_every_part() {
    on_tokio(async |_| {
        let (primary, other) = (Server::start().expect("up"), Server::start().expect("up"));
        let mut options = options_for(primary.addr().expect("tcp"));
        let other = other.addr().expect("tcp");
        options.replica_endpoints = vec![Endpoint::tcp("127.0.0.1", other.port())];
        options.read_from = ReadFrom::PrimaryPreferred.into();
        options.hedging = Some(hedging(DELAY));
        let cores = Cores::builder().cpus([0, 0]).park(ParkPolicy::Park).build().expect("cores");
        let client = cores.connect(&options).await.expect("up");
        assert_eq!(figures_of(&client).await, (20, 2));
        let client = Client::connect(&options).await.expect("up");
        assert_eq!(figures_of(&client).await, (20, 1));
    });
}
