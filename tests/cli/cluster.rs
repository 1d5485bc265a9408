//! Three scripted servers that are a cluster with 60 %, 30 % and 10 % of the slots, and the load on it.

use super::program::{DOORS, Folder};
use super::server::{answer, name, scripted};
use hedgerow::command::slot::slot_of;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Nodes.
const NODES: usize = 3;
/// The first slot of each node, and the end of all.
const BOUNDS: [u16; NODES + 1] = [0, 9_830, 14_745, 16_384];
/// The service time of a slow node: ten times what a command takes on the others.
const SLOW: Duration = Duration::from_micros(500);

/// What the servers of a cluster share.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    ports: OnceLock<Vec<u16>>,
    /// The keys of each node, and how often each was asked for.
    keys: [Mutex<HashMap<Vec<u8>, u64>>; NODES],
    /// The last node is slow.
    slow: AtomicBool,
    /// The last node gives its slots to the first one when it has answered so many commands with keys.
    gives_after: AtomicU64,
    /// It has given them.
    gave: AtomicBool,
    /// All nodes say that the cluster is down.
    pub(crate) down: AtomicBool,
}

impl Scene {
    /// Starts the servers.
    pub(crate) fn start() -> Arc<Scene> {
        let scene = Arc::new(Scene::default());
        scene.gives_after.store(u64::MAX, Ordering::Relaxed);
        let ports = (0..NODES).map(|node| {
            let scene = scene.clone();
            let url = scripted(move |words, _| scene.reply(node, words));
            url.rsplit_once(':').unwrap().1.parse().unwrap()
        });
        scene.ports.set(ports.collect()).unwrap();
        scene
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.ports.get().unwrap()[node])
    }

    /// The last node gives its slots away.
    pub(crate) fn give(&self) {
        self.gave.store(true, Ordering::Relaxed);
    }

    fn owner(&self, slot: u16) -> usize {
        let owner = BOUNDS.iter().rposition(|first| *first <= slot).unwrap();
        if owner == NODES - 1 && self.gave.load(Ordering::Relaxed) { 0 } else { owner }
    }

    fn reply(&self, node: usize, words: &[Vec<u8>]) -> (Duration, Vec<u8>) {
        let sub = words.get(1).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        let bytes = match (name(words).as_str(), &sub[..]) {
            ("CLUSTER", b"SLOTS") => self.slots(),
            ("CLUSTER", b"MYID") => bulk(&id(node)),
            ("CLUSTER", b"INFO") => {
                let state = if self.down.load(Ordering::Relaxed) { "fail" } else { "ok" };
                bulk(&format!("cluster_state:{state}\r\n"))
            }
            ("INFO", _) => bulk("# Cluster\r\ncluster_enabled:1\r\n"),
            ("ROLE", _) => b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_vec(),
            ("GET" | "SET", _) => return self.run(node, words),
            _ => answer(words),
        };
        (Duration::ZERO, bytes)
    }

    fn run(&self, node: usize, words: &[Vec<u8>]) -> (Duration, Vec<u8>) {
        let slot = slot_of(&words[1]);
        let owner = self.owner(slot);
        if owner != node {
            return (Duration::ZERO, format!("-MOVED {slot} {}\r\n", self.address(owner)).into());
        }
        *self.keys[node].lock().unwrap().entry(words[1].clone()).or_default() += 1;
        if node == NODES - 1 && self.count(node) >= self.gives_after.load(Ordering::Relaxed) {
            self.give();
        }
        let is_slow = node == NODES - 1 && self.slow.load(Ordering::Relaxed);
        (if is_slow { SLOW } else { Duration::ZERO }, answer(words))
    }

    fn slots(&self) -> Vec<u8> {
        let mut text = format!("*{NODES}\r\n");
        for (at, first) in BOUNDS[..NODES].iter().enumerate() {
            let (owner, last) = (self.owner(*first), BOUNDS[at + 1] - 1);
            let port = self.ports.get().unwrap()[owner];
            let id = id(owner);
            text += &format!(
                "*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{id}\r\n"
            );
        }
        text.into_bytes()
    }

    /// How many commands with keys a node ran.
    fn count(&self, node: usize) -> u64 {
        self.keys[node].lock().unwrap().values().sum()
    }

    fn shares(&self) -> [f64; NODES] {
        let counts = [0, 1, 2].map(|node| self.count(node) as f64);
        let all: f64 = counts.iter().sum();
        counts.map(|count| count * 100.0 / all)
    }
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn id(node: usize) -> String {
    format!("{:040x}", node + 1)
}

/// Runs the load; gives the program's table and the result in its report.
fn load(scene: &Scene, words: &str) -> (String, Value) {
    let folder = Folder::new();
    let url = format!("redis://{} --cluster", scene.address(0));
    let fixed = "--warmup 0s --seed 7 --no-load --mix get --json report.json";
    let ended = folder.run(&format!("bench {url} {fixed} {words}"));
    ended.succeeded();
    (ended.out, folder.report()["result"].clone())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no count: {value}"))
}

/// What the report says of each node agrees with what each server counted.
fn check_nodes(scene: &Scene, result: &Value) {
    assert_eq!(result["cluster"]["untold"], 0);
    let nodes = result["cluster"]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), NODES, "{nodes:?}");
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(node["endpoint"], scene.address(at));
        assert_eq!(node["role"], "primary");
        assert_eq!(node["slots"], BOUNDS[at + 1] - BOUNDS[at]);
        assert_eq!(number(&node["requests"]), scene.count(at), "{}", node["endpoint"]);
        assert_eq!(node["service_us"]["count"], node["requests"]);
        assert!(node["service_histogram"].as_str().unwrap().starts_with("HIST"));
    }
}

fn check_shares(scene: &Scene) {
    for (share, asked) in scene.shares().into_iter().zip([60.0, 30.0, 10.0]) {
        assert!((share - asked).abs() < 1.0, "{share} % is not {asked} %");
    }
}

/// Case behaviour/29: uniform keys. Fails if the nodes' parts of the load are not those of the slots, or if
/// the report says otherwise than the servers.
#[test]
fn case_29_uniform() {
    for door in DOORS {
        let scene = Scene::start();
        let words = "--keys 100000 --requests 100000 --depth 64 --connections 2";
        let (out, result) = load(&scene, &format!("--door {door} {words}"));
        assert_eq!((number(&result["requests"]), number(&result["errors"])), (100_000, 0));
        check_shares(&scene);
        check_nodes(&scene, &result);
        assert!(out.contains(&scene.address(2)), "{out}");
        assert_eq!(result["cluster"]["only_slot"], Value::Null);
        assert!(!out.contains("one slot"), "{out}");
    }
}

/// Case behaviour/29: a node is ten times slower, in an open loop. Fails if keys for it are left out, or if
/// its times do not show.
#[test]
fn case_29_slow_node() {
    let scene = Scene::start();
    scene.slow.store(true, Ordering::Relaxed);
    let (out, result) = load(&scene, "--keys 100000 --requests 30000 --rate 6000");
    assert_eq!((number(&result["requests"]), number(&result["unsent"])), (30_000, 0), "{out}");
    check_shares(&scene);
    check_nodes(&scene, &result);
    let times = &result["cluster"]["nodes"][2]["service_us"];
    assert!(times["min"].as_f64().unwrap() >= 500.0, "{times}");
}

/// Case behaviour/29: sequential keys. Fails if one is skipped or sent twice.
#[test]
fn case_29_sequential() {
    for door in DOORS {
        let scene = Scene::start();
        let words = "--keys 100000 --requests 100000 --key-dist sequential --depth 64";
        let (_, result) = load(&scene, &format!("--door {door} {words}"));
        assert_eq!(number(&result["requests"]), 100_000);
        let maps = scene.keys.iter().map(|keys| keys.lock().unwrap().clone());
        let counts: Vec<u64> =
            maps.flat_map(|keys| keys.into_values().collect::<Vec<_>>()).collect();
        assert_eq!(counts.len(), 100_000);
        assert!(counts.iter().all(|count| *count == 1));
    }
}

/// Case behaviour/29: a hash tag. Fails if its keys go to several servers, or if the tool does not say that a
/// single slot is used.
#[test]
fn case_29_one_tag() {
    let scene = Scene::start();
    let (out, result) = load(&scene, "--key-prefix {acct} --requests 2000");
    let slot = slot_of(b"acct");
    let owner = scene.owner(slot);
    assert_eq!(scene.count(owner), 2_000);
    assert_eq!([0, 1, 2].map(|node| scene.count(node)).iter().sum::<u64>(), 2_000);
    assert!(out.contains(&format!("all keys are in slot {slot}: a single node")), "{out}");
    assert_eq!(result["cluster"]["only_slot"], slot);
}

/// Case behaviour/29: slots move during the run. Fails if a MOVED counts as a success or an error, or if that
/// it was followed is not told.
#[test]
fn case_29_moved_is_followed() {
    for door in DOORS {
        let scene = Scene::start();
        scene.gives_after.store(500, Ordering::Relaxed);
        let words = "--requests 20000 --depth 16";
        let (out, result) = load(&scene, &format!("--door {door} {words}"));
        assert_eq!((number(&result["requests"]), number(&result["errors"])), (20_000, 0));
        let ran: u64 = [0, 1, 2].map(|node| scene.count(node)).iter().sum();
        assert_eq!((ran, number(&result["misses"])), (20_000, 0));
        assert!(number(&result["cluster"]["sent_again"]) > 0, "{result}");
        assert!(number(&result["cluster"]["slots_moved"]) > 0, "{result}");
        assert!(out.contains("commands sent again"), "{out}");
    }
}

/// Fails if a probe runs although no read of the cluster has a second node that its policy allows.
#[test]
fn a_probe_needs_a_second_node() {
    let url = format!("redis://{} --cluster", Scene::start().address(0));
    let folder = Folder::new();
    folder.run(&format!("probe {url} --read-from replica")).failed(1, "--read-from replica");
    folder.run(&format!("probe {url}")).failed(1, "the cluster has no replicas");
}

/// The keys of a cluster are loaded where their slots are, whatever node the URL names, and an
/// unusable seed is passed over. Fails if a node gets keys of another one as if they were its own.
#[test]
fn keys_are_loaded() {
    let scene = Scene::start();
    let folder = Folder::new();
    let (dead, seed) = ("redis://127.0.0.1:1?cluster=true", scene.address(2));
    let words = "--warmup 0s --keys 3000 --requests 100 --mix get --json report.json";
    folder.run(&format!("bench {dead} --seed-node {seed} {words}")).succeeded();
    let keys = [0, 1, 2].map(|node| scene.keys[node].lock().unwrap().len());
    assert_eq!(keys.iter().sum::<usize>(), 3_000);
    let plan = &folder.report()["plan"];
    assert_eq!((&plan["cluster"], &plan["seed_nodes"][0]), (&true.into(), &seed.into()));
}
