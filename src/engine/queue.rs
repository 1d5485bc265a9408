//! Requests that wait for a connection or for room: a queue for each read policy, so that reads that wait
//! for a replica hold up nothing that the primary could take.

use std::collections::VecDeque;

use super::CellId;
use crate::read::ReadFrom;

#[derive(Default)]
struct Queue {
    /// Oldest first; may hold stale names.
    ids: VecDeque<CellId>,
    waiting: usize,
}

/// All queues of an engine.
#[derive(Default)]
pub(super) struct Queues {
    queues: [Queue; ReadFrom::COUNT],
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

    /// Whether nobody waits for what `from` may use, so that the next need not stand in line.
    #[inline]
    pub(super) fn is_empty(&self, from: ReadFrom) -> bool {
        self.queues[from.index()].waiting == 0
    }

    pub(super) fn push(&mut self, from: ReadFrom, id: CellId, len: usize) {
        self.queues[from.index()].ids.push_back(id);
        self.enter(from, len);
    }

    /// For one that had its turn already.
    pub(super) fn push_front(&mut self, from: ReadFrom, id: CellId, len: usize) {
        self.queues[from.index()].ids.push_front(id);
        self.enter(from, len);
    }

    fn enter(&mut self, from: ReadFrom, len: usize) {
        self.queues[from.index()].waiting += 1;
        self.waiting += 1;
        self.bytes += len;
    }

    /// One that waited has gone; its name may stay behind. `is_there` tells which names still wait.
    pub(super) fn leave(
        &mut self,
        from: ReadFrom,
        len: usize,
        is_there: impl FnMut(&CellId) -> bool,
    ) {
        let queue = &mut self.queues[from.index()];
        queue.waiting -= 1;
        self.waiting -= 1;
        self.bytes -= len;
        // Stale names are skipped when their turn comes; a queue of mostly stale ones is swept.
        if queue.ids.len() > 64 && queue.ids.len() > 4 * queue.waiting {
            queue.ids.retain(is_there);
        }
    }

    /// The oldest name, which may be stale.
    pub(super) fn front(&self, from: ReadFrom) -> Option<CellId> {
        self.queues[from.index()].ids.front().copied()
    }

    /// Takes the oldest name away.
    pub(super) fn pop(&mut self, from: ReadFrom) {
        self.queues[from.index()].ids.pop_front();
    }
}
