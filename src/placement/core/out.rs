//! What an engine on a core asks for: lists that the driver works off.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use hedgerow_runtime::Rx;
use hedgerow_runtime::core::Local;
use hedgerow_runtime::time::Instant;

use super::desk::Desk;
use crate::config::{Endpoint, Keepalive};
use crate::engine::{Line, LinkId, Outside, Pressure};
use crate::topology::Board;

/// What an engine asked for, besides sending and waking.
pub(super) enum Ask {
    Connect { link: LinkId, endpoint: Endpoint, by: Instant, keepalive: Option<Keepalive> },
    Close(LinkId),
    Receive(LinkId, bool),
    Coordinate(Arc<Board>),
}

/// An engine's outside on a core: lists that the driver works off.
pub(crate) struct CoreOut {
    pub(super) index: usize,
    pub(super) desk: Rc<Desk>,
    pub(super) local: Local,
    pub(super) listed: bool,
    pub(super) dirty: Vec<LinkId>,
    pub(super) asks: Vec<Ask>,
    pub(super) wakes: Vec<Waker>,
    pub(super) lines: Vec<Line>,
}

impl CoreOut {
    /// Has the driver look at this engine in this turn.
    #[inline]
    pub(super) fn list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.desk.busy.borrow_mut().push(self.index);
        }
    }
}

impl Outside for CoreOut {
    type Rx = Rx;

    #[inline]
    fn dirty(&mut self, link: LinkId) {
        self.dirty.push(link);
        self.list();
    }

    fn connect(
        &mut self,
        link: LinkId,
        endpoint: &Endpoint,
        by: Instant,
        keepalive: Option<Keepalive>,
    ) {
        self.asks.push(Ask::Connect { link, endpoint: endpoint.clone(), by, keepalive });
        self.list();
    }

    fn close(&mut self, link: LinkId) {
        self.asks.push(Ask::Close(link));
        self.list();
    }

    fn receive(&mut self, link: LinkId, on: bool) {
        self.asks.push(Ask::Receive(link, on));
        self.list();
    }

    fn arm(&mut self, at: Instant, _fine: bool) {
        self.desk.arm(self.index, at);
    }

    #[inline(always)]
    fn wake(&mut self, waker: Waker) {
        // A task of this core needs nobody's code to be woken; others wait until we are let go.
        if let Some(waker) = self.local.wake_own(waker) {
            self.wakes.push(waker);
            self.list();
        }
    }

    fn log(&mut self, line: Line) {
        self.lines.push(line);
        self.list();
    }

    fn coordinate(&mut self, board: &Arc<Board>) {
        self.asks.push(Ask::Coordinate(board.clone()));
        self.list();
    }

    fn clock(&self, _turn: Instant) -> Instant {
        self.local.read_clock()
    }

    fn pressure(&self) -> Pressure {
        let lag = self.local.read_clock().since(self.local.now());
        Pressure {
            tasks_ready: Some(self.local.ready_tasks()),
            lag: Some(lag),
            completions: Some(self.local.completions()),
            queue_full: Some(self.local.counters().queue_full),
            requests: None,
        }
    }
}
