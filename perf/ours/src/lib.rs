//! What the programs of all doors share: a pinned core, and the loops of their tasks.

#![forbid(unsafe_code)]

use bytes::Bytes;
use clap::Args;
use harness::{Keys, Lane, Verb, Workload, now_ns, start};
use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::resp::FromReply;
use hedgerow::runtime::{caps::Rung, park::ParkPolicy};
use hedgerow::{Client, Cores, Endpoint, Options};
use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

/// The crate's own defaults, for the workload's server.
///
/// # Errors
/// What the crate says of the URL.
pub fn options(workload: &Workload) -> Result<Options, hedgerow::Error> {
    Options::from_url(&format!("redis://{}", workload.addr))
}

/// Where the reads of a program go, and whether late ones are sent twice. The replica is the server itself
/// by another name, so that only the client's own work differs.
#[derive(Args, Clone)]
pub struct Reading {
    /// Policy of reads, such as primary-preferred
    #[arg(long, default_value = "primary")]
    read_from: ReadFrom,
    /// The server is a node of a cluster
    #[arg(long)]
    cluster: bool,
    /// Connections of each client
    #[arg(long, default_value_t = 1)]
    lanes: usize,
    /// Delay in microseconds after which a second copy is sent; by default none is
    #[arg(long)]
    hedge_us: Option<u64>,
}

impl Reading {
    /// Adds what was asked for to `options`.
    pub fn apply(&self, options: &mut Options) {
        options.cluster = self.cluster.then(Cluster::default);
        options.connections = self.lanes;
        if !self.read_from.uses_replicas() {
            return;
        }
        if let (Endpoint::Tcp { port, .. }, false) = (&options.endpoint, self.cluster) {
            let port = *port;
            options.replica_endpoints = vec![Endpoint::tcp("127.0.0.2", port)];
        }
        options.read_from = self.read_from.into();
        options.hedging = self.hedge_us.map(|us| {
            let mut hedging = Hedging::default();
            hedging.delay = Delay::Fixed(Duration::from_micros(us));
            hedging
        });
    }
}

/// The one core of a program that is pinned.
#[derive(Args)]
pub struct Core {
    /// Cpu of the core
    #[arg(long, default_value_t = 1)]
    cpu: u32,
    /// What carries the bytes: u2, u1 or epoll; by default the best that the kernel has
    #[arg(long)]
    rung: Option<Rung>,
    /// What the core does when nothing is due: park, adaptive or spin
    #[arg(long, default_value = "park")]
    park: ParkPolicy,
}

impl Core {
    /// Starts it.
    ///
    /// # Errors
    /// What the crate says of the cpu or the rung.
    pub fn start(&self) -> Result<Cores, hedgerow::Error> {
        Cores::builder().cpus([self.cpu]).park(self.park).rung(self.rung).build()
    }
}

/// One command, its reply checked and counted.
///
/// # Panics
/// If the command fails.
pub async fn one<D: Door>(client: &D, key: &[u8], workload: &Workload, value: &Bytes, lane: &Lane)
where
    D::Kept: FromReply<D::Kept>,
    (): FromReply<D::Kept>,
{
    let right = match workload.verb {
        Verb::Get => client.get::<D::Kept>(key).await.expect("GET").as_ref().len() == workload.size,
        Verb::Set => client.set(key, value).await.is_ok(),
    };
    lane.check(right);
}

/// What all tasks share, for as long as the process lives: a task that carries its own copy fills the
/// cache with it.
pub struct Shared {
    /// The workload.
    pub workload: Workload,
    /// What SET sets.
    pub value: Bytes,
}

impl Shared {
    /// Of this workload.
    pub fn new(workload: Workload) -> &'static Shared {
        let value = Bytes::from(workload.value());
        Box::leak(Box::new(Shared { workload, value }))
    }
}

/// A task of the closed loop: one command after the other, for ever. Calls `after` after each.
pub async fn repeat<D: Door>(
    client: D,
    shared: &'static Shared,
    seed: u64,
    lane: &'static Lane,
    mut after: impl FnMut(),
) where
    D::Kept: FromReply<D::Kept>,
    (): FromReply<D::Kept>,
{
    let Shared { workload, value } = shared;
    let mut keys = Keys::new(workload.keys, seed);
    loop {
        let sent = if workload.records_latency() { now_ns() } else { 0 };
        one(&client, keys.roll(), workload, value, lane).await;
        if workload.records_latency() {
            lane.took(now_ns() - sent);
        }
        after();
    }
}

/// The closed loop of clients that threads share: `depth` tasks for each, on tokio's runtime. The
/// controller ends the process.
pub async fn repeat_in_tokio(clients: Vec<Client>, workload: &Workload) -> ! {
    let shared = Shared::new(workload.clone());
    let places = clients.iter().flat_map(|c| std::iter::repeat_n(c, workload.depth));
    let tasks =
        places.zip(0..).map(|(c, seed)| repeat(c.clone(), shared, seed, Lane::new(), || ()));
    // All are there before the first begins.
    let tasks: Vec<_> = tasks.collect();
    start(workload);
    tasks.into_iter().map(tokio::spawn).for_each(drop);
    pending().await
}

/// Ends in the core's next turn.
pub async fn next_turn() {
    let mut woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
