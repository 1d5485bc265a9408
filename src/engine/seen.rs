//! What an engine can tell of its nodes and of the reads that it served.

use std::ops::RangeInclusive;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::Counters;
use crate::config::Endpoint;
use crate::read::{Ledger, Weather};
use crate::topology::Role;

/// A node as a client sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenNode {
    /// Its place among the client's nodes, which it keeps: what [`ReadCopy::node`] says.
    pub index: u32,
    /// Its address.
    pub endpoint: Endpoint,
    /// What it is.
    pub role: Role,
    /// The name that a cluster knows it by.
    pub id: Option<String>,
    /// Of a replica in a cluster: its primary.
    pub primary: Option<Endpoint>,
    /// Of a primary in a cluster: the slots that it serves, in order.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Connections that take commands.
    pub connections: usize,
    /// Of a replica: its own link to the primary is up. `true` for a primary.
    pub linked: bool,
    /// Bytes of replication stream by which it was behind its primary when it was last asked; `None` for
    /// a primary, and while that is not known.
    pub lag_bytes: Option<u64>,
    /// The zone that it says it is in.
    pub zone: Option<String>,
    /// The mean round trip of its PINGs, where [`ReadFrom::Nearest`](crate::read::ReadFrom) asks for it.
    pub latency: Option<Duration>,
}

/// What one part of a client has seen: a connection of one inside tokio, or what a pinned core holds of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Figures {
    /// Its counters.
    pub counters: Counters,
    /// Requests under way, or finished and not yet redeemed.
    pub live_requests: usize,
    /// The nodes, the primary first.
    pub nodes: Vec<SeenNode>,
    /// The books of its hedged reads.
    pub hedges: Ledger,
    /// What its storm guard says.
    pub weather: Weather,
    /// After what time a second copy of a read would be sent now: of one that the server is quick with (flag
    /// FAST of the command table, as GET), and of one that it is not; `None` without hedging.
    pub hedge_delays: Option<[Duration; 2]>,
}

/// One copy of a read that was answered, the original or its hedge; in a cluster also any other command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadCopy {
    /// The node that it was sent to: its [`SeenNode::index`].
    pub node: u32,
    /// When it was queued.
    pub at: Instant,
    /// From then to its reply.
    pub time: Duration,
    /// It is the hedge, not the original.
    pub is_hedge: bool,
    /// The caller got this reply.
    pub won: bool,
}
