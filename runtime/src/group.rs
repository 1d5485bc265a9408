//! A provided-buffer group as plain memory, for kernels that have no buffer ring: epoll and the
//! simulation. What is consumed of it, and when a buffer is over, is decided here as io_uring does.

use std::collections::VecDeque;
use std::io;

use crate::kernel::GroupConfig;

/// Buffers in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct Group {
    config: GroupConfig,
    posted: VecDeque<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    index: u16,
    ptr: *mut u8,
    len: u32,
    /// Bytes received into it so far; below `len` as long as it is posted.
    used: u32,
}

impl Group {
    /// An empty group, if io_uring would make one of that shape.
    pub(crate) fn new(config: GroupConfig) -> io::Result<Group> {
        if !config.entries.is_power_of_two() || config.entries > 32_768 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let posted = VecDeque::with_capacity(usize::from(config.entries));
        Ok(Group { config, posted })
    }

    /// How many buffers are posted, a partly used one included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.posted.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= usize::from(self.config.entries)
    }

    pub(crate) fn holds(&self, index: u16) -> bool {
        self.posted.iter().any(|buffer| buffer.index == index)
    }

    /// Adds a buffer, which must not be empty.
    ///
    /// # Safety
    /// `ptr..ptr + len` is writable, and nobody else's, until the buffer is consumed.
    #[inline]
    pub(crate) unsafe fn post(&mut self, index: u16, ptr: *mut u8, len: u32) {
        self.posted.push_back(Buffer { index, ptr, len, used: 0 });
    }

    /// Where the next receive goes: the unused rest of the first buffer.
    #[inline]
    pub(crate) fn front(&self) -> Option<(*mut u8, u32)> {
        let front = self.posted.front()?;
        // SAFETY: `used <= len`, and `post` promised that all of `ptr..ptr + len` is there.
        Some((unsafe { front.ptr.add(front.used as usize) }, front.len - front.used))
    }

    /// Takes `bytes` of the first buffer, which has room for them: its index, and whether it stays
    /// posted.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32) -> Option<(u16, bool)> {
        let front = self.posted.front_mut()?;
        front.used += bytes;
        let (index, stays) = (front.index, self.config.incremental && front.used < front.len);
        if !stays {
            self.posted.pop_front();
        }
        Some((index, stays))
    }
}
