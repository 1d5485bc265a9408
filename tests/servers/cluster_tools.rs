//! The program's tools against a real cluster.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::cluster_fleet::Cluster;
use crate::placement::on_tokio;
use crate::server::Flavor;

/// Runs the program with these words in a fresh folder; gives its end and its JSON report.
fn run(words: &str) -> (Output, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    program.args(words.split_whitespace()).args(["--json", "report.json"]);
    program.current_dir(folder.path()).stdin(Stdio::null());
    let ended = program.output().expect("the program starts");
    let report = std::fs::read(folder.path().join("report.json"));
    let report = report.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let report = report.unwrap_or_else(|| panic!("no report: {ended:?}"));
    (ended, report)
}

fn url(cluster: &Cluster, n: usize) -> String {
    format!("redis://{}", cluster.node(n).address())
}

/// Fails if a node, a role or a run of slots is not shown as the cluster says, or if a cluster is
/// taken for a single server.
fn check_topology(cluster: &Cluster) {
    let (ended, report) = run(&format!("topology {}", url(cluster, 4)));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!((&report["kind"], &report["shards"]), (&"cluster".into(), &3.into()));
    let nodes = report["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 6, "{report}");
    for node in nodes {
        let is_this = |n: &usize| node["id"] == cluster.id(*n);
        let n = (0..6).find(is_this).expect("a node of the cluster");
        assert_eq!(node["endpoint"], cluster.node(n).address().to_string());
        assert_eq!(node["role"], if cluster.is_primary(n) { "primary" } else { "replica" });
        let slots = cluster.slots_of(n).into_iter();
        let slots = slots.map(|slots| serde_json::json!([slots.start(), slots.end()]));
        assert_eq!(node["slots"], slots.collect::<Value>());
        assert_eq!((&node["connected"], &node["ping_us"]["count"]), (&true.into(), &5.into()));
    }
}

/// Fails if a key is loaded or asked for where its slot is not, or if the report's counts are not
/// those of the nodes.
fn check_load(cluster: &Cluster) {
    let words = "--warmup 0s --keys 2000 --requests 20000 --depth 16 --seed 7 --mix get";
    let (ended, report) = run(&format!("bench {} --cluster {words}", url(cluster, 5)));
    assert!(ended.status.success(), "{ended:?}");
    let result = &report["result"];
    let figures = ["requests", "errors", "misses"].map(|name| result[name].as_u64());
    assert_eq!(figures, [Some(20_000), Some(0), Some(0)], "{result}");
    let nodes = result["cluster"]["nodes"].as_array().expect("nodes");
    for n in 0..3 {
        let node = nodes.iter().find(|node| node["id"] == cluster.id(n)).expect("each primary");
        assert_eq!(node["requests"], cluster.commands(n, "get"), "{node}");
        let share = node["share_percent"].as_f64().expect("a share");
        assert!((share - 33.3).abs() < 3.0, "{node}");
    }
}

/// Fails if a probe of a cluster loses reads, reads keys that are not there, or cannot tell the nodes
/// apart.
fn check_probe(cluster: &Cluster) {
    let words = "--duration 2s --blocks 1 --warmup 300ms --clients 2 --rate 500 --no-check";
    let (ended, report) = run(&format!("probe {}?cluster=true {words}", url(cluster, 0)));
    assert!(ended.status.success(), "{ended:?}");
    let nodes = report["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 6, "{report}");
    for pass in report["passes"].as_array().expect("passes") {
        assert!(pass["reads"].as_u64() > Some(100), "{pass}");
        assert_eq!((&pass["errors"], &pass["misses"]), (&0.into(), &0.into()));
        for (node, answers) in nodes.iter().zip(pass["by_node"].as_array().expect("nodes")) {
            let answered = answers["copies"].as_u64();
            assert!(node["role"] == "primary" || answered > Some(0), "{node}: {answers}");
        }
    }
}

/// The three tools in turn. Fails if one of the checks above does, or if slots that moved are
/// shown where they were.
#[test]
fn tools_know_clusters() {
    on_tokio(async |place| {
        let cluster = Cluster::start(&place, Flavor::Valkey91, 3, 1).await;
        check_topology(&cluster);
        check_load(&cluster);
        cluster.in_step(&place).await;
        check_probe(&cluster);
        cluster.move_slots(&place, 100..=110, 0, 2).await;
        check_topology(&cluster);
    });
}
