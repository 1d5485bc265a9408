//! Client over a pinned core: tasks of a tokio runtime post to it, a hop between threads each way.

use clap::Parser;
use harness::Workload;
use hedgerow::Cores;
use hedgerow::runtime::park::ParkPolicy;
use ours::{options, repeat_in_tokio};
use std::error::Error;

#[derive(Parser)]
#[command(about = "GET or SET through Client over a pinned core, from tokio, closed loop")]
struct Arguments {
    #[command(flatten)]
    workload: Workload,
    /// Workers of tokio's multi_thread runtime
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Cpu of the core
    #[arg(long, default_value_t = 1)]
    cpu: u32,
    /// What the core does when nothing is due: park, adaptive or spin
    #[arg(long, default_value = "park")]
    park: ParkPolicy,
}

async fn drive(cores: Cores, workload: Workload) -> Result<(), hedgerow::Error> {
    let mut clients = Vec::new();
    for _ in 0..workload.connections {
        clients.push(cores.connect(&options(&workload)?).await?);
    }
    repeat_in_tokio(clients, &workload).await
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { workload, workers, cpu, park } = Arguments::parse();
    assert!(!workload.is_open(), "closed loop only");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build()?;
    let cores = Cores::builder().cpus([cpu]).park(park).build()?;
    let driver = runtime.spawn(drive(cores, workload));
    Ok(runtime.block_on(driver)??)
}
