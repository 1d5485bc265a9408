//! What was typed. Each flag is checked by itself here; what flags mean together is `plan`'s part.

use super::arrival::Arrivals;
use super::keys::{KeyDist, parse_prefix};
use super::mix::Mix;
use super::probe::args::{ProbeArgs, ReplayArgs};
use super::reads::ReadArgs;
use super::size::ValueSize;
use super::topology::args::TopologyArgs;
use super::{duration, number, rate};
use clap::{Parser, Subcommand, ValueEnum};
use hedgerow_runtime::caps::Rung;
use hedgerow_runtime::cpu::CpuList;
use hedgerow_runtime::park::ParkPolicy;
use std::path::PathBuf;
use std::time::Duration;

/// Redis and Valkey: a probe of hedged reads, a load generator and a machine check.
#[derive(Debug, Parser)]
#[command(name = "hedgerow", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Shows what hedged reads do to the tail of a deployment, and recommends settings.
    ///
    /// Reads at a fixed rate in four passes that take turns: without hedges, with hedges after a fixed
    /// delay, with an adaptive delay, and without again. From the times of the passes without hedges it
    /// predicts what other delays and budgets would do, recommends one pair and measures it.
    ///
    /// Without a URL it starts a primary and two replicas in this process. Replies are log-normal around
    /// 0.3 ms (sigma 0.35); the first replica stalls for 20 ms on every 50th read, which a hedge cures; both
    /// replicas are three times as slow in the last tenth of every two seconds, which it cannot.
    #[command(allow_negative_numbers = true)]
    Probe(Box<ProbeArgs>),
    /// Predicts again from a saved report of a probe, with other settings.
    #[command(allow_negative_numbers = true)]
    Replay(Box<ReplayArgs>),
    /// Puts load on a server and reports throughput, latency and cost.
    #[command(allow_negative_numbers = true)]
    Bench(Box<BenchArgs>),
    /// Shows the nodes of a deployment as the client sees them: shards, slots, roles, zones, round trips.
    ///
    /// A server that says that it is a node of a cluster is shown with all of that cluster, any other alone
    /// or with its replicas. Each node is connected to, and asked for its role and for five PINGs.
    Topology(Box<TopologyArgs>),
    /// Prints what this machine offers to the client, and what to change.
    Doctor,
}

/// The flags of `hedgerow bench`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct BenchArgs {
    /// Server, such as redis://user:password@host:6379/0, which gets the keys of the load and keeps them
    /// [default: an in-process server on another core of this process]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Cpus that put on load, one core each, such as 1 or 2-3,6 [default: the last allowed cpu]
    #[arg(long, value_name = "LIST", value_parser = str::parse::<CpuList>)]
    pub(crate) cores: Option<CpuList>,

    /// Connections per core; with --door hosted: of the client [default: 1]
    #[arg(long, value_name = "N", value_parser = number::count::<u32>)]
    pub(crate) connections: Option<u32>,

    /// Requests in flight per connection, at most [default: closed loop 1, open loop 1024]
    #[arg(long, value_name = "N", value_parser = number::count::<u32>)]
    pub(crate) depth: Option<u32>,

    /// Open loop: requests per second of all cores together; without it the loop is closed
    #[arg(long, value_name = "R", value_parser = rate::parse)]
    pub(crate) rate: Option<f64>,

    /// Open loop: gaps between requests [default: poisson]
    #[arg(long, value_name = "KIND")]
    pub(crate) arrivals: Option<Arrivals>,

    /// How long to measure [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) duration: Option<Duration>,

    /// Measure this many requests of all cores together, instead of a length of time
    #[arg(long, value_name = "N", value_parser = number::count::<u64>)]
    pub(crate) requests: Option<u64>,

    /// Load before the measurement that is not counted [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) warmup: Option<Duration>,

    /// Commands and weights: get, set, del, exists, incr, hget, hset, ping [default: get:80,set:20]
    #[arg(long, value_name = "MIX", value_parser = Mix::parse)]
    pub(crate) mix: Option<Mix>,

    /// Size of values, such as 64, 1KiB or 16-1KiB [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = ValueSize::parse)]
    pub(crate) value_size: Option<ValueSize>,

    /// Number of keys [default: 10000]
    #[arg(long, value_name = "N", value_parser = number::count::<u64>)]
    pub(crate) keys: Option<u64>,

    /// How keys are drawn: uniform, zipf:S, gaussian or sequential [default: uniform]
    #[arg(long, value_name = "DIST", value_parser = KeyDist::parse)]
    pub(crate) key_dist: Option<KeyDist>,

    /// Put this before the names of all keys, such as app: or {acct}, which as a hash tag gives all keys
    /// the same slot of a cluster
    #[arg(long, value_name = "TEXT", value_parser = parse_prefix)]
    pub(crate) key_prefix: Option<String>,

    /// Do not write the keys first when the mix reads: reads miss what is not there
    #[arg(long)]
    pub(crate) no_load: bool,

    /// Load the keys even where they take more than 1 GiB
    #[arg(long)]
    pub(crate) load_anyway: bool,

    /// Seed of everything that is drawn [default: a fresh one, printed in the report]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    pub(crate) seed: Option<u64>,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the histograms as an HdrHistogram V2 log (nanoseconds)
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,

    /// Use this way into the kernel instead of the best that works
    #[arg(long, value_name = "RUNG")]
    pub(crate) rung: Option<RungName>,

    /// What a core does while nothing is to do [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub(crate) park: Option<ParkName>,

    /// Where the load runs: pinned cores, or a client hosted in a tokio runtime [default: cores]
    #[arg(long, value_name = "DOOR")]
    pub(crate) door: Option<DoorName>,

    /// Threads of the tokio runtime, with --door hosted [default: 2]
    #[arg(long, value_name = "N", value_parser = number::count::<u32>)]
    pub(crate) workers: Option<u32>,

    /// Repeat the run and merge the histograms [default: 1]
    #[arg(long, value_name = "N", value_parser = number::count::<u32>)]
    pub(crate) runs: Option<u32>,

    #[command(flatten)]
    pub(crate) reads: ReadArgs,
}

/// Names of the ways into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RungName {
    /// io_uring with incremental buffers.
    U2,
    /// io_uring with multishot receives.
    U1,
    /// epoll.
    Epoll,
}

/// Names of the park policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ParkName {
    /// Sleep in the kernel.
    Park,
    /// Spin while a reply is near, else sleep.
    Adaptive,
    /// Never sleep.
    Spin,
}

/// Names of the doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoorName {
    /// `LocalClient` on pinned cores.
    Cores,
    /// `Client` in a tokio runtime.
    Hosted,
}

impl RungName {
    /// The rung of that name.
    pub(crate) const fn rung(self) -> Rung {
        match self {
            RungName::U2 => Rung::U2,
            RungName::U1 => Rung::U1,
            RungName::Epoll => Rung::Epoll,
        }
    }
}

impl ParkName {
    /// Its name as typed and reported.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ParkName::Park => "park",
            ParkName::Adaptive => "adaptive",
            ParkName::Spin => "spin",
        }
    }

    /// The policy of that name.
    pub(crate) fn policy(self) -> ParkPolicy {
        match self {
            ParkName::Park => ParkPolicy::Park,
            ParkName::Adaptive => ParkPolicy::default(),
            ParkName::Spin => ParkPolicy::Spin,
        }
    }
}

/// clap's message about wrong flags, cut down to one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("wrong flags").trim_start_matches("error: ").to_string();
    // "required arguments were not provided:" and the like go on in the next line.
    match lines.next() {
        Some(second) if first.ends_with(':') => format!("{first} {second}"),
        Some(second) if second.starts_with("[possible values") => format!("{first} {second}"),
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags' own table is sound. Fails if two flags share a name or a default is malformed.
    #[test]
    fn flag_table_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    /// One line for each wrong flag, naming it. Fails if a message runs over several lines.
    #[test]
    fn wrong_flags_get_one_line() {
        let cases: [(&[&str], &str); 6] = [
            (&["bench", "--frob"], "--frob"),
            (&["bench", "--depth", "x"], "--depth"),
            (&["bench", "--park", "sleep"], "possible values: park, adaptive, spin"),
            (&["bench", "--duration", "10"], "unit"),
            (&["bench", "a", "b"], "'b'"),
            (&["dance"], "dance"),
        ];
        for (typed, named) in cases {
            let error = Args::try_parse_from(["hedgerow"].iter().chain(typed)).unwrap_err();
            let line = one_line(&error);
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
