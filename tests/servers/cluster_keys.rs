//! What a client can do with the keys of a real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use hedgerow::command::server::Flush;
use hedgerow::prelude::*;
use hedgerow::{ErrorKind, Fate};

use crate::cluster_client::{on_one_cluster, options_of};
use crate::cluster_fleet::{Cluster, slot_of};
use crate::cursors::{KeyPages, Scans};
use crate::fleet::PROTOCOLS;
use crate::placement::{Client, Placement, until};
use crate::server::Flavor;

/// How many of a command each primary has run.
fn runs(cluster: &Cluster, name: &str) -> Vec<u64> {
    (0..3).map(|n| cluster.commands(n, name)).collect()
}

/// Clients of an empty cluster, one for each protocol.
async fn clients<P: Placement>(place: &P, cluster: &Cluster) -> Vec<P::Client> {
    let mut clients = Vec::new();
    for protocol in PROTOCOLS {
        let mut options = options_of(cluster);
        (options.protocol, options.allow_admin) = (protocol, true);
        clients.push(place.connect(&options).await.expect("up"));
    }
    clients[0].flushall(Flush::Sync).await.expect("FLUSHALL");
    clients
}

/// Fails if a command of one key runs on another node than the one that has its slot, is sent twice,
/// or gets another key's reply.
async fn each_key_has_its_node<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    let keys: Vec<String> = (0..300).map(|n| format!("k:{n}")).collect();
    let mut owned = vec![0; 3];
    keys.iter().for_each(|key| owned[cluster.owner_of(slot_of(key))] += 1);
    for client in clients(&place, &cluster).await {
        let before = [runs(&cluster, "set"), runs(&cluster, "get")];
        for outcome in join_all(keys.iter().map(|key| client.set(key, key))).await {
            outcome.expect("SET");
        }
        let values = join_all(keys.iter().map(|key| client.get::<String>(key))).await;
        for (value, key) in values.into_iter().zip(&keys) {
            assert_eq!(&value.expect("GET"), key, "{flavor:?}");
        }
        for (name, before) in ["set", "get"].iter().zip(before) {
            let after = runs(&cluster, name).into_iter().zip(before);
            let ran: Vec<_> = after.map(|(now, before)| now - before).collect();
            assert_eq!(ran, owned, "{flavor:?}: {name}");
        }
        let counters = client.nodes().map(|_| client.counters());
        assert!(counters.is_none_or(|counters| counters.again == 0), "{flavor:?}: {counters:?}");
    }
}

/// Fails if a command whose keys lie in several slots misses one of them, or orders their values by
/// node and not by key.
async fn keys_of_several_slots<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    for client in clients(&place, &cluster).await {
        let keys: Vec<String> = (0..30).map(|n| format!("k:{n}")).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (key, format!("of {key}"))).collect();
        client.mset(pairs).await.expect("MSET");
        let mut asked = keys.clone();
        asked.insert(7, "nobody".to_owned());
        let values: Vec<Option<String>> = client.mget(&asked).await.expect("MGET");
        let expected = |key: &String| (key != "nobody").then(|| format!("of {key}"));
        assert_eq!(values, asked.iter().map(expected).collect::<Vec<_>>(), "{flavor:?}");
        assert_eq!(client.exists(&asked).await.expect("EXISTS"), 30, "{flavor:?}");
        assert_eq!(client.touch(&asked).await.expect("TOUCH"), 30, "{flavor:?}");
        assert_eq!(client.unlink(&asked[..11]).await.expect("UNLINK"), 10, "{flavor:?}");
        assert_eq!(client.del(&asked).await.expect("DEL"), 20, "{flavor:?}");
        assert_eq!(cluster.keys(), 0, "{flavor:?}");
    }
}

/// Fails if a command on all of a cluster reaches less of it, if its one reply lacks a node's, or if
/// a script that was loaded is not known on every shard.
async fn all_of_the_cluster<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    for client in clients(&place, &cluster).await {
        let keys: BTreeSet<String> = (0..60).map(|n| format!("k:{n}")).collect();
        client.mset(keys.iter().map(|key| (key, "v")).collect::<Vec<_>>()).await.expect("MSET");
        assert_eq!(client.dbsize().await.expect("DBSIZE"), 60, "{flavor:?}");
        let mut found: Vec<String> = client.keys("k:*").await.expect("KEYS");
        found.sort_unstable();
        assert_eq!(found, keys.into_iter().collect::<Vec<_>>(), "{flavor:?}");
        client.command("SCRIPT FLUSH").send::<()>().await.expect("SCRIPT FLUSH");
        let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
        let load = client.command("SCRIPT LOAD").arg(script);
        let sha: String = load.send().await.expect("SCRIPT LOAD");
        let exists = client.command("SCRIPT EXISTS").arg(&sha).arg("0".repeat(40));
        let known: Vec<u8> = exists.send().await.expect("SCRIPT EXISTS");
        assert_eq!(known, [1, 0], "{flavor:?}");
        for n in 0..3 {
            let key = cluster.key_in(n, "sum");
            let run = client.command("EVALSHA").arg(&sha).arg(1).arg(key).arg(5);
            assert_eq!(run.send::<i64>().await.expect("EVALSHA"), 5, "{flavor:?}");
        }
        client.flushall(Flush::Async).await.expect("FLUSHALL");
        assert_eq!((client.dbsize().await.expect("DBSIZE"), cluster.keys()), (0, 0), "{flavor:?}");
    }
}

/// Fails if a command that cannot be split over slots is sent, or refused without saying why.
async fn slots_cannot_be_crossed<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    for client in clients(&place, &cluster).await {
        let before = [runs(&cluster, "rename"), runs(&cluster, "sinter")];
        client.set("a", "v").await.expect("SET");
        let renamed = client.rename("a", "b").await.expect_err("two slots");
        let met = client.sinter::<Vec<String>>(["a", "b", "c"]).await.expect_err("three slots");
        for error in [renamed, met] {
            let told = (error.kind(), error.fate());
            assert_eq!(told, (ErrorKind::Refused, Fate::NotSent), "{flavor:?}: {error}");
            let text = error.to_string();
            assert!(text.contains("slot") && text.lines().count() == 1, "{flavor:?}: {text}");
        }
        assert_eq!([runs(&cluster, "rename"), runs(&cluster, "sinter")], before, "{flavor:?}");
        client.rename("a", "{a}b").await.expect("one slot");
    }
}

/// Fails if a command gets an error though its slot is only on the move: on a key that is there
/// already, on one that is not, or on both, of which no node has all (TRYAGAIN).
async fn a_slot_is_on_its_way<P: Placement>(place: P, flavor: Flavor, cluster: Arc<Cluster>) {
    let tag = cluster.key_in(0, "way");
    let keys = ["a", "b"].map(|end| format!("{{{tag}}}{end}"));
    let slot = slot_of(&tag);
    for client in clients(&place, &cluster).await {
        client.mset(keys.iter().map(|key| (key, "v")).collect::<Vec<_>>()).await.expect("MSET");
        for to in [1, 0] {
            cluster.begin_move(slot, to);
            assert_eq!(cluster.move_some_keys(slot, to, 1), 1, "{flavor:?}");
            for key in &keys {
                let value: Option<String> = client.get(key).await.expect("a value");
                assert_eq!(value.as_deref(), Some("v"), "{flavor:?}: {key}");
            }
            let refused = cluster.errors("TRYAGAIN");
            let both = place.spawn({
                let (client, keys) = (client.clone(), keys.clone());
                async move {
                    loop {
                        // Five times it is sent again, over most of a second; a busy machine takes longer.
                        match client.mget::<Vec<String>>(keys.to_vec()).await {
                            Err(error) if error.code() == Some("TRYAGAIN") => {}
                            outcome => return outcome,
                        }
                    }
                }
            });
            until(&place, "TRYAGAIN", || cluster.errors("TRYAGAIN") > refused).await;
            cluster.finish_move(slot, to);
            let values = both.await.expect("its task").expect("both values");
            assert_eq!(values, ["v", "v"], "{flavor:?}");
        }
    }
}

/// How often each item of a scan was shown.
async fn shown(mut pages: Box<dyn KeyPages>) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    while let Some(page) = pages.next().await.expect("a page") {
        page.into_iter().for_each(|item| *found.entry(item).or_default() += 1);
    }
    found
}

/// Fails if a scan of the cluster lacks a key of any shard or shows one twice, or if a scan of a hash
/// leaves the node that has it.
async fn scans_go_through_all_shards<P: Placement<Client: Scans>>(
    place: P,
    flavor: Flavor,
    cluster: Arc<Cluster>,
) {
    for client in clients(&place, &cluster).await {
        let keys: Vec<String> = (0..2_000).map(|n| format!("k:{n}")).collect();
        client.mset(keys.iter().map(|key| (key, "v")).collect::<Vec<_>>()).await.expect("MSET");
        let found = shown(client.key_pages(50)).await;
        assert_eq!(found.len(), keys.len(), "{flavor:?}");
        assert!(found.values().all(|times| *times == 1), "{flavor:?}");
        let fields = (0..1_000).map(|n| (format!("f:{n}"), format!("v:{n}")));
        client.hset("hash", fields.collect::<Vec<_>>()).await.expect("HSET");
        let items = shown(client.hash_pages("hash")).await;
        assert_eq!(items.len(), 2_000, "{flavor:?}");
        assert!(items.values().all(|times| *times == 1), "{flavor:?}");
        client.del("hash").await.expect("DEL");
    }
}

on_one_cluster! {
    each_key_has_its_node,
    keys_of_several_slots,
    all_of_the_cluster,
    slots_cannot_be_crossed,
    a_slot_is_on_its_way,
    scans_go_through_all_shards,
}
