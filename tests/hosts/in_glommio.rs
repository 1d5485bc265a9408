//! Inside glommio.

use hedgerow::host;

use crate::load::{GETS, RUNGS, TASKS, client, counted, gets, idle, server, share, timers};

/// Trap 14. Fails if glommio's streams no longer begin with a POLL_ADD (the driver would spin, or
/// hang), or a command, a reply or a deadline of a host's task is lost, on any rung.
#[test]
fn sequential_and_concurrent_gets() {
    let (server, options) = server();
    for rung in RUNGS {
        let executor = glommio::LocalExecutorBuilder::default().make();
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
            idle(&context, &turns).await;
            driving.cancel().await;
        });
    }
}
