//! CLUSTER and its subcommands, as a node of a model cluster answers them.

use std::net::SocketAddr;

use super::cluster_map::{ClusterMap, Layout, Place};
use super::model_connection::Guest;
use super::model_server::Model;
use super::reply::{self, Protocol};
use crate::command::slot::{SLOT_COUNT, slot_of};

/// The id of a node: 40 hexadecimal digits.
pub(super) fn id_of(node: usize) -> String {
    format!("{:040x}", node + 1)
}

impl Model {
    /// CLUSTER, by a node of one.
    pub(super) fn cluster(&self, guest: &Guest, args: &[&[u8]], out: &mut Vec<u8>) {
        let Some(Place { node, map }) = &self.place else { return };
        let map = map.borrow();
        let word = |at: usize| args.get(at).copied().unwrap_or_default();
        match (&word(1).to_ascii_uppercase()[..], args.len()) {
            (b"SLOTS", 2) => {
                let layout = map.nodes[*node].view.as_deref().unwrap_or(&map.layout);
                let at: Vec<SocketAddr> = map.nodes.iter().map(|node| node.at).collect();
                slots(layout, &at, guest.protocol, out);
            }
            (b"MYID", 2) => reply::bulk(out, id_of(*node).as_bytes()),
            (b"INFO", 2) => reply::text(out, guest.protocol, &state(&map)),
            (b"KEYSLOT", 3) => reply::int(out, i64::from(slot_of(word(2)))),
            _ => {
                let name = String::from_utf8_lossy(word(1));
                reply::error(out, &format!("ERR unknown subcommand '{name}'. Try CLUSTER HELP."));
            }
        }
    }
}

/// The answer to CLUSTER SLOTS.
fn slots(layout: &Layout, at: &[SocketAddr], protocol: Protocol, out: &mut Vec<u8>) {
    let ranges = layout.ranges();
    reply::array(out, ranges.len());
    for (first, last, owner) in ranges {
        let mut nodes = layout.replicas_of(owner);
        nodes.retain(|replica| !layout.listings[*replica].hidden);
        nodes.insert(0, owner);
        reply::array(out, 2 + nodes.len());
        reply::int(out, i64::from(first));
        reply::int(out, i64::from(last));
        for node in nodes {
            listing(layout, node, at[node], protocol, out);
        }
    }
}

/// One node in it: host, port, id, and the address where the host is something else.
fn listing(layout: &Layout, node: usize, at: SocketAddr, protocol: Protocol, out: &mut Vec<u8>) {
    let listing = &layout.listings[node];
    let ip = at.ip().to_string();
    reply::array(out, 4);
    reply::bulk_or_null(out, protocol, listing.host.as_ref().map(String::as_bytes));
    reply::int(out, i64::from(listing.port));
    reply::bulk(out, id_of(node).as_bytes());
    let differs = listing.host.as_ref() != Some(&ip);
    reply::map(out, protocol, usize::from(differs));
    if differs {
        reply::bulk(out, b"ip");
        reply::bulk(out, ip.as_bytes());
    }
}

/// The answer to CLUSTER INFO.
fn state(map: &ClusterMap) -> String {
    let (state, served) = if map.down { ("fail", 0) } else { ("ok", SLOT_COUNT) };
    let mut owners = map.layout.owners.clone();
    owners.sort_unstable();
    owners.dedup();
    [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{SLOT_COUNT}"),
        format!("cluster_slots_ok:{served}"),
        format!("cluster_known_nodes:{}", map.nodes.len()),
        format!("cluster_size:{}", owners.len()),
        format!("cluster_current_epoch:{}\r\n", map.epoch),
    ]
    .join("\r\n")
}
