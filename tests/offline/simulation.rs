//! The whole client under the simulated kernel: random runs with checkers, traps, golden traces.

mod books;
mod case_16;
mod clock;
mod cluster;
mod cluster_model;
mod cluster_outages;
mod cluster_runs;
mod coordinator;
mod cursors;
mod fallbacks;
mod fleet;
mod golden;
mod hedges;
mod nearest;
mod quickest;
mod races;
mod reads;
mod roles;
mod traps;
mod workload;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replays one seed, with what it was like.
const SEED: &str = "HEDGEROW_SEED";
/// How many seeds are run, default 1,000.
const SEEDS: &str = "HEDGEROW_SEEDS";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs all seeds, or the one that is asked for, on every cpu. `run` answers what is wrong with one; the
/// complaint has the line that replays it.
fn each_seed(test: &str, run: impl Fn(u64) -> Vec<String> + Sync + std::panic::RefUnwindSafe) {
    let complaint = |seed: u64| {
        let wrong = std::panic::catch_unwind(|| run(seed));
        let wrong = wrong.unwrap_or_else(|_| vec!["it panicked".to_owned()]);
        let replay = format!("{SEED}={seed} cargo test --test offline simulation::{test}");
        (!wrong.is_empty()).then(|| format!("{replay}\n    {}\n", wrong.join("\n    ")))
    };
    if let Some(seed) = number(SEED) {
        assert_eq!(run(seed), Vec::<String>::new(), "seed {seed}");
        return;
    }
    let (seeds, next) = (number(SEEDS).unwrap_or(1_000), AtomicU64::new(0));
    let wrong = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let complaint = complaint(seed);
                    wrong.lock().expect("no holder panics").extend(complaint);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no holder panics");
    assert!(wrong.is_empty(), "{} of {seeds} seeds fail:\n{}", wrong.len(), wrong.join("\n"));
}

/// Design 8.; trap 13. Fails if under any mixture of faults a reply reaches
/// another's request, a link reorders, a command is sent twice, a request outlives its deadline, a
/// fate is a lie, the kernel is misused, or anything is left behind.
#[test]
fn any_seed() {
    each_seed("any_seed", |seed| {
        let run = workload::run(seed);
        if number(SEED).is_some() {
            println!("{:?}", workload::Plan::new(seed));
            println!("{}; {} values, {} others", run.report, run.values, run.failures);
        }
        run.wrong
    });
}

/// Design 8.; trap 20. Fails if with hedging on, under any mixture of faults, a read
/// gets another key's value or outlives its deadline, a write goes out twice or to a replica, the budget is
/// exceeded, or anything is left behind.
#[test]
fn any_race() {
    let hedges = AtomicU64::new(0);
    each_seed("any_race", |seed| {
        let plan = races::Plan::new(seed);
        if number(SEED).is_some() {
            println!("{plan:?}");
        }
        let (wrong, sent) = races::run(plan);
        hedges.fetch_add(sent, Ordering::Relaxed);
        wrong
    });
    let hedges = hedges.into_inner();
    assert!(number(SEED).is_some() || hedges > 500, "only {hedges} hedges in all runs");
}

/// Design 8.. Fails if in a cluster to which anything happens a reply reaches another's
/// request, a command is run twice, an acknowledged write is lost, a fate is a lie, a request outlives its
/// deadline, the client does not find its way again, or anything is left behind.
#[test]
fn any_cluster() {
    let again = AtomicU64::new(0);
    each_seed("any_cluster", |seed| {
        let plan = cluster_runs::Plan::new(seed);
        if number(SEED).is_some() {
            println!("{plan:?}");
        }
        let (wrong, sent) = cluster_runs::run(plan);
        again.fetch_add(sent, Ordering::Relaxed);
        wrong
    });
    let again = again.into_inner();
    assert!(
        number(SEED).is_some() || again > 500,
        "only {again} commands were sent again in all runs"
    );
}

/// Design 8. Fails if anything but the seed decides what a client does.
#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        let (first, second) = (workload::run(seed), workload::run(seed));
        assert_eq!(first.report.trace, second.report.trace, "seed {seed}");
    }
}
