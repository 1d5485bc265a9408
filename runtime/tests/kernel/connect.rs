//! Connects: refused, unanswered, over a Unix socket; and what is left when all is closed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use hedgerow_runtime::kernel::{Address, Kernel, Wait};
use hedgerow_runtime::op::Op;

use crate::rig::{CANCEL, CONNECT, RECEIVE, Rig};

/// A port where nobody listens.
pub(crate) fn connect_refused<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let fd = rig.start_connect(address);
    assert_eq!(rig.next(CONNECT).result, -libc::ECONNREFUSED);
    rig.close(fd);
}

/// A listener whose queue is full drops the greeting: only a cancel ends the connect.
pub(crate) fn blackhole_then_cancel<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: no pointers; shrinks the listener's queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let short = Duration::from_millis(300);
    let mut fill = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, short) {
        fill.push(stream);
        assert!(fill.len() < 16, "the queue never fills");
    }
    let fd = rig.start_connect(address);
    rig.expect_silence(CONNECT);
    rig.queue(CANCEL, Op::Cancel { target: CONNECT });
    assert_eq!(rig.next(CANCEL).result, 0);
    assert_eq!(rig.next(CONNECT).result, -libc::ECANCELED);
    rig.close(fd);
}

/// A Unix stream socket connects and carries bytes.
pub(crate) fn unix_socket<K: Kernel>(kernel: K) {
    use std::os::unix::ffi::OsStrExt;
    let mut rig = Rig::new(kernel);
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("hedgerow-kernel-{}-{number}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let fd = rig.kernel.socket(Address::Unix(&path)).unwrap();
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as libc::c_char;
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    rig.queue(CONNECT, Op::Connect { fd, addr: (&raw const address).cast(), len });
    assert_eq!(rig.next(CONNECT).result, 0);
    let (mut peer, _) = listener.accept().unwrap();
    let (group, first) = rig.group(2, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    peer.write_all(b"hello").unwrap();
    assert_eq!(rig.receive(group, first, 5), b"hello");
    rig.send_all(fd, b"back");
    let mut heard = [0; 4];
    peer.read_exact(&mut heard).unwrap();
    std::fs::remove_file(&path).unwrap();
}

pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sockets closed, groups removed and the kernel dropped: no descriptor stays.
pub(crate) fn nothing_leaks<K: Kernel>(make: fn() -> K) {
    let before = open_descriptors();
    {
        let mut rig = Rig::new(make());
        for _ in 0..10 {
            let (fd, mut peer) = rig.connected();
            let (group, _) = rig.group(2, 64, false);
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
            rig.enter(Wait::No);
            rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
            assert_eq!(rig.next(CANCEL).result, 0);
            assert_eq!(rig.next(RECEIVE).result, -libc::ECANCELED);
            rig.close(fd);
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the peer must see the end");
            rig.kernel.ungroup(group);
        }
        let _ = rig.kernel.ready_fd().unwrap();
    }
    assert_eq!(open_descriptors(), before);
}
