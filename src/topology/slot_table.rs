//! Which node takes the writes of each slot.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::NodeIndex;
use crate::command::slot::SLOT_COUNT;

const COUNT: usize = SLOT_COUNT as usize;
/// No node.
const NONE: u16 = u16::MAX;

/// Neighbouring slots that nearly always have the same node.
const BLOCK: usize = 16;
/// Not all slots of a block have the same node.
const MIXED: u16 = u16::MAX - 1;

/// The primary of each slot, shared until somebody patches it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotTable(Arc<Owners>);

#[derive(Clone, PartialEq, Eq)]
struct Owners {
    /// Of whole blocks: 2 KiB, which stay in the first-level cache beside all else that a command needs, as
    /// 32 would not.
    blocks: [u16; COUNT / BLOCK],
    slots: [u16; COUNT],
}

impl SlotTable {
    /// A table in which no slot has a node.
    pub(crate) fn empty() -> SlotTable {
        SlotTable(Arc::new(Owners { blocks: [NONE; COUNT / BLOCK], slots: [NONE; COUNT] }))
    }

    /// The primary of a slot, if any node serves it.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> Option<NodeIndex> {
        let slot = usize::from(slot);
        let node = match *self.0.blocks.get(slot / BLOCK)? {
            MIXED => *self.0.slots.get(slot)?,
            node => node,
        };
        (node != NONE).then_some(NodeIndex(node.into()))
    }

    /// From now on `node` has these slots. A node whose index does not fit is left out: there are 65,534.
    pub(crate) fn set(&mut self, slots: RangeInclusive<u16>, node: NodeIndex) {
        let (first, last) = (usize::from(*slots.start()), usize::from(*slots.end()));
        let Some(node) = u16::try_from(node.0).ok().filter(|node| *node < MIXED) else { return };
        let owners = Arc::make_mut(&mut self.0);
        let Some(part) = owners.slots.get_mut(first..=last) else { return };
        part.fill(node);
        let blocks = owners.slots.chunks(BLOCK).zip(&mut owners.blocks);
        for (slots, block) in blocks.take(last / BLOCK + 1).skip(first / BLOCK) {
            let is_whole = slots.iter().all(|other| *other == slots[0]);
            *block = if is_whole { slots[0] } else { MIXED };
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
        (0..SLOT_COUNT).filter(|slot| self.owner(*slot).is_none()).count()
    }
}

impl fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable").field("uncovered", &self.uncovered()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a slot has another owner than it was last given, wherever ranges begin and end.
    #[test]
    fn each_slot_has_its_owner() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut table = SlotTable::empty();
        let mut plain = vec![None; COUNT];
        for step in 0..400 {
            let first = random.u16(..SLOT_COUNT);
            let most = if step % 2 == 0 { 40 } else { SLOT_COUNT };
            let last = first.saturating_add(random.u16(..most)).min(SLOT_COUNT - 1);
            let node = NodeIndex(random.choice([0, 1, 255, 256, 65_533]).unwrap_or(0));
            table.set(first..=last, node);
            plain[usize::from(first)..=usize::from(last)].fill(Some(node));
            let owners: Vec<_> = (0..SLOT_COUNT).map(|slot| table.owner(slot)).collect();
            assert!(owners == plain, "step {step}: {first} to {last}");
        }
        assert_eq!(table.uncovered(), plain.iter().filter(|node| node.is_none()).count());
    }

    /// Fails if a node that does not fit takes slots from others.
    #[test]
    fn a_node_that_does_not_fit_is_left_out() {
        let mut table = SlotTable::empty();
        table.set(0..=9, NodeIndex(3));
        for high in [65_534, 65_535, 65_536, u32::MAX] {
            table.set(0..=20, NodeIndex(high));
        }
        assert_eq!([9, 10].map(|slot| table.owner(slot)), [Some(NodeIndex(3)), None]);
    }
}
