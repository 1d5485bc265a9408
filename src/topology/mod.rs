//! What the fleet looks like: immutable snapshots with an epoch, and the board that they are published on.

mod board;
mod health;
mod snapshot;

pub use board::Board;
pub(crate) use board::{Call, Hint};
pub use health::{Health, NodeHealth};
pub(crate) use health::{Report, merge};
pub use snapshot::{Node, NodeIndex, Role, Topology};
