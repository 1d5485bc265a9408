//! What every host is asked to do.

use std::time::{Duration, Instant};

use hedgerow::runtime::caps::Rung;
use hedgerow::testing::Server;
use hedgerow::{LocalClient, LocalContext, Options, prelude::*};

pub(crate) const GETS: usize = 10_000;
pub(crate) const TASKS: usize = 64;

/// The rungs that a host may be on.
pub(crate) const RUNGS: [Rung; 3] = [Rung::U2, Rung::U1, Rung::Epoll];

/// A server and how to reach it.
pub(crate) fn server() -> (Server, Options) {
    let server = Server::start().expect("the test server starts");
    let options = Options::from_url(&server.url()).expect("its own URL");
    (server, options)
}

/// A client with the key that [`gets`] reads.
pub(crate) async fn client(context: &LocalContext, options: &Options) -> LocalClient {
    let client = context.connect(options).await.expect("connects");
    client.set::<()>("greeting", "hello").await.expect("SET");
    client
}

/// So many GETs, one after the other.
pub(crate) async fn gets(client: &LocalClient, count: usize) {
    for _ in 0..count {
        let value: String = client.get("greeting").await.expect("GET");
        assert_eq!(value, "hello");
    }
}

/// The share of one of [`TASKS`] tasks.
pub(crate) const fn share(task: usize) -> usize {
    GETS * (task + 1) / TASKS - GETS * task / TASKS
}

/// A timer set by the host's task ends, not early and without anything else that happens; then a
/// command whose limit counts from now, though the last turn is long ago.
pub(crate) async fn timers(server: &Server, context: &LocalContext, client: &LocalClient) {
    let start = Instant::now();
    context.sleep(Duration::from_millis(3)).await;
    let slept = start.elapsed();
    assert!(slept >= Duration::from_millis(3), "woke after {slept:?}");
    std::thread::sleep(Duration::from_millis(60));
    let value: String =
        client.get("greeting").timeout(Duration::from_millis(50)).await.expect("not late");
    assert_eq!(value, "hello");
    server.faults().pause();
    let start = Instant::now();
    let limit = Duration::from_millis(5);
    let late = client.get::<String>("greeting").timeout(limit).await.expect_err("paused");
    server.faults().resume();
    assert_eq!(late.kind(), hedgerow::ErrorKind::Timeout);
    assert!(start.elapsed() >= limit, "gave up after {:?}", start.elapsed());
}
