//! Inside tokio.

use hedgerow::{Embedded, ErrorKind, host};
use tokio::task::{JoinSet, LocalSet, spawn_local};

use crate::load::{GETS, RUNGS, TASKS, client, counted, gets, idle, server, share, timers};

/// Runs `main` in a current-thread runtime.
fn inside<T>(main: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), main)
}

/// Trap 14. Fails if a command, a reply or a deadline of a host's task waits for somebody else to
/// turn the driver, on any rung.
#[test]
fn sequential_and_concurrent_gets() {
    let (server, options) = server();
    for rung in RUNGS {
        inside(async {
            let (context, driver, turns) = counted(rung);
            let driving = spawn_local(host::tokio::drive(driver));
            let client = client(&context, &options).await;
            gets(&client, GETS).await;
            let mut tasks = JoinSet::new();
            for task in 0..TASKS {
                let client = client.clone();
                tasks.spawn_local(async move { gets(&client, share(task)).await });
            }
            tasks.join_all().await;
            timers(&server, &context, &client).await;
            idle(&context, &turns, 20).await;
            assert!(!driving.is_finished());
        });
    }
}

/// Fails if a request outlives its driver without an answer, or a client can be made on a core
/// that nobody turns any more.
#[test]
fn requests_end_with_their_driver() {
    let (server, options) = server();
    inside(async {
        let (context, driver) = Embedded::builder().build().expect("a core");
        let driving = spawn_local(host::tokio::drive(driver));
        let client = client(&context, &options).await;
        server.faults().pause();
        let waiting = spawn_local({
            let client = client.clone();
            async move { gets_one(&client).await }
        });
        tokio::task::yield_now().await;
        driving.abort();
        let ended = waiting.await.expect("no panic").expect_err("nobody drives it");
        assert_eq!(ended.kind(), ErrorKind::Closed);
        server.faults().resume();
        assert_eq!(gets_one(&client).await.expect_err("closed").kind(), ErrorKind::Closed);
        let refused = context.connect(&options).await.expect_err("the core has ended");
        assert_eq!(refused.kind(), ErrorKind::Closed);
    });
}

async fn gets_one(client: &hedgerow::LocalClient) -> Result<Option<String>, hedgerow::Error> {
    use hedgerow::prelude::*;
    client.get("greeting").await
}
