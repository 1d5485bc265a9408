//! What a client is told: where to connect, as whom, and how long to wait.

mod endpoint;
mod options;
mod reconnect;

pub use endpoint::Endpoint;
pub use hedgerow_runtime::socket::Keepalive;
pub use options::{Options, ProtocolChoice, Secret};
pub use reconnect::Reconnect;
