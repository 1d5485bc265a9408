//! The probe of hedged reads, at the real binary.

use super::program::{Folder, end};
use hedgerow::testing::{Fleet, Server};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};

/// A short probe: four blocks of 0.4 s.
const SHORT: &str = "--duration 1600ms --blocks 1 --warmup 200ms --clients 2 --rate 500 --seed 7";

/// A deployment without a tail, with values.
fn fleet() -> Fleet {
    Fleet::builder().values(50, 64).start().unwrap()
}

/// The words that name a deployment.
fn words(fleet: &Fleet) -> String {
    let replicas = fleet.replica_addrs();
    let replicas: Vec<String> = replicas.iter().map(|at| format!("--replica {at}")).collect();
    format!("{} {}", fleet.url(), replicas.join(" "))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// R-258, R-259, R-281. Fails if a wrong command line is run, or its line does not name what is wrong.
#[test]
fn wrong_usage() {
    let cases = [
        ("probe redis://192.0.2.1", "--replica HOST:PORT"),
        ("probe --replica 192.0.2.1:6379", "--replica needs the URL"),
        ("probe redis://192.0.2.1 --replica 192.0.2.2", "--replica"),
        ("probe redis://192.0.2.1 --replica ::1:6380", "brackets"),
        ("probe redis://192.0.2.1 --replica 192.0.2.1:6379", "the URL's own server"),
        ("probe redis://192.0.2.1 --replica [::1]:6380 --read-from az-affinity", "--zone"),
        ("probe redis://192.0.2.1 --replica [::1]:6380 --read-from slave", "replica-preferred"),
        ("probe redis://192.0.2.1 --replica [::1]:6380 --read-from primary", "never hedged"),
        ("probe redis://[::1 --replica [::1]:6380", "URL"),
        ("probe --hedge-delay 10us", "50us"),
        ("probe --hedge-delay 5", "unit"),
        ("probe --hedge-budget 101", "--hedge-budget 101"),
        ("probe --hedge-burst 0", "--hedge-burst 0"),
        ("probe --hedge-budget nan", "a whole number from 1 to 100 is right"),
        ("probe --hedge-budget 2.5", "a whole number from 1 to 100 is right"),
        ("probe --hedge-budget -1", "--hedge-budget"),
        ("probe --hedge-burst x", "a whole number from 1 to 1000000 is right"),
        ("probe --clients x", "a whole number from 1 to 256 is right"),
        ("probe --seed x", "a whole number from 0 to 18446744073709551615 is right"),
        ("probe --hedge-delay 0s", "from 50us to 60s is right"),
        ("probe --hedge-delay nan", "from 50us to 60s is right"),
        ("probe --hedge-delay 1e300h", "from 50us to 60s is right"),
        ("probe redis://192.0.2.1 --replica a:1,b:2", "repeat --replica for each"),
        ("probe redis://192.0.2.1 --replica a:1 --zone a", "does not look at zones"),
        ("probe --blocks 0", "(see hedgerow probe --help)"),
        ("replay r --percentile p99", "a number from 50 to 99.99 is right"),
        (
            "replay r --hedge-budget 5%",
            "a whole number from 1 to 100 is right (see hedgerow replay --help)",
        ),
        ("probe --blocks 0", "--blocks"),
        ("probe --json a --html a", "--html"),
        ("probe --reference --rate 5", "--rate"),
        ("probe redis://192.0.2.1 --replica [::1]:6380 --reference", "--pause-replicas"),
        ("replay", "<FILE>"),
        ("replay report.json --html ./report.json", "--html ./report.json"),
        ("probe --json a --html ./a", "--html"),
        ("replay report.json --percentile 100", "--percentile 100"),
        ("replay report.json --hedge-budget 0", "--hedge-budget 0"),
        ("bench --replica 192.0.2.1:6379", "--replica needs a URL"),
        ("bench redis://192.0.2.1 --hedge-delay 5ms", "--read-from"),
    ];
    let folder = Folder::new();
    for (words, named) in cases {
        folder.run(words).failed(2, named);
    }
}

/// R-225. Fails if a deployment that is not what the flags say is probed, or the line does not name the
/// node that is wrong.
#[test]
fn wrong_deployments_are_told() {
    let (fleet, folder) = (fleet(), Folder::new());
    let replica = fleet.replica_addrs()[0];
    let other = Server::start().unwrap();
    let other = other.addr().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        (
            format!("probe {} --replica {other}", fleet.url()),
            format!("--replica {other} is no replica"),
        ),
        (format!("probe redis://{replica} --replica {other}"), format!("{replica} is no primary")),
        (format!("probe {} --replica {gone}", fleet.url()), format!("--replica {gone}")),
        (format!("probe redis://{gone} --replica {replica}"), gone.to_string()),
    ];
    for (words, named) in cases {
        folder.run(&words).failed(1, &named);
    }
}

/// R-383. Fails if keys that are not there, of another type, or not to be found are read all the same, or
/// if a key's name is printed.
#[test]
fn keys_must_hold_strings() {
    let (empty, full, folder) = (Fleet::builder().start().unwrap(), fleet(), Folder::new());
    folder.run(&format!("probe {}", words(&empty))).failed(1, "no keys were found");
    let ended =
        folder.run(&format!("probe {} --key key:000000000001 --key secretive", words(&full)));
    ended.failed(1, "--key number 2: there is no such key (names of keys are never printed)");
    assert!(!ended.err.contains("secretive"), "{}", ended.err);
}

/// R-383. Fails if a report that cannot be written is found out only after the run.
#[test]
fn unwritable_reports_are_told_first() {
    let folder = Folder::new();
    let began = Instant::now();
    for flag in ["--json", "--html"] {
        let ended = folder.run(&format!("probe {flag} no/such/file --duration 10m"));
        ended.failed(1, &format!("{flag} no/such/file"));
    }
    assert!(began.elapsed() < Duration::from_secs(30));
}

fn check_pass(pass: &Value, nodes: usize) {
    for name in ["reads", "misses", "errors", "unsent", "unanswered"] {
        assert!(pass[name].is_u64(), "{name}: {pass}");
    }
    for times in ["latency_us", "service_us"] {
        let columns =
            ["p50", "p90", "p99", "p99_9", "p99_99", "max"].map(|p| number(&pass[times][p]));
        assert!(columns.is_sorted(), "{times} {columns:?}");
        assert_eq!(pass[times]["count"], pass["reads"]);
    }
    assert_eq!(
        pass["samples_us"].as_array().unwrap().len() as u64,
        pass["reads"].as_u64().unwrap()
    );
    for hdr in ["latency_hdr", "service_hdr"] {
        assert!(pass[hdr].as_str().unwrap().starts_with("HIST"), "{hdr}");
    }
    let by_node = pass["by_node"].as_array().unwrap();
    assert_eq!(by_node.len(), nodes);
    let copies: u64 = by_node.iter().map(|node| node["copies"].as_u64().unwrap()).sum();
    assert!(copies >= pass["reads"].as_u64().unwrap(), "every read is a copy: {copies}");
}

/// Every field is in the description of the report.
fn documented(value: &Value) {
    const DESCRIPTION: &str = include_str!("../../src/cli/probe/report.md");
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            assert!(DESCRIPTION.contains(&format!("`{name}`")), "{name} is not described");
            documented(value);
        }),
        Value::Array(items) => items.iter().for_each(documented),
        _ => {}
    }
}

/// R-383. A deployment by its URL, here in the test's process. Fails if a field that scripts rely on is
/// renamed, a pass is missing, or reads go to a node that the policy leaves out.
#[test]
fn json_fields() {
    let (fleet, folder) = (fleet(), Folder::new());
    let more = "--keys 20 --json report.json --no-check";
    let ended = folder.run(&format!("probe {} {SHORT} {more}", words(&fleet)));
    ended.succeeded();
    let report = folder.report();
    assert_eq!(report["schema"], "hedgerow.probe/1");
    for part in ["machine", "configuration", "advice", "heat"] {
        assert!(report[part].is_object(), "{part}");
    }
    assert_eq!(report["configuration"]["keys"], 20);
    documented(&report);
    assert!(report["passes"][2]["hedging"]["delay_us"].is_null(), "an adaptive delay is not one");
    assert_eq!(report["interrupted"], false);
    let roles: Vec<&Value> =
        report["nodes"].as_array().unwrap().iter().map(|node| &node["role"]).collect();
    assert_eq!(roles, ["primary", "replica", "replica"]);
    let passes = report["passes"].as_array().unwrap();
    let names: Vec<&str> = passes.iter().map(|pass| pass["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["baseline", "fixed", "adaptive", "baseline again"]);
    for pass in passes {
        check_pass(pass, 3);
        assert_eq!(pass["errors"], 0);
        assert_eq!(pass["ledger"].is_null(), pass["hedging"].is_null());
    }
    let baseline = &passes[0]["by_node"];
    assert_eq!(baseline[0]["copies"], 0, "replica-preferred leaves the primary alone");
    assert!(baseline[1]["copies"].as_u64() > Some(20) && baseline[2]["copies"].as_u64() > Some(20));
    assert!(
        ended.out.contains("baseline again") && ended.out.contains("advice: "),
        "{}",
        ended.out
    );
}

/// R-278. The embedded deployment has a tail, and hedging cuts it. Fails if no copy is sent, the budget is
/// passed, the books do not add up, or the tail is not there without hedges.
#[test]
fn hedges_cut_the_embedded_tail() {
    let folder = Folder::new();
    let words = "--duration 6s --blocks 1 --warmup 1s --rate 800 --clients 4 --seed 3";
    folder.run(&format!("probe {words} --json report.json")).succeeded();
    let report = folder.report();
    let passes = report["passes"].as_array().unwrap();
    assert!(number(&passes[0]["latency_us"]["p99"]) > 5_000.0, "{}", passes[0]["latency_us"]);
    for pass in passes.iter().filter(|pass| !pass["ledger"].is_null()) {
        let (ledger, name) = (&pass["ledger"], &pass["name"]);
        let count = |of: &str| ledger[of].as_u64().unwrap();
        assert!(count("sent") > 0, "{name}: {ledger}");
        let clients = 4;
        let budget = pass["hedging"]["budget_percent"].as_u64().unwrap();
        assert!(count("sent") * 100 <= count("reads") * budget + clients * 100, "{name}: {ledger}");
        let decided = count("won") + count("lost") + count("both_failed");
        assert!(decided <= count("sent") + clients, "{name}: {ledger}");
        let hedges =
            pass["by_node"].as_array().unwrap().iter().map(|n| n["hedges"].as_u64().unwrap());
        assert!(hedges.sum::<u64>() <= count("sent") + clients, "{name}: {pass}");
    }
}

/// The line of the advice.
fn advice(out: &str) -> &str {
    out.lines().find(|line| line.starts_with("advice: ")).unwrap_or_else(|| panic!("none: {out}"))
}

/// R-383. Fails if a saved report does not lead to the advice that was printed with it, if other parameters
/// change nothing, or if the page of a replay lacks them.
#[test]
fn replay_predicts_again() {
    let (fleet, folder) = (fleet(), Folder::new());
    for replica in fleet.replicas() {
        replica.faults().stall_every_read(40, Duration::from_millis(8));
    }
    let rate =
        "--duration 3s --blocks 1 --warmup 100ms --clients 8 --rate 1000 --seed 5 --no-check";
    let ended = folder.run(&format!("probe {} {rate} --json report.json", words(&fleet)));
    ended.succeeded();
    let again = folder.run("replay report.json");
    again.succeeded();
    assert_eq!(advice(&again.out), advice(&ended.out));
    let asked =
        folder.run("replay report.json --hedge-delay 1234us --hedge-budget 3 --html page.html");
    asked.succeeded();
    assert!(asked.out.contains("asked: 3 %") && asked.out.contains("1.23 ms"), "{}", asked.out);
    assert!(
        std::fs::read_to_string(folder.path("page.html")).unwrap().contains("<th>1.23 ms</th>")
    );
    let other = folder.run("replay report.json --percentile 99.9 --hedge-burst 4");
    other.succeeded();
    assert!(other.out.contains("p99.9 best"), "{}", other.out);
    let row = folder.run("replay report.json --hedge-budget 4");
    assert!(row.out.contains("at most 4 %"), "{}", row.out);
}

/// A probe of the embedded deployment, on a machine that kept still, with a check of its advice.
const CHECKED: &str = include_str!("checked.json");

/// Replays a report that was changed.
fn replay(folder: &Folder, report: &Value, words: &str) -> super::program::Ended {
    std::fs::write(folder.path("changed.json"), report.to_string()).unwrap();
    folder.run(&format!("replay changed.json {words}"))
}

/// R-383. Fails if the check is about another kind of time than the prediction, if advice that it does not
/// bear out is given as one to take, or if a replay shows the check of other settings.
#[test]
fn checks_that_do_not_confirm_are_told() {
    let folder = Folder::new();
    let mut report: Value = serde_json::from_str(CHECKED).unwrap();
    let of_pass = |name: &str| {
        let passes = report["passes"].as_array().unwrap();
        passes.iter().position(|pass| pass["name"] == name).unwrap()
    };
    let (hedged, without) = (of_pass("recommended"), of_pass("baseline at check"));
    let check = &report["check"];
    assert_eq!(check["measured_us"], report["passes"][hedged]["service_us"]["p99"]);
    assert_eq!(check["without_us"], report["passes"][without]["service_us"]["p99"]);
    let same = replay(&folder, &report, "");
    assert_eq!(advice(&same.out).strip_prefix("advice: "), report["advice"]["text"].as_str());
    assert!(same.out.contains(check["text"].as_str().unwrap()), "{}", same.out);
    for other in ["--hedge-burst 2", "--percentile 99.9"] {
        let other = replay(&folder, &report, other);
        other.succeeded();
        assert!(!other.out.contains("checked live"), "{}", other.out);
    }
    report["passes"][hedged]["service_us"]["p99"] = 90_000.0.into();
    for at in ["p99_9", "p99_99", "max"] {
        report["passes"][hedged]["service_us"][at] = 90_000.0.into();
    }
    let worse = replay(&folder, &report, "--html page.html");
    worse.succeeded();
    let page = std::fs::read_to_string(folder.path("page.html")).unwrap();
    for (shown, name) in [(&worse.out, "text"), (&page, "page")] {
        assert!(shown.contains("did NOT confirm the advice"), "{name}: {}", worse.out);
        assert!(shown.contains("do not take it"), "{name}: {}", worse.out);
    }
}

/// R-383. Fails if advice is given from baselines that disagree, or if too few reads pass for agreement.
#[test]
fn baselines_that_disagree_give_no_advice() {
    let (steady, slow, folder) = (fleet(), fleet(), Folder::new());
    for replica in slow.replicas() {
        replica.faults().stall_every_read(1, Duration::from_millis(20));
    }
    let rate = "--duration 2400ms --blocks 1 --warmup 0s --clients 8 --rate 1000 --no-check";
    let mut passes = Vec::new();
    for fleet in [&slow, &steady] {
        folder.run(&format!("probe {} {rate} --json report.json", words(fleet))).succeeded();
        passes.push(folder.report()["passes"][3].clone());
    }
    let mut report = folder.report();
    report["passes"][3] = passes[0].clone();
    let apart = replay(&folder, &report, "");
    apart.succeeded();
    assert!(advice(&apart.out).contains("none: the two baselines disagree"), "{}", apart.out);
    let few = "--duration 800ms --blocks 1 --warmup 0s --rate 200 --no-check --json report.json";
    let few = folder.run(&format!("probe {} {few}", words(&steady)));
    few.succeeded();
    assert!(
        few.out.contains("too few reads to tell whether the two baselines agree"),
        "{}",
        few.out
    );
}

/// R-383. Fails if a zone that no node is in goes unsaid, or one that a node is in is remarked on.
#[test]
fn unknown_zones_are_told() {
    let fleet = Fleet::builder().zones(["a", "b", "c"]).values(9, 9).start().unwrap();
    let (words, folder) = (words(&fleet), Folder::new());
    for (zone, told) in [("z", true), ("b", false)] {
        let of_zone = format!("--read-from az-affinity --zone {zone} --no-check");
        let ended = folder.run(&format!("probe {words} {SHORT} {of_zone}"));
        ended.succeeded();
        let line = format!("--zone {zone}: no node is in it (they told a, b, c)");
        assert_eq!(ended.out.contains(&line), told, "{}", ended.out);
    }
}

/// R-383. Replicas without the primary's keys. Fails if reads that found no value are not told, or if an
/// empty list of errors is.
#[test]
fn misses_are_told() {
    let (fleet, folder) = (fleet(), Folder::new());
    let empty: Vec<Server> = (0..2).map(|_| Server::builder().replica().start().unwrap()).collect();
    let replicas = empty.iter().map(|server| format!("--replica {}", server.addr().unwrap()));
    let replicas: Vec<String> = replicas.collect();
    let words = format!("{} {}", fleet.url(), replicas.join(" "));
    let ended = folder.run(&format!("probe {words} {SHORT} --no-check"));
    ended.succeeded();
    assert!(ended.out.contains("reads found no value"), "{}", ended.out);
    assert!(!ended.out.contains("()"), "{}", ended.out);
}

/// R-383. A primary and one replica, the smallest deployment. Fails if nothing is predicted because all reads
/// come from the replica, or if the reads that the primary is asked aside count as reads.
#[test]
fn one_replica_is_enough_for_a_prediction() {
    let fleet = Fleet::builder().replicas(1).values(50, 64).start().unwrap();
    fleet.replica(0).faults().stall_every_read(40, Duration::from_millis(8));
    let folder = Folder::new();
    let rate =
        "--duration 6s --blocks 1 --warmup 100ms --clients 8 --rate 1500 --seed 5 --no-check";
    folder.run(&format!("probe {} {rate} --json report.json", words(&fleet))).succeeded();
    let report = folder.report();
    assert!(report["what_if"].is_object(), "{}", report["advice"]["text"]);
    let baseline = &report["passes"][0];
    let copies = |node: usize| baseline["by_node"][node]["copies"].as_u64().unwrap();
    assert_eq!(copies(1), baseline["reads"].as_u64().unwrap());
    assert!(copies(0) > 20 && copies(0) * 5 < copies(1), "{} aside of {}", copies(0), copies(1));
    assert_eq!(baseline["by_node"][0]["is_spare"], true);
    assert_eq!(report["passes"][1]["by_node"][0]["is_spare"], false);
}

/// R-383. Fails if a file that is no report, or a part of one, is replayed, or if the line does not name the
/// file and where it goes wrong.
#[test]
fn wrong_replay_files_are_told() {
    let (fleet, folder) = (fleet(), Folder::new());
    let probed =
        folder.run(&format!("probe {} {SHORT} --json report.json --no-check", words(&fleet)));
    probed.succeeded();
    let report = std::fs::read(folder.path("report.json")).unwrap();
    std::fs::write(folder.path("cut.json"), &report[..report.len() / 2]).unwrap();
    std::fs::write(folder.path("other.json"), r#"{"schema":"hedgerow.bench/1"}"#).unwrap();
    std::fs::write(folder.path("text.json"), "once upon a time").unwrap();
    let broken = String::from_utf8(report).unwrap().replacen("\"hdr\":\"HIST", "\"hdr\":\"MIST", 1);
    std::fs::write(folder.path("broken.json"), broken).unwrap();
    for (file, named) in [
        ("cut.json", "cut off: "),
        ("other.json", "hedgerow.bench/1"),
        ("text.json", "line 1 column 1"),
        ("broken.json", "passes[0].by_node[0].hdr"),
        ("absent.json", "absent.json: No such file"),
    ] {
        let ended = folder.run(&format!("replay {file}"));
        ended.failed(1, named);
        assert!(ended.err.contains(file), "{}", ended.err);
    }
}

/// R-383. Fails if a report with a number that no probe writes, or a histogram that is damaged, is replayed;
/// if the line does not name the field; or if the page never ends.
#[test]
fn damaged_reports_are_told() {
    let (fleet, folder) = (fleet(), Folder::new());
    folder
        .run(&format!("probe {} {SHORT} --json report.json --no-check", words(&fleet)))
        .succeeded();
    let report = folder.report();
    replay(&folder, &report, "--html page.html").succeeded();
    let cases: [(&str, Value, &str); 19] = [
        ("/passes", serde_json::json!([]), "passes"),
        ("/passes/0/name", "first".into(), "\"baseline\""),
        ("/passes/1/latency_hdr", "HISTFAAAAB".into(), "passes[1].latency_hdr"),
        ("/passes/0/latency_hdr", "!".into(), "passes[0].latency_hdr is no base64"),
        ("/passes/0/service_hdr", report["passes"][1]["by_node"][1]["hdr"].clone(), "as counted"),
        ("/passes/0/service_hdr", "HISTFA==".into(), "passes[0].service_hdr"),
        ("/passes/1/by_node/1/hdr", "".into(), "passes[1].by_node[1].hdr"),
        ("/passes/0/samples_us/3", 1e308.into(), "passes[0].samples_us[3]"),
        ("/passes/0/samples_us/3", (-5).into(), "passes[0].samples_us[3]"),
        ("/passes/0/service_us/p99", 1e300.into(), "passes[0].service_us at p99"),
        ("/passes/0/latency_us/count", 0.into(), "passes[0].latency_us.count"),
        ("/configuration/clients", 0.into(), "configuration.clients is 0: from 1 to 256"),
        ("/configuration/clients", 4_000_000_000_u64.into(), "configuration.clients"),
        ("/configuration/rate_per_s", 0.into(), "configuration.rate_per_s is 0"),
        ("/configuration/rate_per_s", 1e300.into(), "configuration.rate_per_s"),
        ("/configuration/duration_s", 1e300.into(), "configuration.duration_s"),
        ("/configuration/block_s", (-1).into(), "configuration.block_s is -1"),
        ("/heat/span_s", 1e300.into(), "heat.span_s"),
        ("/made_at_s", u64::MAX.into(), "made_at_s"),
    ];
    for (at, wrong, named) in cases {
        let mut damaged = report.clone();
        *damaged.pointer_mut(at).unwrap_or_else(|| panic!("{at}")) = wrong;
        let ended = replay(&folder, &damaged, "--html page.html");
        ended.failed(1, named);
        assert!(
            ended.err.contains("changed.json: ") && ended.err.contains("right"),
            "{}",
            ended.err
        );
    }
}

/// R-279. Fails if the reference run has not its samples, sends more hedges than its budget, has a tail
/// that a pause does not explain, or if its exit code and its verdict part ways. On a machine that is busy
/// otherwise a run may miss 10 ms; not three of them.
#[test]
fn reference_run() {
    let folder = Folder::new();
    let holds = (0..3).any(|_| {
        let ended = folder.run("probe --reference --json report.json");
        let report = folder.report();
        assert_eq!(report["schema"], "hedgerow.reference/1");
        let (passes, verdict) = (&report["passes"], &report["verdict"]);
        for (at, name) in ["baseline", "hedged", "baseline again"].into_iter().enumerate() {
            let pass = &passes[at];
            assert_eq!(pass["name"], name);
            let mut samples: Vec<f64> =
                pass["samples_us"].as_array().unwrap().iter().map(number).collect();
            assert_eq!(samples.len(), 1_000);
            samples.sort_by(f64::total_cmp);
            assert_eq!(number(&pass["p99_us"]), samples[989], "the nearest rank");
            assert_eq!(number(&pass["p50_us"]), samples[499]);
        }
        let ledger = &passes[1]["ledger"];
        let count = |of: &str| ledger[of].as_u64().unwrap();
        assert_eq!(count("reads"), 1_020);
        assert!(count("sent") > 0 && count("sent") * 20 <= count("reads"), "{ledger}");
        assert_eq!(verdict["hedges_at_most_5_percent"], true);
        assert_eq!(verdict["baseline_p99_at_least_50_ms"], true);
        assert_eq!(ended.code, Some(if verdict["holds"] == true { 0 } else { 1 }), "{ended:?}");
        verdict["holds"] == true
    });
    assert!(holds, "three runs in a row: {}", folder.report()["passes"][1]["p99_us"]);
}

/// Ctrl-C, once the program reads from the fleet.
fn interrupt(child: &Child, fleet: &Fleet) {
    let began = Instant::now();
    while fleet.replica(0).stats().commands < 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "the program does nothing");
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
}

/// Ctrl-C ends a probe with the figures so far and success. Fails if it kills the program, or if the report
/// does not say so.
#[test]
fn interrupt_gives_the_figures() {
    let (fleet, folder) = (fleet(), Folder::new());
    let long =
        "--duration 1h --warmup 0s --clients 1 --rate 1000 --json report.json --html page.html";
    let child = folder.start(&format!("probe {} {long}", words(&fleet)));
    interrupt(&child, &fleet);
    let ended = end(child);
    ended.succeeded();
    assert!(ended.out.contains("interrupted: the figures so far"), "{}", ended.out);
    let report = folder.report();
    assert_eq!(report["interrupted"], true);
    let reads =
        report["passes"].as_array().unwrap().iter().map(|pass| pass["reads"].as_u64().unwrap());
    assert!(reads.sum::<u64>() > 100);
    assert!(std::fs::read_to_string(folder.path("page.html")).unwrap().contains("Interrupted"));
}

/// R-383. Fails if a run that measured nothing counts as done, or if it touches the reports of another.
#[test]
fn runs_that_fail_leave_reports_alone() {
    let (fleet, folder) = (fleet(), Folder::new());
    std::fs::write(folder.path("page.html"), "an older page").unwrap();
    let files = "--json report.json --html page.html";
    let child = folder.start(&format!("probe {} --warmup 1h --rate 1000 {files}", words(&fleet)));
    interrupt(&child, &fleet);
    end(child).failed(1, "interrupted before a read was measured");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    folder.run(&format!("probe redis://{gone} --replica {gone}1 {files}")).failed(2, "--replica");
    folder.run(&format!("probe {} --replica {gone} {files}", fleet.url())).failed(1, "--replica");
    assert_eq!(std::fs::read_to_string(folder.path("page.html")).unwrap(), "an older page");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 1, "nothing else");
}

/// R-221, R-257. The load generator takes the same flags. Fails if its reads stay on the primary, or if the
/// books of its hedges are not in the report.
#[test]
fn bench_reads_from_replicas() {
    let (fleet, folder) = (fleet(), Folder::new());
    for door in super::program::DOORS {
        let before = fleet.replica(1).stats().commands;
        let words =
            format!("bench {} --read-from replica --hedge-delay 5ms --door {door}", words(&fleet));
        let more = "--warmup 0s --keys 20 --requests 600 --mix get --no-load --json report.json";
        let ended = folder.run(&format!("{words} {more}"));
        ended.succeeded();
        assert!(ended.out.contains("\nhedges "), "{}", ended.out);
        let report = folder.report();
        assert_eq!(report["result"]["hedges"]["reads"], 600, "{door}");
        assert_eq!(report["plan"]["hedging"]["delay_us"], 5_000.0);
        let reads = fleet.replica(1).stats().commands - before;
        assert!(reads > 200, "{door}: {reads} on one of two replicas");
    }
}

/// The page needs no network. Fails if it names another place to load anything from.
#[test]
fn page_stands_alone() {
    let (fleet, folder) = (fleet(), Folder::new());
    folder.run(&format!("probe {} {SHORT} --no-check --html page.html", words(&fleet))).succeeded();
    let page = std::fs::read_to_string(folder.path("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for loads in ["http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttp"] {
        assert!(!page.contains(loads), "{loads}");
    }
}
