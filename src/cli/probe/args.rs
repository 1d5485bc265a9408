//! The flags of `hedgerow probe` and `hedgerow replay`.

use super::super::args::{ParkName, RungName};
use super::super::reads::{ReadArgs, fixed_delay, hedges, percent};
use super::super::{duration, number, rate};
use super::plan::{MOST_BLOCKS, MOST_CLIENTS, MOST_KEYS};
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `hedgerow probe`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProbeArgs {
    /// Primary, such as redis://user:password@host:6379/0; only reads are sent [default: a primary and
    /// two replicas in this process, on another core where there is one]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) reads: ReadArgs,

    /// Reads per second, sent on a schedule that never looks at replies [default: 1000]
    #[arg(long, value_name = "R", value_parser = rate::parse)]
    pub(crate) rate: Option<f64>,

    /// Clients that share the reads, each with connections and a budget of its own, as the cores of a
    /// service have [default: 16]
    #[arg(long, value_name = "N", value_parser = |text: &str| number::whole::<u32>(text, 1, MOST_CLIENTS))]
    pub(crate) clients: Option<u32>,

    /// How long to measure, all four passes together [default: 40s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) duration: Option<Duration>,

    /// Each pass is measured in so many blocks, which take turns [default: 5]
    #[arg(long, value_name = "N", value_parser = |text: &str| number::whole::<u32>(text, 1, MOST_BLOCKS))]
    pub(crate) blocks: Option<u32>,

    /// Reads of each kind of pass before the measurement, not counted: an adaptive delay learns from some 250
    /// reads of each client [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) warmup: Option<Duration>,

    /// Seed of everything that is drawn [default: a fresh one, printed in the report]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    pub(crate) seed: Option<u64>,

    /// Use this way into the kernel instead of the best that works
    #[arg(long, value_name = "RUNG")]
    pub(crate) rung: Option<RungName>,

    /// What the core does while nothing is to do [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub(crate) park: Option<ParkName>,

    /// Read this key, which must hold a string; may be given several times [default: a sample, by SCAN]
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) key: Vec<String>,

    /// Most keys to sample [default: 1000]
    #[arg(long, value_name = "N", value_parser = |text: &str| number::whole::<u32>(text, 1, MOST_KEYS))]
    pub(crate) keys: Option<u32>,

    /// Do not measure the recommended delay and budget at the end
    #[arg(long, overrides_with = "check")]
    pub(crate) no_check: bool,

    /// Measure the recommended delay and budget at the end (the default)
    #[arg(long, overrides_with = "no_check")]
    pub(crate) check: bool,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// The reference run instead: 1000 reads one after the other, a replica that pauses for 50 ms on
    /// every 20th, with and without hedges after 5 ms for at most 5 %; exit code 1 if hedging does not do
    /// what it should
    #[arg(long)]
    pub(crate) reference: bool,

    /// With --reference and a URL: pause the replica by CLIENT PAUSE, which all of its clients feel
    #[arg(long)]
    pub(crate) pause_replicas: bool,
}

/// The flags of `hedgerow replay`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ReplayArgs {
    /// What `hedgerow probe --json` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Predict for this delay too: 50us to 60s
    #[arg(long, value_name = "TIME", value_parser = fixed_delay)]
    pub(crate) hedge_delay: Option<Duration>,

    /// Highest budget in percent, 1 to 100 [default: the file's]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) hedge_budget: Option<u32>,

    /// Hedges that unspent budget may start at once [default: the file's]
    #[arg(long, value_name = "N", value_parser = hedges)]
    pub(crate) hedge_burst: Option<u32>,

    /// The percentile to make fast: 50 to 99.99 [default: the file's, which is 99]
    #[arg(long, value_name = "P", value_parser = number::percentile)]
    pub(crate) percentile: Option<f64>,

    /// Write the report as one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
