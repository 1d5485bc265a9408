//! Commands that are not sent: refused locally, before any byte is written.
use super::args::ARG_BYTES_MAX;
use super::{Command, Flags};

/// Why a command was refused locally.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The number of arguments is not one that the server takes.
    #[error("{name} takes {} argument(s), not {given}", takes(*.arity, .name))]
    Arity {
        /// The command.
        name: &'static str,
        /// Words that it has, its name included; negative: at least so many.
        arity: i16,
        /// Arguments given, without the name.
        given: u32,
    },
    /// A high-risk command on a client that was not allowed it.
    #[error("{name} is an administrative command: set `allow_admin` in the options to allow it")]
    Admin {
        /// The command.
        name: &'static str,
    },
    /// A raw command that would break the state that the client holds for its connection.
    #[error("{name} would alter a connection that the client shares and restores: {}", instead(.name))]
    ConnectionState {
        /// The command.
        name: &'static str,
    },
    /// Only a container's name, or a subcommand that it does not have.
    #[error("{name} needs a subcommand: `{name} HELP` lists them")]
    Container {
        /// The container.
        name: &'static str,
    },
    /// Keys (or channels) in several hash slots, for a command that a cluster runs on one node only
    ///
    #[error(
        "{name}: CROSSSLOT, its keys are in several hash slots: give them a common hash tag, as in \
         {{tag}}a and {{tag}}b{}", otherwise(.name)
    )]
    CrossSlot {
        /// The command.
        name: &'static str,
    },
    /// The last key of a command of keys and values has no value.
    #[error("{name} takes a value for each key, and the last key has none")]
    Unpaired {
        /// The command.
        name: &'static str,
    },
    /// A raw command without a name.
    #[error("a command needs a name, such as \"GET\"")]
    Unnamed,
    /// An argument longer than servers accept.
    #[error("an argument is longer than {} MiB, the most that servers accept", ARG_BYTES_MAX >> 20)]
    Oversize,
}

fn takes(arity: i16, name: &str) -> String {
    let words = name.split(' ').count() as i32;
    let least = (i32::from(arity).abs() - words).max(0);
    if arity < 0 { format!("at least {least}") } else { least.to_string() }
}

fn instead(name: &str) -> &'static str {
    match name {
        "SELECT" => "make another client with that database",
        "AUTH" | "HELLO" => "set user, password and protocol in the options",
        "CLIENT SETNAME" => "set the client name in the options",
        "MULTI" | "EXEC" | "DISCARD" | "WATCH" | "UNWATCH" => "transactions are not available yet",
        name if name.ends_with("SUBSCRIBE") => "pub/sub is not available yet",
        _ => "it cannot be sent on one",
    }
}

/// What else would be right for a command with keys in several slots.
fn otherwise(name: &str) -> &'static str {
    match name {
        "MSETEX" => ", or leave NX and XX out (each slot would judge by its own keys)",
        "MSETNX" => ", or set each key by a SET with NX (each slot would judge by its own keys)",
        _ => "",
    }
}

impl<R> Command<R> {
    /// Says whether the command may be sent at all.
    ///
    /// # Errors
    /// [`Refused`], with what would be right.
    #[inline]
    pub fn check(&self, allow_admin: bool) -> Result<(), Refused> {
        if self.said.args.is_plain() {
            return Ok(());
        }
        self.check_closely(allow_admin)
    }

    #[cold]
    fn check_closely(&self, allow_admin: bool) -> Result<(), Refused> {
        let Some(spec) = self.spec() else { return self.check_unknown() };
        let arity = i64::from(spec.arity());
        let words = i64::from(self.arg_count());
        let fits = if arity < 0 { words >= -arity } else { words == arity };
        let (name, flags) = (spec.name(), spec.flags());
        if self.said.args.oversize() {
            return Err(Refused::Oversize);
        }
        if flags.contains(Flags::CONTAINER) && !fits {
            return Err(Refused::Container { name });
        }
        if !fits {
            let given = self.arg_count() - (name.split(' ').count() as u32).min(self.arg_count());
            return Err(Refused::Arity { name, arity: spec.arity(), given });
        }
        if self.said.raw && flags.contains(Flags::CONNECTION_STATE) {
            return Err(Refused::ConnectionState { name });
        }
        if flags.contains(Flags::ADMIN) && !allow_admin {
            return Err(Refused::Admin { name });
        }
        Ok(())
    }

    fn check_unknown(&self) -> Result<(), Refused> {
        if self.arg_count() == 0 {
            return Err(Refused::Unnamed);
        }
        if self.said.args.oversize() { Err(Refused::Oversize) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{keys, raw, server, strings};

    fn refused(words: &[&str]) -> String {
        let command = raw("").args(words).build::<()>();
        command.check(false).err().map(|why| why.to_string()).unwrap_or_default()
    }

    /// Fails if a number of arguments that the server refuses is sent, or the error says less.
    #[test]
    fn arity_is_checked_locally() {
        assert_eq!(refused(&["GET"]), "GET takes 1 argument(s), not 0");
        assert_eq!(refused(&["get", "a", "b"]), "GET takes 1 argument(s), not 2");
        assert_eq!(refused(&["MSET", "a"]), "MSET takes at least 2 argument(s), not 1");
        assert_eq!(refused(&["OBJECT", "FREQ"]), "OBJECT FREQ takes 1 argument(s), not 0");
        assert_eq!(refused(&["GET", "a"]), "");
        let none = keys::del(Vec::<String>::new()).check(false);
        assert_eq!(none, Err(Refused::Arity { name: "DEL", arity: -2, given: 0 }));
    }

    /// Fails if an administrative command passes without `allow_admin`, or not with it.
    #[test]
    fn administration_needs_to_be_allowed() {
        let flush = server::flushall(server::Flush::Sync);
        assert_eq!(flush.check(false), Err(Refused::Admin { name: "FLUSHALL" }));
        assert_eq!(flush.check(true), Ok(()));
        assert!(refused(&["config", "set", "a", "b"]).contains("allow_admin"));
        assert_eq!(refused(&["CONFIG", "GET", "a"]), "");
    }

    /// Fails if a raw command may alter the state that the client holds for a connection.
    #[test]
    fn connection_state_is_not_altered_raw() {
        for words in [
            &["HELLO", "3"][..],
            &["RESET"],
            &["SELECT", "1"],
            &["client", "tracking", "on"],
            &["AUTH", "secret"],
            &["SUBSCRIBE", "c"],
        ] {
            let why = refused(words);
            assert!(why.contains("alter a connection"), "{words:?}: {why}");
            assert!(!why.contains("secret"));
            let allowed = raw("").args(words).build::<()>().check(true);
            assert!(matches!(allowed, Err(Refused::ConnectionState { .. })), "{words:?}");
        }
        assert_eq!(refused(&["CLIENT", "ID"]), "");
    }

    /// Fails if a command without a name, or half of one, is sent.
    #[test]
    fn a_name_is_needed_and_all_of_it() {
        assert_eq!(raw(" ").build::<()>().check(true), Err(Refused::Unnamed));
        assert!(refused(&["CLIENT"]).contains("CLIENT HELP"));
        assert_eq!(refused(&["MODULE.GET", "a"]), "");
        assert_eq!(refused(&["CLIENT", "NEWER", "a"]), "");
    }

    /// Fails if what a command says of itself holds an argument.
    #[test]
    fn debug_shows_no_argument() {
        let text = format!("{:?} {:?}", strings::get::<()>("secret"), raw("GET").arg("secret"));
        assert!(text.contains("GET") && !text.contains("secret"), "{text}");
    }
}
