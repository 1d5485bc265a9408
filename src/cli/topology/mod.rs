//! `hedgerow topology`: the nodes of a deployment as the client sees them.
//!
//! A client of the whole deployment tells the nodes; `dial` asks each of them by itself. `figures` is what
//! came of both, which `table` shows.

pub(crate) mod args;
mod dial;
mod figures;
mod table;

use super::hosted::Coarse;
use super::lane::unless_stopped;
use super::output::Output;
use super::reads::ReadArgs;
use super::target::one_line;
use super::{Failure, say, stop};
use args::TopologyArgs;
use dial::Dialled;
use figures::{Report, View};
use hedgerow::config::Cluster;
use hedgerow::engine::SeenNode;
use hedgerow::read::ReadFrom;
use hedgerow::{Client, Error, Options};
use std::io::{self, Write};
use std::time::Duration;

/// Shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// Shows the topology.
pub(crate) fn run(args: TopologyArgs) -> Result<(), Failure> {
    let options = options(&args).map_err(Failure::Usage)?;
    let json = Output::open("--json", args.json.as_deref()).map_err(Failure::Failed)?;
    stop::listen().map_err(Failure::Failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::Failed(format!("the tokio runtime cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        let Some(connected) = unless_stopped(&Coarse, connect(&args, options.clone())).await else {
            return Ok(());
        };
        let (client, options) = connected.map_err(|error| failed(&options, &error))?;
        show(&args, &client, &options, json).await
    });
    // A node that says nothing is not waited for.
    runtime.shutdown_background();
    ended
}

/// The options of a client of the deployment, or which flag is wrong.
fn options(args: &TopologyArgs) -> Result<Options, String> {
    let mut reads = ReadArgs {
        cluster: args.cluster,
        replicas: args.replicas.clone(),
        // Whether they belong to a cluster may be told by the server.
        seed_nodes: args.seed_nodes.clone(),
        ..ReadArgs::default()
    };
    reads.heed(Some(&args.url));
    reads.cluster |= !args.seed_nodes.is_empty();
    match args.watch {
        Some(interval) if interval < SHORTEST => {
            return Err(format!("--watch: at least {} ms", SHORTEST.as_millis()));
        }
        Some(_) if args.json.is_some() => {
            return Err("--json and --watch: give only one of them".into());
        }
        _ => {}
    }
    let mut options = Options::from_url(&args.url).map_err(|error| one_line(&error))?;
    if args.replicas.contains(&options.endpoint) {
        return Err(format!("--replica {}: is the URL's own server", options.endpoint));
    }
    reads.apply(&mut options)?;
    Ok(options)
}

/// A client of the deployment, and its options: those of a cluster if the server says that it is one.
async fn connect(args: &TopologyArgs, mut options: Options) -> Result<(Client, Options), Error> {
    let may_be = options.cluster.is_none() && options.replica_endpoints.is_empty();
    if may_be && dial::is_cluster(&options).await? {
        options.cluster = Some(Cluster::default());
    }
    if let (Some(cluster), Some(interval)) = (&mut options.cluster, args.watch) {
        cluster.refresh_interval = Some(interval);
    }
    if !options.replica_endpoints.is_empty() {
        options.read_from = ReadFrom::ReplicaPreferred.into();
    }
    Ok((Client::connect(&options).await?, options))
}

/// Prints what is seen, once or as often as it changes.
async fn show(
    args: &TopologyArgs,
    client: &Client,
    options: &Options,
    json: Option<Output>,
) -> Result<(), Failure> {
    let target = options.endpoint.to_string();
    let Some(mut view) = unless_stopped(&Coarse, look(client, options)).await else {
        return Ok(());
    };
    say(&table::text(&target, &view))?;
    let Some(interval) = args.watch else {
        let report = Report::new(&target, &view);
        let written = json.map_or(Ok(()), |out| out.write(|out| write_json(out, &report)));
        let trouble = view.trouble().map_or(Ok(()), |trouble| Err(format!("{target}: {trouble}")));
        return written.and(trouble).map_err(Failure::Failed);
    };
    loop {
        let next = async {
            tokio::time::sleep(interval).await;
            look(client, options).await
        };
        let Some(next) = unless_stopped(&Coarse, next).await else { return Ok(()) };
        if !next.is_same(&view) {
            say(&format!("\n{}", table::text(&target, &next)))?;
            if let Some(trouble) = next.trouble() {
                say(&format!("{trouble}\n"))?;
            }
        }
        view = next;
    }
}

/// What the client sees now, and what each node says.
async fn look(client: &Client, options: &Options) -> View {
    let nodes = client.nodes().unwrap_or_default();
    let dial = |node: &SeenNode| tokio::spawn(dial::dial(options.clone(), node.endpoint.clone()));
    let dialling: Vec<_> = nodes.iter().map(dial).collect();
    let mut seen = Vec::new();
    for (node, dialled) in nodes.into_iter().zip(dialling) {
        let lost = || Dialled { error: Some("it was not asked".into()), ..Dialled::default() };
        seen.push((node, dialled.await.unwrap_or_else(|_| lost())));
    }
    View::new(options.cluster.is_some(), seen)
}

/// A failure that names the server.
fn failed(options: &Options, error: &Error) -> Failure {
    let (address, error) = (options.endpoint.to_string(), one_line(error));
    Failure::Failed(match error.contains(&address) {
        true => error,
        false => format!("{address}: {error}"),
    })
}

fn write_json(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
