//! What a client of a cluster has to find out by itself, since no node tells it.

use std::time::Duration;

use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{ModelCluster, Simulation};
use hedgerow::{ErrorKind, Fate, LocalClient, LocalContext, Options};

use super::clock::pass;
use super::fleet::MS;

const S: Duration = Duration::from_secs(1);
/// A key of the first of three shards.
const KEY: &str = "bar";

/// Runs a client of three shards of two; every node is a seed, and no timer asks.
fn run(
    change: impl FnOnce(&mut Options),
    main: impl AsyncFnOnce(LocalContext, LocalClient, ModelCluster) + 'static,
) {
    let simulation = Simulation::new(5);
    let cluster = simulation.cluster(3, 1);
    cluster.set_value(KEY, "v");
    let mut options = cluster.options();
    let mut settings = Cluster::default();
    let seeds = cluster.servers().iter().skip(1);
    settings.seeds = seeds.map(|server| server.endpoint()).collect();
    settings.refresh_interval = None;
    options.cluster = Some(settings);
    change(&mut options);
    let outcome = simulation.run(async move |core: LocalContext| {
        let client = core.connect(&options).await.expect("a connection");
        main(core, client, cluster).await;
    });
    outcome.checked();
}

/// Fails if the successor of a dead primary is found later than a second after it took over, however
/// long that took, or only by whoever sends commands meanwhile.
#[test]
fn a_late_successor_is_found() {
    for asks_meanwhile in [true, false] {
        run(
            |_| {},
            async move |core, client, cluster| {
                client.get::<String>(KEY).await.expect("a value");
                cluster.kill(0);
                pass(&core, 20 * S).await;
                cluster.fail_over(3);
                let taken = core.now();
                if !asks_meanwhile {
                    pass(&core, 20 * S).await;
                    client.get::<String>(KEY).await.expect("long known");
                    return;
                }
                while client.get::<String>(KEY).await.is_err() {
                    pass(&core, 10 * MS).await;
                }
                let took = core.now().since(taken);
                assert!(took <= S + 100 * MS, "{took:?}");
            },
        );
    }
}

/// Fails if a command that a redirect sends to a node without a name waits for longer than it takes
/// to ask which one that is.
#[test]
fn a_redirect_to_nobody_is_asked_for() {
    run(
        |_| {},
        async |core, client, cluster| {
            client.get::<String>(KEY).await.expect("a value");
            cluster.set_host(1, Some("?"), 6379);
            cluster.move_slots(0..=16_383, 1);
            let begun = core.now();
            client.get::<String>(KEY).await.expect("a value");
            let took = core.now().since(begun);
            assert!(took < 200 * MS, "{took:?}");
        },
    );
}

/// Fails if no replica of a cluster ever counts as near enough to its primary, or one that is not does.
#[test]
fn lag_is_known_in_a_cluster() {
    run(
        |options| options.replica_refresh_interval = 100 * MS,
        async |core, client, cluster| {
            let strict = client.read_from(ReadFrom::Replica.behind_at_most(100)).expect("a view");
            for (at, is_near) in [(50, true), (500, false)] {
                cluster.server(0).set_offset(at);
                pass(&core, 300 * MS).await;
                let mut outcome = strict.get::<String>(KEY).await;
                if outcome.is_err() && is_near {
                    // The first such read has the nodes asked.
                    pass(&core, 300 * MS).await;
                    outcome = strict.get::<String>(KEY).await;
                }
                let told = outcome.map_err(|error| error.kind());
                let refused = Err(ErrorKind::NotConnected);
                assert_eq!(told, if is_near { Ok("v".to_owned()) } else { refused });
            }
        },
    );
}

/// Fails if a database that the cluster has not is anything but an error of the options.
#[test]
fn a_missing_database_is_an_option() {
    let simulation = Simulation::new(5);
    let cluster = simulation.cluster(1, 0);
    let mut options = cluster.options();
    options.cluster = Some(Cluster::default());
    options.database = 3;
    let outcome = simulation.run(async move |core: LocalContext| {
        let error = core.connect(&options).await.expect_err("there is no such database");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Config, Fate::NotSent), "{error}");
        assert!(error.to_string().contains("cluster-databases"), "{error}");
    });
    outcome.checked();
}
