//! The blocks of one core: what is in reserve, and how much its users keep.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use super::block::{Block, Memory, free, revive};

/// Bytes of given-away blocks above which values are copied out instead of sliced, per core.
pub(crate) const RETAINED_MAX: usize = 64 << 20;
/// Bytes a pool keeps in reserve; more is freed.
const RESERVE_MAX: usize = 16 << 20;
/// Blocks a pool keeps in reserve.
const RESERVE_BLOCKS: usize = 64;

/// Memory given back, by whatever thread dropped its last holder.
struct Returned {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory without an owner on its way back to the pool.
unsafe impl Send for Returned {}

/// The part of a pool that blocks refer to from any thread.
pub(super) struct Home {
    pub(super) retained: AtomicUsize,
    reserved: AtomicUsize,
    reserve: ArrayQueue<Returned>,
}

impl Home {
    /// Takes memory without holders into the reserve, or hands it back to be freed.
    pub(super) fn take_back(&self, at: NonNull<u8>, len: usize) -> Result<(), NonNull<u8>> {
        if self.reserved.load(Ordering::Relaxed) + len > RESERVE_MAX {
            return Err(at);
        }
        self.reserve.push(Returned { at, len }).map_err(|back| back.at)?;
        self.reserved.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn take(&self) -> Option<Returned> {
        let back = self.reserve.pop()?;
        self.reserved.fetch_sub(back.len, Ordering::Relaxed);
        Some(back)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        while let Some(back) = self.take() {
            free(back.at, back.len);
        }
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
            let Some(back) = self.home.take() else { break };
            if back.len >= len && back.len <= len + len / 4 {
                return Block::new(revive(back.at, back.len, self.home.clone()));
            }
            // Of another size: to the end of the queue, unless the reserve is full meanwhile.
            if let Err(at) = self.home.take_back(back.at, back.len) {
                free(at, back.len);
            }
        }
        Block::new(Memory::new(len, self.home.clone()))
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
