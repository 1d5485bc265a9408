//! How late a pinned core ends what has a time limit: a sleep, or a command that nobody answers.

use clap::{Parser, ValueEnum};
use harness::{Lane, Workload, now_ns, start};
use hedgerow::prelude::*;
use hedgerow::{ErrorKind, LocalContext};
use ours::{Core, next_turn, options};
use std::error::Error;
use std::time::Duration;

/// Commands of one connection: fewer than may be in flight on it, since none is answered.
const COMMANDS: u64 = 8_000;

/// Between two samples the core is kept busy for up to so many ns, another time for each: else one
/// would begin where the last ended, and timers be asked for at one phase of their slices only.
const PHASES: u64 = 1 << 16;

#[derive(Parser)]
#[command(about = "Sleeps or command timeouts on one pinned core, one after the other: how late \
                   each ends. A timeout needs a server that never answers GET")]
struct Arguments {
    #[command(flatten)]
    workload: Workload,
    /// What is timed
    #[arg(long, value_enum)]
    limit: Limit,
    /// Its length in us
    #[arg(long, default_value_t = 200)]
    us: u64,
    #[command(flatten)]
    core: Core,
}

#[derive(ValueEnum, Clone, Copy)]
enum Limit {
    /// `LocalContext::sleep`.
    Sleep,
    /// A command's `timeout`.
    Timeout,
}

/// Records how much longer than `time` each limit took, for ever.
async fn drive(
    local: LocalContext,
    workload: Workload,
    limit: Limit,
    time: Duration,
) -> Result<(), hedgerow::Error> {
    start(&workload);
    let lane = Lane::new();
    loop {
        let client = local.connect(&options(&workload)?).await?;
        for sample in 0..COMMANDS {
            let until = now_ns() + sample * 40_503 % PHASES;
            while now_ns() < until {}
            // A sleep counts from the turn's clock.
            next_turn().await;
            let began = now_ns();
            let right = match limit {
                Limit::Sleep => {
                    local.sleep(time).await;
                    true
                }
                Limit::Timeout => {
                    let outcome = client.get::<Option<Vec<u8>>>("key").timeout(time).await;
                    outcome.is_err_and(|error| error.kind() == ErrorKind::Timeout)
                }
            };
            let took = Duration::from_nanos(now_ns() - began);
            lane.took(took.saturating_sub(time).as_nanos() as u64);
            lane.check(right);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { workload, limit, us, core } = Arguments::parse();
    let time = Duration::from_micros(us);
    let cores = core.start()?;
    for outcome in cores.run(move |local| drive(local, workload.clone(), limit, time))? {
        outcome?;
    }
    Ok(())
}
