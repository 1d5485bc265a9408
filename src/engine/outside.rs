//! The border between the engine and the world.
//!
//! The engine is plain code without threads, sockets, locks or futures. What it needs from outside
//! it asks of one generic trait with three instances: a pinned core, a tokio runtime, the
//! simulator. Time is an argument of every call inwards.

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use hedgerow_runtime::time::Instant;

use super::{Line, LinkId, Pressure};
use crate::config::{Endpoint, Keepalive};
use crate::resp::Kept;
use crate::topology::Board;

/// Received bytes in front of the engine; the placement owns the memory.
pub trait Received {
    /// What a reply keeps of them.
    type Kept: Kept;

    /// Whether mid-sized replies are copied into memory that the engine uses again (on a core), or
    /// kept by the placement like large ones (where giving memory back would cost a lock).
    const POOLED: bool;

    /// All that came and was not consumed yet.
    fn bytes(&self) -> &[u8];

    /// Keeps a part of [`Received::bytes`]: shared if that pays, else a copy.
    fn keep(&mut self, range: Range<usize>) -> Self::Kept;

    /// Counts `n` bytes that the engine copied out by itself.
    fn count_copy(&mut self, n: usize);
}

/// The world, as the engine asks for it. Implementations only record what is asked while the engine
/// is borrowed or locked, and act on it afterwards: no waker is woken, cloned or dropped and
/// nothing is logged inside.
pub trait Outside {
    /// The received bytes of this placement.
    type Rx: Received;

    /// `link` has bytes to send; said once until the link was flushed.
    fn dirty(&mut self, link: LinkId);

    /// Connect `link` to `endpoint`, by `by` at the latest.
    fn connect(
        &mut self,
        link: LinkId,
        endpoint: &Endpoint,
        by: Instant,
        keepalive: Option<Keepalive>,
    );

    /// Close `link`'s connection; nothing is reported of it any more.
    fn close(&mut self, link: LinkId);

    /// Switch receiving on `link` on or off.
    fn receive(&mut self, link: LinkId, on: bool);

    /// Call [`Engine::handle_deadline`](super::Engine::handle_deadline) at `at`; replaces what was
    /// armed before. `fine`: to about 50 us; else a few milliseconds late is no harm.
    fn arm(&mut self, at: Instant, fine: bool);

    /// Wake this task, after the engine was let go.
    fn wake(&mut self, waker: Waker);

    /// Say this in the log, after the engine was let go: the subscriber is the user's code.
    fn log(&mut self, line: Line);

    /// See to it that this deployment has its coordinator.
    fn coordinate(&mut self, board: &Arc<Board>);

    /// By how many nanoseconds the `now` of a submission may be behind the clock.
    const BEHIND_NS: u64 = 0;

    /// The clock as it is, where `turn` may be a little old: a core's turn has lasted for a while
    /// already when a task submits a command.
    fn clock(&self, turn: Instant) -> Instant {
        turn
    }

    /// How busy the placement is. Asked for only when something failed.
    fn pressure(&self) -> Pressure;
}

/// What replies keep in a placement.
pub type KeptOf<O> = <<O as Outside>::Rx as Received>::Kept;
