//! How long a core takes to go by a topology that was published: parked, and busy with reads.

use clap::Parser;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::Fleet;
use hedgerow::{Endpoint, LocalContext, Options};
use ours::Core;
use std::error::Error;
use std::time::Duration;

/// Between two publications; the coordinator looks for what is asked of it every 20 ms.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Parser)]
#[command(
    about = "Changes the replicas again and again, and tells when a pinned core took them over"
)]
struct Arguments {
    #[command(flatten)]
    core: Core,
    /// Cpu of the servers
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    /// How often the replicas change
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Keep 64 reads in flight meanwhile
    #[arg(long)]
    busy: bool,
}

async fn drive(
    local: LocalContext,
    options: Options,
    rounds: usize,
    busy: bool,
) -> Result<Vec<Duration>, hedgerow::Error> {
    let client = local.connect(&options).await?;
    if busy {
        for _ in 0..64 {
            let client = client.clone();
            drop(local.spawn(async move {
                loop {
                    let _ = client.get::<Option<String>>("key:0").await;
                }
            }));
        }
    }
    local.sleep(PAUSE).await;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let replicas = &options.replica_endpoints[..1 + round % 2];
        client.set_replicas(replicas.to_vec())?;
        local.sleep(PAUSE).await;
        times.extend(client.adopted_after());
    }
    Ok(times)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { core, server_cpu, rounds, busy } = Arguments::parse();
    let fleet = Fleet::builder().replicas(2).values(1, 64).cpu(server_cpu).start()?;
    let mut options = Options::from_url(&fleet.url())?;
    let endpoints = fleet.replica_addrs();
    options.replica_endpoints =
        endpoints.iter().map(|at| Endpoint::tcp(at.ip().to_string(), at.port())).collect();
    options.read_from = ReadFrom::ReplicaPreferred.into();
    let cores = core.start()?;
    for outcome in cores.run(move |local| drive(local, options.clone(), rounds, busy))? {
        let mut us: Vec<u128> = outcome?.iter().map(Duration::as_micros).collect();
        us.sort_unstable();
        let at = |share: usize| us.get((us.len().max(1) - 1) * share / 100).copied().unwrap_or(0);
        let [p50, p99, max] = [50, 99, 100].map(at);
        println!("publish to adoption: p50 {p50} us, p99 {p99} us, max {max} us, n {}", us.len());
    }
    Ok(())
}
