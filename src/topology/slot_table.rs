//! Which node takes the writes of each slot.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::NodeIndex;
use crate::command::slot::SLOT_COUNT;

/// No node.
const NONE: u16 = u16::MAX;

/// The primary of each slot: 32 KiB, shared until somebody patches it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotTable(Arc<[u16; SLOT_COUNT as usize]>);

impl SlotTable {
    /// A table in which no slot has a node.
    pub(crate) fn empty() -> SlotTable {
        SlotTable(Arc::new([NONE; SLOT_COUNT as usize]))
    }

    /// The primary of a slot, if any node serves it.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> Option<NodeIndex> {
        let node = *self.0.get(usize::from(slot))?;
        (node != NONE).then_some(NodeIndex(node.into()))
    }

    /// From now on `node` has these slots. A node whose index does not fit is left out: there are 65,535.
    pub(crate) fn set(&mut self, slots: RangeInclusive<u16>, node: NodeIndex) {
        let (first, last) = (usize::from(*slots.start()), usize::from(*slots.end()));
        let Ok(index) = u16::try_from(node.0) else { return };
        if let Some(part) = Arc::make_mut(&mut self.0).get_mut(first..=last) {
            part.fill(index);
        }
    }

    /// Runs of slots with the same node, in order.
    pub(crate) fn ranges(&self) -> Vec<(RangeInclusive<u16>, NodeIndex)> {
        let mut ranges: Vec<(RangeInclusive<u16>, NodeIndex)> = Vec::new();
        for slot in 0..SLOT_COUNT {
            let Some(node) = self.owner(slot) else { continue };
            match ranges.last_mut() {
                Some((run, of)) if *of == node && *run.end() + 1 == slot => {
                    *run = *run.start()..=slot;
                }
                _ => ranges.push((slot..=slot, node)),
            }
        }
        ranges
    }

    /// How many slots have no node.
    pub(crate) fn uncovered(&self) -> usize {
        self.0.iter().filter(|node| **node == NONE).count()
    }
}

impl fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable").field("uncovered", &self.uncovered()).finish_non_exhaustive()
    }
}
