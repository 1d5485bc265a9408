//! The sending half of a socket: one send in flight, the next batch builds meanwhile.

use std::os::fd::RawFd;

use bytes::Bytes;

use crate::op::Op;

/// Most parts that one send gathers; a batch with more goes out in several sends.
const PARTS_MAX: usize = 64;
/// Most bytes of one send: its result is a signed 32-bit number.
const BYTES_MAX: usize = 1 << 30;
/// Sending buffers above this are given back to the allocator after a burst.
const SMALL_KEEP: usize = 256 << 10;

/// Bytes to send: small ones copied into one buffer, large ones beside it, in order.
#[derive(Debug, Default)]
pub struct Batch {
    small: Vec<u8>,
    /// Large parts with the offset in `small` before which each belongs, ascending.
    large: Vec<(usize, Bytes)>,
    large_len: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The buffer that small parts are appended to.
    #[inline]
    pub fn small(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Appends a part without copying it.
    pub fn push_large(&mut self, part: Bytes) {
        self.large_len += part.len();
        self.large.push((self.small.len(), part));
    }

    /// Bytes in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.small.len() + self.large_len
    }

    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Empties it, keeping the small buffer's memory.
    pub fn clear(&mut self) {
        self.small.clear();
        self.large.clear();
        self.large_len = 0;
        if self.small.capacity() > SMALL_KEEP {
            self.small.shrink_to(SMALL_KEEP);
        }
    }

    /// Keeps of each unit (their lengths in order) those for which `keep` answers true; units that
    /// were sent already are not in the batch and not in `lengths`.
    ///
    /// The units must cover the batch exactly; a large part lies inside one unit.
    pub fn retain_units(&mut self, units: impl Iterator<Item = (usize, bool)>) {
        let mut old = std::mem::take(self);
        let mut large = old.large.drain(..).peekable();
        let mut at = 0;
        for (len, keep) in units {
            let mut left = len;
            while left > 0 {
                if let Some((_, part)) = large.next_if(|(before, _)| *before == at) {
                    left = left.saturating_sub(part.len());
                    if keep {
                        self.push_large(part);
                    }
                    continue;
                }
                let until = large.peek().map_or(old.small.len(), |(before, _)| *before);
                let n = left.min(until.saturating_sub(at));
                if n == 0 {
                    return; // The units do not cover the batch: nothing more can be told apart.
                }
                if keep {
                    self.small.extend_from_slice(&old.small[at..at + n]);
                }
                at += n;
                left -= n;
            }
        }
    }

    /// The parts in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        let ends = self.large.iter().map(|(before, part)| (*before, Some(part)));
        ends.chain(std::iter::once((self.small.len(), None)))
            .flat_map(move |(end, part)| {
                let small = &self.small[at..end];
                at = end;
                [small, part.map_or(&[][..], |p| p)]
            })
            .filter(|p| !p.is_empty())
    }
}

/// The outcome of a send's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The batch is out.
    All(usize),
    /// A part is out; queue the rest.
    Part(usize),
    /// The socket takes nothing now: wait until it is writable.
    Blocked,
    /// The connection is broken (`errno`).
    Broken(i32),
}

#[derive(Default)]
pub(crate) struct Send {
    batch: Batch,
    /// Bytes of the batch that are out already.
    out: usize,
    busy: bool,
    blocked: bool,
    iovecs: Vec<libc::iovec>,
    /// Boxed, since the kernel reads it while the send is prepared.
    header: Option<Box<libc::msghdr>>,
}

impl Send {
    /// Whether an operation of this half is in the kernel.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy || self.blocked
    }

    /// Bytes handed over and not yet taken by the system.
    pub(crate) fn unsent(&self) -> usize {
        self.batch.len() - self.out
    }

    /// Takes the batch if none is under way; the empty one it leaves has the last one's memory.
    pub(crate) fn take(&mut self, batch: &mut Batch) -> bool {
        if self.is_busy() || batch.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.batch, batch);
        batch.clear();
        self.out = 0;
        true
    }

    /// The operation for what is still to be sent.
    pub(crate) fn op(&mut self, fd: RawFd) -> Op {
        self.busy = true;
        if self.batch.large.is_empty() {
            let rest = &self.batch.small[self.out..];
            return Op::Send { fd, ptr: rest.as_ptr(), len: rest.len().min(BYTES_MAX) as u32 };
        }
        self.gather();
        // SAFETY: all-zero bytes are a valid msghdr without name, control data and parts.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        header.msg_iov = self.iovecs.as_mut_ptr();
        header.msg_iovlen = self.iovecs.len() as _;
        let msg: *const libc::msghdr = &**self.header.insert(header);
        Op::SendMsg { fd, msg }
    }

    fn gather(&mut self) {
        self.iovecs.clear();
        let (mut skip, mut room) = (self.out, BYTES_MAX);
        for part in self.batch.parts() {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            if self.iovecs.len() == PARTS_MAX || room == 0 {
                break;
            }
            let part = &part[skip..];
            let part = &part[..part.len().min(room)];
            skip = 0;
            room -= part.len();
            let iov_base = part.as_ptr().cast_mut().cast();
            self.iovecs.push(libc::iovec { iov_base, iov_len: part.len() });
        }
    }

    pub(crate) fn on_completion(&mut self, result: i32) -> Sent {
        self.busy = false;
        match result {
            n if n == -libc::EAGAIN || n == -libc::EINTR || n == -libc::ENOBUFS => {
                self.blocked = true;
                Sent::Blocked
            }
            n if n < 0 => Sent::Broken(-n),
            n => {
                self.out += n as usize;
                if self.out >= self.batch.len() {
                    // Large parts belong to the caller; an idle socket must not keep them.
                    self.batch.clear();
                    self.out = 0;
                    Sent::All(n as usize)
                } else {
                    Sent::Part(n as usize)
                }
            }
        }
    }

    /// The socket is writable again (or failed, which the next send will tell).
    pub(crate) fn on_writable(&mut self) {
        self.blocked = false;
    }
}
