//! Clients of a cluster: routes, redirects, discovery and its timings, isolation.

use std::future::Future;
use std::time::Duration;

use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{ModelCluster, Reaction, Simulation};
use hedgerow::{Error, ErrorKind, Fate, LocalClient, LocalContext, Options};

use super::clock::pass;
use super::fleet::MS;

const S: Duration = Duration::from_secs(1);
/// Keys of the first, second and third of three shards.
const KEYS: [&str; 3] = ["bar", "k", "foo"];

/// Three shards, each with so many replicas.
struct World {
    simulation: Simulation,
    cluster: ModelCluster,
}

impl World {
    fn new(replicas_each: usize) -> World {
        let simulation = Simulation::new(4);
        let cluster = simulation.cluster(3, replicas_each);
        for key in KEYS {
            cluster.set_value(key, "v");
        }
        World { simulation, cluster }
    }

    /// Every node is a seed.
    fn options(&self) -> Options {
        let mut options = self.cluster.options();
        let mut settings = Cluster::default();
        let seeds = self.cluster.servers().iter().skip(1);
        settings.seeds = seeds.map(|server| server.endpoint()).collect();
        options.cluster = Some(settings);
        options
    }

    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        options: Options,
        main: impl FnOnce(LocalContext, LocalClient, ModelCluster) -> F + 'static,
    ) -> T {
        let cluster = self.cluster.clone();
        let outcome = self.simulation.run(async move |core| {
            let client = core.connect(&options).await.expect("a connection");
            main(core, client, cluster).await
        });
        outcome.checked()
    }

    /// Between the instants at which any node was asked for the slots, in order.
    fn gaps(&self) -> Vec<Duration> {
        let nodes = 0..self.cluster.servers().len();
        let mut asked: Vec<_> = nodes.flat_map(|node| self.cluster.slots_asked(node)).collect();
        asked.sort();
        asked.windows(2).map(|two| two[1].since(two[0])).collect()
    }
}

async fn get(client: &LocalClient, key: &str) -> Result<Option<String>, Error> {
    client.get(key).await
}

/// Fails if a command goes to another node than its slot's, if all nodes are connected before
/// they are needed, or if a seed gets a second connection.
#[test]
fn commands_go_to_the_node_of_their_slot() {
    let world = World::new(0);
    world.run(world.options(), async |_, client, cluster| {
        for _ in 0..3 {
            get(&client, KEYS[0]).await.expect("a value");
        }
        let connected = client.nodes().iter().filter(|node| node.connections > 0).count();
        assert!(connected <= 2, "{connected}");
        for key in KEYS {
            assert_eq!(get(&client, key).await.expect("a value").as_deref(), Some("v"));
        }
        let gets: Vec<_> = cluster.servers().iter().map(|server| server.count("GET")).collect();
        assert_eq!(gets, [4, 1, 1]);
        assert_eq!((client.counters().again, client.counters().connects), (0, 3));
        let nodes = client.nodes();
        assert_eq!(nodes.len(), 3);
        assert!(nodes.iter().all(|node| node.slots.len() == 1 && node.id.is_some()), "{nodes:?}");
    });
}

/// Fails if a redirect is not remembered at once, by the other clients of the process too, or
/// if the nodes are asked sooner than 5 s after the first, or more than once.
#[test]
fn a_redirect_is_remembered_at_once() {
    let world = World::new(0);
    let options = world.options();
    world.run(options.clone(), async move |core, client, cluster| {
        let other = core.connect(&options).await.expect("a connection");
        for client in [&client, &other] {
            get(client, KEYS[0]).await.expect("a value");
        }
        let begun = core.now();
        cluster.move_slots(0..=16_383, 2);
        get(&client, KEYS[0]).await.expect("a value");
        pass(&core, 10 * MS).await;
        get(&other, KEYS[0]).await.expect("a value");
        get(&client, KEYS[0]).await.expect("a value");
        assert_eq!((client.counters().again, other.counters().again), (1, 0));
        while core.now().since(begun) < 20 * S {
            pass(&core, 100 * MS).await;
            get(&client, KEYS[1]).await.expect("a value");
        }
    });
    let gaps = world.gaps();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0] >= 5 * S && gaps[0] < 6 * S, "{gaps:?}");
}

/// Fails if the nodes are asked more rarely than every 60 s, more often than every 54 s,
/// always in the same order, or at all with the timer off.
#[test]
fn the_nodes_are_asked_now_and_then() {
    for period in [Some(60 * S), None, Some(Duration::ZERO)] {
        let world = World::new(1);
        let mut options = world.options();
        let settings = options.cluster.as_mut().expect("a cluster");
        settings.refresh_interval = period;
        world.run(options, async |core, _client, _| pass(&core, 1_200 * S).await);
        let gaps = world.gaps();
        if period != Some(60 * S) {
            assert_eq!(gaps, [], "{period:?}");
            continue;
        }
        assert!((19..=22).contains(&gaps.len()), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= 60 * S + MS && *gap >= 54 * S), "{gaps:?}");
        let asked = (0..3).filter(|node| world.cluster.slots_asked(*node).len() > 1).count();
        assert!(asked >= 2, "always the same one");
    }
}

/// Fails if a command that a demoted primary would not have is not sent to its successor, is
/// sent to nobody but the demoted one, or if each such command has the nodes asked anew.
#[test]
fn a_demoted_primary_is_left() {
    let world = World::new(1);
    let demote = world.cluster.clone();
    world.run(world.options(), async move |core, client, cluster| {
        client.set(KEYS[0], "before").await.expect("a status");
        let (owner, asked) = (cluster.owner_of(KEYS[0]), cluster.clone());
        let slots = move || (0..6).map(|node| asked.slots_asked(node).len()).sum::<usize>();
        let replica = cluster.replicas_of(owner)[0];
        demote.set_read_only(owner, true);
        let before = slots();
        demote.fail_over(replica);
        let read_only = b"-READONLY You can't write against a read only replica.\r\n".to_vec();
        cluster.server(owner).on_request(move |asked| match asked.args[0] {
            b"SET" => Reaction::Answer(read_only.clone()),
            _ => Reaction::Serve,
        });
        let all: Vec<_> = (0..20).map(|n| client.set(KEYS[0], format!("{n}"))).collect();
        for set in all {
            core.spawn(set).await.expect("no panic").expect("a status");
        }
        assert_eq!(cluster.owner_of(KEYS[0]), replica);
        assert!(slots() - before <= 2, "{} questions", slots() - before);
        assert_eq!(get(&client, KEYS[0]).await.expect("a value").as_deref(), Some("19"));
    });
}

/// Fails if READONLY is lost, or hangs, where the nodes name the same primary as before.
#[test]
fn a_demotion_that_nobody_knows_of_is_told() {
    let world = World::new(0);
    world.run(world.options(), async |core, client, cluster| {
        cluster.set_read_only(cluster.owner_of(KEYS[0]), true);
        let begun = core.now();
        let error = client.set(KEYS[0], "x").await.expect_err("READONLY");
        assert_eq!((error.code(), error.fate()), (Some("READONLY"), Fate::Answered));
        assert!(core.now().since(begun) < S, "{error}");
        assert_eq!(get(&client, KEYS[0]).await.expect("a value").as_deref(), Some("v"));
    });
}

/// Fails if a dead primary costs commands to it more than a moment, costs others anything, or has the
/// nodes asked more than once a second.
#[test]
fn a_dead_shard_is_alone() {
    let world = World::new(0);
    world.run(world.options(), async |core, client, cluster| {
        for key in KEYS {
            get(&client, key).await.expect("a value");
        }
        cluster.kill(0);
        let _ = get(&client, KEYS[0]).await.expect_err("it is dead");
        pass(&core, 2 * S).await;
        let begun = core.now();
        while core.now().since(begun) < 5 * S {
            let asked = core.now();
            let error = get(&client, KEYS[0]).await.expect_err("it is dead");
            assert_eq!((error.kind(), error.fate()), (ErrorKind::NotConnected, Fate::NotSent));
            assert!(core.now().since(asked) < MS, "{error}");
            let asked = core.now();
            get(&client, KEYS[1]).await.expect("a value");
            assert!(core.now().since(asked) < 5 * MS);
            pass(&core, 10 * MS).await;
        }
        cluster.revive(0);
        pass(&core, 6 * S).await;
        get(&client, KEYS[0]).await.expect("it is back");
    });
    // Once a second they are asked; on its way a question may take a little longer than the one before.
    let gaps = world.gaps();
    let mut gaps_of_passes = gaps.iter().filter(|gap| **gap > Duration::ZERO);
    assert!(gaps_of_passes.all(|gap| *gap >= S - MS), "{gaps:?}");
}

/// Fails if the nodes are asked again sooner than 5 s after a failure, or without growing pauses, or
/// if what is known is given up.
#[test]
fn failed_discovery_is_waited_out() {
    let world = World::new(0);
    world.run(world.options(), async |core, client, cluster| {
        get(&client, KEYS[0]).await.expect("a value");
        for server in cluster.servers() {
            server.on_request(|asked| match asked.args[0] {
                b"CLUSTER" => Reaction::Answer(b"-ERR not now\r\n".to_vec()),
                _ => Reaction::Serve,
            });
        }
        cluster.move_slots(0..=16_383, 2);
        for _ in 0..1_000 {
            get(&client, KEYS[0]).await.expect("a value");
            pass(&core, 100 * MS).await;
        }
    });
    // A pass asks all three within a moment.
    let rounds: Vec<_> = world.gaps().into_iter().filter(|gap| *gap > S).collect();
    let seconds: Vec<_> = rounds.iter().map(|gap| gap.as_secs()).collect();
    assert!(seconds.len() >= 4 && seconds[0] >= 4, "{rounds:?}");
    assert!(rounds[1..].is_sorted() && rounds[1] >= 5 * S && rounds[1] < 6 * S, "{rounds:?}");
}

/// Fails if slots of which an answer says nothing lose their owner, or if no replica is asked
/// where every primary is dead.
#[test]
fn what_is_not_spoken_of_stays() {
    let world = World::new(1);
    let mut options = world.options();
    let settings = options.cluster.as_mut().expect("a cluster");
    (settings.refresh_interval, settings.seeds) = (Some(10 * S), Vec::new());
    world.run(options, async |core, client, cluster| {
        cluster.set_hidden(1, true);
        pass(&core, 15 * S).await;
        get(&client, KEYS[1]).await.expect("its owner is known from before");
        cluster.set_hidden(1, false);
        for node in 0..3 {
            cluster.kill(node);
        }
        pass(&core, 60 * S).await;
        let asked: usize = (3..6).map(|node| cluster.slots_asked(node).len()).sum();
        assert!(asked > 0, "replicas know as well");
    });
}

/// Fails if a scan of all shards misses a key that was there all the time, though slots move
/// while it runs.
#[test]
fn a_scan_goes_through_all_shards() {
    for policy in [ReadFrom::Primary, ReadFrom::ReplicaPreferred] {
        let world = World::new(1);
        for n in 0..300 {
            world.cluster.set_value(format!("key:{n}"), "v");
        }
        let mut options = world.options();
        options.read_from = policy.into();
        let seen = world.run(options, async |_, client, cluster| {
            let mut pages = client.pages(hedgerow::command::keys::scan::<String>);
            let mut seen = Vec::new();
            while let Some(page) = pages.next_page().await.expect("a page") {
                seen.extend(page);
                if seen.len() > 100 {
                    cluster.move_slots(0..=10, 1);
                }
            }
            seen
        });
        let mut found: Vec<_> = seen.iter().filter(|key| key.starts_with("key:")).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 300, "{policy}");
    }
}

/// Fails if commands of several slots give another reply than one server would, or those for every
/// shard leave one out.
#[test]
fn commands_of_several_slots_give_one_reply() {
    let world = World::new(1);
    world.run(world.options(), async |_, client, cluster| {
        client.mset([("bar", "1"), ("k", "2"), ("foo", "3")]).await.expect("a status");
        let values: Vec<Option<String>> =
            client.mget(["foo", "none", "bar", "foo"]).await.expect("values");
        assert_eq!(values, [Some("3".into()), None, Some("1".into()), Some("3".into())]);
        assert_eq!(client.exists(["bar", "k", "none"]).await.expect("a count"), 2);
        assert_eq!(client.command("DBSIZE").send::<u64>().await.expect("a size"), 3);
        assert_eq!(client.del(["bar", "k", "foo", "none"]).await.expect("a count"), 3);
        assert_eq!(client.command("DBSIZE").send::<u64>().await.expect("a size"), 0);
        let error = client.rename("bar", "foo").await.expect_err("two slots");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Refused, Fate::NotSent));
        assert!(error.to_string().contains("CROSSSLOT"), "{error}");
        assert!(cluster.servers().iter().all(|server| server.count("RENAME") == 0));
    });
}

/// Fails if a read's second copy goes to another shard, or a slow primary is not
/// hedged within its own.
#[test]
fn hedges_stay_in_the_shard() {
    let world = World::new(1);
    let mut options = world.options();
    options.read_from = ReadFrom::PrimaryPreferred.into();
    let mut hedging = hedgerow::read::Hedging::default();
    (hedging.max_extra_load_percent, hedging.storm_guard) = (100, false);
    hedging.delay = hedgerow::read::Delay::Fixed(2 * MS);
    options.hedging = Some(hedging);
    world.run(options, async |core, client, cluster| {
        for key in KEYS {
            get(&client, key).await.expect("a value");
            get(&client.read_from(ReadFrom::Replica).expect("a view"), key).await.expect("a value");
        }
        let slow = cluster.owner_of(KEYS[0]);
        cluster.server(slow).on_request(|asked| match asked.args[0] {
            b"GET" => Reaction::ServeAfter(100 * MS),
            _ => Reaction::Serve,
        });
        let gets = |cluster: &ModelCluster| -> Vec<usize> {
            cluster.servers().iter().map(|server| server.count("GET")).collect()
        };
        let before = gets(&cluster);
        let begun = core.now();
        assert_eq!(get(&client, KEYS[0]).await.expect("a value").as_deref(), Some("v"));
        assert!(core.now().since(begun) < 10 * MS);
        pass(&core, 200 * MS).await;
        let mut now = gets(&cluster);
        now.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
        let mut expected = vec![0; 6];
        (expected[slow], expected[cluster.replicas_of(slow)[0]]) = (1, 1);
        assert_eq!(now, expected);
        assert_eq!(client.hedges().won, 1);
    });
}

/// Fails if nodes that say nothing take the time of those that would answer.
#[test]
fn silent_nodes_leave_time_for_others() {
    let world = World::new(1);
    let mut options = world.options();
    options.connect_timeout = 4 * S;
    world.run(options, async |core, client, cluster| {
        client.set(KEYS[0], "before").await.expect("a status");
        let owner = cluster.owner_of(KEYS[0]);
        let heir = cluster.replicas_of(owner)[0];
        for node in (0..6).filter(|node| *node != heir) {
            let is_owner = node == owner;
            cluster.server(node).on_request(move |asked| match asked.args[0] {
                b"CLUSTER" => Reaction::ServeAfter(3_600 * S),
                b"SET" if is_owner => Reaction::Answer(b"-READONLY no\r\n".to_vec()),
                _ => Reaction::Serve,
            });
        }
        cluster.fail_over(heir);
        let begun = core.now();
        client.set(KEYS[0], "after").timeout(10 * S).await.expect("one node knows");
        assert!(core.now().since(begun) < 4 * S, "{:?}", core.now().since(begun));
    });
}

/// Fails if a core has more connections than it may have, or if nodes beyond that are out of reach.
#[test]
fn sockets_are_few_where_they_must_be() {
    let world = World::new(1);
    let mut options = world.options();
    options.cluster.as_mut().expect("a cluster").sockets_max = 2;
    world.run(options, async |_, client, _| {
        for _ in 0..5 {
            for key in KEYS {
                get(&client, key).await.expect("a value");
                let connected = client.nodes().iter().filter(|node| node.connections > 0).count();
                assert!(connected <= 2, "{connected}");
            }
        }
    });
}
