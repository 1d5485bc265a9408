//! Requests that wait for a connection or for room: a queue for each sort, so that what waits for something
//! of its own (a shard, a replica, the offset of the primary, the server of a cursor) holds up nothing else.

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
    queues: Vec<Queue>,
    /// Those in which anybody waits.
    busy: Vec<QueueId>,
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
        self.waiting == 0 || self.queues.get(of.index()).is_none_or(|queue| queue.waiting == 0)
    }

    /// The queue with this place among those in which anybody waits.
    pub(super) fn busy(&self, place: usize) -> Option<QueueId> {
        self.busy.get(place).copied()
    }

    pub(super) fn push(&mut self, of: QueueId, id: CellId, len: usize) {
        self.enter(of, len).ids.push_back(id);
    }

    /// For one that had its turn already.
    pub(super) fn push_front(&mut self, of: QueueId, id: CellId, len: usize) {
        self.enter(of, len).ids.push_front(id);
    }

    fn enter(&mut self, of: QueueId, len: usize) -> &mut Queue {
        let at = of.index();
        if at >= self.queues.len() {
            self.queues.resize_with(at + 1, Queue::default);
        }
        let queue = &mut self.queues[at];
        if queue.waiting == 0 {
            self.busy.push(of);
        }
        queue.waiting += 1;
        self.waiting += 1;
        self.bytes += len;
        queue
    }

    /// One that waited has gone; its name may stay behind. `is_there` tells which names still wait.
    pub(super) fn leave(&mut self, of: QueueId, len: usize, is_there: impl FnMut(&CellId) -> bool) {
        let Some(queue) = self.queues.get_mut(of.index()) else { return };
        queue.waiting -= 1;
        self.waiting -= 1;
        self.bytes -= len;
        if queue.waiting == 0 {
            self.busy.retain(|busy| *busy != of);
        }
        // Stale names are skipped when their turn comes; a queue of mostly stale ones is swept.
        if queue.ids.len() > 64 && queue.ids.len() > 4 * queue.waiting {
            queue.ids.retain(is_there);
        }
    }

    /// Empties all queues; gives the names that were in them, of each queue the oldest first.
    pub(super) fn take_all(&mut self) -> Vec<CellId> {
        let mut all = Vec::new();
        for queue in &mut self.queues {
            all.extend(queue.ids.drain(..));
            queue.waiting = 0;
        }
        self.busy.clear();
        (self.waiting, self.bytes) = (0, 0);
        all
    }

    /// The oldest name, which may be stale.
    pub(super) fn front(&self, of: QueueId) -> Option<CellId> {
        self.queues.get(of.index())?.ids.front().copied()
    }

    /// Takes the oldest name away.
    pub(super) fn pop(&mut self, of: QueueId) {
        if let Some(queue) = self.queues.get_mut(of.index()) {
            queue.ids.pop_front();
        }
    }
}
