//! What a node says of the cluster in its answer to CLUSTER SLOTS.

use std::ops::RangeInclusive;

use crate::command::slot::SLOT_COUNT;
use crate::config::Endpoint;
use crate::resp::Frame;

/// A node as an answer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Where it is dialled.
    pub(crate) endpoint: Endpoint,
    /// The name that it keeps when its address changes.
    pub(crate) id: Option<String>,
    /// Other names of its host that it announces.
    pub(crate) aliases: Vec<String>,
}

/// Neighbouring slots and who serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) slots: RangeInclusive<u16>,
    /// `None` where the primary cannot be reached.
    pub(crate) primary: Option<Named>,
    pub(crate) replicas: Vec<Named>,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotsReply(pub(crate) Vec<Served>);

/// What is wrong with an answer.
type Wrong = &'static str;

impl SlotsReply {
    /// Reads the answer that the node at `from` gave.
    ///
    /// # Errors
    /// Says what of it no cluster would answer; then all of it is refused.
    pub(crate) fn of(frame: &Frame<'_>, from: &Endpoint) -> Result<SlotsReply, Wrong> {
        if !frame.kind().is_aggregate() {
            return Err("it is no list of slots");
        }
        frame.elements().map(|range| served(&range, from)).collect::<Result<_, _>>().map(SlotsReply)
    }

    /// Whether it names a replica of this slot.
    pub(crate) fn has_replica(&self, slot: u16) -> bool {
        self.0.iter().any(|range| range.slots.contains(&slot) && !range.replicas.is_empty())
    }
}

fn served(range: &Frame<'_>, from: &Endpoint) -> Result<Served, Wrong> {
    let mut elements = range.elements();
    let mut slot = || {
        let slot = u16::try_from(elements.next()?.int()?).ok()?;
        (slot < SLOT_COUNT).then_some(slot)
    };
    let (Some(first), Some(last)) = (slot(), slot()) else {
        return Err("a range has no two slots from 0 to 16383");
    };
    if first > last {
        return Err("a range ends before it begins");
    }
    let primary = elements.next().ok_or("a range names no node")?;
    let primary = named(&primary, from)?;
    let replicas = elements.map(|node| named(&node, from)).collect::<Result<Vec<_>, _>>()?;
    let replicas = replicas.into_iter().flatten().collect();
    Ok(Served { slots: first..=last, primary, replicas })
}

/// A node; `None` for one that says of itself that it cannot be reached.
fn named(node: &Frame<'_>, from: &Endpoint) -> Result<Option<Named>, Wrong> {
    let mut elements = node.elements();
    let (Some(host), Some(port)) = (elements.next(), elements.next()) else {
        return Err("a node has no host and port");
    };
    let port = port.int().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or("a node's port is no number from 0 to 65535")?;
    let id = elements.next().and_then(|id| text_of(&id));
    let metadata = elements.next().map(|list| metadata_of(&list)).unwrap_or_default();
    let host = host_of(&host)?;
    let aliases = metadata.iter().filter(|name| Some(*name) != host.as_ref()).cloned().collect();
    let endpoint = endpoint_of(host.or_else(|| metadata.first().cloned()), port, from);
    Ok(endpoint.map(|endpoint| Named { endpoint, id, aliases }))
}

/// The host that is to be dialled; an empty text for the node that was asked, `None` for an unknown one.
fn host_of(host: &Frame<'_>) -> Result<Option<String>, Wrong> {
    if host.is_null() {
        return Ok(Some(String::new()));
    }
    if host.kind().is_aggregate() {
        return Err("a node's host is no text");
    }
    let host = text_of(host).ok_or("a node's host is no text")?;
    Ok(Some(host).filter(|host| host != "?"))
}

/// Where a node is dialled that `from` names. An empty host is the one that was asked, port 0 the port
/// that was; a node with neither cannot be reached.
pub(crate) fn endpoint_of(host: Option<String>, port: u16, from: &Endpoint) -> Option<Endpoint> {
    let Endpoint::Tcp { host: asked, port: asked_port } = from else { return None };
    let host = host?;
    match (host.is_empty(), port) {
        (true, 0) => None,
        (true, port) => Some(Endpoint::tcp(asked, port)),
        (false, 0) => Some(Endpoint::tcp(host, *asked_port)),
        (false, port) => Some(Endpoint::tcp(host, port)),
    }
}

fn text_of(frame: &Frame<'_>) -> Option<String> {
    if frame.is_null() || frame.kind().is_aggregate() {
        return None;
    }
    std::str::from_utf8(frame.payload()).ok().map(str::to_owned)
}

/// The hosts that the metadata of a node names: a RESP3 map, or a RESP2 list of pairs.
fn metadata_of(list: &Frame<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    let mut elements = list.elements();
    while let (Some(name), Some(value)) = (elements.next(), elements.next()) {
        let is_host = matches!(name.payload(), b"ip" | b"hostname");
        let host = text_of(&value).filter(|host| is_host && !host.is_empty() && host != "?");
        hosts.extend(host);
    }
    hosts
}
