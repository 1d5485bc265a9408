//! The one driver that all tokio peers share.
//!
//! Closed loop: `connections` clients with `depth` tasks on each, every task loops over one
//! command. Open loop: one dispatcher spawns a task for each arrival. The runtime is current_thread
//! unless `--workers` asks for more.

#![forbid(unsafe_code)]

use clap::Parser;
use harness::{Arrivals, Keys, Lane, Verb, Workload, now_ns, start};
use std::future::Future;
use std::sync::Arc;

/// Arguments of every tokio peer.
#[derive(Parser, Clone, Debug)]
#[command(about = "GET or SET through one client library, closed or open loop")]
pub struct Options {
    #[command(flatten)]
    workload: Workload,
    /// Workers of tokio's multi_thread runtime; 0 is current_thread
    #[arg(long, default_value_t = 0)]
    workers: usize,
    /// The server is a node of a cluster
    #[arg(long)]
    cluster: bool,
    /// Drop the response timeout, where the library has one by default
    #[arg(long)]
    no_timeout: bool,
}

impl Options {
    /// The server as `redis://` URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.workload.addr)
    }

    /// Whether the server is a node of a cluster.
    pub fn in_cluster(&self) -> bool {
        self.cluster
    }

    /// Whether the library's default response timeout is to be dropped.
    pub fn no_timeout(&self) -> bool {
        self.no_timeout
    }

    /// The value that a SET stores.
    pub fn value(&self) -> Vec<u8> {
        self.workload.value()
    }
}

/// One connection of a client library. Cloning shares it.
pub trait Peer: Clone + Send + 'static {
    /// Connects.
    fn connect(options: &Options) -> impl Future<Output = Self> + Send;
    /// GET as an owned value; its length.
    fn get(&mut self, key: &str) -> impl Future<Output = usize> + Send;
    /// SET of [`Options::value`]; whether the server said OK.
    fn set(&mut self, key: &str) -> impl Future<Output = bool> + Send;
}

/// Runs the workload on a client library until the controller ends the process.
pub fn run<P: Peer>() -> std::io::Result<()> {
    let options = Options::parse();
    let mut builder = match options.workers {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let workers = options.workers.max(1);
    let runtime = builder.worker_threads(workers).enable_all().build()?;
    // Spawned, so that what a library spawns while connecting starts on a worker.
    let drive = runtime.spawn(async move {
        let mut peers = Vec::new();
        for _ in 0..options.workload.connections {
            peers.push(P::connect(&options).await);
        }
        start(&options.workload);
        if options.workload.is_open() {
            open_loop(&options, peers).await
        } else {
            closed_loop(&options, peers).await
        }
    });
    runtime.block_on(drive).map_err(std::io::Error::other)
}

async fn one<P: Peer>(peer: &mut P, key: &str, workload: &Workload, lane: &Lane) {
    let right = match workload.verb {
        Verb::Get => peer.get(key).await == workload.size,
        Verb::Set => peer.set(key).await,
    };
    lane.check(right);
}

async fn closed_loop<P: Peer>(options: &Options, peers: Vec<P>) {
    let workload = Arc::new(options.workload.clone());
    let mut tasks = Vec::new();
    // Tasks of one thread share a lane: a line of its own for each of 1024 would be a cost of the
    // instrument.
    let shared = Lane::new();
    for (peer, seed) in peers.iter().flat_map(|p| std::iter::repeat_n(p, workload.depth)).zip(0..) {
        let (mut peer, workload) = (peer.clone(), workload.clone());
        let lane = if options.workers > 1 { Lane::new() } else { shared };
        tasks.push(tokio::spawn(async move {
            let mut keys = Keys::new(workload.keys, seed);
            loop {
                let key = keys.roll_str();
                if workload.records_latency() {
                    let sent = now_ns();
                    one(&mut peer, key, &workload, lane).await;
                    lane.took(now_ns() - sent);
                } else {
                    one(&mut peer, key, &workload, lane).await;
                }
            }
        }));
    }
    for task in tasks {
        let () = task.await.expect("a panic has ended the process");
    }
}

async fn open_loop<P: Peer>(options: &Options, peers: Vec<P>) {
    assert!(options.workers <= 1, "the open loop counts in one lane: at most one worker");
    let workload = Arc::new(options.workload.clone());
    let lane = Lane::new();
    let mut arrivals = Arrivals::new(workload.rate, 1);
    let mut keys = Keys::new(workload.keys, 1);
    let mut next = 0;
    loop {
        let now = now_ns();
        while let Some(at) = arrivals.due(now) {
            let (mut peer, workload) = (peers[next].clone(), workload.clone());
            next = (next + 1) % peers.len();
            let key = *keys.roll();
            tokio::spawn(async move {
                let key = std::str::from_utf8(&key).expect("keys are ASCII");
                one(&mut peer, key, &workload, lane).await;
                lane.took(now_ns() - at);
            });
        }
        tokio::task::yield_now().await;
    }
}
