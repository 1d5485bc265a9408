//! How a view of the deployment differs from the one before, as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::board::{Board, WatcherId};
use super::snapshot::{Node, Role, Topology};
use crate::command::slot::SLOT_COUNT;
use crate::config::Endpoint;

/// What a newer view of a deployment says otherwise than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyChange {
    /// The number of the newer view: it rises, by more than one where several came between two looks.
    pub epoch: u64,
    /// How many slots have another primary, or one at all; 0 where there is no cluster.
    pub slots: usize,
    /// Nodes that came, or came back.
    pub added: Vec<Endpoint>,
    /// Nodes that left.
    pub removed: Vec<Endpoint>,
    /// Nodes that stayed and are reached at another address: the old one and the new one.
    pub readdressed: Vec<(Endpoint, Endpoint)>,
    /// Nodes that stayed and have another role, which this is; also replicas of another primary.
    pub roles: Vec<(Endpoint, Role)>,
}

impl TopologyChange {
    /// From `old` to `new`, both of one deployment.
    fn between(old: &Topology, new: &Topology) -> TopologyChange {
        let mut change = TopologyChange { epoch: new.epoch(), ..TopologyChange::default() };
        let owner = |view: &Topology, slot| view.slots().and_then(|slots| slots.owner(slot));
        if old.slots() != new.slots() {
            let differs = |slot: &u16| owner(old, *slot) != owner(new, *slot);
            change.slots = (0..SLOT_COUNT).filter(differs).count();
        }
        for (index, node) in new.nodes() {
            let before = old.node(index).filter(|node| !node.is_removed);
            match (before, node.is_removed) {
                (None, false) => change.added.push(node.endpoint().clone()),
                (Some(before), true) => change.removed.push(before.endpoint().clone()),
                (Some(before), false) => change.compare(before, node),
                (None, true) => {}
            }
        }
        change
    }

    /// A node that stayed.
    fn compare(&mut self, before: &Node, node: &Node) {
        let endpoint = node.endpoint();
        if before.endpoint() != endpoint {
            self.readdressed.push((before.endpoint().clone(), endpoint.clone()));
        }
        if (before.role, before.shard) != (node.role, node.shard) {
            self.roles.push((endpoint.clone(), node.role));
        }
    }

    fn is_empty(&self) -> bool {
        let TopologyChange { epoch: _, slots, added, removed, readdressed, roles } = self;
        let lists = [added.len(), removed.len(), readdressed.len(), roles.len()];
        *slots == 0 && lists == [0; 4]
    }
}

/// For a log: `view 7: 100 slots moved, 127.0.0.1:7003 came`.
impl fmt::Display for TopologyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}:", self.epoch)?;
        let mut parts = Vec::new();
        if self.slots > 0 {
            let word = if self.slots == 1 { "slot" } else { "slots" };
            parts.push(format!("{} {word} moved", self.slots));
        }
        parts.extend(self.added.iter().map(|node| format!("{node} came")));
        parts.extend(self.removed.iter().map(|node| format!("{node} left")));
        parts.extend(self.readdressed.iter().map(|(old, new)| format!("{old} is now {new}")));
        parts.extend(self.roles.iter().map(|(node, role)| format!("{node} is a {role}")));
        write!(f, " {}", parts.join(", "))
    }
}

/// The changes of a deployment's topology from the view at the call on, as a stream.
///
/// A change is told once it is published, which is when the cores of the client begin to go by it. Who is
/// slow misses none, but gets several as one. It ends when no client of the deployment is left.
pub struct TopologyChanges {
    board: Arc<Board>,
    seen: Arc<Topology>,
    watcher: WatcherId,
}

impl TopologyChanges {
    pub(crate) fn new(board: &Arc<Board>) -> TopologyChanges {
        let (board, seen) = (board.clone(), board.topology());
        let watcher = board.watch();
        TopologyChanges { board, seen, watcher }
    }

    /// The next change; `None` when no client of the deployment is left.
    pub async fn next(&mut self) -> Option<TopologyChange> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for TopologyChanges {
    type Item = TopologyChange;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TopologyChange>> {
        // Before the look, so that nothing is published in between unheard.
        self.board.call_watcher(self.watcher, cx.waker());
        let new = self.board.topology();
        let change = TopologyChange::between(&self.seen, &new);
        self.seen = new;
        match (change.is_empty(), self.board.is_used()) {
            (false, _) => Poll::Ready(Some(change)),
            (true, true) => Poll::Pending,
            (true, false) => Poll::Ready(None),
        }
    }
}

impl Drop for TopologyChanges {
    fn drop(&mut self) {
        let _waker = self.board.unwatch(self.watcher);
    }
}

impl fmt::Debug for TopologyChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopologyChanges")
    }
}

#[cfg(test)]
mod tests {
    use hedgerow_runtime::time::Instant;

    use super::*;
    use crate::config::{Cluster, Options};

    const NOW: Instant = Instant::ZERO;

    fn at(port: u16) -> Endpoint {
        Endpoint::tcp("127.0.0.1", port)
    }

    fn profile() -> Arc<Options> {
        let cluster = Some(Cluster::default());
        Arc::new(Options { cluster, ..Options::new(at(1)) })
    }

    /// Fails if a change of owners is counted wrong, or a node that came is not told.
    #[test]
    fn moved_slots_and_new_nodes_are_told() {
        let profile = profile();
        let first = Topology::of(&profile);
        let second = first.with_moved(NOW, &profile, 5, &at(2));
        let third = second.with_moved(NOW, &profile, 6, &at(2));
        let change = TopologyChange::between(&first, &second);
        let expected =
            TopologyChange { epoch: 2, slots: 1, added: vec![at(2)], ..TopologyChange::default() };
        assert!(change.epoch > first.epoch());
        assert_eq!(TopologyChange { epoch: 2, ..change }, expected);
        let both = TopologyChange::between(&first, &third);
        assert_eq!((both.slots, both.added), (2, vec![at(2)]));
        assert!(TopologyChange::between(&third, &third).is_empty());
    }

    /// Fails if a replica that left or came back is not told.
    #[test]
    fn replicas_that_leave_and_come_back_are_told() {
        let replica_endpoints = vec![at(2), at(3)];
        let profile = Arc::new(Options { replica_endpoints, ..Options::new(at(1)) });
        let all = Topology::of(&profile);
        let fewer = all.with_replicas(NOW, &[at(3)]);
        let change = TopologyChange::between(&all, &fewer);
        assert_eq!((change.removed, change.added), (vec![at(2)], vec![]));
        let back = fewer.with_replicas(NOW, &[at(2), at(3)]);
        let change = TopologyChange::between(&fewer, &back);
        assert_eq!((&change.removed, &change.added), (&vec![], &vec![at(2)]));
        assert_eq!(change.to_string(), format!("view {}: 127.0.0.1:2 came", change.epoch));
    }
}
