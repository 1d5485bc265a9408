//! The memory that operations name: read and written as a real kernel would.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use super::net::Endpoint;

/// The pieces that a message names.
///
/// # Safety
/// `msg` and its `iovec`s are valid for reading.
pub(super) unsafe fn parts(msg: *const libc::msghdr) -> Vec<(*const u8, usize)> {
    // SAFETY: as the caller promises.
    let (first, count) = unsafe { ((*msg).msg_iov, (*msg).msg_iovlen) };
    (0..count)
        .map(|at| {
            // SAFETY: `at` stays below the number of parts.
            let part = unsafe { *first.add(at) };
            (part.iov_base.cast_const().cast(), part.iov_len)
        })
        .collect()
}

/// The first `take` bytes of what a send names.
pub(super) fn copy_out(from: &[(*const u8, usize)], take: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(take);
    for &(ptr, len) in from {
        let len = len.min(take - bytes.len());
        if len > 0 {
            // SAFETY: a send's memory is readable until its completion, which is not made yet.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr, len) });
        }
    }
    bytes
}

/// Moves the first `take` bytes of `from` to `to`.
///
/// # Safety
/// `to..to + take` is writable and nobody else reads or writes it now.
pub(super) unsafe fn copy_in(from: &mut VecDeque<u8>, take: usize, to: *mut u8) {
    let (front, back) = from.as_slices();
    let first = take.min(front.len());
    let second = (take - first).min(back.len());
    // SAFETY: `first + second <= take`, and each is within its slice; the deque's memory is its own.
    unsafe {
        std::ptr::copy_nonoverlapping(front.as_ptr(), to, first);
        std::ptr::copy_nonoverlapping(back.as_ptr(), to.add(first), second);
    }
    from.drain(..take);
}

/// Reads a socket address.
///
/// # Safety
/// `addr..addr + len` is valid for reading.
pub(super) unsafe fn endpoint(
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Option<Endpoint> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len as usize) };
    let port = || Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    match i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?])) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Endpoint::Tcp(SocketAddr::new(Ipv4Addr::from(ip).into(), port()?)))
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            let v6 = SocketAddrV6::new(Ipv6Addr::from(ip), port()?, flow, scope);
            Some(Endpoint::Tcp(SocketAddr::V6(v6)))
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..)?.split(|b| *b == 0).next()?;
            Some(Endpoint::Unix(std::ffi::OsStr::from_bytes(path).into()))
        }
        _ => None,
    }
}
