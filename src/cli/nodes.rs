//! Which node of a cluster answered how much and how fast, as the clients of the load saw it.

use super::record::Times;
use hedgerow::engine::{Counters, ReadCopy, SeenNode};
use hedgerow::{Client, LocalClient};
use hedgerow_runtime::time::Instant;

/// Answers that a connection remembers between two collections.
const TRACE_MAX: usize = 1 << 16;

/// A client that can tell which node answered.
pub(crate) trait Traced {
    /// From now on it remembers that.
    fn trace(&self, capacity: usize);
    /// What it remembers since the last call, and how much it forgot.
    fn take_trace(&self) -> (Vec<ReadCopy>, u64);
    /// The nodes as it sees them now.
    fn nodes(&self) -> Vec<SeenNode>;
    /// Its counters.
    fn counters(&self) -> Counters;
}

impl Traced for LocalClient {
    fn trace(&self, capacity: usize) {
        self.trace_reads(capacity);
    }

    fn take_trace(&self) -> (Vec<ReadCopy>, u64) {
        LocalClient::take_trace(self)
    }

    fn nodes(&self) -> Vec<SeenNode> {
        LocalClient::nodes(self)
    }

    fn counters(&self) -> Counters {
        LocalClient::counters(self)
    }
}

impl Traced for Client {
    fn trace(&self, capacity: usize) {
        self.trace_reads(capacity);
    }

    fn take_trace(&self) -> (Vec<ReadCopy>, u64) {
        Client::take_trace(self).unwrap_or_default()
    }

    fn nodes(&self) -> Vec<SeenNode> {
        Client::nodes(self).unwrap_or_default()
    }

    fn counters(&self) -> Counters {
        Client::counters(self).unwrap_or_default()
    }
}

/// One node and its answers.
#[derive(Clone, Debug)]
pub(crate) struct NodeAnswers {
    /// The node as it was seen last.
    pub(crate) seen: SeenNode,
    /// From a command's way into a connection to the answer that its caller got.
    pub(crate) times: Times,
}

/// The answers of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeBook {
    nodes: Vec<NodeAnswers>,
    /// Answers of which nobody remembers who gave them.
    pub(crate) untold: u64,
    /// Slots that a redirect said to be elsewhere.
    pub(crate) slots_moved: u64,
    /// Commands that were sent again, as a node would not have them.
    pub(crate) sent_again: u64,
    /// Commands that were sent before are of no interest.
    start: Instant,
}

impl NodeBook {
    /// Has a client remember who answers.
    pub(crate) fn open(client: &impl Traced) {
        client.trace(TRACE_MAX);
    }

    /// Takes what a client remembers of commands that were sent from `start` on.
    pub(crate) fn collect(&mut self, client: &impl Traced, start: Instant) {
        self.start = start;
        let (copies, dropped) = client.take_trace();
        self.untold += dropped;
        let mut places = Vec::new();
        for seen in client.nodes() {
            let index = seen.index as usize;
            places.resize(places.len().max(index + 1), None);
            places[index] = Some(self.place_of(seen));
        }
        for copy in copies.iter().filter(|copy| copy.won && copy.at >= start) {
            let place = places.get(copy.node as usize).copied().flatten();
            match place.and_then(|place| self.nodes.get_mut(place)) {
                Some(node) => node.times.add(copy.time),
                // It has left the cluster meanwhile.
                None => self.untold += 1,
            }
        }
    }

    /// Takes the last of what a client remembers and what it counted, once its load is over.
    pub(crate) fn close(&mut self, client: &impl Traced) {
        self.collect(client, self.start);
        let counters = client.counters();
        self.slots_moved += counters.moved;
        self.sent_again += counters.again;
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &NodeBook) {
        for node in &other.nodes {
            let place = self.place_of(node.seen.clone());
            self.nodes[place].times.merge(&node.times);
        }
        self.untold += other.untold;
        self.slots_moved += other.slots_moved;
        self.sent_again += other.sent_again;
    }

    /// All nodes: by their first slot, those without any last.
    pub(crate) fn nodes(&self) -> Vec<&NodeAnswers> {
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        let first = |node: &&NodeAnswers| {
            let slots = node.seen.slots.first();
            (slots.map_or(u16::MAX, |slots| *slots.start()), node.seen.endpoint.to_string())
        };
        nodes.sort_by_key(first);
        nodes
    }

    fn place_of(&mut self, seen: SeenNode) -> usize {
        let known = self.nodes.iter().position(|node| node.seen.endpoint == seen.endpoint);
        let place = known.unwrap_or(self.nodes.len());
        match self.nodes.get_mut(place) {
            Some(node) => node.seen = seen,
            None => self.nodes.push(NodeAnswers { seen, times: Times::new() }),
        }
        place
    }
}
