//! What a core asks of an operating system, at the level of operations.
//!
//! Three implementations: `ring` (io_uring), `epoll` and `sim` (a seeded model). A provided-buffer
//! group is plain memory: epoll and the simulator take buffers from it as the kernel would, with
//! partial consumption and `-ENOBUFS` included.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::Path;

use crate::op::{Completion, GroupId, Op, Token};
use crate::socket::{Keepalive, close_now};
use crate::time::Instant;

/// Shape of a provided-buffer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// How many buffers it can hold at once; a power of two, at most 32,768.
    pub entries: u16,
    /// Successive receives continue in the same buffer until it is full (`IOU_PBUF_RING_INC`).
    /// A kernel that cannot do it answers `group` with an error; ask [`Kernel::incremental`].
    pub incremental: bool,
}

/// How long [`Kernel::enter`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Submit and collect, do not wait.
    No,
    /// Wait for a first completion (beyond those of the sends just queued, which complete within
    /// their own submit), or for the armed instant.
    Yes,
}

/// Where a socket is to connect to.
#[derive(Clone, Copy, Debug)]
pub enum Address<'a> {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(&'a Path),
}

/// One core's operating system.
///
/// `queue` never fails: a full submission queue is flushed by the implementation. Completions of
/// one operation come in order; those of different operations in any order.
pub trait Kernel {
    /// The clock of this kernel.
    fn now(&self) -> Instant;

    /// A non-blocking, close-on-exec stream socket fit for `address` (not yet connected), with
    /// `TCP_NODELAY` set on TCP.
    ///
    /// # Errors
    /// The system's error, for example `EMFILE`.
    fn socket(&mut self, address: Address<'_>) -> io::Result<RawFd>;

    /// Applies keepalive to a TCP socket.
    ///
    /// # Errors
    /// The system's error.
    fn keepalive(&mut self, fd: RawFd, keepalive: &Keepalive) -> io::Result<()> {
        keepalive.apply(fd)
    }

    /// Shuts both directions of a socket down, which also ends operations waiting on it.
    fn shutdown(&mut self, fd: RawFd) {
        // SAFETY: no memory is named; the caller owns the descriptor.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }

    /// Closes a descriptor that no queued operation names, at once.
    fn close_now(&mut self, fd: RawFd) {
        close_now(fd);
    }

    /// Queues `op` under `token`.
    ///
    /// # Safety
    /// All memory that `op` names must stay valid, and for receives untouched, until the final
    /// completion of `token` was returned by [`Kernel::enter`] (or the kernel was dropped).
    unsafe fn queue(&mut self, token: Token, op: Op);

    /// Submits all that is queued, waits as told, and appends completions to `out`.
    ///
    /// Returns without completions when the armed instant came, on a signal, or spuriously.
    ///
    /// # Errors
    /// Only when the kernel object itself is unusable; back-pressure (`EBUSY`, `EAGAIN`, `EINTR`)
    /// is handled inside.
    fn enter(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()>;

    /// Whether incremental groups can be made.
    fn incremental(&self) -> bool;

    /// Makes a provided-buffer group.
    ///
    /// # Errors
    /// The system's error; `ENOMEM` names the locked-memory limit.
    fn group(&mut self, config: GroupConfig) -> io::Result<GroupId>;

    /// Gives buffer `index` of `group` the memory `ptr..ptr + len` and makes it available.
    ///
    /// # Safety
    /// The memory must stay valid and be written by nobody else until the buffer was consumed
    /// (its last completion without `buffer_more`) or the group was removed. `index` must not be
    /// posted already.
    unsafe fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, len: u32);

    /// Removes a group. No receive may be using it.
    fn ungroup(&mut self, group: GroupId);

    /// Sets (or with `Instant::NEVER` clears) the one instant at which `enter(Wait::Yes)` returns. It
    /// stays set when it is over: whoever goes on without waiting clears it, or it fires again.
    fn arm(&mut self, at: Instant);

    /// The descriptor that becomes readable when a turn is worth taking, for a host that waits on
    /// our behalf.
    ///
    /// # Errors
    /// The system's error when the descriptor cannot be made.
    fn ready_fd(&mut self) -> io::Result<RawFd>;

    /// For a host: call before waiting on [`Kernel::ready_fd`]. Drains that descriptor, switches
    /// notifications on, and answers `true` if it is safe to wait: `false` means completions are
    /// there already, or something was queued or armed since the last `enter`, and another turn is
    /// due. The next `enter` switches notifications off.
    fn prepare_park(&mut self) -> bool;

    /// A handle with which another thread ends this kernel's wait.
    fn waker(&self) -> std::sync::Arc<dyn Wakeup>;

    /// Whether its clock is a simulated one. What runs above takes the time of its turn then, and
    /// never the system's.
    fn is_simulated(&self) -> bool {
        false
    }

    /// How many calls into the system `enter` has made so far.
    fn enters(&self) -> u64;

    /// How often the submission queue was full and had to be flushed in the middle of a turn.
    fn queue_full(&self) -> u64 {
        0
    }
}

/// Ends a kernel's wait from another thread.
pub trait Wakeup: Send + Sync {
    /// Makes the present or next `enter(Wait::Yes)` return soon. May be called from any thread,
    /// also after the kernel is gone (it then does nothing).
    fn wake(&self);
}
