//! The blocks of one core: what is in reserve, and how much its users keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use super::block::{Block, Idle};

/// Bytes of given-away blocks above which values are copied out instead of sliced, per core.
pub(crate) const RETAINED_MAX: usize = 64 << 20;
/// Bytes a pool keeps in reserve; more is freed.
const RESERVE_MAX: usize = 16 << 20;
/// Blocks a pool keeps in reserve.
const RESERVE_BLOCKS: usize = 64;

/// The part of a pool that blocks refer to from any thread.
pub(super) struct Home {
    pub(super) retained: AtomicUsize,
    reserved: AtomicUsize,
    reserve: ArrayQueue<Idle>,
}

impl Home {
    /// Takes memory without holders into the reserve, or frees it.
    pub(super) fn take_back(&self, memory: Idle) {
        let len = memory.len();
        // Counted before it can be taken out again.
        let before = self.reserved.fetch_add(len, Ordering::Relaxed);
        if before + len > RESERVE_MAX || self.reserve.push(memory).is_err() {
            self.reserved.fetch_sub(len, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Option<Idle> {
        let memory = self.reserve.pop()?;
        self.reserved.fetch_sub(memory.len(), Ordering::Relaxed);
        Some(memory)
    }
}

/// The blocks of one core.
pub(crate) struct Pool {
    home: Arc<Home>,
}

impl Default for Pool {
    fn default() -> Pool {
        let home = Home {
            retained: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            reserve: ArrayQueue::new(RESERVE_BLOCKS),
        };
        Pool { home: Arc::new(home) }
    }
}

impl Pool {
    /// A block of at least `len` bytes and at most a quarter more: from the reserve if one there
    /// fits, else fresh.
    pub(crate) fn take(&self, len: usize) -> Block {
        for _ in 0..self.home.reserve.len() {
            let Some(memory) = self.home.take() else { break };
            if memory.len() >= len && memory.len() <= len + len / 4 {
                return memory.hold(self.home.clone());
            }
            // Of another size: to the end of the queue.
            self.home.take_back(memory);
        }
        Idle::new(len).hold(self.home.clone())
    }

    /// Bytes of blocks that users keep parts of.
    pub(crate) fn retained(&self) -> usize {
        self.home.retained.load(Ordering::Relaxed)
    }

    /// Whether another `len` bytes may be given away.
    pub(crate) fn may_give_away(&self, len: usize) -> bool {
        self.retained() + len <= RETAINED_MAX
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("retained", &self.retained()).finish_non_exhaustive()
    }
}
