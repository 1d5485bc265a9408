//! The whole client under the simulated kernel: random runs with checkers, traps, golden traces.

mod books;
mod clock;
mod golden;
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

/// What is wrong with a seed, with the line that replays it.
fn complaint(seed: u64) -> Option<String> {
    let run = std::panic::catch_unwind(|| workload::run(seed));
    let wrong = match run {
        Ok(run) => run.wrong,
        Err(_) => vec!["it panicked".to_owned()],
    };
    let replay = format!("{SEED}={seed} cargo test --test offline simulation::any_seed");
    (!wrong.is_empty()).then(|| format!("{replay}\n    {}\n", wrong.join("\n    ")))
}

/// Design 8.; trap 13. Fails if under any mixture of faults a reply reaches
/// another's request, a link reorders, a command is sent twice, a request outlives its deadline, a
/// fate is a lie, the kernel is misused, or anything is left behind.
#[test]
fn any_seed() {
    if let Some(seed) = number(SEED) {
        println!("{:?}", workload::Plan::new(seed));
        let run = workload::run(seed);
        println!("{}; {} values, {} others", run.report, run.values, run.failures);
        assert!(run.wrong.is_empty(), "seed {seed}:\n{}", run.wrong.join("\n"));
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
                    wrong.lock().expect("no holder panics").extend(complaint(seed));
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no holder panics");
    assert!(wrong.is_empty(), "{} of {seeds} seeds fail:\n{}", wrong.len(), wrong.join("\n"));
}

/// Design 8. Fails if anything but the seed decides what a client does.
#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        let (first, second) = (workload::run(seed), workload::run(seed));
        assert_eq!(first.report.trace, second.report.trace, "seed {seed}");
    }
}
