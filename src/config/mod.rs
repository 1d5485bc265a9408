//! What a client is told: where to connect, as whom, and how long to wait.

mod cluster;
mod endpoint;
mod options;
mod reconnect;

pub use cluster::{Cluster, Mesh};
pub use endpoint::Endpoint;
pub use hedgerow_runtime::socket::Keepalive;
pub use options::{Options, ProtocolChoice, Secret};
pub use reconnect::Reconnect;
