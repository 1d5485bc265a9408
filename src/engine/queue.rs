//! Requests that wait for a connection or for room: a queue for each sort, so that what waits for something
//! of its own (a replica, the offset of the primary, the server of a cursor) holds up nothing else.

use std::collections::VecDeque;

use super::CellId;
use crate::route::QueueId;

#[derive(Default)]
struct Queue {
    /// Oldest first; may hold stale names.
    ids: VecDeque<CellId>,
    waiting: usize,
}

/// All queues of an engine.
#[derive(Default)]
pub(super) struct Queues {
    queues: [Queue; QueueId::COUNT],
    waiting: usize,
    bytes: usize,
}

impl Queues {
    /// How many wait, in all queues.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// What the commands that wait will take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nobody waits in a queue, so that the next need not either.
    #[inline]
    pub(super) fn is_empty(&self, of: QueueId) -> bool {
        self.queues[of.index()].waiting == 0
    }

    pub(super) fn push(&mut self, of: QueueId, id: CellId, len: usize) {
        self.queues[of.index()].ids.push_back(id);
        self.enter(of, len);
    }

    /// For one that had its turn already.
    pub(super) fn push_front(&mut self, of: QueueId, id: CellId, len: usize) {
        self.queues[of.index()].ids.push_front(id);
        self.enter(of, len);
    }

    fn enter(&mut self, of: QueueId, len: usize) {
        self.queues[of.index()].waiting += 1;
        self.waiting += 1;
        self.bytes += len;
    }

    /// One that waited has gone; its name may stay behind. `is_there` tells which names still wait.
    pub(super) fn leave(&mut self, of: QueueId, len: usize, is_there: impl FnMut(&CellId) -> bool) {
        let queue = &mut self.queues[of.index()];
        queue.waiting -= 1;
        self.waiting -= 1;
        self.bytes -= len;
        // Stale names are skipped when their turn comes; a queue of mostly stale ones is swept.
        if queue.ids.len() > 64 && queue.ids.len() > 4 * queue.waiting {
            queue.ids.retain(is_there);
        }
    }

    /// The oldest name, which may be stale.
    pub(super) fn front(&self, of: QueueId) -> Option<CellId> {
        self.queues[of.index()].ids.front().copied()
    }

    /// Takes the oldest name away.
    pub(super) fn pop(&mut self, of: QueueId) {
        self.queues[of.index()].ids.pop_front();
    }
}
