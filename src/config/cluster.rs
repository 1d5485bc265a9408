//! The settings that only a cluster has.

use std::time::Duration;

use super::Endpoint;
use crate::Error;

/// How a client deals with a cluster. [`Options::endpoint`](super::Options::endpoint) is the first seed.
///
/// ```
/// use hedgerow::config::Cluster;
/// use hedgerow::{Endpoint, Options};
///
/// let mut options = Options::from_url("redis://seed-a:7000")?;
/// let mut cluster = Cluster::default();
/// cluster.seeds = vec![Endpoint::tcp("seed-b", 7000)];
/// options.cluster = Some(cluster);
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cluster {
    /// More nodes to ask for the topology, in turn; default none (R-164).
    pub seeds: Vec<Endpoint>,
    /// Between two periodic looks at the topology, shortened by up to a tenth at random; default 60 s.
    /// `None` and zero switch the timer off, nothing else (R-171, R-172).
    pub refresh_interval: Option<Duration>,
    /// How connections to nodes are shared among cores.
    pub mesh: Mesh,
    /// Most connections of one core; default 4,096. A node that is one too many is reached only in place
    /// of one that has nothing in flight.
    pub sockets_max: usize,
}

/// Which cores connect to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mesh {
    /// Each core to each node, once it has something to say to it: no hop between cores.
    #[default]
    Full,
    /// A node is connected to one core, and commands of a [`Client`](crate::Client) over pinned cores hop
    /// there: as few connections as there are nodes. Clients that live on a core are not affected.
    Owned,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            seeds: Vec::new(),
            refresh_interval: Some(Duration::from_secs(60)),
            mesh: Mesh::Full,
            sockets_max: 4096,
        }
    }
}

impl Cluster {
    /// The periodic interval, if there is one.
    pub(crate) fn period(&self) -> Option<Duration> {
        self.refresh_interval.filter(|period| !period.is_zero())
    }

    pub(super) fn check(&self, first: &Endpoint) -> Result<(), Error> {
        if self.sockets_max == 0 {
            return Err(Error::config("`cluster.sockets_max` must be at least 1"));
        }
        for seed in std::iter::once(first).chain(&self.seeds) {
            seed.check("cluster.seeds")?;
            if let Endpoint::Unix(_) = seed {
                let text = "`cluster`: nodes of a cluster are reached over TCP, not a unix socket";
                return Err(Error::config(text));
            }
        }
        Ok(())
    }
}
