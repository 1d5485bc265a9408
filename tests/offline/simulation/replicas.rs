//! Replicas that say odd things, or nothing, and reads that wait for them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::ErrorKind;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{Asked, Reaction};

use super::clock::{pass, step, unless};
use super::reads::{Fleet, after, does, get, hedging};

const MS: Duration = Duration::from_millis(1);

/// Fails if a node that refuses reads at once (LOADING, MASTERDOWN) draws the reads of Quickest by its
/// speed.
#[test]
fn quick_refusals_draw_no_reads() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].set_duration(2 * MS);
    fleet.primary.set_duration(2 * MS);
    fleet.replicas[1].on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"GET" => Reaction::Answer(b"-LOADING x\r\n".to_vec()),
        _ => Reaction::Serve,
    });
    let failed = fleet.run(fleet.options(ReadFrom::Quickest), async |_, client| {
        let mut failed = 0;
        for _ in 0..300 {
            failed += usize::from(get(&client).await.is_err());
        }
        failed
    });
    assert!(failed <= 20, "{failed} of 300 reads went to the node that loads");
}

/// Fails if reads that their callers gave up before they were sent count as under way for ever, so that
/// Quickest shuns the node that they were for.
#[test]
fn reads_that_were_never_sent_are_not_under_way() {
    let fleet = Fleet::new(1);
    fleet.primary.set_duration(5 * MS);
    fleet.replicas[0].set_duration(2 * MS);
    let before = fleet.run(fleet.options(ReadFrom::Quickest), {
        let servers = [fleet.primary.clone(), fleet.replicas[0].clone()];
        async move |_, client| {
            for _ in 0..50 {
                get(&client).await.expect("an answer");
            }
            for _ in 0..200 {
                let never = unless(async {}, get(&client)).await;
                assert!(never.is_none());
                step().await;
            }
            let before = servers.each_ref().map(|server| server.count("GET"));
            for _ in 0..100 {
                get(&client).await.expect("an answer");
            }
            before
        }
    });
    let of_replica = fleet.gets()[1] - before[1];
    assert!(of_replica >= 75, "{of_replica} of 100 reads went to the quicker node");
}

/// Fails if a node that stands still goes on getting reads of Quickest, whose times run out there.
#[test]
fn reads_that_run_out_count_against_their_node() {
    let fleet = Fleet::new(2);
    let stalls = Rc::new(Cell::new(false));
    let stalled = stalls.clone();
    fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"GET" if stalled.get() => after(60_000),
        _ => Reaction::Serve,
    });
    let late = fleet.run(fleet.options(ReadFrom::Quickest), async move |core, client| {
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        stalls.set(true);
        let mut late = 0;
        for _ in 0..1_000 {
            late += usize::from(client.get::<()>("k").timeout(50 * MS).await.is_err());
            pass(&core, 10 * MS).await;
        }
        late
    });
    assert!(late <= 25, "{late} of 1,000 reads in 10 s");
}

/// Fails if a read that waits for what only it needs (the offset of a primary that does not tell it) holds
/// up another of the same policy, or if those behind it still wait when its time is over.
#[test]
fn a_waiting_read_holds_up_no_other() {
    let fleet = Fleet::new(1);
    fleet.primary.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"ROLE" => after(60_000),
        _ => Reaction::Serve,
    });
    let took = fleet.run(fleet.options(ReadFrom::Replica), async |core, client| {
        let bounded = client.read_from(ReadFrom::Replica.behind_at_most(5)).expect("a view");
        let waits = core.spawn(async move { bounded.get::<()>("k").timeout(700 * MS).await });
        pass(&core, MS).await;
        let begun = core.now();
        get(&client).await.expect("from the replica");
        let took = core.now().since(begun);
        assert!(waits.await.expect("its end").is_err());
        took
    });
    assert!(took < 10 * MS, "{took:?}");
}

/// Fails if reads that wait for a replica are not bounded in number while the primary is connected.
#[test]
fn reads_that_wait_are_bounded() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].on_request(|_: &Asked<'_>| after(60_000));
    let mut options = fleet.options(ReadFrom::Replica);
    options.queue_commands_max = 10;
    let full = fleet.run(options, async |core, client| {
        let mut reads = Vec::new();
        for _ in 0..15 {
            let client = client.clone();
            reads.push(core.spawn(async move { client.get::<()>("k").timeout(100 * MS).await }));
        }
        let mut full = 0;
        for read in reads {
            let error = read.await.expect("its end").expect_err("no replica");
            full += usize::from(error.kind() == ErrorKind::QueueFull);
        }
        full
    });
    assert_eq!(full, 5);
}

/// Fails if a replica that refuses ROLE for a while is given up for good.
#[test]
fn a_refused_role_is_asked_again() {
    let fleet = Fleet::new(1);
    let refuses = Rc::new(Cell::new(true));
    let refused = refuses.clone();
    fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"ROLE" if refused.get() => Reaction::Answer(b"-NOPERM no\r\n".to_vec()),
        _ => Reaction::Serve,
    });
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let error = get(&client).await.expect_err("no replica");
        assert!(error.to_string().contains("NOPERM"), "{error}");
        refuses.set(false);
        pass(&core, Duration::from_secs(5)).await;
        get(&client).await.expect("from the replica");
    });
}

/// Fails if the error of an original that failed is forgotten when the time of its hedge runs out.
#[test]
fn the_originals_error_outlives_the_deadline() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [Reaction::AnswerAfter(30 * MS, b"-LOADING x\r\n".to_vec())]);
    does(&fleet.replicas[0], [after(60_000)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    options.command_timeout = Some(500 * MS);
    let (error, ledger) = fleet.run(options, async |_, client| {
        (get(&client).await.expect_err("both failed"), client.hedges())
    });
    assert_eq!(error.code(), Some("LOADING"), "{error}");
    assert_eq!((ledger.sent, ledger.both_failed), (1, 1));
}

/// Fails if with an interval of zero a node that was promoted goes on with a scan.
#[test]
fn zero_asks_before_every_page() {
    let fleet = Fleet::new(1);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    let mut options = fleet.options(ReadFrom::Replica);
    options.replica_refresh_interval = Duration::ZERO;
    let promoted = fleet.replicas[0].clone();
    fleet.run(options, async move |_, client| {
        let page = client.scan::<String>(0).await.expect("a page");
        promoted.promote();
        client.scan::<String>(page.cursor).await.expect_err("its server serves no reads any more");
    });
    assert_eq!(fleet.replicas[0].count("SCAN"), 1);
}

/// Fails if a bounded scan begins on a replica that is too far behind since one without a bound did.
#[test]
fn a_bounded_scan_begins_within_its_bound() {
    let fleet = Fleet::new(2);
    fleet.primary.set_offset(10_000);
    fleet.replicas[0].set_offset(9_000);
    fleet.replicas[1].set_offset(9_990);
    fleet.primary.set_value("a", "v");
    let servers = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let close = client.read_from(ReadFrom::Replica.behind_at_most(100)).expect("a view");
        get(&close).await.expect("an answer");
        pass(&core, MS).await;
        // Whichever the unbounded scan takes, the bounded one takes the one that is close.
        for _ in 0..2 {
            client.scan::<String>(0).await.expect("a page");
            let before = servers[1].count("SCAN");
            close.scan::<String>(0).await.expect("a page");
            assert_eq!(servers[1].count("SCAN"), before + 1);
            if servers[0].count("SCAN") > 0 {
                return;
            }
            servers[1].cut();
            pass(&core, 50 * MS).await;
            client.scan::<String>(0).await.expect("a page");
            pass(&core, 1_500 * MS).await;
        }
    });
}

/// Fails if with an interval of zero, where a hedge's node has to be asked for its role first, no
/// hedge goes out, or one goes to a node that was not asked.
#[test]
fn zero_asks_before_a_hedge() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    options.hedging = Some(hedging(20 * MS));
    does(&fleet.primary, [after(300)]);
    let (took, ledger) = fleet.run(options, async |core, client| {
        let begun = core.now();
        get(&client).await.expect("an answer");
        (core.now().since(begun), client.hedges())
    });
    assert_eq!(ledger.sent, 1, "after {took:?}");
    assert!(took < 25 * MS, "{took:?}");
    let seen = fleet.replicas[0].seen();
    let names: Vec<&str> = seen.iter().map(|seen| &seen.name[..]).collect();
    assert!(names.ends_with(&["ROLE", "GET"]), "{names:?}");
}

/// Fails if a read of Nearest is queued behind the unanswered PING of the only node that is
/// left, or waits for it for more than a second.
#[test]
fn the_last_candidate_owes_a_pong() {
    let fleet = Fleet::new(1);
    fleet.primary.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"PING" => after(60_000),
        _ => Reaction::Serve,
    });
    let replica = fleet.replicas[0].clone();
    let (error, waited) = fleet.run(fleet.options(ReadFrom::Nearest), async move |core, client| {
        get(&client).await.expect("from the replica");
        replica.stop();
        pass(&core, 5 * MS).await;
        let begun = core.now();
        let read = client.get::<()>("k").timeout(Duration::from_secs(10)).await;
        (read.expect_err("no candidate"), core.now().since(begun).as_millis())
    });
    assert!(error.to_string().contains("no healthy eligible endpoint"), "{error}");
    assert_eq!(waited, 1_000);
    assert_eq!(fleet.gets()[0], 0);
}

/// Fails if a bound on staleness is taken with an interval of zero, in which the primary would never be
/// asked again how far it is.
#[test]
fn a_bound_needs_an_interval() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::Primary);
    options.replica_refresh_interval = Duration::ZERO;
    let error = fleet.run(options, async |_, client| {
        client.read_from(ReadFrom::Replica.behind_at_most(5)).expect_err("never known")
    });
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("replica_refresh_interval"), "{error}");
}

/// Fails if with an interval of zero a replica that does not say what it is keeps reads from
/// the primary that would serve them.
#[test]
fn zero_does_not_wait_for_a_silent_replica() {
    let fleet = Fleet::new(1);
    let silent = Rc::new(Cell::new(false));
    let is_silent = silent.clone();
    fleet.replicas[0].on_request(move |_: &Asked<'_>| match is_silent.get() {
        true => after(60_000),
        false => Reaction::Serve,
    });
    let mut options = fleet.options(ReadFrom::ReplicaPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    options.command_timeout = Some(Duration::from_secs(5));
    fleet.run(options, async move |core, client| {
        silent.set(true);
        for _ in 0..3 {
            get(&client).await.expect("from the primary");
        }
        let begun = core.now();
        get(&client).await.expect("from the primary");
        let took = core.now().since(begun);
        assert!(took < 10 * MS, "{took:?}");
    });
}

/// Fails if a read waits for a replica that was lost and does not finish its set-up.
#[test]
fn a_replica_that_failed_is_not_waited_for() {
    let fleet = Fleet::new(1);
    let silent = Rc::new(Cell::new(false));
    let is_silent = silent.clone();
    fleet.replicas[0].on_request(move |_: &Asked<'_>| match is_silent.get() {
        true => after(60_000),
        false => Reaction::Serve,
    });
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let before = replica.connections();
        silent.set(true);
        replica.cut();
        // It connects again meanwhile.
        pass(&core, 600 * MS).await;
        assert!(replica.connections() > before);
        let begun = core.now();
        get(&client).await.expect_err("no replica");
        assert!(core.now().since(begun) < MS, "{:?}", core.now().since(begun));
    });
}

/// Fails if the only node whose PING is known is measured again, so that reads have to wait for it.
#[test]
fn the_only_measured_node_is_not_measured_again() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"PING" => after(60_000),
        _ => Reaction::Serve,
    });
    fleet.run(fleet.options(ReadFrom::Nearest), async |core, client| {
        for _ in 0..80 {
            get(&client).await.expect("an answer");
            pass(&core, 100 * MS).await;
        }
    });
    assert_eq!(fleet.primary.count("PING"), 1);
}

/// Fails if a replica that does not say any more what it is goes on serving reads.
#[test]
fn a_role_holds_for_two_intervals() {
    let fleet = Fleet::new(1);
    let silent = Rc::new(Cell::new(false));
    let is_silent = silent.clone();
    fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"ROLE" if is_silent.get() => after(60_000),
        _ => Reaction::Serve,
    });
    fleet.run(fleet.options(ReadFrom::ReplicaPreferred), async move |core, client| {
        silent.set(true);
        pass(&core, 2_500 * MS).await;
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
    });
    assert_eq!(fleet.gets(), [10, 0]);
}

/// Fails if a bound on staleness is kept by where the primary was once, or by what it was asked on a
/// connection that is gone.
#[test]
fn the_primary_is_asked_again() {
    let fleet = Fleet::new(1);
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    // The second answer never comes.
    fleet.primary.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"ROLE" => {
            count.set(count.get() + 1);
            if count.get() == 2 { after(60_000) } else { Reaction::Serve }
        }
        _ => Reaction::Serve,
    });
    let primary = fleet.primary.clone();
    let from = ReadFrom::ReplicaPreferred.behind_at_most(100);
    let mut options = fleet.options(ReadFrom::ReplicaPreferred);
    options.read_from = from;
    fleet.run(options, async move |core, client| {
        let _ = get(&client).await;
        pass(&core, 1_500 * MS).await;
        primary.cut();
        pass(&core, 1_000 * MS).await;
        let _ = get(&client).await;
        pass(&core, 1_500 * MS).await;
        primary.set_offset(10_000);
        pass(&core, 1_500 * MS).await;
        let before = primary.count("GET");
        get(&client).await.expect("an answer");
        assert_eq!(primary.count("GET"), before + 1);
    });
    assert!(asked.get() > 2);
}

/// Fails if PINGs whose connections were lost keep the places of others.
#[test]
fn a_lost_ping_gives_its_place_back() {
    let fleet = Fleet::new(1);
    let silent = Rc::new(Cell::new(true));
    let is_silent = silent.clone();
    fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"PING" if is_silent.get() => after(60_000),
        _ => Reaction::Serve,
    });
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Nearest), async move |core, client| {
        for _ in 0..6 {
            get(&client).await.expect("from the primary");
            pass(&core, 50 * MS).await;
            replica.cut();
            pass(&core, 2_000 * MS).await;
        }
        silent.set(false);
        let before = replica.count("PING");
        get(&client).await.expect("an answer");
        pass(&core, 50 * MS).await;
        assert_eq!(replica.count("PING"), before + 1);
    });
}

/// Fails if what was learnt of a connection, by PING or by reads, is believed of the next one.
#[test]
fn a_new_connection_starts_unknown() {
    let fleet = Fleet::new(1);
    fleet.primary.set_duration(MS);
    fleet.replicas[0].set_duration(50 * MS);
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Quickest), async move |core, client| {
        let nearest = client.read_from(ReadFrom::Nearest).expect("a view");
        pass(&core, 200 * MS).await;
        for _ in 0..30 {
            get(&client).await.expect("an answer");
            get(&nearest).await.expect("an answer");
        }
        replica.set_duration(Duration::from_micros(10));
        replica.cut();
        pass(&core, 600 * MS).await;
        assert_eq!(client.nodes()[1].latency, None);
        assert_eq!(client.nodes()[1].connections, 1, "{:?}", client.nodes());
        let before = replica.count("GET");
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
        let of_it = replica.count("GET") - before;
        assert!(of_it >= 15, "{of_it} of 20 reads");
        get(&nearest).await.expect("an answer");
        pass(&core, 10 * MS).await;
        assert!(client.nodes()[1].latency < Some(5 * MS), "{:?}", client.nodes()[1].latency);
    });
}

/// Fails if a replica that has lost its primary, by its own word, is not asked about its link at once.
#[test]
fn masterdown_is_looked_into() {
    let fleet = Fleet::new(1);
    does(&fleet.replicas[0], [Reaction::Answer(b"-MASTERDOWN x\r\n".to_vec())]);
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        pass(&core, 100 * MS).await;
        let before = replica.count("ROLE");
        get(&client).await.expect_err("it serves no old data");
        pass(&core, 10 * MS).await;
        assert!(replica.count("ROLE") > before);
    });
}

/// Fails if a read that was given room on a connection that is lost before it could use it
/// waits although another replica has room.
#[test]
fn room_that_is_lost_is_looked_for_elsewhere() {
    let fleet = Fleet::new(2);
    // Both answer at the same moment, and one is gone with its answer.
    fleet.replicas.iter().for_each(|replica| replica.set_duration(10 * MS));
    does(&fleet.replicas[0], [Reaction::ServeAndClose]);
    let mut options = fleet.options(ReadFrom::Replica);
    options.in_flight_max = 1;
    options.replica_refresh_interval = Duration::from_secs(60);
    let took = fleet.run(options, async |core, client| {
        pass(&core, 200 * MS).await;
        let begun = core.now();
        let reads: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                core.spawn(async move { get(&client).await })
            })
            .collect();
        for read in reads {
            read.await.expect("its end").expect("an answer");
        }
        core.now().since(begun)
    });
    assert!(took < 50 * MS, "{took:?}");
}

/// Fails if very many replicas do not take turns, or if any policy is at a loss with them.
#[test]
fn sixty_replicas_take_turns() {
    let fleet = Fleet::new(60);
    let mut options = fleet.options(ReadFrom::Replica);
    options.hedging = Some(hedging(5 * MS));
    fleet.run(options, async |_, client| {
        for _ in 0..600 {
            get(&client).await.expect("an answer");
        }
        for policy in [ReadFrom::Nearest, ReadFrom::Quickest] {
            let view = client.read_from(policy).expect("a view");
            for _ in 0..100 {
                get(&view).await.expect("an answer");
            }
        }
    });
    assert!(fleet.gets()[1..].iter().all(|gets| *gets >= 10), "{:?}", fleet.gets());
}
