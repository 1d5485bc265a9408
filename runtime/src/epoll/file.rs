//! One descriptor of the epoll kernel: what its edges said, and who waits for it.

use std::collections::HashMap;
use std::os::fd::RawFd;

use super::RECEIVE_BURST_BYTES;
use super::call::{recv, socket_error};
use crate::group::Group;
use crate::op::{Completion, GroupId, Token};

/// What is known of one descriptor.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) registered: bool,
    /// Made by `socket`, hence closed by `Op::Close` only: the registration cannot vanish.
    pub(super) ours: bool,
    /// An edge came and the socket was not drained since.
    pub(super) readable: bool,
    /// The peer's end or an error was seen: a short receive is not the last word.
    pub(super) ended: bool,
    /// It is in `Epoll::ready`.
    pub(super) scheduled: bool,
    /// Receives, served first to last; rarely more than one.
    pub(super) readers: Vec<Reader>,
    pub(super) waiters: Vec<Waiter>,
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) token: Token,
    pub(super) sink: Sink,
}

/// Where a receive puts its bytes.
#[derive(Debug)]
pub(super) enum Sink {
    Group(GroupId),
    Exact { ptr: *mut u8, len: u32, done: u32 },
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) token: Token,
    pub(super) mask: u32,
    pub(super) connect: bool,
}

impl File {
    /// Puts it on the ready list if there is something to receive and someone to receive it.
    #[inline]
    pub(super) fn schedule(&mut self, fd: RawFd, ready: &mut Vec<RawFd>) {
        if self.readable && !self.scheduled && !self.readers.is_empty() {
            self.scheduled = true;
            ready.push(fd);
        }
    }

    pub(super) fn complete_waiters(
        &mut self,
        fd: RawFd,
        events: u32,
        live: &mut HashMap<Token, RawFd>,
        out: &mut Vec<Completion>,
    ) {
        self.waiters.retain(|waiter| {
            let found = events & waiter.mask;
            if found != 0 {
                live.remove(&waiter.token);
                let result = if waiter.connect { -socket_error(fd) } else { found as i32 };
                out.push(Completion::plain(waiter.token, result));
            }
            found == 0
        });
    }

    /// Receives until the socket is drained, nobody asks or the share is used up.
    pub(super) fn receive(
        &mut self,
        fd: RawFd,
        groups: &mut [Option<Group>],
        live: &mut HashMap<Token, RawFd>,
        out: &mut Vec<Completion>,
    ) {
        let mut left = RECEIVE_BURST_BYTES;
        while self.readable && left > 0 {
            let Some(reader) = self.readers.first_mut() else { return };
            let token = reader.token;
            let step = match &mut reader.sink {
                Sink::Group(group) => {
                    let group = groups.get_mut(usize::from(group.0)).and_then(Option::as_mut);
                    receive_multi(fd, token, group, out)
                }
                Sink::Exact { ptr, len, done } => receive_exact(fd, *ptr, *len, done, left),
            };
            left = left.saturating_sub(step.bytes);
            // A short receive emptied the socket, unless an end waits behind the bytes.
            self.readable &= !step.drained && (!step.short || self.ended);
            if let Some(result) = step.finished {
                self.readers.remove(0);
                live.remove(&token);
                out.push(Completion::plain(token, result));
            }
        }
    }
}

impl Reader {
    /// How a cancelled receive ends. As on io_uring, an exact receive that took bytes already says
    /// how many: they are gone from the socket.
    pub(super) fn cancelled(self) -> Completion {
        match self.sink {
            Sink::Exact { done, .. } if done > 0 => Completion::plain(self.token, done as i32),
            _ => Completion::plain(self.token, -libc::ECANCELED),
        }
    }
}

/// What one `recv` did.
#[derive(Default)]
struct Step {
    bytes: u32,
    /// `EAGAIN`: nothing is there.
    drained: bool,
    /// Fewer bytes than were asked for.
    short: bool,
    /// The operation is over, with this result.
    finished: Option<i32>,
}

/// One receive into the front buffer of `group`.
fn receive_multi(
    fd: RawFd,
    token: Token,
    group: Option<&mut Group>,
    out: &mut Vec<Completion>,
) -> Step {
    let Some(group) = group else { return Step::over(-libc::ENOBUFS) };
    let Some((to, space)) = group.front() else { return Step::over(-libc::ENOBUFS) };
    // SAFETY: `post` promised that `to..to + space` is writable by us alone until it is consumed.
    match unsafe { recv(fd, to, space) } {
        Ok(0) => Step::over(0),
        Ok(bytes) => {
            let (index, stays) = group.consume(bytes).unwrap_or_default();
            let (result, buffer) = (bytes as i32, Some(index));
            out.push(Completion { token, result, more: true, buffer, buffer_more: stays });
            Step::took(bytes, space)
        }
        Err(libc::EAGAIN) => Step::drained(),
        Err(errno) => Step::over(-errno),
    }
}

impl Step {
    fn over(result: i32) -> Step {
        Step { finished: Some(result), ..Step::default() }
    }

    fn took(bytes: u32, asked: u32) -> Step {
        Step { bytes, short: bytes < asked, ..Step::default() }
    }

    fn drained() -> Step {
        Step { drained: true, ..Step::default() }
    }
}

/// One receive towards the `len` bytes at `ptr`, of at most `left` bytes.
fn receive_exact(fd: RawFd, ptr: *mut u8, len: u32, done: &mut u32, left: u32) -> Step {
    let asked = (len - *done).min(left);
    // SAFETY: whoever queued the op keeps `ptr..ptr + len` valid and untouched until its final
    // completion, which was not given yet; `done < len`, for the op ends when they are equal.
    match unsafe { recv(fd, ptr.add(*done as usize), asked) } {
        Ok(0) => Step::over(*done as i32),
        Ok(bytes) => {
            *done += bytes;
            let finished = (*done == len).then_some(len as i32);
            Step { finished, ..Step::took(bytes, asked) }
        }
        Err(libc::EAGAIN) => Step::drained(),
        // The bytes come first; the next receive tells the end.
        Err(_) if *done > 0 => Step::over(*done as i32),
        Err(errno) => Step::over(-errno),
    }
}
