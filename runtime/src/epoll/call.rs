//! The system calls of the epoll kernel, each with its count or its `errno`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::op::{Op, gathered};

/// Carries out `op` if it is a send; its result and whether all of it went out.
///
/// # Safety
/// What `op` names is valid, as [`Kernel::queue`](crate::kernel::Kernel::queue) asks for.
#[inline]
pub(super) unsafe fn send(op: &Op) -> Option<(i32, bool)> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (sent, asked) = match *op {
        Op::Send { fd, ptr, len } => {
            let len = len as usize;
            // SAFETY: as the caller promises, `ptr..ptr + len` is readable.
            (answer(|| unsafe { libc::send(fd, ptr.cast(), len, flags) }), len)
        }
        Op::SendMsg { fd, msg } => {
            // SAFETY: as the caller promises, so are the header and all it names.
            (answer(|| unsafe { libc::sendmsg(fd, msg, flags) }), unsafe { gathered(msg) })
        }
        _ => return None,
    };
    Some((sent.map_or_else(|errno| -errno, |bytes| bytes as i32), sent == Ok(asked)))
}

/// `recv(2)` without blocking.
///
/// # Safety
/// `ptr..ptr + len` is writable and nobody else's.
#[inline]
pub(super) unsafe fn recv(fd: RawFd, ptr: *mut u8, len: u32) -> Result<u32, i32> {
    // SAFETY: as the caller promises.
    let got = answer(|| unsafe { libc::recv(fd, ptr.cast(), len as usize, libc::MSG_DONTWAIT) })?;
    Ok(got as u32)
}

/// Which of `mask` is true of `fd` now (or `POLLNVAL` for no descriptor); 0 for none.
pub(super) fn poll_now(fd: RawFd, mask: u32) -> i32 {
    // The poll and epoll bits are the same on Linux.
    let mut asked = libc::pollfd { fd, events: mask as i16, revents: 0 };
    // SAFETY: one valid pollfd; a zero timeout never blocks.
    match answer(|| unsafe { libc::poll(&mut asked, 1, 0) as isize }) {
        Ok(1..) => i32::from(asked.revents),
        _ => 0,
    }
}

/// Takes the error that a socket holds, 0 for none.
pub(super) fn socket_error(fd: RawFd) -> i32 {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `error` is writable for `len` bytes, and `len` is a valid, writable socklen_t.
    let done = unsafe {
        let value = (&raw mut error).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, value, &mut len)
    };
    if done == 0 { error } else { errno() }
}

pub(super) fn control(
    set: &OwnedFd,
    what: i32,
    fd: RawFd,
    events: u32,
    key: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: key };
    // SAFETY: `event` is a valid epoll_event and both numbers are only looked up by the kernel.
    match unsafe { libc::epoll_ctl(set.as_raw_fd(), what, fd, &mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

/// A system call's count, or its `errno`.
pub(super) fn answer_once(mut call: impl FnMut() -> isize) -> Result<usize, i32> {
    usize::try_from(call()).map_err(|_| errno())
}

/// As [`answer_once`], again while a signal interrupts it.
pub(super) fn answer(mut call: impl FnMut() -> isize) -> Result<usize, i32> {
    loop {
        match answer_once(&mut call) {
            Err(libc::EINTR) => {}
            other => return other,
        }
    }
}
