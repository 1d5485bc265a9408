//! The only place where an error reply becomes a decision.

use crate::resp::ServerError;
use crate::topology::Role;

/// What to do about an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the caller's.
    Return,
    /// It is the caller's, and the connection leads to the wrong server: a name that now points
    /// elsewhere is resolved again by connecting anew (C-15).
    ReturnAndReconnect,
    /// It is the caller's, and the replica's link to its primary is worth another look.
    ReturnAndCheck,
}

/// Decides on the error that a standalone server answered.
pub(crate) fn verdict(error: &ServerError, role: Role) -> Verdict {
    match role {
        Role::Primary if error.is("READONLY") => Verdict::ReturnAndReconnect,
        Role::Replica if error.is("MASTERDOWN") => Verdict::ReturnAndCheck,
        Role::Primary | Role::Replica => Verdict::Return,
    }
}

/// Whether any other node would answer a read with the same error, so that its hedge need not be waited
/// for.
pub(crate) fn is_final(error: &ServerError) -> bool {
    error.is("WRONGTYPE")
}
