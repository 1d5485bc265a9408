//! Which server a cursor comes from.

use std::collections::HashMap;

use super::LinkId;
use crate::route::PinId;

/// The servers that scans read from: those that all plain cursor commands of a policy share, and those of
/// scans of their own.
#[derive(Default)]
pub(super) struct Pins(HashMap<PinId, Pinned>);

/// A link, and the number of its connection: the next one may lead to a server that knows no such cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) link: LinkId,
    pub(super) number: u64,
}

impl Pins {
    pub(super) fn get(&self, id: PinId) -> Option<Pinned> {
        self.0.get(&id).copied()
    }

    pub(super) fn set(&mut self, id: PinId, to: Pinned) {
        self.0.insert(id, to);
    }

    pub(super) fn remove(&mut self, id: PinId) {
        self.0.remove(&id);
    }
}
