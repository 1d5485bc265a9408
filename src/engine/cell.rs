//! The request table: one cell a request, from its first poll to its redemption.

use std::task::Waker;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::timer::TimerKey;

use super::Found;
use super::LinkId;
use super::body::{Held, Short};
use super::choose::Why;
use super::race::Watch;
use crate::route::{QueueId, Way};

/// Names a request. A stale name (another generation) is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl CellId {
    /// Both in a word, which is stored and loaded at once.
    #[inline]
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[inline]
    pub(super) fn from_bits(bits: u64) -> CellId {
        CellId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
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
    /// A node of the cluster would not have it; what it waits for is in [`Parked`](super::follow::Parked).
    Parked,
    /// Queued or in flight.
    InFlight,
    /// Its reply is a scalar in [`Cell::short`] and waits to be redeemed.
    Answered,
    /// Its outcome is in [`Cell::held`] and waits to be redeemed.
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
    /// Until its reply is there, [`Cell::short`] has its command, to be sent again.
    pub(super) has_text: bool,
    pub(super) link: LinkId,
    /// Its place in the link's order of units.
    pub(super) ordinal: u64,
    pub(super) deadline: Instant,
    /// Set if the deadline is near enough to need a timer of its own.
    pub(super) timer: Option<TimerKey>,
    pub(super) waker: Option<Waker>,
    pub(super) held: Held<K>,
    /// The race of a read whose hedge was sent; else [`NO_RACE`].
    pub(super) race: u32,
    /// Of a read that may be hedged, or from which something is learnt.
    pub(super) watch: Option<Watch>,
    pub(super) short: Short,
}

/// There is one copy of the request.
pub(super) const NO_RACE: u32 = u32::MAX;

/// Where a request was when it ended before its reply.
#[derive(Clone, Copy)]
pub(super) struct Stand {
    pub(super) state: State,
    pub(super) link: LinkId,
    pub(super) ordinal: u64,
    /// Where it stood in line, if it did.
    pub(super) queue: Option<QueueId>,
    /// Bytes that it would have taken.
    pub(super) len: usize,
}

impl<K> Cell<K> {
    /// Where it is now.
    pub(super) fn stand(&self) -> Stand {
        let (state, link, ordinal) = (self.state, self.link, self.ordinal);
        Stand { state, link, ordinal, queue: self.queue(), len: self.when_queued().1 }
    }

    /// Where it stands in line, while it waits.
    pub(super) fn queue(&self) -> Option<QueueId> {
        match self.held {
            Held::Waiting { queue, .. } => Some(queue),
            _ => None,
        }
    }

    /// The deadline that it has once it is queued, and the bytes that it takes then.
    pub(super) fn when_queued(&self) -> (Instant, usize) {
        match self.held {
            Held::Waiting { own_deadline, len, .. } => (own_deadline, len as usize),
            _ => (self.deadline, 0),
        }
    }

    /// Bytes of its command, while it is in flight in a cluster.
    pub(super) fn len_sent(&self) -> Option<u32> {
        match self.held {
            Held::Sent { len, .. } | Held::Direct { len, .. } => Some(len),
            _ => None,
        }
    }

    /// Where it may go, while it waits, and in a cluster also afterwards.
    pub(super) fn way(&self) -> Way {
        match self.held {
            Held::Waiting { way, .. } | Held::Sent { way, .. } => way,
            Held::Direct { slot, .. } => Way::to_primary_of(slot),
            _ => Way::PRIMARY,
        }
    }

    /// What it waits for, while it does.
    pub(super) fn why(&self) -> Option<Why> {
        match self.held {
            Held::Waiting { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Somebody waits for its outcome.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.state, State::Waiting | State::Admitted | State::Parked | State::InFlight)
    }
}

/// A request's cell with its reply.
pub(crate) struct Answered<'a, K> {
    cell: &'a mut Cell<K>,
    free: &'a mut Vec<u32>,
    index: u32,
}

impl<K> Answered<'_, K> {
    /// The reply.
    #[inline(always)]
    pub(crate) fn short(&self) -> &Short {
        &self.cell.short
    }

    /// The reply was read: the cell is free as soon as no entry refers to it.
    #[inline(always)]
    pub(crate) fn release(self) {
        self.cell.state = State::Free;
        if self.cell.entries == 0 {
            self.cell.generation = self.cell.generation.wrapping_add(1);
            self.free.push(self.index);
        }
    }
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
    pub(super) fn take(&mut self) -> (CellId, &mut Cell<K>) {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let cell = &mut self.cells[index as usize];
        (CellId { index, generation: cell.generation }, cell)
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.cells.push(Cell {
            generation: 0,
            state: State::Free,
            entries: 0,
            has_text: false,
            link: LinkId(0),
            ordinal: 0,
            deadline: Instant::NEVER,
            timer: None,
            waker: None,
            held: Held::Nothing,
            race: NO_RACE,
            watch: None,
            short: Short::EMPTY,
        });
        self.cells.len() as u32 - 1
    }

    /// The cell, if the name is not stale.
    #[inline]
    pub(super) fn get(&mut self, id: CellId) -> Option<&mut Cell<K>> {
        let cell = self.cells.get_mut(id.index as usize)?;
        (cell.generation == id.generation).then_some(cell)
    }

    /// The cell of a request whose reply is a short scalar and waits in it.
    #[inline(always)]
    pub(super) fn answered(&mut self, id: CellId) -> Option<Answered<'_, K>> {
        let cell = self.cells.get_mut(id.index as usize)?;
        let is_here = cell.generation == id.generation && cell.state == State::Answered;
        is_here.then_some(Answered { cell, free: &mut self.free, index: id.index })
    }

    /// Where a request without such a reply is, for the task of `waker`.
    pub(super) fn look_for(&mut self, id: CellId, waker: &Waker) -> Found {
        let Some(cell) = self.get(id) else { return Found::Outcome };
        match cell.state {
            State::Admitted => Found::Admitted,
            State::InFlight if cell.watch.is_some_and(|watch| watch.granted.is_some()) => {
                Found::Hedge
            }
            State::Waiting | State::Parked | State::InFlight => match &cell.waker {
                Some(known) if known.will_wake(waker) => Found::Nothing,
                _ => Found::OtherWaker,
            },
            // It came meanwhile, where others have the engine in between.
            State::Answered => Found::Reply,
            State::Free | State::Done | State::Abandoned => Found::Outcome,
        }
    }

    /// The tenant has its outcome: the cell is free as soon as no entry refers to it.
    pub(super) fn release(&mut self, id: CellId) {
        let cell = &mut self.cells[id.index as usize];
        Answered { cell, free: &mut self.free, index: id.index }.release();
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
            let id = CellId { index: index as u32, generation: cell.generation };
            cell.is_awaited().then_some((id, cell))
        })
    }
}
