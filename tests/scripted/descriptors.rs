//! What belongs to nobody is closed, once.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use futures::future::join_all;
use hedgerow::prelude::*;
use hedgerow::testing::{Admission, Server};

use crate::alone::{alone, descriptors, threads};
use crate::nodes::Nodes;
use crate::placement::{Client, Placement, on_core, on_tokio, options_for, until};

/// Clients that are dropped 0 to 3 ms after they began to connect, while unrelated files are opened.
async fn dropped_connects<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let options = options_for(server.addr().expect("tcp"));
    let first = place.connect(&options).await.expect("up");
    first.ping().await.expect("an answer");
    drop(first);
    until(&place, "the end of the first", || server.stats().open == 0).await;
    place.pause(Duration::from_millis(20)).await;
    let before = descriptors();
    let program = std::env::current_exe().expect("this program");
    let inode = std::fs::metadata(&program).expect("its file").ino();
    let mut files = Vec::new();
    let mut random = fastrand::Rng::with_seed(24);
    for round in 0..40 {
        let admissions =
            [Admission::Open, Admission::Open, Admission::CloseAtOnce, Admission::Ignore];
        server.faults().admit(admissions[round % admissions.len()]);
        let clients = (0..25).map(|_| {
            let client = place.create(&options).expect("valid options");
            let pause = place.pause(Duration::from_micros(random.u64(0..3_000)));
            async move {
                let mut request = Box::pin(client.get::<()>("k"));
                let _ = futures::poll!(&mut request);
                pause.await;
                drop(client);
                let _ = request.await;
            }
        });
        join_all(clients.collect::<Vec<_>>()).await;
        files.push(std::fs::File::open(&program).expect("a file"));
    }
    server.faults().admit(Admission::Open);
    for file in &files {
        assert_eq!(file.metadata().expect("still open").ino(), inode, "closed by another");
    }
    let opened = files.len();
    let settled = || server.stats().open == 0 && descriptors() == before + opened;
    let begun = std::time::Instant::now();
    while !settled() && begun.elapsed() < Duration::from_secs(5) {
        place.pause(Duration::from_millis(5)).await;
    }
    assert_eq!(descriptors(), before + opened, "open at the server: {}", server.stats().open);
    let last = place.connect(&options).await.expect("up");
    assert_eq!(last.counters().connects, 1);
}

/// case behaviour/24, traps 10 and 11. Fails if a connect whose client is gone leaves its descriptor
/// open, or one is closed twice. On a core.
#[test]
fn dropped_connects_leak_nothing_on_a_core() {
    let test = "descriptors::dropped_connects_leak_nothing_on_a_core";
    alone(test, || on_core(dropped_connects));
}

/// case behaviour/24, traps 10 and 11. Fails if a connect whose client is gone leaves its descriptor
/// open, or one is closed twice. Hosted.
#[test]
fn dropped_connects_leak_nothing_in_tokio() {
    let test = "descriptors::dropped_connects_leak_nothing_in_tokio";
    alone(test, || on_tokio(dropped_connects));
}

/// Fails if the thread of the coordinator stays when no deployment is left.
#[test]
fn the_coordinator_ends() {
    alone("descriptors::the_coordinator_ends", || {
        on_tokio(async |place| {
            let nodes = Nodes::start(1);
            let client = place.connect(&nodes.options()).await.expect("up");
            assert_eq!(threads("hedgerow-coord"), 1);
            drop(client);
            until(&place, "its end", || threads("hedgerow-coord") == 0).await;
        });
    });
}
