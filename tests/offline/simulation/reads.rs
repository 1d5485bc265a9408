//! Reads that may go elsewhere than to the primary, and their second copies.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::keys;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelServer, Reaction, Simulation};
use hedgerow::{Error, ErrorKind, LocalClient, LocalContext, Options};

use super::clock::{pass, unless};

const MS: Duration = Duration::from_millis(1);

/// A primary and its replicas on one simulated network.
pub(super) struct Fleet {
    pub(super) simulation: Simulation,
    pub(super) primary: ModelServer,
    pub(super) replicas: Vec<ModelServer>,
}

impl Fleet {
    pub(super) fn new(replicas: usize) -> Fleet {
        let simulation = Simulation::new(16);
        let primary = simulation.server();
        let replicas = (0..replicas).map(|_| simulation.replica(&primary)).collect();
        Fleet { simulation, primary, replicas }
    }

    pub(super) fn options(&self, from: ReadFrom) -> Options {
        let mut options = self.primary.options();
        options.replica_endpoints = self.replicas.iter().map(ModelServer::endpoint).collect();
        options.read_from = from.into();
        options
    }

    /// Runs `main` with a client of `options` whose replicas had time to connect.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        options: Options,
        main: impl FnOnce(LocalContext, LocalClient) -> F + 'static,
    ) -> T {
        let outcome = self.simulation.run(async move |core| {
            let client = core.connect(&options).await.expect("a connection");
            pass(&core, 10 * MS).await;
            main(core, client).await
        });
        outcome.checked()
    }

    /// How many GETs each node has read, the primary's first.
    pub(super) fn gets(&self) -> Vec<usize> {
        let all = std::iter::once(&self.primary).chain(&self.replicas);
        all.map(|server| server.count("GET")).collect()
    }
}

/// What a server does with its GETs, one after the other; then it serves.
pub(super) fn does(server: &ModelServer, reactions: impl IntoIterator<Item = Reaction>) {
    let mut reactions: VecDeque<Reaction> = reactions.into_iter().collect();
    server.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"GET" => reactions.pop_front().unwrap_or_default(),
        _ => Reaction::Serve,
    });
}

pub(super) fn hedging(delay: Duration) -> Hedging {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(delay);
    hedging.max_extra_load_percent = 100;
    hedging
}

pub(super) async fn get(client: &LocalClient) -> Result<Option<String>, Error> {
    client.get("k").await
}

/// Runs one GET that is hedged after 20 ms from the primary to the only replica, and answers what came of
/// it, after how many milliseconds, and how many GETs each node has read.
fn race(
    primary: Reaction,
    replica: Option<Reaction>,
) -> (Result<Option<String>, Error>, u128, Vec<usize>) {
    let fleet = Fleet::new(1);
    fleet.primary.set_value("k", "v");
    does(&fleet.primary, [primary]);
    match replica {
        Some(reaction) => does(&fleet.replicas[0], [reaction]),
        None => fleet.replicas[0].stop(),
    }
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    options.command_timeout = Some(500 * MS);
    let (got, ms, ledger) = fleet.run(options, async |core, client| {
        let begun = core.now();
        let got = get(&client).await;
        let ms = core.now().since(begun).as_millis();
        // The loser ends without harm: its connection serves on.
        pass(&core, 300 * MS).await;
        let _ = get(&client).await;
        (got, ms, client.hedges())
    });
    assert_eq!(ledger.sent, ledger.won + ledger.lost + ledger.both_failed, "{ledger:?}");
    let mut gets = fleet.gets();
    gets[0] -= 1;
    (got, ms, gets)
}

pub(super) fn after(ms: u32) -> Reaction {
    Reaction::ServeAfter(ms * MS)
}

fn error_after(ms: u32, text: &str) -> Reaction {
    Reaction::AnswerAfter(ms * MS, format!("-{text}\r\n").into_bytes())
}

/// Case 16 A. R-260. Fails if the hedge's lost connection beats the original's later success.
#[test]
fn case_16_a_the_hedge_is_closed() {
    let (got, ms, gets) = race(after(200), Some(Reaction::Close));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (200, vec![1, 1]));
}

/// Case 16 B. R-260. Fails if the original's lost connection beats the hedge's later success.
#[test]
fn case_16_b_the_original_is_closed() {
    let (got, ms, gets) = race(Reaction::CloseAfter(40 * MS), Some(after(80)));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (100, vec![1, 1]));
}

/// Case 16 C. R-260. Fails if the original's error beats the hedge's later success.
#[test]
fn case_16_c_the_original_loads() {
    let (got, ms, _) = race(error_after(30, "LOADING x"), Some(after(40)));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!(ms, 60);
}

/// Case 16 D. R-261. Fails if of two failures another error than the original's is returned, whichever
/// came first.
#[test]
fn case_16_d_both_fail() {
    for (original, hedge, ms) in [(30, 40, 60), (90, 10, 90)] {
        let (got, took, _) =
            race(error_after(original, "LOADING x"), Some(error_after(hedge, "BUSY y")));
        assert_eq!(got.expect_err("an error").code(), Some("LOADING"));
        assert_eq!(took, ms);
    }
}

/// Case 16 E. Fails if an error that every node would give waits for the other copy.
#[test]
fn case_16_e_both_say_the_same() {
    let (got, ms, _) = race(error_after(30, "WRONGTYPE x"), Some(error_after(40, "WRONGTYPE x")));
    assert_eq!(got.expect_err("an error").code(), Some("WRONGTYPE"));
    assert_eq!(ms, 30);
}

/// Case 16 F. R-263. Fails if a hedge that has nowhere to go harms the original.
#[test]
fn case_16_f_no_second_node() {
    let (got, ms, gets) = race(after(100), None);
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (100, vec![1, 0]));
}

/// Case 16 G. R-258. Fails if a read that is answered within the delay is hedged.
#[test]
fn case_16_g_within_the_delay() {
    let (got, ms, gets) = race(after(10), Some(Reaction::Serve));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (10, vec![1, 0]));
}

/// Case 16. Fails if a command that writes, is random, a script, or that the table does not
/// know goes out twice, or to a replica.
#[test]
fn case_16_only_idempotent_reads_are_hedged() {
    let words: &[&[&str]] = &[
        &["SET", "k", "v"],
        &["INCR", "n"],
        &["GETEX", "k"],
        &["GETDEL", "k"],
        &["EVAL", "return 1", "0"],
        &["NOSUCH", "k"],
        &["TOUCH", "k"],
        &["SRANDMEMBER", "k"],
    ];
    for words in words {
        let fleet = Fleet::new(1);
        fleet.primary.on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"HELLO" | b"CLIENT" => Reaction::Serve,
            _ => after(100),
        });
        let mut options = fleet.options(ReadFrom::PrimaryPreferred);
        options.hedging = Some(hedging(20 * MS));
        let name = words[0];
        fleet.run(options, async move |_, client| {
            let args = words[1..].to_vec();
            let _ = client.command(name).args(args).send::<hedgerow::resp::Value>().await;
        });
        assert_eq!(fleet.primary.count(name), 1, "{name}");
        assert_eq!(fleet.replicas[0].count(name), 0, "{name}");
    }
}

/// Fails if a strict replica read is hedged onto the primary, or not onto the other replica.
#[test]
fn replica_reads_are_hedged_onto_replicas() {
    for (replicas, hedged) in [(1, 0), (2, 1)] {
        let fleet = Fleet::new(replicas);
        fleet.replicas.iter().for_each(|replica| does(replica, [after(100)]));
        let mut options = fleet.options(ReadFrom::Replica);
        options.hedging = Some(hedging(5 * MS));
        let sent = fleet.run(options, async |_, client| {
            get(&client).await.expect("an answer");
            client.hedges().sent
        });
        assert_eq!(sent, hedged);
        assert_eq!(fleet.gets()[0], 0);
    }
}

/// Fails if 5 % is more than one hedge for 20 eligible reads, or if reads of the primary
/// alone earn credit.
#[test]
fn the_budget_holds() {
    let fleet = Fleet::new(1);
    fleet.primary.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"GET" => after(3),
        _ => Reaction::Serve,
    });
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    let mut slow = hedging(MS);
    (slow.max_extra_load_percent, slow.storm_guard) = (5, false);
    options.hedging = Some(slow);
    let (before, after) = fleet.run(options, async |_, client| {
        let primary = client.read_from(ReadFrom::Primary).expect("a view");
        for _ in 0..100 {
            get(&primary).await.expect("an answer");
        }
        let before = client.hedges();
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        (before, client.hedges())
    });
    assert_eq!((before.reads, before.sent), (0, 0));
    assert_eq!((after.reads, after.sent), (100, 5));
}

/// Fails if a policy serves a read where it must not, or not where it must, while the primary or
/// the replicas are down.
#[test]
fn roles_stand_in_for_each_other() {
    let policies = [
        (ReadFrom::Primary, [true, false]),
        (ReadFrom::Replica, [false, true]),
        (ReadFrom::PrimaryPreferred, [true, true]),
        (ReadFrom::ReplicaPreferred, [true, true]),
        (ReadFrom::Nearest, [true, true]),
        (ReadFrom::Quickest, [true, true]),
    ];
    for (policy, [with_primary, with_replica]) in policies {
        for primary_is_up in [true, false] {
            let fleet = Fleet::new(1);
            let gone = if primary_is_up { &fleet.replicas[0] } else { &fleet.primary }.clone();
            let got = fleet.run(fleet.options(policy), async move |core, client| {
                gone.stop();
                pass(&core, 5 * MS).await;
                client.get::<Option<String>>("k").timeout(100 * MS).await
            });
            let expected = if primary_is_up { with_primary } else { with_replica };
            assert_eq!(got.is_ok(), expected, "{policy}, primary up: {primary_is_up}: {got:?}");
            if let Err(error) = got {
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
            }
        }
    }
}

/// Fails if a node that reports the role of a primary serves replica reads, or if the error does
/// not say why.
#[test]
fn a_replica_must_say_that_it_is_one() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].promote();
    let got = fleet.run(fleet.options(ReadFrom::Replica), async |_, client| get(&client).await);
    let error = got.expect_err("no replica");
    assert!(error.to_string().contains("role of a primary"), "{error}");
    assert_eq!(fleet.gets(), [0, 0]);
}

/// Fails if an unlinked replica serves while a linked one is there, or if it does not when nothing
/// else is left.
#[test]
fn linked_replicas_come_first() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].set_linked(false);
    let other = fleet.replicas[1].clone();
    let unlinked = fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
        other.stop();
        pass(&core, 5 * MS).await;
        get(&client).await
    });
    assert!(unlinked.is_ok());
    assert_eq!(fleet.gets(), [0, 1, 10]);
}

/// Fails if a promoted node serves replica reads for longer than an interval, or is closed before it
/// answered what it had accepted.
#[test]
fn a_promoted_node_serves_no_more() {
    let fleet = Fleet::new(2);
    let promoted = fleet.replicas[0].clone();
    promoted.set_duration(2 * MS);
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        promoted.promote();
        let mut reads = Vec::new();
        for _ in 0..2_200 {
            let client = client.clone();
            reads.push(core.spawn(async move { get(&client).await }));
            pass(&core, MS / 2).await;
        }
        for read in reads {
            read.await.expect("no panic").expect("an answer");
        }
        let before = promoted.count("GET");
        assert!(before > 900, "{before}");
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
        assert_eq!(promoted.count("GET"), before);
    });
}

/// Fails if with an interval of zero a read goes to a replica that was not asked for its role just
/// before it.
#[test]
fn zero_asks_before_every_read() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::ReplicaPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    fleet.run(options, async |_, client| {
        for _ in 0..5 {
            get(&client).await.expect("an answer");
        }
    });
    let seen = fleet.replicas[0].seen();
    let names: Vec<&str> = seen.iter().map(|seen| &seen.name[..]).collect();
    let reads = names.iter().position(|name| *name == "GET").expect("a read");
    let rest: Vec<&str> = names[reads - 1..].to_vec();
    assert_eq!(rest, ["ROLE", "GET"].repeat(5));
    assert_eq!(fleet.gets()[0], 0);
}

/// Fails if a replica that refuses connections is tried more than once in an interval, or if it
/// costs reads their time.
#[test]
fn a_dead_replica_is_left_alone() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].stop();
    let mut options = fleet.options(ReadFrom::Replica);
    options.replica_refresh_interval = Duration::from_secs(4);
    let attempts = fleet.run(options, async |core, client| {
        let begun = core.now();
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        assert!(core.now().since(begun) < 100 * MS);
        let mut states = client.states();
        let mut attempts = 0;
        let count = async {
            while let Some(change) = states.next().await {
                let begins = change.state == hedgerow::client::ConnectionState::Connecting;
                attempts += usize::from(begins);
            }
        };
        unless(pass(&core, Duration::from_secs(9)), count).await;
        attempts
    });
    assert!(attempts > 0, "no attempt was seen");
    assert!(attempts <= 3, "{attempts} attempts in 9 s");
}

/// Fails if Nearest does not find the node with the shortest PING, or goes on to one
/// whose PING is not answered.
#[test]
fn nearest_is_the_shortest_ping() {
    let fleet = Fleet::new(2);
    fleet.primary.set_duration(MS);
    fleet.replicas[0].set_duration(3 * MS);
    let stalls = Rc::new(RefCell::new(false));
    let stalled = stalls.clone();
    fleet.primary.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"PING" if *stalled.borrow() => after(60_000),
        _ => Reaction::Serve,
    });
    fleet.replicas[1].set_duration(2 * MS);
    let (primary, replicas) = (fleet.primary.clone(), fleet.replicas.clone());
    fleet.run(fleet.options(ReadFrom::Nearest), async move |core, client| {
        for _ in 0..300 {
            get(&client).await.expect("an answer");
            pass(&core, 10 * MS).await;
        }
        let [near, far] = [primary.count("GET"), replicas[0].count("GET")];
        assert!(near > 280 && far == 0, "{near} {far}");
        // Its next PING hangs: from then on the next nearest serves.
        *stalls.borrow_mut() = true;
        pass(&core, Duration::from_secs(2)).await;
        let (before, of_second) = (primary.count("GET"), replicas[1].count("GET"));
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        assert!(primary.count("GET") - before <= 2, "{}", primary.count("GET") - before);
        assert!(replicas[1].count("GET") - of_second >= 98);
    });
}

/// Fails if a PING is sent for any policy but Nearest.
#[test]
fn only_nearest_sends_pings() {
    for policy in [ReadFrom::ReplicaPreferred, ReadFrom::Quickest, ReadFrom::Nearest] {
        let fleet = Fleet::new(1);
        fleet.run(fleet.options(policy), async |core, client| {
            for _ in 0..10 {
                get(&client).await.expect("an answer");
                pass(&core, 500 * MS).await;
            }
        });
        let pings = fleet.primary.count("PING") + fleet.replicas[0].count("PING");
        assert_eq!(pings > 0, policy == ReadFrom::Nearest, "{policy}: {pings}");
        // At most one a second on each connection, in 5 s.
        assert!(pings <= 12, "{pings}");
    }
}

/// Fails if more than four PINGs are unanswered at a time, or if what cannot be measured
/// then serves no read.
#[test]
fn four_pings_at_a_time() {
    let fleet = Fleet::new(5);
    for server in fleet.replicas.iter().chain([&fleet.primary]) {
        server.on_request(|asked: &Asked<'_>| match asked.args[0] {
            b"PING" => after(60_000),
            _ => Reaction::Serve,
        });
    }
    fleet.run(fleet.options(ReadFrom::Nearest), async |_, client| {
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
    });
    let all = fleet.replicas.iter().chain([&fleet.primary]);
    assert_eq!(all.map(|server| server.count("PING")).sum::<usize>(), 4);
}

/// Fails if a read waits for more than a second for the answers to PINGs, or is queued
/// behind one.
#[test]
fn every_candidate_owes_a_pong() {
    let fleet = Fleet::new(1);
    for server in [&fleet.primary, &fleet.replicas[0]] {
        server.on_request(|asked: &Asked<'_>| match asked.args[0] {
            b"PING" => after(60_000),
            _ => Reaction::Serve,
        });
    }
    let mut options = fleet.options(ReadFrom::Nearest);
    options.command_timeout = Some(Duration::from_secs(5));
    let (error, waited) = fleet.run(options, async |core, client| {
        let begun = core.now();
        let error = get(&client).await.expect_err("no candidate");
        (error, core.now().since(begun).as_millis())
    });
    assert_eq!(waited, 1_000);
    assert!(error.to_string().contains("no healthy eligible endpoint"), "{error}");
    assert_eq!(fleet.gets(), [0, 0]);
}

/// Fails if a refused PING costs a healthy node its reads.
#[test]
fn a_refused_ping_is_no_harm() {
    let fleet = Fleet::new(1);
    for server in [&fleet.primary, &fleet.replicas[0]] {
        server.on_request(|asked: &Asked<'_>| match asked.args[0] {
            b"PING" => Reaction::Answer(b"-NOPERM no\r\n".to_vec()),
            _ => Reaction::Serve,
        });
    }
    fleet.run(fleet.options(ReadFrom::Nearest), async |_, client| {
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
    });
    assert!(fleet.gets().iter().all(|gets| *gets >= 9), "{:?}", fleet.gets());
}

/// Fails if the zone of HELLO, or of INFO with RESP2, does not decide between
/// replicas, or if another zone's is taken for the client's.
#[test]
fn the_own_zone_comes_first() {
    for resp3 in [true, false] {
        let fleet = Fleet::new(2);
        fleet.replicas[0].set_zone("b");
        fleet.replicas[1].set_zone("a");
        fleet.replicas.iter().chain([&fleet.primary]).for_each(|s| s.set_resp3(resp3));
        let mut options = fleet.options(ReadFrom::AzAffinity);
        options.client_availability_zone = Some("a".into());
        let near = fleet.replicas[1].clone();
        fleet.run(options, async move |core, client| {
            for _ in 0..10 {
                get(&client).await.expect("an answer");
            }
            assert_eq!(client.nodes()[2].zone.as_deref(), Some("a"));
            near.stop();
            pass(&core, 5 * MS).await;
            get(&client).await.expect("from the other zone");
        });
        assert_eq!(fleet.gets(), [0, 1, 10], "RESP3: {resp3}");
    }
}

/// Fails if a zone policy is taken without a zone, as default or as a view, or Replica without
/// replicas.
#[test]
fn views_are_checked() {
    let fleet = Fleet::new(1);
    let errors = fleet.run(fleet.options(ReadFrom::Primary), async |core, client| {
        let zone = client.read_from(ReadFrom::AzAffinity).expect_err("no zone");
        let mut options = Options::new(client.nodes()[0].endpoint.clone());
        options.read_from = ReadFrom::Replica.into();
        [zone, core.create(&options).expect_err("no replicas")]
    });
    for (error, names) in errors.iter().zip(["client_availability_zone", "replica_endpoints"]) {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(names), "{error}");
    }
}

/// Fails if a scan goes on elsewhere than it began, if scans do not spread over replicas, or
/// if one whose server is gone goes on.
#[test]
fn scans_stay_on_their_server() {
    let fleet = Fleet::new(2);
    for key in ["a", "b", "c", "d"] {
        fleet.primary.set_value(key, "v");
    }
    let gone = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let scan = |cursor| keys::scan_with::<String>(cursor, ScanOptions::new());
        let (mut one, mut two) = (client.pages(scan), client.pages(scan));
        let mut found = Vec::new();
        while let (Some(a), Some(b)) =
            (one.next_page().await.expect("a page"), two.next_page().await.expect("a page"))
        {
            assert_eq!(a, b);
            found.extend(a);
        }
        assert_eq!(found, ["a", "b", "c", "d"]);
        assert_eq!(gone.iter().map(|s| s.count("SCAN")).collect::<Vec<_>>(), [4, 4]);
        let mut third = client.pages(scan);
        third.next_page().await.expect("a page");
        let at = usize::from(gone[1].count("SCAN") == 5);
        gone[at].cut();
        pass(&core, Duration::from_secs(2)).await;
        let error = third.next_page().await.expect_err("its connection is another");
        assert!(error.to_string().contains("cursor 0"), "{error}");
    });
}

/// Fails if plain cursor commands of a policy go to different servers, or if after its loss a
/// cursor goes on or a new scan does not begin.
#[test]
fn plain_cursors_share_a_server() {
    let fleet = Fleet::new(2);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    let servers = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let mut cursor = 0;
        for _ in 0..6 {
            cursor = client.scan::<String>(cursor).await.expect("a page").cursor;
        }
        let counts = servers.iter().map(|s| s.count("SCAN")).collect::<Vec<_>>();
        assert!(counts == [6, 0] || counts == [0, 6], "{counts:?}");
        let page = client.scan::<String>(0).await.expect("a page");
        servers.iter().for_each(ModelServer::cut);
        pass(&core, Duration::from_secs(2)).await;
        let error = client.scan::<String>(page.cursor).await.expect_err("a lost cursor");
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        assert!(client.scan::<String>(0).await.is_ok());
    });
}

/// Fails if a replica that is too far behind, or of which that is not known, serves a read with a bound,
/// or if a read without one is refused.
#[test]
fn staleness_is_bounded() {
    let fleet = Fleet::new(2);
    fleet.primary.set_offset(10_000);
    fleet.replicas[0].set_offset(9_000);
    fleet.replicas[1].set_offset(9_990);
    fleet.run(fleet.options(ReadFrom::Replica), async |core, client| {
        let close = client.read_from(ReadFrom::Replica.behind_at_most(100)).expect("a view");
        let closest = client.read_from(ReadFrom::Replica.behind_at_most(5)).expect("a view");
        let either =
            client.read_from(ReadFrom::ReplicaPreferred.behind_at_most(5)).expect("a view");
        for _ in 0..10 {
            get(&close).await.expect("an answer");
        }
        pass(&core, MS).await;
        assert!(get(&closest).await.is_err());
        assert!(get(&either).await.is_ok());
        assert_eq!(client.nodes()[1].lag_bytes, Some(1_000));
    });
    assert_eq!(fleet.gets(), [1, 0, 10]);
}

/// Fails if the quicker of two nodes does not get most of the reads without any probe.
#[test]
fn quickest_learns_from_replies() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].set_duration(5 * MS);
    fleet.run(fleet.options(ReadFrom::Quickest), async |_, client| {
        for _ in 0..200 {
            get(&client).await.expect("an answer");
        }
    });
    let gets = fleet.gets();
    assert!(gets[0] > 150 && gets[0] + gets[1] == 200, "{gets:?}");
}

/// Fails if a copy of a read is missing from the trace, or marked as what it was not.
#[test]
fn copies_are_traced() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [after(50)]);
    does(&fleet.replicas[0], [after(10)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    let copies = fleet.run(options, async |core, client| {
        client.trace_reads(10);
        get(&client).await.expect("an answer");
        pass(&core, 100 * MS).await;
        client.take_trace()
    });
    let told = copies.0.iter().map(|c| (c.node, c.time.as_millis(), c.is_hedge, c.won));
    assert_eq!(told.collect::<Vec<_>>(), [(1, 10, true, true), (0, 50, false, false)]);
    assert_eq!(copies.1, 0);
}

/// Fails if a client connects to replicas that no read asked for.
#[test]
fn replicas_are_connected_when_asked_for() {
    let fleet = Fleet::new(1);
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Primary), async move |_, client| {
        get(&client).await.expect("an answer");
        assert_eq!(replica.connections(), 0);
        let view = client.read_from(ReadFrom::Replica).expect("a view");
        get(&view).await.expect("an answer");
        // One for reads, one of the coordinator.
        assert_eq!(replica.connections(), 2);
    });
}

/// Fails if a removed replica gets a new read, does not answer what it had accepted, or keeps its
/// connection; or if an added one serves none.
#[test]
fn replicas_come_and_go() {
    let fleet = Fleet::new(2);
    let spare = fleet.simulation.replica(&fleet.primary);
    let (leaves, stays) = (fleet.replicas[0].clone(), fleet.replicas[1].clone());
    leaves.set_duration(3 * MS);
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let reads: Vec<_> = (0..10)
            .map(|_| {
                let client = client.clone();
                core.spawn(async move { get(&client).await })
            })
            .collect();
        client.set_replicas(vec![stays.endpoint(), spare.endpoint()]).expect("addresses");
        for read in reads {
            read.await.expect("no panic").expect("an answer");
        }
        pass(&core, 100 * MS).await;
        let before = leaves.count("GET");
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
        assert_eq!(before, 5);
        assert_eq!(leaves.count("GET"), before);
        assert_eq!(spare.count("GET"), 10);
        let nodes: Vec<_> = client.nodes().into_iter().map(|node| node.endpoint).collect();
        assert_eq!(nodes[1..], [stays.endpoint(), spare.endpoint()]);
        // And back again, at its old place.
        client.set_replicas(vec![leaves.endpoint()]).expect("addresses");
        pass(&core, 100 * MS).await;
        get(&client).await.expect("an answer");
        assert_eq!(leaves.count("GET"), before + 1);
    });
}

/// Fails if each connection asks for the role where the coordinator does, or if that asks more than
/// once an interval.
#[test]
fn one_asks_for_all() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::Replica);
    options.connections = 8;
    let replica = fleet.replicas[0].clone();
    fleet.run(options, async move |core, client| {
        pass(&core, Duration::from_secs(2)).await;
        let before = replica.count("ROLE");
        for _ in 0..100 {
            get(&client).await.expect("an answer");
            pass(&core, 100 * MS).await;
        }
        let asked = replica.count("ROLE") - before;
        assert!((9..=11).contains(&asked), "{asked} in 10 s");
    });
}

/// C-19. Fails if a client does not rank nodes by the PINGs of another of its deployment before it has
/// its own, or if the coordinator outlives the last of them.
#[test]
fn what_one_client_learns_the_other_knows() {
    let fleet = Fleet::new(1);
    fleet.primary.set_duration(3 * MS);
    let options = fleet.options(ReadFrom::Nearest);
    let (primary, replica) = (fleet.primary.clone(), fleet.replicas[0].clone());
    fleet.run(options.clone(), async move |core, client| {
        for _ in 0..20 {
            get(&client).await.expect("an answer");
            pass(&core, 10 * MS).await;
        }
        let pings = primary.count("PING") + replica.count("PING");
        let other = core.connect(&options).await.expect("a connection");
        pass(&core, 50 * MS).await;
        let before = replica.count("GET");
        get(&other).await.expect("an answer");
        assert_eq!(replica.count("GET"), before + 1);
        // It measures one of them for itself meanwhile.
        assert!(primary.count("PING") + replica.count("PING") <= pings + 1);
        other.close(Duration::ZERO).await;
        client.close(Duration::ZERO).await;
        pass(&core, Duration::from_secs(5)).await;
        let asked = replica.count("ROLE");
        pass(&core, Duration::from_secs(5)).await;
        assert_eq!(replica.count("ROLE"), asked);
    });
}

/// Fails if a client without replicas takes some, or an address that cannot be right is taken.
#[test]
fn replicas_that_cannot_be_set() {
    let fleet = Fleet::new(1);
    let alone = fleet.primary.options();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let twice = vec![client.nodes()[1].endpoint.clone(); 2];
        let error = client.set_replicas(twice).expect_err("named twice");
        assert!(error.to_string().contains("named twice"), "{error}");
        let alone = core.connect(&alone).await.expect("a connection");
        let error = alone.set_replicas(Vec::new()).expect_err("no coordinator");
        assert_eq!(error.kind(), ErrorKind::Config);
    });
}

/// Fails if TOUCH goes to a replica, or MEMORY USAGE not to the node that the policy chooses.
#[test]
fn touch_stays_and_memory_usage_goes() {
    let fleet = Fleet::new(1);
    fleet.run(fleet.options(ReadFrom::Replica), async |_, client| {
        // The model knows neither; what counts is who was asked.
        let _ = client.command("TOUCH").arg("k").send::<i64>().await;
        let _ = client.command("MEMORY USAGE").arg("k").send::<i64>().await;
    });
    let replica = &fleet.replicas[0];
    assert_eq!([fleet.primary.count("TOUCH"), replica.count("TOUCH")], [1, 0]);
    assert_eq!([fleet.primary.count("MEMORY"), replica.count("MEMORY")], [0, 1]);
}

/// Fails if PINGs pile up behind one that is not answered, with no command timeout to end it.
#[test]
fn no_ping_waits_behind_another() {
    let fleet = Fleet::new(1);
    fleet.primary.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"PING" => after(60_000),
        _ => Reaction::Serve,
    });
    let mut options = fleet.options(ReadFrom::Nearest);
    options.command_timeout = None;
    fleet.run(options, async |core, client| {
        for _ in 0..100 {
            get(&client).await.expect("from the replica");
            pass(&core, 200 * MS).await;
        }
    });
    assert_eq!(fleet.primary.count("PING"), 1);
    assert_eq!(fleet.gets(), [0, 100]);
}

/// Fails if an unlinked replica serves reads of Nearest because it is the quickest.
#[test]
fn a_link_counts_before_latency() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].set_linked(false);
    fleet.primary.set_duration(3 * MS);
    fleet.replicas[1].set_duration(2 * MS);
    fleet.run(fleet.options(ReadFrom::Nearest), async |core, client| {
        for _ in 0..50 {
            get(&client).await.expect("an answer");
            pass(&core, 10 * MS).await;
        }
    });
    let gets = fleet.gets();
    assert!(gets[1] == 0 && gets[2] > 40, "{gets:?}");
}
