//! What one coordinator does for all clients of a deployment.

use std::collections::HashSet;
use std::time::Duration;

use hedgerow::ErrorKind;
use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::Reaction;

use super::clock::pass;
use super::fleet::{Fleet, MS, after, does, get};

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

/// Fails if a client without replicas or of a cluster takes some, or if a wrong address is taken.
#[test]
fn replicas_that_cannot_be_set() {
    let fleet = Fleet::new(1);
    let alone_options = fleet.primary.options();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let twice = vec![client.nodes()[1].endpoint.clone(); 2];
        let error = client.set_replicas(twice).expect_err("named twice");
        assert!(error.to_string().contains("named twice"), "{error}");
        let alone = core.connect(&alone_options).await.expect("a connection");
        let error = alone.set_replicas(Vec::new()).expect_err("no coordinator");
        assert_eq!(error.kind(), ErrorKind::Config);
        let mut of_cluster = alone_options;
        of_cluster.cluster = Some(Cluster::default());
        let of_cluster = core.create(&of_cluster).expect("valid options");
        let error = of_cluster.set_replicas(Vec::new()).expect_err("a cluster says that itself");
        assert!(error.to_string().contains("cluster"), "{error}");
    });
}

/// R-229; trap 21. Fails if a read is chosen by one epoch of the topology and queued by another: if it
/// reaches a replica that its client did not know any more when it sent it.
#[test]
fn no_read_mixes_two_epochs() {
    let fleet = Fleet::new(4);
    let servers = fleet.replicas.clone();
    servers.iter().for_each(|server| server.set_duration(3 * MS));
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let mut rng = fastrand::Rng::with_seed(21);
        let (mut forbidden, mut changes) = (Vec::new(), 0);
        for round in 0..2_000 {
            if round % 10 == 0 {
                // At least one of them.
                let stays = rng.usize(..4);
                let kept = servers.iter().enumerate().filter(|(at, _)| *at == stays || rng.bool());
                let next = kept.map(|(_, server)| server.endpoint()).collect();
                client.set_replicas(next).expect("addresses");
            }
            // Nothing comes between the look and the first poll of the read.
            let nodes: Vec<_> = client.nodes().into_iter().map(|node| node.endpoint).collect();
            let key = format!("k:{round}");
            let gone = servers.iter().enumerate().filter(|(_, s)| !nodes.contains(&s.endpoint()));
            forbidden.extend(gone.map(|(at, _)| (at, key.clone().into_bytes())));
            let _ = client.get::<Option<String>>(key).timeout(20 * MS).await;
            let after = client.nodes().into_iter().map(|node| node.endpoint);
            changes += usize::from(!after.eq(nodes));
            pass(&core, Duration::from_micros(rng.u64(..5_000))).await;
        }
        assert!(changes > 20, "{changes} changes while a read was under way");
        for (at, server) in servers.iter().enumerate() {
            let seen: HashSet<_> =
                server.seen().into_iter().filter(|s| s.name == "GET").map(|s| s.key).collect();
            let wrong = forbidden.iter().find(|(of, key)| *of == at && seen.contains(key));
            assert_eq!(wrong, None);
        }
    });
}

/// Fails if a removed replica that breaks off before it answered what it had accepted is not told of.
#[test]
fn broken_drains_are_told() {
    let fleet = Fleet::new(2);
    let leaves = fleet.replicas[0].clone();
    does(&leaves, [Reaction::CloseAfter(300 * MS)]);
    let stays = vec![fleet.replicas[1].endpoint()];
    let (errors, more) = fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let reads = [0, 1].map(|_| {
            let client = client.clone();
            core.spawn(async move { get(&client).await })
        });
        client.set_replicas(stays).expect("addresses");
        for read in reads {
            let _ = read.await.expect("no panic");
        }
        client.retirement_errors()
    });
    assert_eq!((errors.len(), more), (1, 0));
    assert_eq!(errors[0].node(), Some(&leaves.endpoint()));
}

/// Fails if the connection to a replica that was removed ends while a caller still waits for a read
/// that it took, whatever other commands are given.
#[test]
fn a_drain_lasts_as_long_as_its_reads() {
    for (usual, stall) in [(Some(2_000 * MS), 5_000), (None, 40_000)] {
        let fleet = Fleet::new(2);
        fleet.replicas.iter().for_each(|replica| does(replica, [after(stall)]));
        let mut options = fleet.options(ReadFrom::Replica);
        options.command_timeout = usual;
        let stays = vec![fleet.replicas[1].endpoint()];
        let got = fleet.run(options, async move |core, client| {
            let reads = [0, 1].map(|_| {
                let client = client.clone();
                core.spawn(async move { client.get::<()>("k").timeout(60_000 * MS).await })
            });
            pass(&core, MS).await;
            client.set_replicas(stays).expect("addresses");
            let mut got = Vec::new();
            for read in reads {
                got.push(read.await.expect("no panic"));
            }
            got
        });
        assert!(got.iter().all(Result::is_ok), "{usual:?}: {got:?}");
    }
}
