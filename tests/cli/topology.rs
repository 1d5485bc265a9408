//! The topology tool, at the real binary.

use super::cluster::Scene;
use super::program::{Folder, end};
use super::server::{answer, listen, name, scripted};
use hedgerow::testing::{Fleet, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Fails if a wrong command line is run, or its line does not name what is wrong.
#[test]
fn wrong_usage() {
    let cases = [
        ("topology", "<URL>"),
        ("topology http://192.0.2.1", "URL"),
        ("topology redis://192.0.2.1 --replica 192.0.2.2", "--replica"),
        ("topology redis://192.0.2.1 --cluster --replica 192.0.2.2:6379", "--replica"),
        ("topology redis://192.0.2.1?cluster=true --replica 192.0.2.2:6379", "--replica"),
        ("topology redis://192.0.2.1 --seed-node 192.0.2.2", "--seed-node"),
        ("topology redis://192.0.2.1 --replica 192.0.2.1:6379", "the URL's own server"),
        ("topology unix:///none --cluster", "--cluster"),
        ("topology redis://192.0.2.1 --watch=1ms", "--watch"),
        ("topology --watch redis://192.0.2.1 --json a", "--json"),
        ("bench --cluster", "--cluster needs a URL"),
        ("bench redis://192.0.2.1 --cluster --replica 192.0.2.2:6379", "--replica"),
        ("bench redis://192.0.2.1 --seed-node 192.0.2.2:6379", "--seed-node"),
        ("bench unix:///none --cluster", "--cluster"),
        ("bench --key-prefix 0123456789012345678901234567890123", "--key-prefix"),
        ("probe --cluster", "--cluster needs the URL"),
        ("probe redis://192.0.2.1 --cluster --replica 192.0.2.2:6379", "--replica"),
    ];
    let folder = Folder::new();
    for (words, named) in cases {
        folder.run(words).failed(2, named);
    }
}

/// A cluster is known by what its server says. Fails if a shard, its slots or its state are missing,
/// in the table or in the report, or if a credential is shown.
#[test]
fn a_cluster_is_shown() {
    let (scene, folder) = (Scene::start(), Folder::new());
    let url = format!("redis://me:hunter2@{}", scene.address(1));
    let ended = folder.run(&format!("topology {url} --json report.json"));
    ended.succeeded();
    let head = "a cluster of 3 shards with 3 nodes; 16,384 of 16,384 slots are served";
    assert!(ended.out.contains(head) && ended.out.contains("0-9829 (9,830)"), "{}", ended.out);
    let report = folder.report();
    assert!(!format!("{}{}{report}", ended.out, ended.err).contains("hunter2"));
    assert_eq!(
        (&report["schema"], &report["kind"]),
        (&"hedgerow.topology/1".into(), &"cluster".into())
    );
    assert_eq!((&report["shards"], &report["slots_served"]), (&3.into(), &16_384.into()));
    let nodes = report["nodes"].as_array().unwrap();
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(node["endpoint"], scene.address(at));
        assert_eq!((&node["shard"], &node["role"]), (&(at + 1).into(), &"primary".into()));
        assert_eq!(node["id"], format!("{:040x}", at + 1));
        assert_eq!((&node["connected"], &node["ping_us"]["count"]), (&true.into(), &5.into()));
        assert!(node["ping_us"]["min"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(nodes[2]["slots"][0], serde_json::json!([14_745, 16_383]));
}

/// Fails if a deployment without a cluster is taken for one, or if roles and links are not those that its
/// servers tell.
#[test]
fn servers_without_a_cluster_are_shown() {
    let (server, folder) = (Server::start().unwrap(), Folder::new());
    let ended = folder.run(&format!("topology {}", server.url()));
    ended.succeeded();
    assert!(ended.out.contains("one server, no cluster"), "{}", ended.out);
    let fleet = Fleet::builder().zones(["a", "b", "c"]).start().unwrap();
    fleet.set_linked(1, false);
    let replicas: Vec<String> =
        fleet.replica_addrs().iter().map(|at| format!("--replica {at}")).collect();
    let words = format!("{} {} --json report.json", fleet.url(), replicas.join(" "));
    let ended = folder.run(&format!("topology {words}"));
    ended.succeeded();
    assert!(ended.out.contains("3 servers, no cluster"), "{}", ended.out);
    assert!(ended.out.contains("its link to the primary is down"), "{}", ended.out);
    let report = folder.report();
    let roles: Vec<_> =
        report["nodes"].as_array().unwrap().iter().map(|n| n["role"].clone()).collect();
    assert_eq!(roles, ["primary", "replica", "replica"]);
    assert_eq!(report["nodes"][0]["zone"], "a");
}

/// Fails if a node that is gone costs the table of the others, or passes for one that is there.
#[test]
fn a_dead_node_is_told() {
    let fleet = Fleet::builder().start().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = Folder::new().run(&format!("topology {} --replica {gone}", fleet.url()));
    ended.succeeded();
    let line = ended.out.lines().find(|line| line.contains(&gone.to_string())).unwrap();
    assert!(line.contains("down: "), "{}", ended.out);
}

/// Fails if a failure is more than a line, does not name the server, or ends with success.
#[test]
fn failures_are_one_line() {
    let folder = Folder::new();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for task in ["topology", "bench"] {
        folder.run(&format!("{task} redis://{gone} --cluster")).failed(1, &gone.to_string());
    }
    let alone = scripted(|words, _| match name(words).as_str() {
        "CLUSTER" => {
            (Duration::ZERO, b"-ERR This instance has cluster support disabled\r\n".to_vec())
        }
        _ => (Duration::ZERO, answer(words)),
    });
    for task in ["topology", "bench"] {
        folder.run(&format!("{task} {alone} --cluster")).failed(1, "no node of a cluster");
    }
    let nonsense = scripted(|words, _| match name(words).as_str() {
        "CLUSTER" => (Duration::ZERO, b"*1\r\n*2\r\n:5\r\n:99999\r\n".to_vec()),
        _ => (Duration::ZERO, answer(words)),
    });
    for task in ["topology", "bench"] {
        folder.run(&format!("{task} {nonsense} --cluster")).failed(1, "CLUSTER SLOTS");
    }
    let http = listen(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    folder.run(&format!("topology {http}")).failed(1, &http["redis://".len()..]);
}

/// Fails if a cluster that says that it is down passes for a healthy one.
#[test]
fn a_cluster_that_is_down_is_told() {
    let scene = Scene::start();
    scene.down.store(true, Ordering::Relaxed);
    let ended = Folder::new().run(&format!("topology redis://{}", scene.address(0)));
    ended.failed(1, "the cluster is down");
    assert!(ended.out.contains("3 shards"), "{}", ended.out);
}

/// Fails if a watch does not show a change of the slots, shows it without one, or does not end with
/// Ctrl-C.
#[test]
fn a_watch_shows_changes() {
    let (scene, folder) = (Scene::start(), Folder::new());
    let mut child = folder.start(&format!("topology redis://{} --watch=100ms", scene.address(0)));
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut await_line = |part: &str| {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended before {part:?}");
        }
    };
    await_line("3 shards");
    scene.give();
    await_line("2 shards");
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    end(child).succeeded();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("cluster of"), "{rest}");
}
