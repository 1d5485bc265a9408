//! One block of receive memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::pool::Home;

/// Blocks start at a cache line.
const ALIGN: usize = 64;

/// The memory itself; freed, or handed back to its pool, with its last holder.
pub(super) struct Memory {
    at: NonNull<u8>,
    len: usize,
    home: Arc<Home>,
    /// Counted in `Home::retained`: the ring gave it away and a user keeps part of it.
    given: AtomicBool,
}

// SAFETY: the pointer is to plain bytes owned by this value. Bytes are written only by the kernel
// (or the owning core) and only beyond what was delivered, and read only inside what was delivered:
// no byte is ever read and written at once.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(len: usize) -> Layout {
        // No address space holds a block that has no layout.
        Layout::from_size_align(len.max(1), ALIGN)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u64>()))
    }

    pub(super) fn new(len: usize, home: Arc<Home>) -> Memory {
        let layout = Memory::layout(len);
        // SAFETY: the layout has a size of at least one byte.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        Memory { at, len, home, given: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes `at..end`, which must have been delivered.
    #[inline]
    pub(super) fn bytes(&self, at: usize, end: usize) -> &[u8] {
        assert!(at <= end && end <= self.len);
        // SAFETY: inside the allocation by the check above; delivered bytes are initialised and
        // never written again while a holder exists (module documentation).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(at), end - at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if *self.given.get_mut() {
            self.home.retained.fetch_sub(self.len, Ordering::Relaxed);
        }
        if let Err(at) = self.home.take_back(self.at, self.len) {
            // SAFETY: allocated by `new` with this layout; nobody holds it any more.
            unsafe { dealloc(at.as_ptr(), Memory::layout(self.len)) };
        }
    }
}

/// Frees memory that a pool held in reserve.
pub(super) fn free(at: NonNull<u8>, len: usize) {
    // SAFETY: the pool got it from a `Memory` of this length and gives it up.
    unsafe { dealloc(at.as_ptr(), Memory::layout(len)) };
}

/// Memory that a pool kept, in use again.
pub(super) fn revive(at: NonNull<u8>, len: usize, home: Arc<Home>) -> Memory {
    Memory { at, len, home, given: AtomicBool::new(false) }
}

/// A core's hold on a block. Clones are further holds of the same core, by a plain count.
#[derive(Clone)]
#[allow(clippy::redundant_allocation)] // A plain count for the core, an atomic one for the rest.
pub(crate) struct Block(pub(super) Rc<Arc<Memory>>);

impl Block {
    pub(super) fn new(memory: Memory) -> Block {
        Block(Rc::new(Arc::new(memory)))
    }

    /// Its size in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where it begins, for the kernel to write to.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.0.at.as_ptr()
    }

    /// The delivered bytes `at..end`.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, end: usize) -> &[u8] {
        self.0.bytes(at, end)
    }

    /// Copies `bytes` to `at`, into space not delivered yet; returns how many fitted.
    pub(crate) fn fill(&self, at: usize, bytes: &[u8]) -> usize {
        let at = at.min(self.len());
        let n = bytes.len().min(self.len() - at);
        // SAFETY: `at + n` is inside the block, and nothing beyond what was delivered is readable
        // by anyone (module documentation), so the target is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_mut_ptr().add(at), n) };
        n
    }

    /// Whether this is the only hold: the memory may be written from its start again.
    pub(crate) fn is_unkept(&self) -> bool {
        let unkept = Rc::strong_count(&self.0) == 1 && Arc::strong_count(&self.0) == 1;
        // A count is read relaxed: what another thread read before it let go must stay before
        // what is written here next.
        fence(Ordering::Acquire);
        unkept
    }

    /// Counts the block as given away to users until its last holder is gone.
    pub(crate) fn give_away(&self) {
        if !self.0.given.swap(true, Ordering::Relaxed) {
            self.0.home.retained.fetch_add(self.len(), Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("len", &self.len()).finish_non_exhaustive()
    }
}
