//! The program's probe against a real primary and its replica.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::{Flavor, Server};

/// How long a replica may take to follow its primary.
const PATIENCE: Duration = Duration::from_secs(20);

/// Commands that change nothing, which the probe, this test and replication may send.
const HARMLESS: [&str; 16] = [
    "auth",
    "client|setinfo",
    "client|setname",
    "command",
    "config|resetstat",
    "echo",
    "get",
    "hello",
    "info",
    "ping",
    "psync",
    "replconf",
    "role",
    "scan",
    "select",
    "type",
];

/// A primary and a replica that follows it.
fn deployment(flavor: Flavor) -> (Server, Server) {
    let primary = Server::builder(flavor).line("repl-diskless-sync-delay 0").start();
    let (host, port) = (primary.address().ip(), primary.address().port());
    let replica = Server::builder(flavor).line(&format!("replicaof {host} {port}")).start();
    let began = Instant::now();
    while !replica.tell(&["ROLE"]).contains("connected") {
        assert!(began.elapsed() < PATIENCE, "no link to the primary:\n{}", replica.log());
        std::thread::yield_now();
    }
    (primary, replica)
}

/// Runs `hedgerow probe` with these words in a fresh folder; gives its end and its JSON report.
fn probe(primary: &Server, replica: &Server, words: &str) -> (Output, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
    program.args(["probe", &format!("redis://{}", primary.address())]);
    program.args(["--replica", &replica.address().to_string(), "--json", "report.json"]);
    program.args(words.split_whitespace()).current_dir(folder.path()).stdin(Stdio::null());
    let ended = program.output().expect("the program starts");
    let report = std::fs::read(folder.path().join("report.json"));
    let report = report.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let report = report.unwrap_or_else(|| panic!("no report: {ended:?}"));
    (ended, report)
}

/// The names of the commands that a server ran since CONFIG RESETSTAT.
fn commands(server: &Server) -> Vec<String> {
    let stats = server.tell(&["INFO", "commandstats"]);
    let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    names.map(str::to_string).collect()
}

/// Fails if the probe of a real deployment sends anything that may change it, reads keys that hold no
/// strings, or loses reads.
#[test]
fn probe_only_reads() {
    for flavor in [Flavor::Valkey91, Flavor::Redis70] {
        let (primary, replica) = deployment(flavor);
        (0..40).for_each(|n| assert_eq!(primary.tell(&["SET", &format!("k{n}"), "v"]), "+OK\r\n"));
        primary.tell(&["RPUSH", "list", "a"]);
        let began = Instant::now();
        while !replica.tell(&["LLEN", "list"]).starts_with(":1") {
            assert!(began.elapsed() < PATIENCE, "the list does not come:\n{}", replica.log());
        }
        for server in [&primary, &replica] {
            server.tell(&["CONFIG", "RESETSTAT"]);
        }
        let words = "--duration 2s --blocks 1 --warmup 300ms --clients 2 --rate 500";
        let (ended, report) = probe(&primary, &replica, words);
        assert!(ended.status.success(), "{flavor:?}: {ended:?}");
        assert_eq!(report["configuration"]["keys"], 40, "{flavor:?}: the list is none of them");
        for pass in report["passes"].as_array().expect("passes") {
            assert!(pass["reads"].as_u64() > Some(100), "{flavor:?}: {pass}");
            assert_eq!((&pass["errors"], &pass["misses"]), (&0.into(), &0.into()), "{flavor:?}");
        }
        for server in [&primary, &replica] {
            let other = commands(server);
            let other: Vec<_> =
                other.iter().filter(|name| !HARMLESS.contains(&name.as_str())).collect();
            assert!(other.is_empty(), "{flavor:?}: {other:?}");
        }
    }
}

/// The reference run, with CLIENT PAUSE at a real replica. Fails if a pause is not felt, more copies
/// are sent than the budget allows, or hedging does not cut the tail in any of three runs.
#[test]
fn reference_run_holds() {
    let (primary, replica) = deployment(Flavor::Valkey91);
    let holds = (0..3).any(|_| {
        let (ended, report) = probe(&primary, &replica, "--reference --pause-replicas");
        let verdict = &report["verdict"];
        assert_eq!(verdict["baseline_p99_at_least_50_ms"], true, "{verdict}");
        assert_eq!(verdict["hedges_at_most_5_percent"], true, "{verdict}");
        assert_eq!(ended.status.success(), verdict["holds"] == true, "{ended:?}");
        verdict["holds"] == true
    });
    assert!(holds, "three runs in a row");
}
