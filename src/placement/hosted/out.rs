//! What an engine asks for under its lane's lock, to be done after it.

use std::sync::Arc;
use std::task::Waker;

use hedgerow_runtime::time::Instant;

use super::received::HostRx;
use crate::config::{Endpoint, Keepalive};
use crate::engine::{Engine, Line, LinkId, Outside, Pressure};
use crate::topology::Board;

/// The number of a connection of one link. What is asked for is done after the lock, on whichever
/// thread asked, so every step says which connection it means: a step of an earlier one that comes
/// late touches nothing.
pub(super) type Number = u64;

pub(super) enum Ask {
    Connect(LinkId, Number, Endpoint, Instant, Option<Keepalive>),
    Close(LinkId, Number),
    Coordinate(Arc<Board>),
}

/// What the engine asked for under the lock.
#[derive(Default)]
pub(crate) struct HostOut {
    /// Links that have something to send.
    pub(super) dirty: Vec<LinkId>,
    /// The latest connection of each link.
    pub(super) connections: Vec<Number>,
    /// Somebody has promised to send.
    pub(super) promised: bool,
    pub(super) asks: Vec<Ask>,
    pub(super) wakes: Vec<Waker>,
    pub(super) lines: Vec<Line>,
    pub(super) arm: Option<Instant>,
    /// How often it was armed.
    pub(super) arms: u64,
}

impl HostOut {
    /// Whether this is the latest connection of a link.
    #[inline]
    pub(super) fn is_latest(&self, link: LinkId, number: Number) -> bool {
        self.connections.get(link.0 as usize) == Some(&number)
    }

    /// Whether nothing is to be done after the lock but to send.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.asks.is_empty() && self.wakes.is_empty() && self.lines.is_empty() && self.arm.is_none()
    }
}

impl Outside for HostOut {
    type Rx = HostRx;
    const BEHIND_NS: u64 = Instant::COARSE_BEHIND_NS;

    fn clock(&self, _turn: Instant) -> Instant {
        Instant::now()
    }

    fn dirty(&mut self, link: LinkId) {
        self.dirty.push(link);
    }
    fn connect(&mut self, link: LinkId, to: &Endpoint, by: Instant, keepalive: Option<Keepalive>) {
        let at = link.0 as usize;
        if at >= self.connections.len() {
            self.connections.resize(at + 1, 0);
        }
        self.connections[at] += 1;
        self.asks.push(Ask::Connect(link, self.connections[at], to.clone(), by, keepalive));
    }
    fn close(&mut self, link: LinkId) {
        let number = self.connections.get(link.0 as usize).copied().unwrap_or_default();
        self.asks.push(Ask::Close(link, number));
    }
    fn receive(&mut self, _link: LinkId, _on: bool) {}
    fn arm(&mut self, at: Instant, _fine: bool) {
        self.arm = Some(at);
        self.arms += 1;
    }
    fn wake(&mut self, waker: Waker) {
        self.wakes.push(waker);
    }
    fn log(&mut self, line: Line) {
        self.lines.push(line);
    }
    fn coordinate(&mut self, board: &Arc<Board>) {
        self.asks.push(Ask::Coordinate(board.clone()));
    }
    fn pressure(&self) -> Pressure {
        Pressure::default()
    }
}

/// What is to be done after the lock.
#[derive(Default)]
pub(super) struct Todo {
    pub(super) asks: Vec<Ask>,
    pub(super) wakes: Vec<Waker>,
    pub(super) lines: Vec<Line>,
    pub(super) arm: Option<(u64, Instant)>,
    pub(super) dirty: bool,
    /// Somebody has promised to send.
    pub(super) promised: bool,
    pub(super) closed: bool,
}

impl Todo {
    #[inline]
    pub(super) fn take(engine: &mut Engine<HostOut>) -> Todo {
        let closed = engine.is_closed();
        let out = engine.out();
        Todo {
            closed,
            asks: std::mem::take(&mut out.asks),
            wakes: std::mem::take(&mut out.wakes),
            lines: std::mem::take(&mut out.lines),
            arm: out.arm.take().map(|at| (out.arms, at)),
            dirty: !out.dirty.is_empty(),
            promised: out.promised,
        }
    }
}
