//! LocalClient on a pinned core: closed and open loop.

use clap::Parser;
use harness::{Arrivals, Keys, Lane, Workload, counter, now_ns, start};
use hedgerow::{LocalClient, LocalContext};
use ours::{Core, Shared, next_turn, one, options, repeat};
use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Parser)]
#[command(about = "GET or SET through LocalClient on one pinned core")]
struct Arguments {
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    core: Core,
}

async fn drive(local: LocalContext, workload: Workload) -> Result<(), hedgerow::Error> {
    let mut clients = Vec::new();
    for _ in 0..workload.connections {
        clients.push(local.connect(&options(&workload)?).await?);
    }
    start(&workload);
    if workload.is_open() {
        open_loop(&local, &clients, &workload).await
    }
    let lane = Lane::new();
    let places = clients.iter().flat_map(|c| std::iter::repeat_n(c, workload.depth));
    let mut publish = Some(publisher(local.clone()));
    let shared = Shared::new(workload.clone());
    for (client, seed) in places.zip(0..) {
        let client = client.clone();
        match publish.take() {
            Some(publish) => drop(local.spawn(repeat(client, shared, seed, lane, publish))),
            None => drop(local.spawn(repeat(client, shared, seed, lane, || ()))),
        }
    }
    // The controller ends the process.
    std::future::pending().await
}

/// Shows the core's counters to the controller at every 16th call, so seldom that it costs nothing.
/// All are of one instant, so that one divided by another is exact.
fn publisher(local: LocalContext) -> impl FnMut() {
    let names = ["enters", "sends", "receives", "bytes_received", "bytes_copied"];
    let shown = names.map(counter);
    let mut calls = 0_u64;
    move || {
        calls += 1;
        if calls % 16 == 1 {
            let now = local.counters();
            let counts =
                [now.enters, now.sends, now.receives, now.bytes_received, now.bytes_copied];
            for (shown, count) in shown.iter().zip(counts) {
                shown.store(count, Relaxed);
            }
        }
    }
}

/// Spawns a task for each arrival, then lets the core turn.
async fn open_loop(local: &LocalContext, clients: &[LocalClient], workload: &Workload) -> ! {
    let shared = Shared::new(workload.clone());
    let lane = Lane::new();
    let mut arrivals = Arrivals::new(workload.rate, 1);
    let mut keys = Keys::new(workload.keys, 1);
    let mut next = 0;
    let mut publish = publisher(local.clone());
    loop {
        publish();
        let now = now_ns();
        while let Some(at) = arrivals.due(now) {
            let (client, key) = (clients[next].clone(), *keys.roll());
            next = (next + 1) % clients.len();
            drop(local.spawn(async move {
                one(&client, &key, &shared.workload, &shared.value, lane).await;
                lane.took(now_ns() - at);
            }));
        }
        next_turn().await;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { workload, core } = Arguments::parse();
    let cores = core.start()?;
    for outcome in cores.run(move |local| drive(local, workload.clone()))? {
        outcome?;
    }
    Ok(())
}
