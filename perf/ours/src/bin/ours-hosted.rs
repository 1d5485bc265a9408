//! Client hosted in tokio's multi_thread runtime: `--depth` tasks share it.

use clap::Parser;
use harness::{Lane, Workload, start};
use hedgerow::Client;
use ours::{Shared, options, repeat};
use std::error::Error;

#[derive(Parser)]
#[command(about = "GET or SET through Client, hosted in tokio, closed loop")]
struct Arguments {
    #[command(flatten)]
    workload: Workload,
    /// Workers of tokio's multi_thread runtime
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

async fn drive(workload: Workload) -> Result<(), hedgerow::Error> {
    let shared = Shared::new(workload.clone());
    let mut tasks = Vec::new();
    for connection in 0..workload.connections {
        let client = Client::connect(&options(&workload)?).await?;
        for task in 0..workload.depth {
            let seed = (connection * workload.depth + task) as u64;
            tasks.push(repeat(client.clone(), shared, seed, Lane::new(), || ()));
        }
    }
    start(&workload);
    tasks.into_iter().map(tokio::spawn).for_each(drop);
    // The controller ends the process.
    std::future::pending().await
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { workload, workers } = Arguments::parse();
    assert!(!workload.is_open(), "closed loop only");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build()?;
    // Spawned, so that what the client spawns while connecting starts on a worker.
    let driver = runtime.spawn(drive(workload));
    Ok(runtime.block_on(driver)??)
}
