//! A RESP server in this process, for tests: a well-behaved one that can be told to misbehave.
//!
//! - [`Server`] keeps strings, keys with expiry, hashes, lists, sets and sorted sets in memory, speaks
//!   RESP2 and RESP3, asks for passwords, and tracks keys for client-side caches. It runs on one thread
//!   of its own, and is fast enough to load a client with.
//! - [`Fleet`] is a primary and its replicas, each such a server, which answer ROLE as one deployment.
//! - [`Faults`] makes a running server delay, stall, fail, drop, cut, split, pause or refuse.
//! - [`ManualClock`] lets keys expire without waiting.
//! - [`Script`] plays exact bytes at exact moments, and records what came.
//! - [`Simulation`] runs the client itself on a virtual clock, against [`ModelServer`]s and a kernel with
//!   seeded faults: no socket, no thread, no waiting, and every failure replays from its seed.
//! - [`ModelCluster`] is a cluster of such models, whose slots move, whose primaries fail over, and whose
//!   nodes redirect, at the instants that a test says.
//!
//! What a server does not know it answers as real ones answer an unknown command. That holds for
//! transactions, publish and subscribe, blocking commands, scripts, streams and (but for [`ModelCluster`])
//! cluster commands. Two things differ from real servers: a key that expires is told to no tracking
//! connection, and error replies are not counted by kind in INFO.
//!
//! ```
//! use hedgerow::testing::{Delay, Server};
//! use std::time::Duration;
//!
//! let server = Server::start()?;
//! // One reply in a hundred takes 20 ms longer; the others are log-normal around 150 us.
//! server.faults().delay(Delay::Lognormal { median: Duration::from_micros(150), sigma: 0.4 });
//! server.faults().stall_every(100, Duration::from_millis(20));
//! println!("connect to {}", server.url());
//! # Ok::<(), std::io::Error>(())
//! ```

mod clock;
mod cluster_commands;
mod cluster_map;
mod commands;
mod decimal;
mod delay;
mod event_loop;
mod faults;
mod fleet;
mod guest;
mod inbox;
mod keyspace;
mod model_cluster;
mod model_commands;
mod model_connection;
mod model_server;
mod pattern;
mod peer;
mod reply;
mod request;
mod script;
mod script_connection;
mod script_server;
mod server;
mod simulation;
mod slow_periods;
mod sorted_set;
mod standing;
mod stats;
mod stream;
mod timer;
mod tracking;

pub use clock::ManualClock;
pub use delay::Delay;
pub use faults::{Admission, Close, Cut, Faults};
pub use fleet::{Fleet, FleetBuilder};
pub use hedgerow_runtime::sim::SimConfig;
pub use model_cluster::{ClusterView, ModelCluster};
pub use model_connection::Visitor;
pub use model_server::{Asked, ModelServer, Reaction, Seen};
pub use script::{Gate, Script};
pub use script_server::{Received, ScriptServer, ScriptServerBuilder};
pub use server::{Builder, Server};
pub use simulation::{Outcome, Report, Simulation};
pub use slow_periods::SlowPeriods;
pub use stats::Stats;
