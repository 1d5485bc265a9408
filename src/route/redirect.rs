//! The error replies by which a node of a cluster names another one.

use crate::command::slot::SLOT_COUNT;
use crate::config::Endpoint;
use crate::resp::{ServerError, code};
use crate::topology::endpoint_of;

/// Where a command is to go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `false`: for this command only, after ASKING.
    pub(crate) is_moved: bool,
    pub(crate) slot: u16,
    /// `None`: the server does not know its address.
    pub(crate) to: Option<Endpoint>,
}

impl Redirect {
    /// Reads the error that the node at `from` answered. `None` for one that is no redirect, or names a
    /// slot or address that cannot be: that is the caller's.
    pub(crate) fn of(error: &ServerError, from: &Endpoint) -> Option<Redirect> {
        let is_moved = error.is(code::MOVED);
        if !is_moved && !error.is(code::ASK) {
            return None;
        }
        let (slot, address) = error.text().split_once(' ')?;
        let slot = slot.parse().ok().filter(|slot| *slot < SLOT_COUNT)?;
        let (host, port) = address.rsplit_once(':')?;
        let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let to = endpoint_of(Some(host.to_owned()).filter(|host| host != "?"), port, from);
        Some(Redirect { is_moved, slot, to })
    }
}
