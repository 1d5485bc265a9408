//! The load generator's cases, at the real binary. The simulated clock of the unit tests runs them
//! at full length; here the stall is shorter, and bounds are as wide as a busy machine needs.

use super::program::{DOORS, Folder};
use super::server::{answer, name, scripted};
use serde_json::Value;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn near(value: &Value, aim: f64, fraction: f64) {
    let value = number(value);
    assert!((value - aim).abs() <= aim * fraction, "{value} is not near {aim}");
}

/// Case behaviour/27, step 1, with a stall of 0.4 s in 4 s. Fails if latency counts from the real
/// send, or if requests that were due in the stall are left out.
#[test]
fn case_27_stall() {
    for door in DOORS {
        let url = scripted(|words, at| {
            let stalled = (2000 * MS..2400 * MS).contains(&at);
            (if stalled { 2400 * MS - at } else { Duration::ZERO }, answer(words))
        });
        let folder = Folder::new();
        let words = "--rate 1000 --duration 4s --warmup 0s --mix get --no-load --json report.json";
        let ended = folder.run(&format!("bench {url} --door {door} {words}"));
        ended.succeeded();
        assert!(ended.out.contains("open loop: asked 1,000/s"), "{}", ended.out);
        let result = &folder.report()["result"];
        near(&result["asked_per_s"], 1000.0, 0.0);
        near(&result["requests"], 4000.0, 0.1);
        let latency = &result["latency_us"];
        assert!(number(&latency["p75"]) < 100_000.0, "{latency}");
        near(&latency["p95"], 200_000.0, 0.5);
        near(&latency["p99"], 360_000.0, 0.3);
        near(&latency["max"], 400_000.0, 0.3);
        assert!(result["service_us"]["max"].is_number());
    }
}

/// Case behaviour/27, step 2: a rate out of reach. Fails if the run overruns, or does not say how
/// far it got.
#[test]
fn case_27_rate_out_of_reach() {
    for door in DOORS {
        let url = scripted(|words, _| (2 * MS, answer(words)));
        let folder = Folder::new();
        let words = "--rate 1000 --duration 3s --warmup 0s --mix get --no-load --json report.json";
        let ended = folder.run(&format!("bench {url} --door {door} {words}"));
        ended.succeeded();
        assert!(ended.out.contains("asked 1,000/s, got "), "{}", ended.out);
        let result = &folder.report()["result"];
        assert!((200.0..520.0).contains(&number(&result["throughput_per_s"])), "{result}");
        assert!(number(&result["latency_us"]["max"]) > 1e6);
        assert!(number(&result["elapsed_s"]) < 4.5);
        let counted = ["requests", "errors", "unsent", "unanswered"];
        let asked: f64 = counted.iter().map(|count| number(&result[count])).sum();
        assert!((2700.0..3300.0).contains(&asked), "none is lost: {asked}");
    }
}

fn check_times(times: &Value) {
    let mean = number(&times["sum"]) / number(&times["count"]);
    assert!((number(&times["mean"]) - mean).abs() < 1e-6);
    assert!(number(&times["mean"]).fract() != 0.0, "means have a fraction");
    let names =
        ["min", "p0", "p50", "p75", "p85", "p90", "p95", "p99", "p99_9", "p99_99", "p100", "max"];
    let values: Vec<f64> = names.iter().map(|name| number(&times[name])).collect();
    assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "{values:?}");
    assert_eq!(times["p100"], times["max"]);
}

/// Total requests and time of a result, which its parts must add up to.
fn check_result(result: &Value) -> (u64, f64) {
    let parts = result["by_command"].as_object().unwrap();
    let mut sums = (0, 0.0);
    for part in parts.values().chain([result]) {
        check_times(&part["latency_us"]);
        check_times(&part["service_us"]);
        assert_eq!(part["latency_us"]["count"], part["requests"]);
    }
    for part in parts.values() {
        sums.0 += part["requests"].as_u64().unwrap();
        sums.1 += number(&part["latency_us"]["sum"]);
    }
    assert_eq!(result["requests"], sums.0);
    near(&result["latency_us"]["sum"], sums.1, 1e-9);
    let seconds = result["per_second"].as_array().unwrap().iter();
    assert_eq!(seconds.map(|second| second["requests"].as_u64().unwrap()).sum::<u64>(), sums.0);
    sums
}

/// Case behaviour/28: totals, series and the aggregate of three runs. Fails if a mean is rounded,
/// percentiles are averaged, or errors enter the latency.
#[test]
fn case_28_totals() {
    for door in DOORS {
        let url = scripted(|words, _| match name(words).as_str() {
            "SET" => (400 * MS / 1000, answer(words)),
            "INCR" => (Duration::ZERO, b"-MOVED 42 127.0.0.1:1\r\n".to_vec()),
            _ => (900 * MS / 1000, answer(words)),
        });
        let folder = Folder::new();
        let words = "--duration 1200ms --warmup 100ms --mix set:1,get:10 --keys 10 --runs 3";
        let ended = folder.run(&format!("bench {url} --door {door} {words} --json report.json"));
        ended.succeeded();
        assert!(ended.out.contains("merged histograms"), "{}", ended.out);
        let report = folder.report();
        let runs = report["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3);
        let sums = runs.iter().map(check_result).reduce(|one, two| (one.0 + two.0, one.1 + two.1));
        let all = check_result(&report["result"]);
        assert_eq!(all.0, sums.unwrap().0);
        let largest = runs.iter().map(|run| number(&run["latency_us"]["max"])).fold(0.0, f64::max);
        near(&report["result"]["latency_us"]["max"], largest, 1e-9);
        let set = number(&report["result"]["by_command"]["set"]["latency_us"]["min"]);
        assert!(set >= 400.0, "a SET cannot be faster than its server: {set}");
    }
}

/// Case behaviour/28: redirects count apart. Fails if they enter the latency of successes.
#[test]
fn case_28_errors_count_apart() {
    for door in DOORS {
        let url = scripted(|words, _| match name(words).as_str() {
            "INCR" => (Duration::ZERO, b"-ERR value is not an integer\r\n".to_vec()),
            _ => (Duration::ZERO, answer(words)),
        });
        let folder = Folder::new();
        let words = "--requests 400 --warmup 0s --mix ping:1,incr:1 --json report.json";
        folder.run(&format!("bench {url} --door {door} {words}")).succeeded();
        let result = &folder.report()["result"];
        let errors = result["errors"].as_u64().unwrap();
        assert!(errors > 0);
        assert_eq!(result["errors_by_kind"]["ERR"], errors);
        assert_eq!(result["requests"].as_u64().unwrap() + errors, 400);
        assert_eq!(result["latency_us"]["count"], result["requests"]);
        assert_eq!(result["by_command"]["incr"]["latency_us"]["count"], 0);
    }
}
