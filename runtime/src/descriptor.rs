//! Descriptors fresh from the system.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The descriptor that a system call just made, or its error.
///
/// # Safety
/// `fd` is the fresh result of a call that makes a descriptor: nobody else has it.
pub(crate) unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A close-on-exec eventfd.
pub(crate) fn eventfd(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is fresh.
    unsafe { owned(libc::eventfd(0, flags | libc::EFD_CLOEXEC)) }
}

/// Makes an eventfd readable.
pub(crate) fn ring_eventfd(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: the descriptor is open; eight readable bytes are given. The result is not needed: the
    // counter can only be full if a wake is outstanding.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}
