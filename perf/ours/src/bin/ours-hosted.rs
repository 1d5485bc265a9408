//! Client hosted in tokio's multi_thread runtime: `--depth` tasks share it.

use clap::Parser;
use harness::Workload;
use hedgerow::Client;
use ours::{options, repeat_in_tokio};
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
    let mut clients = Vec::new();
    for _ in 0..workload.connections {
        clients.push(Client::connect(&options(&workload)?).await?);
    }
    repeat_in_tokio(clients, &workload).await
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
