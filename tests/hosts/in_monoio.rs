//! Inside monoio, on both of its drivers.

use hedgerow::runtime::caps::Rung;
use hedgerow::{Options, host, testing::Server};

use crate::load::{GETS, RUNGS, TASKS, client, counted, gets, idle, server, share, timers};

async fn load(server: &Server, options: &Options, rung: Rung) {
    let (context, driver, turns) = counted(rung);
    let _driving = monoio::spawn(host::monoio::drive(driver));
    let client = client(&context, options).await;
    gets(&client, GETS).await;
    let task = |task| {
        let client = client.clone();
        monoio::spawn(async move { gets(&client, share(task)).await })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await;
    }
    timers(server, &context, &client).await;
    idle(&context, &turns, 20).await;
}

/// Trap 14. Fails if a command, a reply or a deadline of a host's task is lost on its way between our
/// ring and monoio's, on any rung.
#[test]
fn sequential_and_concurrent_gets_on_its_ring() {
    let (server, options) = server();
    for rung in RUNGS {
        let runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build();
        runtime.expect("monoio's ring starts").block_on(load(&server, &options, rung));
    }
}

/// Trap 14. As above, over monoio's own epoll. Fails if its edge-triggered events hide ours.
#[test]
fn sequential_and_concurrent_gets_on_its_legacy_driver() {
    let (server, options) = server();
    for rung in RUNGS {
        let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build();
        runtime.expect("monoio's epoll starts").block_on(load(&server, &options, rung));
    }
}
