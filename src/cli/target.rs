//! The server under load, and the doors that lead to it.

use super::args::RungName;
use super::bench::Run;
use super::drive::Measured;
use super::plan::{Placement, Plan};
use super::{Failure, hosted, pinned, remark};
use hedgerow::read::ReadFrom;
use hedgerow::testing::Server;
use hedgerow::{Cores, Endpoint, Error, Options};
use hedgerow_runtime::caps::Rung;
use hedgerow_runtime::cpu;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest wait for a reply: long, because a request that is given up early hides its latency.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that is ready for load.
#[derive(Debug)]
pub(crate) struct Target {
    options: Options,
    address: String,
    rung: OnceLock<Rung>,
    /// Runs for as long as this is held.
    _embedded: Option<Server>,
}

impl Target {
    /// The server of the plan: its URL's, or the embedded one, which starts here.
    pub(crate) fn open(plan: &Plan) -> Result<Target, Failure> {
        let (url, embedded) = match &plan.url {
            Some(url) => (url.clone(), None),
            None => {
                let server = embedded(plan).map_err(Failure::Failed)?;
                (server.url(), Some(server))
            }
        };
        let mut options =
            Options::from_url(&url).map_err(|error| Failure::Usage(one_line(&error)))?;
        options.command_timeout = Some(COMMAND_TIMEOUT);
        plan.reads.apply(&mut options).map_err(Failure::Usage)?;
        options.in_flight_max = options.in_flight_max.max(plan.in_flight() as usize);
        let address = options.endpoint.to_string();
        Ok(Target { options, address, rung: OnceLock::new(), _embedded: embedded })
    }

    /// Its address, without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The rung that the cores run on, as soon as one ran.
    pub(crate) fn rung(&self) -> Option<Rung> {
        self.rung.get().copied()
    }

    /// Puts one run of load on it; gives each lane's figures.
    pub(crate) fn run(&self, plan: &Arc<Plan>, run: &Arc<Run>) -> Result<Vec<Measured>, String> {
        let lanes = match &plan.door {
            Placement::Cores { .. } => {
                // Made anew for each run, so that nothing of the last one is left on them.
                let cores = self.cores(plan).map_err(|error| one_line(&error))?;
                pinned::run(plan, run, &cores, &self.options)
            }
            Placement::Hosted { workers } => hosted::load(*workers, plan, run, &self.options),
        };
        lanes.map_err(|error| match error.contains(&self.address) {
            true => error,
            false => format!("{}: {error}", self.address),
        })
    }

    fn cores(&self, plan: &Plan) -> Result<Cores, Error> {
        let mut builder = Cores::builder();
        let mut asked = None;
        if let Placement::Cores { cpus, rung, park } = &plan.door {
            asked = rung.map(RungName::rung);
            builder = builder.cpus(cpus.iter()).rung(asked).park(park.policy());
        }
        let cores = builder.build()?;
        let first = self.rung.set(cores.rung()).is_ok();
        if first && asked.is_none() && cores.rung() == Rung::Epoll {
            remark("io_uring is not used here, epoll serves: hedgerow doctor says why");
        }
        Ok(cores)
    }
}

/// Starts the embedded server on a cpu that puts on no load, if there is one, and says so.
fn embedded(plan: &Plan) -> Result<Server, String> {
    let allowed = cpu::allowed().map_err(|error| format!("no cpus can be told: {error}"))?;
    let (cpu, note) = match &plan.door {
        Placement::Hosted { .. } => (None, ""),
        Placement::Cores { cpus, .. } => match allowed.iter().find(|cpu| !cpus.contains(*cpu)) {
            Some(free) => (Some(free), ""),
            None => (allowed.iter().next(), ", which it shares with the load"),
        },
    };
    let (builder, place) = match cpu {
        Some(cpu) => (Server::builder().cpu(cpu), format!(" on cpu {cpu} of this process{note}")),
        None => (Server::builder(), " on a thread of this process".to_string()),
    };
    let server =
        builder.start().map_err(|error| format!("the in-process server cannot start: {error}"))?;
    remark(&format!("no URL given: the load goes to an in-process server{place}"));
    Ok(server)
}

/// An error in one line.
pub(crate) fn one_line(error: &Error) -> String {
    error.to_string().lines().collect::<Vec<_>>().join("; ")
}

/// Options of a client of this one node.
pub(crate) fn alone(options: &Options, node: &Endpoint) -> Options {
    let mut alone = options.clone();
    alone.endpoint = node.clone();
    alone.replica_endpoints.clear();
    alone.cluster = None;
    alone.read_from = ReadFrom::Primary.into();
    alone.hedging = None;
    alone
}
