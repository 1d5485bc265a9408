//! Sockets: making them, their addresses, their options.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::kernel::Address;

/// TCP keepalive of a connection; off unless asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe, whole seconds, at least 1 s.
    pub time: Duration,
    /// Time between probes; the system's default if `None`.
    pub interval: Option<Duration>,
    /// Unanswered probes before the connection is dropped; the system's default if `None`.
    pub count: Option<u32>,
}

impl Keepalive {
    /// Applies it to a socket.
    ///
    /// # Errors
    /// The system's error.
    pub fn apply(&self, fd: RawFd) -> io::Result<()> {
        set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, self.time.as_secs() as i32)?;
        if let Some(interval) = self.interval {
            set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval.as_secs() as i32)?;
        }
        match self.count {
            Some(count) => set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count as i32),
            None => Ok(()),
        }
    }
}

/// A non-blocking, close-on-exec stream socket for `address`, `TCP_NODELAY` set on TCP.
///
/// # Errors
/// The system's error; `EMFILE` says which limit was met.
pub fn new_socket(address: Address<'_>) -> io::Result<RawFd> {
    let domain = match address {
        Address::Tcp(SocketAddr::V4(_)) => libc::AF_INET,
        Address::Tcp(SocketAddr::V6(_)) => libc::AF_INET6,
        Address::Unix(_) => libc::AF_UNIX,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(domain, kind, 0) };
    if fd < 0 {
        return Err(name_limit(io::Error::last_os_error()));
    }
    if domain != libc::AF_UNIX {
        // A socket that refuses NODELAY still works, only slower.
        let _ = set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    }
    Ok(fd)
}

/// Adds to an error the limit that caused it, where there is one to raise (trap 18).
pub fn name_limit(error: io::Error) -> io::Error {
    let limit = match error.raw_os_error() {
        Some(libc::EMFILE) => "open files of the process (RLIMIT_NOFILE, `ulimit -n`)",
        Some(libc::ENFILE) => "open files of the machine (fs.file-max)",
        Some(libc::EADDRNOTAVAIL) => "local ports (net.ipv4.ip_local_port_range)",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: the limit is {limit}"))
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` is a readable int of the given length.
    let done = unsafe {
        libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<i32>() as u32)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket address in the system's own layout, at a stable place while a connect runs.
pub struct RawAddress {
    storage: Box<libc::sockaddr_storage>,
    len: libc::socklen_t,
}

impl RawAddress {
    /// Lays `address` out.
    ///
    /// # Errors
    /// A Unix path that is too long for the system (107 bytes), named in the error.
    pub fn new(address: Address<'_>) -> io::Result<RawAddress> {
        // SAFETY: all-zero bytes are a valid sockaddr_storage.
        let mut storage: Box<libc::sockaddr_storage> = Box::new(unsafe { std::mem::zeroed() });
        let to: *mut libc::sockaddr_storage = &mut *storage;
        let len = match address {
            // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in.
            Address::Tcp(SocketAddr::V4(a)) => unsafe {
                let to = &mut *to.cast::<libc::sockaddr_in>();
                to.sin_family = libc::AF_INET as libc::sa_family_t;
                to.sin_port = a.port().to_be();
                to.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                size_of::<libc::sockaddr_in>()
            },
            // SAFETY: as above, for sockaddr_in6.
            Address::Tcp(SocketAddr::V6(a)) => unsafe {
                let to = &mut *to.cast::<libc::sockaddr_in6>();
                to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                to.sin6_port = a.port().to_be();
                to.sin6_addr.s6_addr = a.ip().octets();
                to.sin6_scope_id = a.scope_id();
                to.sin6_flowinfo = a.flowinfo();
                size_of::<libc::sockaddr_in6>()
            },
            // SAFETY: as above, for sockaddr_un.
            Address::Unix(path) => unix(unsafe { &mut *to.cast::<libc::sockaddr_un>() }, path)?,
        };
        Ok(RawAddress { storage, len: len as libc::socklen_t })
    }

    /// Pointer and length as `connect` wants them.
    pub fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const *self.storage).cast(), self.len)
    }
}

fn unix(to: &mut libc::sockaddr_un, path: &Path) -> io::Result<usize> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= to.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("unix socket path {path:?} has {} bytes, at most 107 fit", bytes.len()),
        ));
    }
    to.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in to.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1)
}

/// Closes a descriptor at once, outside any ring (for sockets that never entered one).
pub fn close_now(fd: RawFd) {
    // SAFETY: the caller gives up the descriptor.
    unsafe { libc::close(fd) };
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawAddress").field("len", &self.len).finish_non_exhaustive()
    }
}
