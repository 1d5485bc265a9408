//! Clients of a real cluster, and tests that share one.

use std::sync::Arc;

use hedgerow::config::Cluster as Settings;
use hedgerow::{Endpoint, Options};

use crate::cluster_fleet::Cluster;
use crate::fleet::INTERVAL;
use crate::placement::{on_tokio, options_for};
use crate::server::{Flavor, Server};

/// The makes that differ most in what clusters of them can do.
pub(crate) const FLAVORS: [Flavor; 2] = [Flavor::Valkey91, Flavor::Redis70];

/// Options for a client that knows one node.
pub(crate) fn options_of(cluster: &Cluster) -> Options {
    let mut options = options_for(cluster.node(0).address());
    options.cluster = Some(Settings::default());
    options.replica_refresh_interval = INTERVAL;
    options
}

/// Options whose seeds are these servers, in turn.
pub(crate) fn options_with_seeds(seeds: &[&Server]) -> Options {
    let mut options = options_for(seeds[0].address());
    let mut settings = Settings::default();
    settings.seeds = seeds[1..].iter().map(|seed| endpoint_of(seed)).collect();
    options.cluster = Some(settings);
    options
}

/// The address of a server.
pub(crate) fn endpoint_of(server: &Server) -> Endpoint {
    Endpoint::tcp(server.address().ip().to_string(), server.address().port())
}

/// Three shards of two, for a test that runs on every placement in turn.
pub(crate) fn three_shards(flavor: Flavor, lines: &[&str]) -> Arc<Cluster> {
    Arc::new(on_tokio(async |place| Cluster::of(&place, flavor, 3, 1, lines).await))
}

/// Makes the tests of scenarios, one for each make: on one cluster, all on every placement, in turn.
macro_rules! on_one_cluster {
    ($($scenario:ident),+ $(,)?) => {
        mod one_cluster {
            use std::sync::Arc;

            use crate::placement::{on_core, on_tokio, over_cores};
            use crate::server::Flavor;

            fn all_on(flavor: Flavor) {
                let cluster = crate::cluster_client::three_shards(flavor, &[]);
                $({
                    let shared = Arc::clone(&cluster);
                    on_core(move |place| super::$scenario(place, flavor, Arc::clone(&shared)));
                    on_tokio(|place| super::$scenario(place, flavor, Arc::clone(&cluster)));
                    over_cores(|place| super::$scenario(place, flavor, Arc::clone(&cluster)));
                })+
            }

            #[test]
            fn valkey91() {
                all_on(Flavor::Valkey91);
            }

            #[test]
            fn redis70() {
                all_on(Flavor::Redis70);
            }
        }
    };
}
pub(crate) use on_one_cluster;
