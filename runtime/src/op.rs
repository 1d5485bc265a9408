//! Operations, their tokens and their completions: the vocabulary between a core and its kernel.

use std::os::fd::RawFd;

/// Names one queued operation: what it is for, which cell owns it, and which tenant of that cell.
///
/// Layout of the 64 bits: tag 8, index 24, generation 32. A completion whose generation is not the
/// cell's present one belongs to an earlier tenant and only has its resources released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Highest index a token can carry.
    pub const INDEX_MAX: u32 = (1 << 24) - 1;
    /// The tag that kernels keep for operations of their own. Callers use tags below 0x80 only:
    /// the highest bit is the kernels'.
    pub const RESERVED_TAG: u8 = 0xff;

    /// A token for cell `index` in its `generation`; `tag` says which of the cell's operations.
    pub const fn new(tag: u8, index: u32, generation: u32) -> Token {
        Token((tag as u64) << 56 | ((index & Self::INDEX_MAX) as u64) << 32 | generation as u64)
    }

    /// Which of the cell's operations this is.
    pub const fn tag(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The owning cell.
    pub const fn index(self) -> u32 {
        (self.0 >> 32) as u32 & Self::INDEX_MAX
    }

    /// The tenant of the cell that queued the operation.
    pub const fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// Names a provided-buffer group of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u16);

/// One operation to queue. Pointers must stay valid until the operation's final completion.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Connect `fd`; `addr` points to a socket address of `len` bytes. Result 0 or `-errno`.
    Connect {
        /// A non-blocking stream socket.
        fd: RawFd,
        /// The address; must stay valid until the completion.
        addr: *const libc::sockaddr,
        /// Its length in bytes.
        len: libc::socklen_t,
    },
    /// Send `len` bytes without blocking (`MSG_DONTWAIT | MSG_NOSIGNAL`): a short count and
    /// `-EAGAIN` are ordinary results, and the operation always completes within its own submit.
    Send {
        /// The socket.
        fd: RawFd,
        /// First byte.
        ptr: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As [`Op::Send`], gathering from the `iovec`s of `msg`, at most 1 GiB.
    SendMsg {
        /// The socket.
        fd: RawFd,
        /// The message header; it and all it names must stay valid until the completion.
        msg: *const libc::msghdr,
    },
    /// Receive again and again into buffers of `group`, a completion for each piece, until a
    /// completion without [`Completion::more`]. `-ENOBUFS` ends it when the group is empty;
    /// result 0 is the end of the stream.
    RecvMulti {
        /// The socket.
        fd: RawFd,
        /// Where the buffers come from.
        group: GroupId,
    },
    /// Receive exactly `len` bytes (`MSG_WAITALL`); fewer only at the end of the stream or on error.
    RecvExact {
        /// The socket.
        fd: RawFd,
        /// Where the first byte goes.
        ptr: *mut u8,
        /// How many bytes.
        len: u32,
    },
    /// Completes with a non-negative result when `fd` takes bytes again (or fails).
    PollOut {
        /// The socket.
        fd: RawFd,
    },
    /// Completes with a non-negative result when `fd` is readable (eventfd of a mailbox). One shot.
    PollIn {
        /// The descriptor.
        fd: RawFd,
    },
    /// Cancel the operation with this token. Result 0, `-ENOENT` (it had completed) or
    /// `-EALREADY`; the cancelled operation still has its own completion.
    Cancel {
        /// The token of the operation to cancel.
        target: Token,
    },
    /// Close `fd`.
    Close {
        /// The descriptor; not ours any more once queued.
        fd: RawFd,
    },
}

/// How many bytes a message names.
///
/// # Safety
/// `msg` and its `iovec`s are valid for reading.
#[inline]
pub(crate) unsafe fn gathered(msg: *const libc::msghdr) -> usize {
    // SAFETY: as the caller promises; no reference to what the parts name is made.
    let (first, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
    // SAFETY: `at` stays below the number of parts.
    (0..count).map(|at| unsafe { (*first.add(at)).iov_len }).sum()
}

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token it was queued with.
    pub token: Token,
    /// Non-negative outcome, or `-errno`.
    pub result: i32,
    /// More completions of this multishot will come (`IORING_CQE_F_MORE`).
    pub more: bool,
    /// Index of the provided buffer that holds the bytes, if one was used.
    pub buffer: Option<u16>,
    /// The buffer stays posted and later bytes follow in it (`IORING_CQE_F_BUF_MORE`).
    pub buffer_more: bool,
}

impl Completion {
    /// A completion without buffer and without successors.
    pub const fn plain(token: Token, result: i32) -> Completion {
        Completion { token, result, more: false, buffer: None, buffer_more: false }
    }
}
