//! Which nodes serve the reads of a policy, and what waits for them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{Asked, Reaction};
use hedgerow::{ErrorKind, Options};

use super::clock::pass;
use super::fleet::{Fleet, MS, after, always, does, get, hedging};

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

/// Fails if TOUCH goes to a replica, or MEMORY USAGE not to the node that the policy chooses.
#[test]
fn touch_stays_and_memory_usage_goes() {
    let fleet = Fleet::new(1);
    fleet.run(fleet.options(ReadFrom::Replica), async |_, client| {
        // What counts is who was asked, whatever the model makes of it.
        let _ = client.command("TOUCH").arg("k").send::<i64>().await;
        let _ = client.command("MEMORY USAGE").arg("k").send::<i64>().await;
    });
    let replica = &fleet.replicas[0];
    assert_eq!([fleet.primary.count("TOUCH"), replica.count("TOUCH")], [1, 0]);
    assert_eq!([fleet.primary.count("MEMORY"), replica.count("MEMORY")], [0, 1]);
}

/// Fails if a read that waits for what only it needs (the offset of a primary that does not tell it) holds
/// up another of the same policy, or if those behind it still wait when its time is over.
#[test]
fn a_waiting_read_holds_up_no_other() {
    let fleet = Fleet::new(1);
    always(&fleet.primary, "ROLE", after(60_000));
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

/// Fails if a view with a bound on staleness cannot be served by a client that served reads without one for
/// a while, whose coordinator then knows how far each node is.
#[test]
fn a_bound_comes_late() {
    for pause in [MS, 200 * MS, 1_500 * MS, 10_000 * MS] {
        let fleet = Fleet::new(2);
        let known =
            fleet.run(fleet.options(ReadFrom::ReplicaPreferred), async move |core, client| {
                for _ in 0..10 {
                    get(&client).await.expect("an answer");
                }
                pass(&core, pause).await;
                for from in [ReadFrom::Replica, ReadFrom::ReplicaPreferred] {
                    let view = client.read_from(from.behind_at_most(100)).expect("a view");
                    get(&view).await.expect("an answer");
                }
                client.nodes().iter().filter(|node| node.lag_bytes.is_some()).count()
            });
        assert_eq!((known, fleet.gets()[0]), (2, 0), "{pause:?}: the replicas served all");
    }
}

/// Fails if a read whose replica was lost is sent to another one behind the caller's back.
#[test]
fn a_lost_read_is_not_sent_again() {
    let fleet = Fleet::new(2);
    for replica in &fleet.replicas {
        does(replica, [Reaction::CloseAfter(5 * MS)]);
    }
    let got = fleet.run(fleet.options(ReadFrom::Replica), async |_, client| get(&client).await);
    assert_eq!(got.expect_err("lost").kind(), ErrorKind::Disconnected);
    assert_eq!(fleet.gets().iter().sum::<usize>(), 1);
}

/// Fails if zones are compared without regard to case, if a node that tells or knows no zone
/// is no node, if one that has none is taken for one of the zone, or if an old zone outlives its connection.
#[test]
fn unknown_zones_come_later() {
    for resp3 in [true, false] {
        let fleet = Fleet::new(4);
        fleet.replicas.iter().chain([&fleet.primary]).for_each(|s| s.set_resp3(resp3));
        fleet.replicas[0].set_zone("A");
        fleet.replicas[1].set_zone("");
        // Of the zone, but its metadata are denied to this user, where they have to be asked for.
        fleet.replicas[2].set_zone(if resp3 { "b" } else { "a" });
        always(&fleet.replicas[2], "INFO", Reaction::Answer(b"-NOPERM x\r\n".to_vec()));
        fleet.replicas[3].set_zone("a");
        let mut options = fleet.options(ReadFrom::AzAffinity);
        options.client_availability_zone = Some("a".into());
        let moved = fleet.replicas[3].clone();
        fleet.run(options, async move |core, client| {
            for _ in 0..8 {
                get(&client).await.expect("an answer");
            }
            assert_eq!(moved.count("GET"), 8);
            moved.set_zone("b");
            moved.cut();
            pass(&core, 2_000 * MS).await;
            for _ in 0..8 {
                get(&client).await.expect("an answer");
            }
        });
        assert_eq!(fleet.gets(), [0, 2, 2, 2, 10], "RESP3: {resp3}");
    }
}

/// Fails if an empty zone is taken for one.
#[test]
fn an_empty_zone_is_none() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::AzAffinity);
    options.client_availability_zone = Some(String::new());
    let error = fleet.run(fleet.options(ReadFrom::Primary), async move |core, _| {
        core.create(&options).expect_err("no zone")
    });
    assert!(error.to_string().contains("client_availability_zone"), "{error}");
}
