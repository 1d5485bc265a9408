//! Receive buffers that the kernel picks from.

use io_uring::{IoUring, types::BufRingEntry};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering::Release};

const INCREMENTAL: u16 = 2; // IOU_PBUF_RING_INC

/// Provided-buffer group 0 of a ring: `count` buffers of `size` bytes. Lives as long as the
/// process.
#[derive(Debug)]
pub struct Pool {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    count: u16,
    size: usize,
    head: u16,
    tail: u16,
    read_to: Vec<usize>,
}

impl Pool {
    /// Registers the group; `incremental` lets the kernel fill one buffer with several receives.
    ///
    /// # Errors
    /// What mmap or the registration said; `count` must be a power of two.
    pub fn register(
        ring: &IoUring,
        count: u16,
        size: usize,
        incremental: bool,
    ) -> io::Result<Pool> {
        let entries = map(usize::from(count) * size_of::<BufRingEntry>())?.cast::<BufRingEntry>();
        let memory = map(usize::from(count) * size)?;
        let flags = if incremental { INCREMENTAL } else { 0 };
        // SAFETY: `entries` is a page-aligned mapping of `count` entries that is never unmapped.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries as u64, count, 0, flags)?;
        }
        let read_to = vec![0; usize::from(count)];
        let mut pool = Pool { entries, memory, count, size, head: 0, tail: 0, read_to };
        (0..count).for_each(|id| pool.post(id));
        pool.publish();
        Ok(pool)
    }

    /// Length of one buffer in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many bytes of buffer `id` have been read and passed with [`advance`](Self::advance).
    pub fn read_to(&self, id: u16) -> usize {
        self.read_to[usize::from(id)]
    }

    /// The next `len` bytes that a completion put into buffer `id`.
    pub fn bytes(&self, id: u16, len: usize) -> &[u8] {
        let at = self.read_to(id);
        assert!(at + len <= self.size, "a completion reaches beyond its buffer");
        // SAFETY: `read_to` bounds `id`, so this lies inside the mapping, which is never unmapped.
        // The kernel writes only into posted buffers, and in an incremental one only beyond what it
        // has delivered.
        unsafe {
            std::slice::from_raw_parts(self.memory.add(usize::from(id) * self.size + at), len)
        }
    }

    /// Passes `len` bytes of a buffer that the kernel goes on filling.
    pub fn advance(&mut self, id: u16, len: usize) {
        self.read_to[usize::from(id)] += len;
    }

    /// Gives buffer `id` back to the kernel; it sees it after [`publish`](Self::publish).
    pub fn post(&mut self, id: u16) {
        self.read_to[usize::from(id)] = 0;
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` < `count`, so the entry lies inside the mapping; the kernel reads entries
        // only up to the published tail, and this one is beyond it.
        let entry = unsafe { &mut *self.entries.add(at) };
        // SAFETY: `id` was bounds-checked by `read_to` above, so the address lies inside the
        // mapping.
        entry.set_addr(unsafe { self.memory.add(usize::from(id) * self.size) } as u64);
        entry.set_len(self.size as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Takes the buffer at the head of the ring and returns the id of the one after it: a bundle
    /// fills buffers in ring order. Call it before the taken buffer is posted, which may overwrite
    /// its entry.
    pub fn next_in_ring(&mut self) -> u16 {
        self.head = self.head.wrapping_add(1);
        let at = usize::from(self.head & (self.count - 1));
        // SAFETY: `at` < `count`, so the entry lies inside the mapping; the kernel only reads
        // entries.
        unsafe { (*self.entries.add(at)).bid() }
    }

    /// Shows the kernel every buffer posted so far.
    pub fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry of the registered mapping and is shared with the
        // kernel, which reads it with acquire.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Release);
    }
}

/// Zeroed, populated memory of its own, never unmapped.
fn map(len: usize) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}
