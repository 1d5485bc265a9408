//! One node, connected to by itself: whether it answers, how fast, and what it says of itself.

use super::super::role::Role;
use super::super::target::{alone, one_line};
use hedgerow::prelude::*;
use hedgerow::{Client, Endpoint, Error, ErrorKind, Options};
use std::time::{Duration, Instant};

/// PINGs of one node.
const PINGS: usize = 5;
/// Longest wait for a connection and for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a node said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialled {
    /// Round trips, shortest first; none of a node that does not answer.
    pub(crate) pings: Vec<Duration>,
    /// Its part in replication, where it tells.
    pub(crate) role: Option<Role>,
    /// The zone that it says it is in.
    pub(crate) zone: Option<String>,
    /// It says that its cluster is down.
    pub(crate) says_down: bool,
    /// Why it does not answer.
    pub(crate) error: Option<String>,
}

/// Options of a client of one node, which has its time.
fn patient(options: &Options, node: &Endpoint) -> Options {
    let mut alone = alone(options, node);
    alone.connect_timeout = PATIENCE;
    alone.command_timeout = Some(PATIENCE);
    // Any zone at all: servers that do not tell theirs unasked are asked then.
    alone.client_availability_zone = Some("any".into());
    alone
}

/// Whether a server says that it is a node of a cluster.
///
/// # Errors
/// It cannot be reached, or answers nonsense. That it may not be asked is none.
pub(crate) async fn is_cluster(options: &Options) -> Result<bool, Error> {
    let client = Client::connect(&patient(options, &options.endpoint)).await?;
    let said = client.command("INFO").arg("cluster").send::<String>().await;
    client.close(Duration::ZERO).await;
    match said {
        Ok(said) => Ok(said.lines().any(|line| line.trim_end() == "cluster_enabled:1")),
        Err(error) if error.kind() == ErrorKind::Server => Ok(false),
        Err(error) => Err(error),
    }
}

/// Connects to a node and asks it.
pub(crate) async fn dial(options: Options, node: Endpoint) -> Dialled {
    let address = node.to_string();
    let asked = ask(&patient(&options, &node), options.cluster.is_some()).await;
    asked.unwrap_or_else(|error| {
        // Its address stands beside it.
        let error = one_line(&error).replace(&format!(" ({address})"), "");
        Dialled { error: Some(error), ..Dialled::default() }
    })
}

async fn ask(options: &Options, in_cluster: bool) -> Result<Dialled, Error> {
    let client = Client::connect(options).await?;
    let mut dialled = Dialled::default();
    for _ in 0..PINGS {
        let sent = Instant::now();
        client.ping().await?;
        dialled.pings.push(sent.elapsed());
    }
    dialled.pings.sort_unstable();
    // What a user may not ask stays unknown.
    dialled.role = client.role().await.ok().map(|said| Role::new(&said));
    dialled.zone = client.nodes().into_iter().flatten().find_map(|node| node.zone);
    if in_cluster {
        let said = client.command("CLUSTER").arg("INFO").send::<String>().await;
        let is_down = |line: &str| line.trim_end() == "cluster_state:fail";
        dialled.says_down = said.is_ok_and(|said| said.lines().any(is_down));
    }
    client.close(Duration::ZERO).await;
    Ok(dialled)
}
