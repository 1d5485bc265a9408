//! What a failed command can tell of its connection.

use std::fmt;
use std::time::Duration;

use crate::config::Endpoint;

/// How far a command had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The connection was being made.
    Connecting,
    /// It waited for room and was never queued.
    WaitingForCapacity,
    /// It was queued; no byte of it was handed to the system.
    Buffered,
    /// Part of it may have been written.
    Writing,
    /// It was written whole, which does not say that the server ran it.
    AwaitingReply,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Connecting => "connecting",
            Stage::WaitingForCapacity => "waiting for room",
            Stage::Buffered => "queued",
            Stage::Writing => "being written",
            Stage::AwaitingReply => "awaiting its reply",
        })
    }
}

/// How busy the placement was. `None` is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// Tasks due on the core.
    pub tasks_ready: Option<usize>,
    /// How long the present turn has lasted already: the core's lag.
    pub lag: Option<Duration>,
    /// Completions that came in the present turn: its backlog.
    pub completions: Option<usize>,
    /// How often the submission queue was full so far.
    pub queue_full: Option<u64>,
    /// Requests that nobody has redeemed yet.
    pub requests: Option<usize>,
}

/// A connection at the moment of a failure. Holds no key, no value and no credential, and
/// is built only on failure, without any network access.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostics {
    /// How far the command had come.
    pub stage: Stage,
    /// The physical endpoint; `None` where no single one is meant.
    pub endpoint: Option<Endpoint>,
    /// Process-local number of the connection.
    pub connection: Option<u64>,
    /// Replies outstanding on the connection.
    pub replies_outstanding: Option<usize>,
    /// Bytes of the commands whose replies are outstanding.
    pub bytes_outstanding: Option<u64>,
    /// Bytes that wait to be written.
    pub bytes_unwritten: Option<u64>,
    /// Time since bytes last came.
    pub since_read: Option<Duration>,
    /// Time since the system last took bytes.
    pub since_write: Option<Duration>,
    /// The placement.
    pub pressure: Pressure,
}

impl Diagnostics {
    /// A snapshot of nothing but the stage.
    pub fn unavailable(stage: Stage) -> Diagnostics {
        Diagnostics {
            stage,
            endpoint: None,
            connection: None,
            replies_outstanding: None,
            bytes_outstanding: None,
            bytes_unwritten: None,
            since_read: None,
            since_write: None,
            pressure: Pressure::default(),
        }
    }

    /// What is worth checking. A hint never states a cause.
    pub fn hint(&self) -> &'static str {
        let lag = self.pressure.lag.unwrap_or_default();
        if lag > Duration::from_millis(10) {
            return "check for tasks that run long on this core without awaiting";
        }
        match self.stage {
            Stage::Connecting => {
                "check that the server listens there and the network lets it through"
            }
            Stage::WaitingForCapacity => {
                "check whether more connections or a larger in_flight_max fit"
            }
            Stage::Buffered | Stage::Writing => {
                "check whether the server reads: a paused process, a full network"
            }
            Stage::AwaitingReply
                if self.since_read.is_some_and(|t| t < Duration::from_millis(50)) =>
            {
                "replies still arrive: check for slow commands ahead of this one"
            }
            Stage::AwaitingReply => "check whether the server is paused, overloaded or cut off",
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it was {}", self.stage)?;
        if let (Some(n), Some(bytes)) = (self.replies_outstanding, self.bytes_outstanding) {
            write!(f, "; {n} replies ({bytes} bytes of commands) outstanding")?;
        }
        if let Some(bytes) = self.bytes_unwritten {
            write!(f, ", {bytes} bytes unwritten")?;
        }
        if let Some(read) = self.since_read {
            write!(f, ", last bytes {} ms ago", read.as_millis())?;
        }
        write!(f, "; {}", self.hint())
    }
}
