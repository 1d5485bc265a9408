//! A client and its servers on a simulated network and a virtual clock.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hedgerow_runtime::park::ParkPolicy;
use hedgerow_runtime::sim::{SimConfig, SimNet};

use super::model_cluster::ModelCluster;
use super::model_server::ModelServer;
use crate::client::LocalContext;
use crate::placement::sim::{Ended, Remains, SimCore};

/// Turns that a run may take unless told otherwise.
const TURNS_MAX: u64 = 2_000_000;

/// What happened, in order, one line each.
#[derive(Clone, Default)]
pub(super) struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    pub(super) fn add(&self, line: fmt::Arguments<'_>) {
        self.0.borrow_mut().push(line.to_string());
    }
}

/// A simulated network with model servers, on which the client runs as it ships: its turns, its
/// buffers, its timers, over a kernel that is a model.
///
/// There is no socket, no thread, no sleeping and no real time: hours pass in milliseconds, and the
/// same seed gives the same run, to the last completion. Faults are a [`SimConfig`]; what a server
/// does wrong is said by its [`ModelServer`].
///
/// The code under test is an async closure over a [`LocalContext`], as on a real core. It takes
/// time from the context ([`LocalContext::now`], [`LocalContext::sleep`]) and deadlines as lengths
/// (`.timeout(..)`), since `std::time::Instant` belongs to the real clock; endpoints are addresses,
/// since there are no names to resolve; and it awaits nothing of the world outside.
///
/// ```
/// use hedgerow::prelude::*;
/// use hedgerow::testing::Simulation;
/// use std::time::Duration;
///
/// let simulation = Simulation::new(1);
/// let server = simulation.server();
/// let options = server.options();
/// let outcome = simulation.run(async move |core| {
///     let client = core.connect(&options).await?;
///     core.sleep(Duration::from_secs(3600)).await;
///     client.incr("visits").await
/// });
/// assert_eq!(outcome.checked()?, 1);
/// assert_eq!(server.value("visits").as_deref(), Some(&b"1"[..]));
/// # Ok::<(), hedgerow::Error>(())
/// ```
pub struct Simulation {
    net: SimNet,
    seed: u64,
    log: Log,
    servers: RefCell<u8>,
    turns_max: u64,
    park: ParkPolicy,
}

impl Simulation {
    /// A network without faults. Jitter of reconnects still follows from `seed`.
    pub fn new(seed: u64) -> Simulation {
        Simulation::with_faults(SimConfig { seed, ..SimConfig::default() })
    }

    /// A network with these faults; everything random follows from the seed in them.
    pub fn with_faults(faults: SimConfig) -> Simulation {
        let seed = faults.seed;
        Simulation {
            seed,
            net: SimNet::new(faults),
            log: Log::default(),
            servers: RefCell::new(0),
            turns_max: TURNS_MAX,
            // Both, as what is armed and due is treated otherwise on a core that spins.
            park: if seed % 4 == 3 { ParkPolicy::default() } else { ParkPolicy::Park },
        }
    }

    /// Ends a run after so many turns of its core, default 2,000,000.
    pub fn turns_max(mut self, turns: u64) -> Simulation {
        self.turns_max = turns;
        self
    }

    /// How the core waits. By default it is adaptive where the seed leaves 3 when divided by 4, and parks
    /// otherwise.
    pub fn park(mut self, policy: ParkPolicy) -> Simulation {
        self.park = policy;
        self
    }

    /// A new server, at the next address of `10.0.0.0/24`, port 6379. At most 255.
    pub fn server(&self) -> ModelServer {
        let mut servers = self.servers.borrow_mut();
        *servers = servers.wrapping_add(1);
        let at = SocketAddr::from(([10, 0, 0, *servers], 6379));
        ModelServer::start(&self.net, at, self.log.clone())
    }

    /// A new replica of `primary`, at the next address. It has the primary's values at once.
    pub fn replica(&self, primary: &ModelServer) -> ModelServer {
        let server = self.server();
        server.follow(primary);
        server
    }

    /// A new cluster of so many shards at the next addresses, each with so many replicas. The slots are
    /// dealt in equal ranges; replicas have their primary's values at once. At least one shard.
    pub fn cluster(&self, primaries: usize, replicas_each: usize) -> ModelCluster {
        let primaries = primaries.max(1);
        let servers = (0..primaries * (1 + replicas_each)).map(|_| self.server()).collect();
        ModelCluster::new(primaries, replicas_each, servers)
    }

    /// The network, for what servers and faults do not say.
    pub fn net(&self) -> &SimNet {
        &self.net
    }

    /// Calls `then` when the simulated clock has gone on by `after`.
    pub fn after(&self, after: Duration, then: impl FnOnce() + 'static) {
        self.net.schedule(after, move |_| then());
    }

    /// Adds a line to what happened; the returned closure does so from inside of a run.
    pub fn notes(&self) -> impl Fn(&str) + Clone + 'static {
        let log = self.log.clone();
        move |line| log.add(format_args!("client: {line}"))
    }

    /// What happened so far, in order: lines of servers and of [`Simulation::notes`].
    pub fn happened(&self) -> Vec<String> {
        self.log.0.borrow().clone()
    }

    /// Runs `main` on one core until it ends, then shuts the core down and looks for what is left.
    pub fn run<T, F>(&self, main: impl FnOnce(LocalContext) -> F) -> Outcome<T>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let mut core = SimCore::new(&self.net, self.seed, self.park);
        let started = self.net.now();
        let main = main(LocalContext::new(core.desk(), 0, None));
        let (ended, turns) = core.run(main, self.turns_max);
        let time = self.net.now().since(started);
        let remains = core.shut_down();
        let (output, failure) = match ended {
            Ended::Output(Ok(output)) => (Some(output), None),
            Ended::Output(Err(panic)) => (None, Some(panic.to_string())),
            Ended::Stuck => (None, Some("nothing could ever happen any more".to_owned())),
            Ended::OutOfTurns => (None, Some(format!("not over after {turns} turns"))),
            Ended::Kernel(error) => (None, Some(error.to_string())),
        };
        let report = Report::new(self.seed, turns, time, failure, &remains);
        Outcome { output, report }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// How a run ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// What the closure gave; `None` if it did not end, and then [`Report::failure`] says why.
    pub output: Option<T>,
    /// What was found afterwards.
    pub report: Report,
}

impl<T> Outcome<T> {
    /// The output of a run in which nothing was wrong.
    ///
    /// # Panics
    /// If anything was, with the report, which names the seed.
    #[track_caller]
    pub fn checked(self) -> T {
        match self.output {
            Some(output) if self.report.is_clean() => output,
            _ => panic!("{}", self.report),
        }
    }
}

/// What was found after a run, its core shut down.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed that replays the run.
    pub seed: u64,
    /// Why there is no output: a panic, a wait without end, too many turns.
    pub failure: Option<String>,
    /// Rules of the kernel that were broken.
    pub violations: Vec<String>,
    /// Sockets that were not closed.
    pub open_sockets: usize,
    /// Operations still in the kernel.
    pub live_ops: usize,
    /// Receive buffers still in the kernel.
    pub posted_buffers: usize,
    /// Groups of receive buffers that were not removed.
    pub groups: usize,
    /// Clients that are still held.
    pub live_clients: usize,
    /// Requests that still hold a cell.
    pub live_requests: usize,
    /// Tasks that have not ended.
    pub live_tasks: usize,
    /// Turns that the core took.
    pub turns: u64,
    /// Simulated time that passed.
    pub time: Duration,
    /// A hash over all completions and their instants: equal for equal runs.
    pub trace: u64,
}

impl Report {
    fn new(
        seed: u64,
        turns: u64,
        time: Duration,
        failure: Option<String>,
        remains: &Remains,
    ) -> Report {
        let ledger = &remains.ledger;
        Report {
            seed,
            failure,
            violations: ledger.violations(),
            open_sockets: ledger.open_fds(),
            live_ops: ledger.live_ops(),
            posted_buffers: ledger.posted_buffers(),
            groups: ledger.groups(),
            live_clients: remains.clients,
            live_requests: remains.requests,
            live_tasks: remains.tasks,
            turns,
            time,
            trace: ledger.trace(),
        }
    }

    /// Whether the run ended by itself, broke no rule and left nothing behind.
    pub fn is_clean(&self) -> bool {
        self.failure.is_none() && self.violations.is_empty() && self.left().iter().all(|l| l.1 == 0)
    }

    fn left(&self) -> [(&'static str, usize); 7] {
        [
            ("open sockets", self.open_sockets),
            ("live operations", self.live_ops),
            ("posted buffers", self.posted_buffers),
            ("groups", self.groups),
            ("live clients", self.live_clients),
            ("live requests", self.live_requests),
            ("live tasks", self.live_tasks),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} turns, {:?}", self.seed, self.turns, self.time)?;
        if let Some(failure) = &self.failure {
            write!(f, "; {failure}")?;
        }
        for violation in &self.violations {
            write!(f, "; rule broken: {violation}")?;
        }
        for (what, n) in self.left().into_iter().filter(|(_, n)| *n > 0) {
            write!(f, "; {n} {what} left")?;
        }
        Ok(())
    }
}
