//! The flags of `hedgerow topology`.

use super::super::duration;
use super::super::reads::address;
use hedgerow::Endpoint;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `hedgerow topology`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TopologyArgs {
    /// A node, such as redis://user:password@host:6379; the others share user and password
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The server is a node of a cluster [default: if it says so]
    #[arg(long)]
    pub(crate) cluster: bool,

    /// Another node of the cluster, to ask where the URL's does not answer; may be given several times
    #[arg(long = "seed-node", value_name = "HOST:PORT", value_parser = address)]
    pub(crate) seed_nodes: Vec<Endpoint>,

    /// A replica of the URL's server, which is no cluster then; may be given several times
    #[arg(long = "replica", value_name = "HOST:PORT", value_parser = address)]
    pub(crate) replicas: Vec<Endpoint>,

    /// Look again so often (without a time once a second), and print again when something changed, until
    /// Ctrl-C. Each look connects to every node
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = duration::parse
    )]
    pub(crate) watch: Option<Duration>,

    /// Write the topology as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
