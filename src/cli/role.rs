//! What a server says of its part in replication.

use hedgerow::resp::Value;

/// What a node is, by its answer to ROLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Replica {
        /// Its link to the primary is up.
        linked: bool,
    },
    /// Something else, by the server's word.
    Other(String),
}

impl Role {
    /// The server's word.
    pub(crate) fn word(&self) -> &str {
        match self {
            Role::Primary => "master",
            Role::Replica { .. } => "slave",
            Role::Other(word) => word,
        }
    }

    /// Reads the answer.
    pub(crate) fn new(reply: &Value) -> Role {
        let Value::Array(parts) = reply else { return Role::Other("unknown".into()) };
        let text = |at: usize| match parts.get(at) {
            Some(Value::Bulk(text) | Value::Simple(text)) => {
                String::from_utf8_lossy(text).into_owned()
            }
            _ => String::new(),
        };
        match text(0).as_str() {
            "master" => Role::Primary,
            "slave" => Role::Replica { linked: text(3) == "connected" },
            word => Role::Other(word.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a primary passes for a replica, or a link that is down for one that is up.
    #[test]
    fn roles_are_read_from_replies() {
        let bulk = |text: &'static str| Value::Bulk(text.into());
        let reply = |state| {
            Value::Array(vec![bulk("slave"), bulk("h"), Value::Int(1), bulk(state), Value::Int(0)])
        };
        assert_eq!(Role::new(&reply("connected")), Role::Replica { linked: true });
        assert_eq!(Role::new(&reply("sync")), Role::Replica { linked: false });
        let primary = Value::Array(vec![bulk("master"), Value::Int(0), Value::Array(vec![])]);
        assert_eq!(Role::new(&primary), Role::Primary);
        assert_eq!(Role::new(&Value::Array(vec![bulk("sentinel")])).word(), "sentinel");
        assert_eq!(Role::new(&Value::Int(1)).word(), "unknown");
    }
}
