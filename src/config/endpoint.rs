//! The address of a server, as the user gave it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::Error;

/// Where a server is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Endpoint {
    /// TCP: a host name or an IP literal (IPv6 without brackets), and a port from 1 to 65535.
    Tcp {
        /// Name or literal.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// A TCP endpoint.
    pub fn tcp(host: impl Into<String>, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    /// Checks the address of the option `what`.
    pub(super) fn check(&self, what: &str) -> Result<(), Error> {
        let bad = match self {
            Endpoint::Tcp { port: 0, .. } => "the port must be from 1 to 65535",
            Endpoint::Tcp { host, .. } if host.is_empty() => "the host is empty",
            Endpoint::Tcp { host, .. } if host.contains(|c: char| c.is_control() || c == ' ') => {
                "the host has a space or control character"
            }
            _ => return Ok(()),
        };
        Err(Error::config(format!("`{what}`: {bad}")))
    }

    /// A Unix socket's endpoint.
    pub fn unix(path: impl Into<PathBuf>) -> Endpoint {
        Endpoint::Unix(path.into())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if matches!(host.parse(), Ok(IpAddr::V6(_))) => {
                write!(f, "[{host}]:{port}")
            }
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
