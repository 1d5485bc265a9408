//! Reads that go to the shortest PING.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{Asked, Reaction};

use super::clock::pass;
use super::fleet::{Fleet, MS, after, always, get, switch};

/// Fails if Nearest does not find the node with the shortest PING, or goes on to one
/// whose PING is not answered.
#[test]
fn nearest_is_the_shortest_ping() {
    let fleet = Fleet::new(2);
    fleet.primary.set_duration(MS);
    fleet.replicas[0].set_duration(3 * MS);
    let stalls = switch(&fleet.primary, "PING", after(60_000));
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
        stalls.set(true);
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
        always(server, "PING", after(60_000));
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
        always(server, "PING", after(60_000));
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
        always(server, "PING", Reaction::Answer(b"-NOPERM no\r\n".to_vec()));
    }
    fleet.run(fleet.options(ReadFrom::Nearest), async |_, client| {
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
    });
    assert!(fleet.gets().iter().all(|gets| *gets >= 9), "{:?}", fleet.gets());
}

/// Fails if PINGs pile up behind one that is not answered, with no command timeout to end it.
#[test]
fn no_ping_waits_behind_another() {
    let fleet = Fleet::new(1);
    always(&fleet.primary, "PING", after(60_000));
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

/// Fails if a read of Nearest is queued behind the unanswered PING of the only node that is
/// left, or waits for it for more than a second.
#[test]
fn the_last_candidate_owes_a_pong() {
    let fleet = Fleet::new(1);
    always(&fleet.primary, "PING", after(60_000));
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

/// Fails if the only node whose PING is known is measured again, so that reads have to wait for it.
#[test]
fn the_only_measured_node_is_not_measured_again() {
    let fleet = Fleet::new(1);
    always(&fleet.replicas[0], "PING", after(60_000));
    fleet.run(fleet.options(ReadFrom::Nearest), async |core, client| {
        for _ in 0..80 {
            get(&client).await.expect("an answer");
            pass(&core, 100 * MS).await;
        }
    });
    assert_eq!(fleet.primary.count("PING"), 1);
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

/// Fails if reads go to, or wait for, a primary that cannot be had, or if it does not serve again once
/// its back-off lets it be tried.
#[test]
fn a_dead_primary_is_no_candidate() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].set_duration(2 * MS);
    let (primary, replica) = (fleet.primary.clone(), fleet.replicas[0].clone());
    fleet.run(fleet.options(ReadFrom::Nearest), async move |core, client| {
        get(&client).await.expect("an answer");
        primary.stop();
        pass(&core, 10 * MS).await;
        for _ in 0..200 {
            let (begun, before) = (core.now(), replica.count("GET"));
            get(&client).await.expect("an answer");
            assert!(core.now().since(begun) < 10 * MS && replica.count("GET") == before + 1);
            pass(&core, 10 * MS).await;
        }
        primary.resume();
        pass(&core, Duration::from_secs(12)).await;
        let before = primary.count("GET");
        for _ in 0..20 {
            get(&client).await.expect("an answer");
        }
        assert!(primary.count("GET") - before >= 18, "it is the nearest again");
    });
}
