//! What is probed: the deployment of the URL, or the embedded one.

use super::super::lane::unless_stopped;
use super::super::pinned::Timer;
use super::super::role::Role;
use super::super::target::{alone, one_line};
use super::super::{Failure, remark};
use super::plan::Plan;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::slot::SLOT_COUNT;
use hedgerow::engine::SeenNode;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{Delay, Fleet};
use hedgerow::{Endpoint, LocalClient, LocalContext, Options};
use hedgerow_runtime::cpu;
use std::time::Duration;

/// Size of the embedded deployment's values, in bytes.
pub(crate) const VALUE_SIZE: usize = 256;
/// Keys of the embedded deployment.
const EMBEDDED_KEYS: usize = 1_000;
/// Keys that one step of a scan looks at.
const SCAN_STEP: u64 = 500;
/// Steps of a scan after which a deployment has too few strings.
const SCAN_STEPS: usize = 400;

/// Why an error tells a key by its place.
const UNNAMED: &str = "names of keys are never printed";

/// A deployment that is ready to be probed.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// Options of a client without hedging.
    pub(crate) options: Options,
    /// Runs for as long as this is held.
    fleet: Option<Fleet>,
}

impl Deployment {
    /// The deployment of the plan; an embedded one starts here, on another cpu than `load_cpu` where there
    /// is one.
    pub(crate) fn open(plan: &Plan, load_cpu: u32) -> Result<Deployment, Failure> {
        let Some(url) = &plan.url else { return embedded(plan, load_cpu).map_err(Failure::Failed) };
        let options = plan.options(url).map_err(Failure::Usage)?;
        if options.replica_endpoints.contains(&options.endpoint) {
            let line = format!("--replica {}: is the URL's own server", options.endpoint);
            return Err(Failure::Usage(line));
        }
        Ok(Deployment { options, fleet: None })
    }

    /// The embedded servers.
    pub(crate) fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// Its primary's address, without credentials.
    pub(crate) fn address(&self) -> String {
        self.options.endpoint.to_string()
    }
}

fn embedded(plan: &Plan, load_cpu: u32) -> Result<Deployment, String> {
    let allowed = cpu::allowed().map_err(|error| format!("no cpus can be told: {error}"))?;
    let other = allowed.iter().find(|cpu| *cpu != load_cpu);
    let replicas = if plan.reference { 1 } else { 2 };
    let fleet = Fleet::builder().replicas(replicas).values(EMBEDDED_KEYS, VALUE_SIZE);
    let zones = plan.zone.iter().cycle().take(1 + replicas).cloned();
    let started = fleet.zones(zones).cpu(other.unwrap_or(load_cpu)).start();
    let fleet = started.map_err(|error| format!("the in-process servers cannot start: {error}"))?;
    if plan.reference {
        fleet.delay(Delay::Constant(Duration::from_micros(200)));
    } else {
        fleet.misbehave();
    }
    let mut options = plan.options(&fleet.url())?;
    let addresses = fleet.replica_addrs().into_iter();
    options.replica_endpoints =
        addresses.map(|at| Endpoint::tcp(at.ip().to_string(), at.port())).collect();
    let place = match other {
        Some(cpu) => format!("on cpu {cpu}"),
        None => format!("on cpu {load_cpu}, which they share with the load"),
    };
    let nodes = if replicas == 1 { "a replica" } else { "two replicas" };
    remark(&format!("no URL given: probing a primary and {nodes} in this process, {place}"));
    Ok(Deployment { options, fleet: Some(fleet) })
}

/// A node that may serve reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// Where it is.
    pub(crate) endpoint: Endpoint,
    /// `primary` or `replica`.
    pub(crate) role: &'static str,
    /// Slots that it serves; without a cluster all of them are the primary's.
    slots: u32,
}

impl Probed {
    fn new(endpoint: &Endpoint, role: &'static str) -> Probed {
        let mut probed = Probed { endpoint: endpoint.clone(), role, slots: 0 };
        if probed.is_primary() {
            probed.slots = SLOT_COUNT.into();
        }
        probed
    }

    fn of_cluster(node: &SeenNode) -> Probed {
        let slots = node.slots.iter().map(|slots| slots.len() as u32).sum();
        Probed { endpoint: node.endpoint.clone(), role: node.role.as_str(), slots }
    }

    /// Its part of so many keys, rounded up.
    fn part_of(&self, keys: u32) -> usize {
        let part = u64::from(keys) * u64::from(self.slots);
        part.div_ceil(SLOT_COUNT.into()) as usize
    }

    /// Whether it takes writes.
    pub(crate) fn is_primary(&self) -> bool {
        self.role == hedgerow::topology::Role::Primary.as_str()
    }
}

/// The nodes, primaries first; none only if the user asked to stop.
pub(crate) async fn nodes(local: &LocalContext, options: &Options) -> Result<Vec<Probed>, String> {
    if options.cluster.is_none() {
        let replicas = options.replica_endpoints.iter();
        let replicas = replicas.map(|replica| Probed::new(replica, "replica"));
        return Ok(std::iter::once(Probed::new(&options.endpoint, "primary"))
            .chain(replicas)
            .collect());
    }
    let connecting = local.connect(options);
    let Some(client) = unless_stopped(&Timer(local.clone()), connecting).await else {
        return Ok(Vec::new());
    };
    let mut seen = client.map_err(|error| one_line(&error))?.nodes();
    // An address that no node of the cluster has is only another name of one.
    seen.retain(|node| node.id.is_some() || !node.slots.is_empty());
    let replicas_of = |of: &SeenNode| {
        seen.iter().filter(|node| node.primary.as_ref() == Some(&of.endpoint)).count()
    };
    if options.read_from.from == ReadFrom::Replica && seen.iter().all(|of| replicas_of(of) < 2) {
        let text =
            "--read-from replica: no shard has a second replica to hedge to; say replica-preferred";
        return Err(text.to_owned());
    }
    let mut nodes: Vec<Probed> = seen.iter().map(Probed::of_cluster).collect();
    nodes.sort_by_key(|node| (node.role, node.endpoint.to_string()));
    match nodes.iter().any(|node| !node.is_primary()) {
        true => Ok(nodes),
        false => {
            Err("the cluster has no replicas: hedging is about a second node of a shard".into())
        }
    }
}

/// Checks that the primary is one and every replica is a linked replica; gives remarks. A cluster tells
/// that itself.
pub(crate) async fn check_roles(
    local: &LocalContext,
    options: &Options,
) -> Result<Vec<String>, String> {
    if options.cluster.is_some() {
        let text = "the prediction takes the nodes of all shards together: it is as good as they are alike";
        return Ok(vec![text.to_owned()]);
    }
    let mut remarks = Vec::new();
    let primary = options.endpoint.clone();
    let role = role_of(local, options, &primary).await.map_err(|error| named(&primary, &error))?;
    match role.as_ref().map(Role::word) {
        None | Some("master") => {}
        Some(_) => return Err(format!("{primary} is no primary: give the URL of its primary")),
    }
    for replica in &options.replica_endpoints {
        let role = role_of(local, options, replica).await;
        match role.map_err(|error| format!("--replica {}", named(replica, &error)))? {
            Some(Role::Replica { linked: false }) => remarks.push(format!(
                "--replica {replica} has no link to its primary: what it answers may be old"
            )),
            None | Some(Role::Replica { .. }) => {}
            Some(other) => {
                let word = other.word();
                let words = "name the replicas of the URL's server";
                return Err(format!(
                    "--replica {replica} is no replica (its ROLE is {word}): {words}"
                ));
            }
        }
    }
    Ok(remarks)
}

/// An error with its node's address in front, and nowhere else.
fn named(endpoint: &Endpoint, error: &str) -> String {
    let address = endpoint.to_string();
    format!("{address}: {}", error.replace(&format!(" ({address})"), ""))
}

/// A node's role; `None` where the user asked to stop.
async fn role_of(
    local: &LocalContext,
    options: &Options,
    node: &Endpoint,
) -> Result<Option<Role>, String> {
    let alone = alone(options, node);
    let asking = async {
        let client = local.connect(&alone).await?;
        client.role().await
    };
    match unless_stopped(&Timer(local.clone()), asking).await {
        Some(reply) => Ok(Some(Role::new(&reply.map_err(|error| one_line(&error))?))),
        None => Ok(None),
    }
}

/// The keys to read: those of the plan, or a sample; each holds a string. Empty only if the user asked to
/// stop.
pub(crate) async fn keys(
    local: &LocalContext,
    plan: &Plan,
    options: &Options,
    nodes: &[Probed],
) -> Result<Vec<Vec<u8>>, String> {
    let finding = async {
        if !plan.named_keys.is_empty() {
            let client = local.connect(options).await.map_err(|error| one_line(&error))?;
            return named_keys(&client, &plan.named_keys).await;
        }
        let (mut found, mut seen) = (Vec::new(), 0);
        for primary in nodes.iter().filter(|node| node.slots > 0) {
            let alone = alone(options, &primary.endpoint);
            let client = local.connect(&alone).await.map_err(|error| one_line(&error))?;
            seen += sampled(&client, primary.part_of(plan.keys), &mut found).await?;
        }
        match found.is_empty() {
            true if seen == 0 => {
                Err("no keys were found: name some that hold strings with --key".into())
            }
            true => Err(format!(
                "no string keys were found among {seen}: name some that hold strings with --key"
            )),
            false => Ok(found),
        }
    };
    unless_stopped(&Timer(local.clone()), finding).await.unwrap_or(Ok(Vec::new()))
}

/// The keys of `--key`. A key is told by its place, never by its name.
async fn named_keys(client: &LocalClient, names: &[String]) -> Result<Vec<Vec<u8>>, String> {
    for (name, place) in names.iter().zip(1..) {
        let found = client.key_type(name).await.map_err(|error| one_line(&error))?;
        match found.as_str() {
            "string" => {}
            "none" => {
                return Err(format!("--key number {place}: there is no such key ({UNNAMED})"));
            }
            other => {
                return Err(format!(
                    "--key number {place} holds a {other}, not a string ({UNNAMED})"
                ));
            }
        }
    }
    Ok(names.iter().map(|name| name.as_bytes().to_vec()).collect())
}

/// Up to `most` keys of a server that hold strings, by SCAN and TYPE; gives how many keys it saw.
async fn sampled(
    client: &LocalClient,
    most: usize,
    keys: &mut Vec<Vec<u8>>,
) -> Result<u64, String> {
    let (mut found, mut cursor, mut seen) = (Vec::new(), 0, 0_u64);
    for _ in 0..SCAN_STEPS {
        let options = ScanOptions::new().count(SCAN_STEP);
        let page = client.scan_with::<Vec<u8>>(cursor, options).await;
        let page = page.map_err(|error| format!("keys cannot be sampled: {}", one_line(&error)))?;
        seen += page.items.len() as u64;
        // All at once: they leave in one send.
        let asked: Vec<_> = page.items.iter().map(|key| client.key_type(key)).collect();
        for (key, asked) in page.items.iter().zip(asked) {
            let is_string = asked.await.map_err(|error| one_line(&error))? == "string";
            if is_string && found.len() < most {
                found.push(key.clone());
            }
        }
        cursor = page.cursor;
        if page.is_last() || found.len() >= most {
            break;
        }
    }
    // A scan may show a key twice.
    found.sort_unstable();
    found.dedup();
    keys.append(&mut found);
    Ok(seen)
}
