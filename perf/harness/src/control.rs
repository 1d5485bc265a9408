use crate::lane::{done_total, latencies, set_window, wrong_total};
use crate::{Workload, now_ns};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static COUNTERS: Mutex<BTreeMap<&'static str, &'static AtomicU64>> = Mutex::new(BTreeMap::new());

/// The result line. Times are in us, `cpu_us_op` is user + system time of the whole process.
#[derive(Serialize)]
struct Outcome {
    program: String,
    /// Largest resident memory, in MiB.
    rss_mib: f64,
    ops: u64,
    ops_s: f64,
    cpu_us_op: f64,
    cpu_us_mib: f64,
    cpu_share: f64,
    switches_op: f64,
    bytes_s: f64,
    latencies: u64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    wrong: u64,
    /// What a program counts for itself, inside the window.
    counters: BTreeMap<&'static str, u64>,
}

/// What is read at both ends of the window.
struct Snapshot {
    ops: u64,
    cpu_us: i64,
    /// Largest resident memory so far, in KiB.
    rss_kib: i64,
    switches: i64,
    at_ns: u64,
    counters: BTreeMap<&'static str, u64>,
}

/// A counter of the program's own, printed with the result as what it grew by inside the window.
pub fn counter(name: &'static str) -> &'static AtomicU64 {
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    counters.entry(name).or_insert_with(|| Box::leak(Box::new(AtomicU64::new(0))))
}

/// Starts the controller. Call it once the connections are up.
///
/// A panic anywhere in the process ends it with status 4 (runtimes catch the panics of their
/// tasks), a run without replies or with wrong ones with status 3.
pub fn start(workload: &Workload) {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default_hook(panic);
        std::process::exit(4);
    }));
    let workload = workload.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs_f64(workload.warm_secs));
        let before = snapshot();
        set_window(true);
        std::thread::sleep(Duration::from_secs_f64(workload.secs));
        let after = snapshot();
        set_window(false);
        let outcome = outcome(&workload, &before, &after);
        let line = serde_json::to_string(&outcome).expect("an outcome is plain numbers");
        println!("{line}");
        std::process::exit(if outcome.ops == 0 || outcome.wrong > 0 { 3 } else { 0 });
    });
}

fn snapshot() -> Snapshot {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of the own process");
    let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    Snapshot {
        ops: done_total(),
        cpu_us: cpu_us(&usage),
        rss_kib: usage.max_rss(),
        switches: usage.voluntary_context_switches() + usage.involuntary_context_switches(),
        at_ns: now_ns(),
        counters: counters.iter().map(|(name, count)| (*name, count.load(Relaxed))).collect(),
    }
}

fn cpu_us(usage: &Usage) -> i64 {
    let us = |time: TimeVal| time.num_microseconds();
    us(usage.user_time()) + us(usage.system_time())
}

fn outcome(workload: &Workload, before: &Snapshot, after: &Snapshot) -> Outcome {
    let ops = after.ops - before.ops;
    let per_op = ops.max(1) as f64;
    let secs = (after.at_ns - before.at_ns) as f64 / 1e9;
    let cpu_us = (after.cpu_us - before.cpu_us) as f64;
    let payload = per_op * workload.size as f64;
    let took = latencies();
    let at = |quantile: f64| took.value_at_quantile(quantile) as f64 / 1e3;
    let program = std::env::args().next().unwrap_or_default();
    Outcome {
        program: program.rsplit('/').next().unwrap_or_default().to_string(),
        ops,
        ops_s: ops as f64 / secs,
        rss_mib: after.rss_kib as f64 / 1024.0,
        cpu_us_op: cpu_us / per_op,
        cpu_us_mib: cpu_us / (payload / f64::from(1 << 20)),
        cpu_share: cpu_us / 1e6 / secs,
        switches_op: (after.switches - before.switches) as f64 / per_op,
        bytes_s: payload / secs,
        latencies: took.len(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: took.max() as f64 / 1e3,
        wrong: wrong_total(),
        counters: after
            .counters
            .iter()
            .map(|(name, end)| (*name, end - before.counters.get(name).copied().unwrap_or(0)))
            .collect(),
    }
}
