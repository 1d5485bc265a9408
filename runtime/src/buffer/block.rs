//! One block of receive memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::pool::Home;

/// Blocks start at a cache line.
const ALIGN: usize = 64;

/// The memory, with its two counts: a plain one for its core, an atomic one for the rest. Memory and
/// counts go back to the pool together with the last holder, so a warm pool allocates nothing.
pub(super) struct Memory {
    at: NonNull<u8>,
    len: usize,
    /// The pool that it goes back to; `None` while it is in reserve there.
    home: Option<Arc<Home>>,
    /// Holds of the core. Touched on the core's thread only.
    local: Cell<usize>,
    /// Holds of others, and one more while the core has any.
    shared: AtomicUsize,
    /// Counted in `Home::retained`: the ring gave it away and a user keeps part of it. Written on
    /// the core's thread while it has a hold, read by whoever lets go last.
    given: Cell<bool>,
}

impl Memory {
    fn layout(len: usize) -> Layout {
        // No address space holds a block that has no layout.
        Layout::from_size_align(len.max(1), ALIGN)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u64>()))
    }

    /// The bytes `at..end`, which must have been delivered.
    #[inline]
    fn bytes(&self, at: usize, end: usize) -> &[u8] {
        assert!(at <= end && end <= self.len);
        // SAFETY: inside the allocation by the check above; delivered bytes are initialised and
        // never written again while a holder exists (module documentation).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(at), end - at) }
    }
}

/// Memory without a holder, on its way to, in, or out of a pool's reserve.
pub(super) struct Idle(NonNull<Memory>);

// SAFETY: nobody else refers to it; its counts and its bytes are at rest.
unsafe impl Send for Idle {}

impl Idle {
    /// Fresh memory.
    pub(super) fn new(len: usize) -> Idle {
        let layout = Memory::layout(len);
        // SAFETY: the layout has a size of at least one byte.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let memory = Box::new(Memory {
            at,
            len,
            home: None,
            local: Cell::new(0),
            shared: AtomicUsize::new(0),
            given: Cell::new(false),
        });
        Idle(NonNull::from(Box::leak(memory)))
    }

    pub(super) fn len(&self) -> usize {
        // SAFETY: valid until dropped, and at rest.
        unsafe { self.0.as_ref() }.len
    }

    /// A core's first hold on it.
    pub(super) fn hold(self, home: Arc<Home>) -> Block {
        let mut at = self.0;
        std::mem::forget(self);
        // SAFETY: idle memory has no other reference.
        let memory = unsafe { at.as_mut() };
        memory.home = Some(home);
        memory.local.set(1);
        *memory.shared.get_mut() = 1;
        memory.given.set(false);
        Block(at)
    }
}

/// Frees it: it is not wanted in any reserve.
impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: made by `new` out of this box, and nobody refers to it any more.
        let memory = unsafe { Box::from_raw(self.0.as_ptr()) };
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(memory.at.as_ptr(), Memory::layout(memory.len)) };
    }
}

/// Gives up one hold of the atomic count; the last one gives the memory back.
fn release(mut at: NonNull<Memory>) {
    // SAFETY: the caller has a hold, so the memory is alive until the line below.
    if unsafe { at.as_ref() }.shared.fetch_sub(1, Ordering::Release) != 1 {
        return;
    }
    // What others did with the bytes comes before what is done with them next.
    fence(Ordering::Acquire);
    // SAFETY: that was the last hold: nobody else refers to it.
    let memory = unsafe { at.as_mut() };
    let Some(home) = memory.home.take() else { return };
    if memory.given.get() {
        home.retained.fetch_sub(memory.len, Ordering::Relaxed);
    }
    home.take_back(Idle(at));
}

/// A core's hold on a block. Clones are further holds of the same core, by a plain count.
pub(crate) struct Block(NonNull<Memory>);

impl Block {
    #[inline]
    fn memory(&self) -> &Memory {
        // SAFETY: alive while there is a hold, and `self` is one. The cells in it are only touched
        // on this thread, since a block never leaves it.
        unsafe { self.0.as_ref() }
    }

    /// Its size in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.memory().len
    }

    /// Where it begins, for the kernel to write to.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.memory().at.as_ptr()
    }

    /// The delivered bytes `at..end`.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, end: usize) -> &[u8] {
        self.memory().bytes(at, end)
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
        // What another thread read before it let go comes before what is written here next.
        self.memory().local.get() == 1 && self.memory().shared.load(Ordering::Acquire) == 1
    }

    /// Counts the block as given away to users until its last holder is gone.
    pub(crate) fn give_away(&self) {
        let memory = self.memory();
        if !memory.given.replace(true)
            && let Some(home) = &memory.home
        {
            home.retained.fetch_add(memory.len, Ordering::Relaxed);
        }
    }

    /// A hold for other threads.
    pub(super) fn foreign(&self) -> Foreign {
        self.memory().shared.fetch_add(1, Ordering::Relaxed);
        Foreign(self.0)
    }
}

impl Clone for Block {
    #[inline]
    fn clone(&self) -> Block {
        let local = &self.memory().local;
        local.set(local.get() + 1);
        Block(self.0)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let local = &self.memory().local;
        local.set(local.get() - 1);
        if local.get() == 0 {
            release(self.0);
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A hold that any thread may drop.
pub(super) struct Foreign(NonNull<Memory>);

// SAFETY: it reads delivered bytes, which nobody writes, and touches only the atomic count; the
// plain cells are the core's, and the last holder's after an acquire.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    pub(super) fn bytes(&self, at: usize, end: usize) -> &[u8] {
        // SAFETY: alive while there is a hold, and `self` is one.
        unsafe { self.0.as_ref() }.bytes(at, end)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        release(self.0);
    }
}
