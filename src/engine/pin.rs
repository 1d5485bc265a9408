//! Which server a cursor comes from.

use std::collections::HashMap;

use super::LinkId;
use crate::route::PinId;
use crate::topology::NodeIndex;

/// The servers that scans read from: those that all plain cursor commands of a policy share, and those of
/// scans of their own. Commands with a key share one for each shard of a cluster.
#[derive(Default)]
pub(super) struct Pins(HashMap<(PinId, Option<NodeIndex>), Pinned>);

/// A link, and the number of its connection: the next one may lead to a server that knows no such cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) link: LinkId,
    pub(super) number: u64,
}

impl Pins {
    pub(super) fn get(&self, id: PinId, shard: Option<NodeIndex>) -> Option<Pinned> {
        self.0.get(&(id, shard)).copied()
    }

    pub(super) fn set(&mut self, id: PinId, shard: Option<NodeIndex>, to: Pinned) {
        self.0.insert((id, shard), to);
    }

    pub(super) fn remove(&mut self, id: PinId, shard: Option<NodeIndex>) {
        self.0.remove(&(id, shard));
    }

    /// A scan is over.
    pub(super) fn remove_all(&mut self, id: PinId) {
        self.0.retain(|(other, _), _| *other != id);
    }
}
