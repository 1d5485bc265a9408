//! The only place where an error reply becomes a decision.

use crate::resp::ServerError;

/// What to do about an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the caller's.
    Return,
    /// It is the caller's, and the connection leads to the wrong server: a name that now points
    /// elsewhere is resolved again by connecting anew (C-15).
    ReturnAndReconnect,
}

/// Decides on the error that a standalone server answered.
pub(crate) fn verdict(error: &ServerError) -> Verdict {
    if error.is("READONLY") { Verdict::ReturnAndReconnect } else { Verdict::Return }
}
