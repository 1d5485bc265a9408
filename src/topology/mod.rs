//! What the fleet looks like: immutable snapshots with an epoch.

mod snapshot;

pub use snapshot::{Node, NodeIndex, Role, Topology};
