//! How many connections a client over pinned cores has to each node.

use hedgerow::config::{Cluster as Settings, Mesh};
use hedgerow::prelude::*;
use hedgerow::{Cores, Options};

use crate::cluster_fleet::Cluster;
use crate::placement::{on_tokio, options_for};
use crate::server::Flavor;

const NAME: &str = "mesh";

fn options(cluster: &Cluster, mesh: Mesh) -> Options {
    let mut options = options_for(cluster.node(0).address());
    let mut settings = Settings::default();
    settings.mesh = mesh;
    options.cluster = Some(settings);
    options.client_name = Some(format!("{NAME}-{mesh:?}"));
    options
}

/// How many connections each node has from a client that said something to all of them.
async fn connections(cluster: &Cluster, mesh: Mesh) -> Vec<usize> {
    let options = options(cluster, mesh);
    let cores = Cores::builder().cpus([0, 1]).build().expect("two cores");
    let client = cores.connect(&options).await.expect("up");
    for n in 0..200 {
        client.set(format!("key:{n}"), n).await.expect("a status");
        let value: Option<u32> = client.get(format!("key:{n}")).await.expect("a value");
        assert_eq!(value, Some(n));
    }
    let name = options.client_name.as_deref().expect("a name");
    let counts = (0..3).map(|n| cluster.connections(n, name).len()).collect();
    assert_eq!(client.exists(["key:1", "key:2", "key:3"]).await.expect("a count"), 3);
    counts
}

/// Fails if with owned nodes both cores connect to every node, if with the full mesh not both do, or
/// if any command fails.
#[test]
fn nodes_are_owned_where_that_is_asked_for() {
    on_tokio(async |place| {
        let cluster = Cluster::start(&place, Flavor::Valkey91, 3, 0).await;
        let full = connections(&cluster, Mesh::Full).await;
        assert!(full.iter().all(|count| *count >= 2), "{full:?}");
        let owned = connections(&cluster, Mesh::Owned).await;
        // One each, the first connection of each core, and one of the coordinator.
        let total: usize = owned.iter().sum();
        assert!(total <= 6 && total < full.iter().sum(), "{owned:?}, {full:?}");
    });
}
