//! ringline-redis on its own io_uring runtime. At depth 1 the plain calls; else what its documents
//! give for throughput: fire `depth` commands, receive as many. A connection cannot be shared by
//! tasks, so there is no open loop. One task a connection.

use clap::Parser;
use harness::{Keys, Lane, Verb, Workload, now_ns, start};
use ringline::{AsyncEventHandler, ConfigBuilder, ConnCtx, RinglineBuilder};
use ringline_redis::{Client, CompletedOp};
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

#[derive(Parser)]
#[command(about = "GET or SET through ringline-redis, closed loop")]
struct Options {
    #[command(flatten)]
    workload: Workload,
}

static WORKLOAD: OnceLock<Workload> = OnceLock::new();

/// The library's largest batch that its documents show.
const BATCH_MAX: usize = 128;

async fn drive(workload: Workload, seed: u64) {
    let connection = ringline::connect(workload.addr).expect("a socket").await.expect("connect");
    let batch = workload.depth.min(BATCH_MAX);
    let client = Client::builder(connection).max_batch_size(batch).build();
    let keys = Keys::new(workload.keys, seed);
    if workload.depth == 1 {
        one_by_one(client, &workload, keys).await
    } else {
        in_batches(client, &workload, keys).await
    }
}

async fn one_by_one(mut client: Client, workload: &Workload, mut keys: Keys) {
    let lane = Lane::new();
    let value = workload.value();
    loop {
        let sent = if workload.latency { now_ns() } else { 0 };
        let right = match workload.verb {
            Verb::Get => {
                let value = client.get(keys.roll()).await.expect("GET");
                value.is_some_and(|v| v.len() == workload.size)
            }
            Verb::Set => client.set(keys.roll(), &value).await.is_ok(),
        };
        lane.check(right);
        if workload.latency {
            lane.took(now_ns() - sent);
        }
    }
}

async fn in_batches(mut client: Client, workload: &Workload, mut keys: Keys) {
    let lane = Lane::new();
    let value = workload.value();
    loop {
        for _ in 0..workload.depth {
            match workload.verb {
                Verb::Get => client.fire_get(keys.roll(), 0).expect("GET"),
                Verb::Set => client.fire_set(keys.roll(), &value, 0).expect("SET"),
            };
        }
        for _ in 0..workload.depth {
            lane.check(match client.recv().await.expect("a reply") {
                CompletedOp::Get { result, .. } => {
                    result.expect("GET").is_some_and(|v| v.len() == workload.size)
                }
                CompletedOp::Set { result, .. } => result.is_ok(),
                _ => false,
            });
        }
    }
}

struct Handler;

impl AsyncEventHandler for Handler {
    fn on_accept(&self, _: ConnCtx) -> impl Future<Output = ()> + 'static {
        std::future::ready(())
    }

    fn on_start(&self) -> Option<Pin<Box<dyn Future<Output = ()> + 'static>>> {
        let workload = WORKLOAD.get().cloned()?;
        Some(Box::pin(async move {
            for seed in 0..workload.connections {
                ringline::spawn(drive(workload.clone(), seed as u64)).expect("a task");
            }
            start(&workload);
        }))
    }

    fn create_for_worker(_: usize) -> Self {
        Handler
    }
}

fn main() {
    let workload = WORKLOAD.get_or_init(|| Options::parse().workload);
    assert!(!workload.is_open(), "closed loop only");
    let config = ConfigBuilder::new().workers(1).pin_to_core(false).build().expect("a config");
    let (_shutdown, workers) = RinglineBuilder::new(config).launch::<Handler>().expect("launch");
    for worker in workers {
        worker.join().expect("a panic has ended the process").expect("the ring");
    }
}
