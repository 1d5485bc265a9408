//! Inside glommio.

use glommio::LocalExecutorBuilder;
use hedgerow::host;
use hedgerow::runtime::caps::Rung;

use crate::load::{GETS, RUNGS, TASKS, client, counted, gets, idle, server, share, timers};

/// Turns in 50 idle ms: about twelve waits, which double from 50 us to 10 ms, and room for what else
/// wakes the driver.
const IDLE_TURNS: usize = 40;

fn load(rung: Rung) {
    let (server, options) = server();
    let executor = LocalExecutorBuilder::default().make();
    executor.expect("glommio starts: it needs locked memory, `ulimit -l`").run(async {
        let (context, driver, turns) = counted(rung);
        let driving = host::glommio::spawn(driver).expect("a queue");
        let client = client(&context, &options).await;
        gets(&client, GETS).await;
        let task = |task| {
            let client = client.clone();
            glommio::spawn_local(async move { gets(&client, share(task)).await })
        };
        for task in (0..TASKS).map(task).collect::<Vec<_>>() {
            task.await;
        }
        timers(&server, &context, &client).await;
        idle(&context, &turns, IDLE_TURNS).await;
        driving.cancel().await;
    });
}

/// Trap 14. Fails if a command, a reply or a deadline of a host's task waits for somebody else to
/// turn the driver, or an idle driver spins, on any rung.
#[test]
fn sequential_and_concurrent_gets() {
    for rung in RUNGS {
        load(rung);
    }
}
