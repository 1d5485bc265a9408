//! The request table: one cell a request, from its first poll to its redemption.

use std::task::Waker;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::timer::TimerKey;

use super::LinkId;
use super::body::Body;
use crate::Error;

/// Names a request. A stale name (another generation) is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No tenant.
    Free,
    /// Waits for a connection or for room; nothing of it is encoded.
    Waiting,
    /// Room is reserved for it: its next poll queues it.
    Admitted,
    /// Queued or in flight.
    InFlight,
    /// Its outcome waits to be redeemed.
    Done,
    /// Nobody waits any more; its reply, if one comes, is discarded.
    Abandoned,
}

pub(super) struct Cell<K> {
    pub(super) generation: u32,
    pub(super) state: State,
    /// In-flight entries that refer to this tenant: 0, 1, or 2 with a hedge. The index is used
    /// again only when there are none.
    pub(super) entries: u8,
    pub(super) link: LinkId,
    /// Its place in the link's order of units.
    pub(super) ordinal: u64,
    /// Bytes that it will take when it is queued.
    pub(super) len: u32,
    pub(super) deadline: Instant,
    /// Its deadline without the limit on waiting for a connection; kept only while it waits.
    pub(super) own_deadline: Instant,
    /// Set if the deadline is near enough to need a timer of its own.
    pub(super) timer: Option<TimerKey>,
    pub(super) waker: Option<Waker>,
    pub(super) outcome: Option<Result<Body<K>, Error>>,
}

/// All cells of an engine.
pub(super) struct Cells<K> {
    cells: Vec<Cell<K>>,
    free: Vec<u32>,
}

impl<K> Default for Cells<K> {
    fn default() -> Cells<K> {
        Cells { cells: Vec::new(), free: Vec::new() }
    }
}

impl<K> Cells<K> {
    /// Gives a request a cell.
    #[inline]
    pub(super) fn take(&mut self, state: State, link: LinkId, deadline: Instant) -> CellId {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let cell = &mut self.cells[index as usize];
        cell.state = state;
        cell.link = link;
        cell.deadline = deadline;
        CellId { index, generation: cell.generation }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.cells.push(Cell {
            generation: 0,
            state: State::Free,
            entries: 0,
            link: LinkId(0),
            ordinal: 0,
            len: 0,
            deadline: Instant::NEVER,
            own_deadline: Instant::NEVER,
            timer: None,
            waker: None,
            outcome: None,
        });
        self.cells.len() as u32 - 1
    }

    /// The cell, if the name is not stale.
    #[inline]
    pub(super) fn get(&mut self, id: CellId) -> Option<&mut Cell<K>> {
        let cell = self.cells.get_mut(id.index as usize)?;
        (cell.generation == id.generation).then_some(cell)
    }

    /// Frees the cell of a tenant that is over (redeemed or abandoned) and has no entry left.
    #[inline]
    pub(super) fn free_if_over(&mut self, id: CellId) {
        let Some(cell) = self.get(id) else { return };
        if cell.entries == 0 && matches!(cell.state, State::Free | State::Abandoned) {
            cell.state = State::Free;
            cell.generation = cell.generation.wrapping_add(1);
            self.free.push(id.index);
        }
    }

    /// Requests that hold a cell.
    pub(super) fn live(&self) -> usize {
        self.cells.len() - self.free.len()
    }

    /// Names of all requests somebody still waits for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (CellId, &Cell<K>)> {
        self.cells.iter().enumerate().filter_map(|(index, cell)| {
            let waits = matches!(cell.state, State::Waiting | State::Admitted | State::InFlight);
            let id = CellId { index: index as u32, generation: cell.generation };
            waits.then_some((id, cell))
        })
    }
}
