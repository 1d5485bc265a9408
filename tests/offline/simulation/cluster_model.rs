//! The model of a cluster says what a real one says.

use hedgerow::command::slot::slot_of;
use hedgerow::prelude::*;
use hedgerow::testing::{Asked, ModelCluster, Reaction, Simulation, Visitor};
use hedgerow::{ErrorKind, LocalClient, LocalContext};

use super::clock::pass;
use super::fleet::MS;

/// Keys of the first, second and third of three shards.
const KEYS: [&str; 3] = ["bar", "k", "foo"];
const TRY_AGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
const READ_ONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

fn cluster(primaries: usize, replicas_each: usize) -> ModelCluster {
    Simulation::new(17).cluster(primaries, replicas_each)
}

/// Three shards of two, with a value under each of [`KEYS`].
fn filled() -> ModelCluster {
    let cluster = cluster(3, 1);
    for key in KEYS {
        cluster.set_value(key, "v");
    }
    cluster
}

fn visit(cluster: &ModelCluster, node: usize) -> Visitor {
    cluster.server(node).visit()
}

fn redirect(word: &str, key: &str, to: usize) -> String {
    format!("-{word} {} 10.0.0.{}:6379\r\n", slot_of(key.as_bytes()), to + 1)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The error line that the first node answers to a command through a client.
async fn refused(client: &LocalClient, words: &[&str]) -> String {
    let request = client.command("").arg(words[0]).args(&words[1..]);
    let error = request.send::<()>().await.expect_err("an error of the server");
    error.server_error().map_or_else(|| error.to_string(), |e| e.line().to_owned())
}

/// A node in CLUSTER SLOTS: its host (as on the wire), its number, and what stands in for no metadata.
fn node(host: &str, number: usize, metadata: &str) -> String {
    format!("*4\r\n{host}:6379\r\n{}{metadata}", bulk(&format!("{number:040x}")))
}

/// Fails if CLUSTER SLOTS differs from a real one in ranges, nodes or protocol.
#[test]
fn slots_have_the_shape_of_the_servers() {
    let cluster = cluster(2, 1);
    let mut visitor = visit(&cluster, 3);
    for (none, hello) in [("*0\r\n", "2"), ("%0\r\n", "3")] {
        visitor.ask(&["HELLO", hello]);
        let all: Vec<_> = (1..=4).map(|n| node(&bulk(&format!("10.0.0.{n}")), n, none)).collect();
        let expected = format!(
            "*2\r\n*4\r\n:0\r\n:8191\r\n{}{}*4\r\n:8192\r\n:16383\r\n{}{}",
            all[0], all[2], all[1], all[3]
        );
        assert_eq!(visitor.ask(&["cluster", "slots"]), expected);
    }
}

/// Fails if a host that is announced differs in CLUSTER SLOTS or redirects, or if its address is lost.
#[test]
fn nodes_are_announced_by_any_host() {
    let cluster = cluster(2, 0);
    let address = format!("*2\r\n{}{}", bulk("ip"), bulk("10.0.0.1"));
    let mut other = visit(&cluster, 1);
    for (host, on_the_wire) in [
        (Some("a.example"), bulk("a.example")),
        (Some(""), bulk("")),
        (Some("?"), bulk("?")),
        (None, "$-1\r\n".to_owned()),
    ] {
        cluster.set_host(0, host, 6379);
        let slots = other.ask(&["CLUSTER", "SLOTS"]);
        assert!(slots.contains(&node(&on_the_wire, 1, &address)), "{host:?}: {slots:?}");
        let moved = format!("-MOVED 5061 {}:6379\r\n", host.unwrap_or_default());
        assert_eq!(other.ask(&["GET", "bar"]), moved);
    }
    cluster.set_host(0, None, 7);
    other.ask(&["HELLO", "3"]);
    assert!(other.ask(&["CLUSTER", "SLOTS"]).contains("*4\r\n_\r\n:7\r\n"));
    assert_eq!(other.ask(&["SET", "bar", "v"]), "-MOVED 5061 :7\r\n");
}

/// Fails if a hidden replica or primary is told of, if a slot is lost with another one, or if a view is
/// not what was true before, or is told by another node.
#[test]
fn views_and_nodes_are_left_out() {
    let cluster = cluster(2, 1);
    let ask = |node| visit(&cluster, node).ask(&["CLUSTER", "SLOTS"]);
    let (before, view) = (ask(0), cluster.view());
    cluster.set_hidden(2, true);
    assert!(ask(1).starts_with("*2\r\n*3\r\n:0\r\n:8191\r\n") && !ask(1).contains("10.0.0.3"));
    cluster.set_hidden(1, true);
    assert!(ask(1).starts_with("*1\r\n*3\r\n:0\r\n"));
    cluster.set_view(0, Some(view));
    assert_eq!(ask(0), before);
    assert_ne!(ask(1), before);
    cluster.move_slots(0..=16383, 0);
    assert_eq!((ask(0), visit(&cluster, 0).ask(&["GET", "foo"])), (before, "$-1\r\n".into()));
    cluster.set_view(0, None);
    assert_eq!(ask(0), ask(1));
}

/// Fails if a client does not see MOVED, CROSSSLOT, CLUSTERDOWN or an unknown subcommand as the server's
/// errors, or if keys of the node itself are not served.
#[test]
fn a_client_sees_what_a_node_refuses() {
    let simulation = Simulation::new(17);
    let cluster = simulation.cluster(3, 1);
    let (options, model) = (cluster.options(), cluster.clone());
    let outcome = simulation.run(async move |core: LocalContext| {
        let client = core.connect(&options).await.expect("a connection");
        client.set("bar", "v").await.expect("its own");
        assert_eq!(client.get::<String>("bar").await.expect("a value"), "v");
        assert_eq!(refused(&client, &["GET", "foo"]).await, "MOVED 12182 10.0.0.3:6379");
        assert_eq!(refused(&client, &["INCR", "k"]).await, "MOVED 7629 10.0.0.2:6379");
        let cross = "CROSSSLOT Keys in request don't hash to the same slot";
        assert_eq!(refused(&client, &["MGET", "bar", "foo"]).await, cross);
        model.set_down(true);
        assert_eq!(refused(&client, &["GET", "bar"]).await, "CLUSTERDOWN The cluster is down");
        assert_eq!(refused(&client, &["DEL", "bar", "foo"]).await, cross);
        let state = client.command("CLUSTER INFO").send::<String>().await.expect("a text");
        assert!(state.contains("cluster_state:fail\r\n"), "{state}");
        model.set_down(false);
        assert_eq!(client.del(["bar", "{bar}x"]).await.expect("a count"), 1);
    });
    outcome.checked();
}

/// Fails if a node does not say what it is: its id, its mode, its role, its databases.
#[test]
fn nodes_say_what_they_are() {
    let cluster = cluster(3, 1);
    let mut primary = visit(&cluster, 2);
    assert_eq!(primary.ask(&["CLUSTER", "MYID"]), bulk(&cluster.id(2)));
    assert_eq!(primary.ask(&["CLUSTER", "KEYSLOT", "foo"]), ":12182\r\n");
    for part in ["cluster_state:ok\r\n", "cluster_known_nodes:6\r\n", "cluster_size:3\r\n"] {
        assert!(primary.ask(&["CLUSTER", "INFO"]).contains(part), "{part}");
    }
    for part in ["redis_mode:cluster", "valkey_version:9.1.0", "server_name:valkey"] {
        assert!(primary.ask(&["INFO", "server"]).contains(&format!("\r\n{part}\r\n")), "{part}");
    }
    assert!(primary.ask(&["CLUSTER", "X"]).starts_with("-ERR unknown subcommand 'X'"));
    let (role, at) = (bulk("master"), bulk("10.0.0.6") + &bulk("6379") + &bulk("0"));
    assert_eq!(primary.ask(&["ROLE"]), format!("*3\r\n{role}:0\r\n*1\r\n*3\r\n{at}"));
    let (role, at) = (bulk("slave") + &bulk("10.0.0.3") + ":6379\r\n", bulk("connected"));
    assert_eq!(visit(&cluster, 5).ask(&["ROLE"]), format!("*5\r\n{role}{at}:0\r\n"));
    assert_eq!(primary.ask(&["SELECT", "0"]), "+OK\r\n");
    assert_eq!(primary.ask(&["SELECT", "1"]), "-ERR DB index is out of range\r\n");
    cluster.set_databases(2);
    assert_eq!(primary.ask(&["SELECT", "1"]), "+OK\r\n");
    assert_eq!(primary.ask(&["SELECT", "2"]), "-ERR DB index is out of range\r\n");
}

/// Fails if a replica serves a read without READONLY, after READWRITE or of another shard, or a write.
#[test]
fn replicas_serve_reads_when_told_to() {
    let cluster = filled();
    let mut replica = visit(&cluster, 4);
    let moved = redirect("MOVED", "k", 1);
    assert_eq!(replica.ask(&["GET", "k"]), moved);
    assert_eq!(replica.ask(&["READONLY"]), "+OK\r\n");
    assert_eq!(replica.ask(&["GET", "k"]), bulk("v"));
    assert_eq!(replica.ask(&["GET", "foo"]), redirect("MOVED", "foo", 2));
    assert_eq!(replica.ask(&["SET", "k", "w"]), moved);
    assert_eq!(visit(&cluster, 4).ask(&["GET", "k"]), moved);
    assert_eq!(replica.ask(&["FLUSHALL"]), READ_ONLY);
    assert_eq!(replica.ask(&["READWRITE"]), "+OK\r\n");
    assert_eq!(replica.ask(&["GET", "k"]), moved);
}

/// Fails if slots move without their values, or with those of others, or if the old owner serves them.
#[test]
fn slots_move_at_once() {
    let cluster = filled();
    let slot = slot_of(b"k");
    cluster.move_slots(slot - 1..=slot + 1, 5);
    assert_eq!(
        [cluster.owner(slot - 2), cluster.owner(slot), cluster.owner(slot + 2)],
        [1, 2, 1],
        "a replica stands for its shard"
    );
    assert_eq!(visit(&cluster, 1).ask(&["GET", "k"]), redirect("MOVED", "k", 2));
    assert_eq!(visit(&cluster, 2).ask(&["GET", "k"]), bulk("v"));
    assert_eq!([1, 2].map(|node| visit(&cluster, node).ask(&["DBSIZE"])), [":0\r\n", ":2\r\n"]);
    assert_eq!(cluster.value("k").as_deref(), Some(&b"v"[..]));
}

/// Fails if a migrating slot is not answered as the servers answer: the source for keys that it has, ASK for
/// others, TRYAGAIN for keys on both sides; the target only behind ASKING, once.
#[test]
fn slots_migrate_key_by_key() {
    let cluster = filled();
    cluster.set_value("{k}2", "v");
    let slot = slot_of(b"k");
    cluster.begin_migration(slot, 2);
    let (mut source, mut target) = (visit(&cluster, 1), visit(&cluster, 2));
    let (ask, moved) = (redirect("ASK", "k", 2), redirect("MOVED", "k", 1));
    assert_eq!(source.ask(&["GET", "k"]), bulk("v"));
    assert_eq!(source.ask(&["SET", "{k}new", "v"]), ask);
    cluster.move_key("k");
    assert_eq!(source.ask(&["GET", "k"]), ask);
    assert_eq!(source.ask(&["GET", "{k}2"]), bulk("v"));
    assert_eq!(source.ask(&["MGET", "k", "{k}2"]), TRY_AGAIN);
    assert_eq!(source.ask(&["MGET", "k", "{k}3"]), ask);
    assert_eq!(target.ask(&["GET", "k"]), moved);
    assert_eq!(target.ask(&["ASKING"]), "+OK\r\n");
    assert_eq!(target.ask(&["GET", "k"]), bulk("v"));
    assert_eq!(target.ask(&["GET", "k"]), moved);
    target.ask(&["ASKING"]);
    target.ask(&["PING"]);
    assert_eq!(target.ask(&["GET", "k"]), moved, "one command is one command");
    target.ask(&["ASKING"]);
    assert_eq!(target.ask(&["MGET", "k", "{k}2"]), TRY_AGAIN);
    target.ask(&["ASKING"]);
    assert_eq!(target.ask(&["SET", "{k}new", "v"]), "+OK\r\n");
    target.ask(&["ASKING"]);
    assert_eq!(target.ask(&["GET", "bar"]), redirect("MOVED", "bar", 0), "of no use elsewhere");
    let mut replica = visit(&cluster, 4);
    assert_eq!(replica.ask(&["GET", "k"]), moved);
    replica.ask(&["READONLY"]);
    assert_eq!(replica.ask(&["GET", "k"]), ask);
    cluster.end_migration(slot);
    assert_eq!(source.ask(&["GET", "{k}2"]), redirect("MOVED", "k", 2));
    assert_eq!(
        target.ask(&["MGET", "k", "{k}2", "{k}new"]),
        "*3\r\n".to_owned() + &bulk("v").repeat(3)
    );
}

/// Fails if after a failover the old primary serves writes, or reads without READONLY, if the new one does
/// not serve, if a migration does not go on, or if roles are told otherwise.
#[test]
fn replicas_take_over() {
    let cluster = Simulation::new(17).cluster(2, 2);
    cluster.set_value("foo", "v");
    let (mut old, mut new, mut third) =
        (visit(&cluster, 1), visit(&cluster, 4), visit(&cluster, 5));
    cluster.begin_migration(slot_of(b"bar"), 1);
    cluster.fail_over(4);
    cluster.fail_over(4);
    assert_eq!((cluster.primaries(), cluster.replicas_of(4)), (vec![0, 4], vec![1, 5]));
    let moved = redirect("MOVED", "foo", 4);
    assert_eq!(old.ask(&["SET", "foo", "w"]), moved);
    assert_eq!(old.ask(&["GET", "foo"]), moved);
    old.ask(&["READONLY"]);
    assert_eq!(new.ask(&["SET", "foo", "w"]), "+OK\r\n");
    assert_eq!(old.ask(&["GET", "foo"]), bulk("w"));
    assert_eq!(old.ask(&["SET", "foo", "x"]), moved);
    assert_eq!(third.ask(&["GET", "foo"]), moved);
    assert!(old.ask(&["ROLE"]).contains("10.0.0.5") && new.ask(&["ROLE"]).contains("master"));
    assert_eq!(visit(&cluster, 0).ask(&["GET", "bar"]), redirect("ASK", "bar", 4));
    let slots = third.ask(&["CLUSTER", "SLOTS"]);
    assert!(slots.contains(":8192\r\n:16383\r\n*4\r\n$8\r\n10.0.0.5\r\n"), "{slots:?}");
}

/// Fails if a primary that is read-only does not refuse writes, refuses reads, or does so for good.
#[test]
fn a_primary_can_be_read_only() {
    let cluster = filled();
    let mut primary = visit(&cluster, 1);
    cluster.set_read_only(1, true);
    assert_eq!(primary.ask(&["SET", "k", "w"]), READ_ONLY);
    assert_eq!(primary.ask(&["GET", "k"]), bulk("v"));
    assert_eq!(primary.ask(&["SET", "foo", "w"]), redirect("MOVED", "foo", 2));
    cluster.set_read_only(1, false);
    assert_eq!(primary.ask(&["SET", "k", "w"]), "+OK\r\n");
}

/// Fails if a killed node keeps a connection or takes one, if a revived one has lost its values, or if a
/// rule of a server cannot change the cluster in the middle of a request.
#[test]
fn nodes_die_and_come_back() {
    let simulation = Simulation::new(17);
    let cluster = simulation.cluster(3, 1);
    cluster.set_value("bar", "v");
    let by_rule = cluster.clone();
    cluster.server(0).on_request(move |asked: &Asked<'_>| {
        if asked.args == [&b"GET"[..], b"{bar}fails over"] {
            by_rule.fail_over(3);
        }
        Reaction::Serve
    });
    let (options, model) = (cluster.options(), cluster.clone());
    let outcome = simulation.run(async move |core: LocalContext| {
        let client = core.connect(&options).await.expect("a connection");
        model.kill(0);
        pass(&core, 5 * MS).await;
        let gone = client.get::<String>("bar").timeout(100 * MS).await.expect_err("nobody there");
        assert_eq!(gone.kind(), ErrorKind::NotConnected);
        model.revive(0);
        pass(&core, 5_000 * MS).await;
        assert_eq!(client.get::<String>("bar").await.expect("a value"), "v");
        let moved = refused(&client, &["GET", "{bar}fails over"]).await;
        assert_eq!(moved, "MOVED 5061 10.0.0.4:6379");
    });
    outcome.checked();
    assert_eq!(cluster.primaries(), [1, 2, 3]);
}

/// Fails if the instants at which a node was asked for its slots are not told, or others with them.
#[test]
fn calls_of_slots_are_counted() {
    let simulation = Simulation::new(17);
    let cluster = simulation.cluster(2, 0);
    let options = cluster.options();
    let outcome = simulation.run(async move |core: LocalContext| {
        let client = core.connect(&options).await.expect("a connection");
        for _ in 0..2 {
            client.command("CLUSTER SLOTS").send::<()>().await.expect("ranges");
            client.command("CLUSTER MYID").send::<()>().await.expect("an id");
            pass(&core, 1_000 * MS).await;
        }
    });
    outcome.checked();
    let asked = cluster.slots_asked(0);
    assert_eq!((asked.len(), cluster.slots_asked(1).len()), (2, 0));
    assert!(asked[1].since(asked[0]) >= 1_000 * MS);
}

/// Fails if a command on several keys, or on a node's own keys, does something else than a server, in a
/// cluster or out of it.
#[test]
fn many_keys_at_once() {
    let cluster = cluster(3, 0);
    cluster.set_value("foo", "of another node");
    let alone = Simulation::new(17).server();
    for mut visitor in [visit(&cluster, 1), alone.visit()] {
        let ask = &mut |words: &str| visitor.ask(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(ask("MSET k 1 {k}2 2"), "+OK\r\n");
        assert_eq!(ask("MGET k {k}2 {k}3"), "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n");
        assert_eq!(ask("INCR {k}2"), ":3\r\n");
        assert_eq!(ask("EXISTS k k {k}3"), ":2\r\n");
        assert_eq!(ask("TOUCH k {k}2 {k}3"), ":2\r\n");
        assert_eq!(ask("DBSIZE"), ":2\r\n");
        assert_eq!(ask("KEYS *"), "*2\r\n$1\r\nk\r\n$4\r\n{k}2\r\n");
        assert_eq!(ask("KEYS *2"), "*1\r\n$4\r\n{k}2\r\n");
        assert_eq!(ask("SCAN 0"), "*2\r\n$1\r\n1\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(ask("SCAN 1"), "*2\r\n$1\r\n0\r\n*1\r\n$4\r\n{k}2\r\n");
        assert_eq!(ask("UNLINK k {k}3"), ":1\r\n");
        assert_eq!(ask("DEL {k}2 k"), ":1\r\n");
        ask("SET k v");
        assert_eq!(ask("FLUSHALL"), "+OK\r\n");
        assert_eq!(ask("DBSIZE"), ":0\r\n");
        assert_eq!(ask("MSET k"), "-ERR unknown command 'MSET'\r\n");
        assert_eq!(ask("HGET k f"), "-ERR unknown command 'HGET'\r\n");
    }
    assert_eq!(cluster.value("foo").as_deref(), Some(&b"of another node"[..]));
    assert_eq!(alone.visit().ask(&["CLUSTER", "SLOTS"]), "-ERR unknown command 'CLUSTER'\r\n");
    assert_eq!(alone.visit().ask(&["ASKING"]), "-ERR unknown command 'ASKING'\r\n");
}
