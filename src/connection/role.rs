//! What a server says of its role.

use crate::resp::Frame;
use crate::topology::Role;

/// The answer to ROLE, as far as reads need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoleReply {
    /// `None` for a role that serves no reads, as `sentinel`.
    pub(crate) role: Option<Role>,
    /// Of a replica: its link to its primary is up.
    pub(crate) linked: bool,
    /// Bytes of the replication stream that it has sent (a primary) or taken (a replica).
    pub(crate) offset: Option<u64>,
}

impl RoleReply {
    /// Reads a reply; `None` if it is none to ROLE.
    pub(crate) fn of(frame: &Frame<'_>) -> Option<RoleReply> {
        let mut elements = frame.elements();
        let word = elements.next()?;
        let offset = |number: Option<i64>| number.and_then(|n| u64::try_from(n).ok());
        match word.payload() {
            b"master" | b"primary" => Some(RoleReply {
                role: Some(Role::Primary),
                linked: true,
                offset: offset(elements.next().and_then(|e| e.int())),
            }),
            b"slave" | b"replica" => {
                let (_host, _port) = (elements.next()?, elements.next()?);
                let linked = elements.next()?.payload() == b"connected";
                let offset = offset(elements.next().and_then(|e| e.int()));
                Some(RoleReply { role: Some(Role::Replica), linked, offset })
            }
            b"sentinel" => Some(RoleReply { role: None, linked: false, offset: None }),
            _ => None,
        }
    }
}

/// What an answer to `INFO SERVER` has under `name`; `None` where that is empty.
pub(super) fn field_of_info(text: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim_end().to_owned()).filter(|value| !value.is_empty())
}
