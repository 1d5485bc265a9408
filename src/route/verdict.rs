//! The only place where an error reply becomes a decision.

use super::redirect::Redirect;
use crate::config::Endpoint;
use crate::resp::{ServerError, code};
use crate::topology::Role;

/// What to do about an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the caller's.
    Return,
    /// It is the caller's, and the connection leads to the wrong server: a name that now points
    /// elsewhere is resolved again by connecting anew (C-15).
    ReturnAndReconnect,
    /// It is the caller's, and the replica's link to its primary is worth another look.
    ReturnAndCheck,
    /// It goes to another node of the cluster.
    Follow(Redirect),
    /// It may succeed a moment later.
    TryAgain,
    /// As this, once the cluster serves the slot again.
    AwaitCluster,
    /// The slot has another owner, which the nodes have to be asked for.
    Rediscover,
    /// The node has no data to serve just now: a read may go to one of the other role.
    OtherRole,
}

/// Decides on the error that a standalone server answered.
pub(crate) fn verdict(error: &ServerError, role: Role) -> Verdict {
    match role {
        Role::Primary if error.is(code::READONLY) => Verdict::ReturnAndReconnect,
        Role::Replica if error.is(code::MASTERDOWN) => Verdict::ReturnAndCheck,
        Role::Primary | Role::Replica => Verdict::Return,
    }
}

/// Decides on the error that the node of a cluster at `from` answered.
pub(crate) fn verdict_in_cluster(error: &ServerError, from: &Endpoint) -> Verdict {
    match error.code() {
        code::MOVED | code::ASK => {
            Redirect::of(error, from).map_or(Verdict::Return, Verdict::Follow)
        }
        code::TRYAGAIN => Verdict::TryAgain,
        code::CLUSTERDOWN => Verdict::AwaitCluster,
        code::READONLY => Verdict::Rediscover,
        code::LOADING | code::MASTERDOWN => Verdict::OtherRole,
        _ => Verdict::Return,
    }
}

/// Whether any other node would answer a read with the same error, so that its hedge need not be waited
/// for.
pub(crate) fn is_final(error: &ServerError) -> bool {
    error.is(code::WRONGTYPE)
}
