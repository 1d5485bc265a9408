//! Commands that are not sent: refused locally, before any byte is written.
use super::args::ARG_BYTES_MAX;
use super::table::Spec;
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
    #[error("{name} is an administrative command: allow it with `allow_admin`")]
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
        "MULTI" | "EXEC" | "DISCARD" | "WATCH" | "UNWATCH" => "use a transaction",
        name if name.ends_with("SUBSCRIBE") => "use a subscriber",
        _ => "it cannot be sent on one",
    }
}

impl<R> Command<R> {
    /// Says whether the command may be sent at all.
    ///
    /// # Errors
    /// [`Refused`], with what would be right.
    #[inline]
    pub fn check(&self, allow_admin: bool) -> Result<(), Refused> {
        let Some(spec) = self.spec() else { return self.check_unknown() };
        let arity = i64::from(spec.arity());
        let words = i64::from(self.arg_count());
        let fits = if arity < 0 { words >= -arity } else { words == arity };
        let risky = Flags::ADMIN.union(Flags::CONNECTION_STATE).union(Flags::CONTAINER);
        if fits && !self.args.oversize() && !spec.flags().intersects(risky) {
            return Ok(());
        }
        self.check_slowly(spec, fits, allow_admin)
    }

    #[cold]
    fn check_slowly(&self, spec: Spec, fits: bool, allow_admin: bool) -> Result<(), Refused> {
        let (name, flags) = (spec.name(), spec.flags());
        if self.args.oversize() {
            return Err(Refused::Oversize);
        }
        if flags.contains(Flags::CONTAINER) && !fits {
            return Err(Refused::Container { name });
        }
        if !fits {
            let given = self.arg_count() - (name.split(' ').count() as u32).min(self.arg_count());
            return Err(Refused::Arity { name, arity: spec.arity(), given });
        }
        if self.raw && flags.contains(Flags::CONNECTION_STATE) {
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
        if self.args.oversize() { Err(Refused::Oversize) } else { Ok(()) }
    }
}
