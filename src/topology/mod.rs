//! What the fleet looks like: immutable snapshots with an epoch, and the board that they are published on.

mod board;
#[cfg(test)]
mod cases;
mod change;
mod cluster;
mod health;
mod slot_table;
mod slots_reply;
mod snapshot;

pub use board::Board;
pub(crate) use board::{Call, Hint};
pub use change::{TopologyChange, TopologyChanges};
pub use health::{Health, NodeHealth};
pub(crate) use health::{Report, merge};
pub(crate) use slot_table::SlotTable;
pub(crate) use slots_reply::{SlotsReply, endpoint_of};
pub use snapshot::{Node, NodeIndex, Role, Topology};
