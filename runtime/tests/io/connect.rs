//! Making connections.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hedgerow_runtime::io::Target;
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::time::Instant;

use crate::message::message;
use crate::rig::{BLOCK, PATIENCE, Rig, in_thread, open_descriptors};

/// An address where nobody listens.
pub(crate) fn refusing() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Target::Tcp(listener.local_addr().unwrap())
}

/// A listener whose full queue answers nobody, and what fills it.
pub(crate) fn blackhole() -> (TcpListener, Vec<TcpStream>, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: no pointers; shrinks the listener's queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut fill = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        fill.push(stream);
        assert!(fill.len() < 16, "the queue never fills");
    }
    (listener, fill, Target::Tcp(address))
}

pub(crate) fn unix_path(name: &str) -> std::path::PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("hedgerow-{name}-{}-{number}.sock", std::process::id()))
}

pub(crate) fn connect_goes_on_to_the_next_address<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (_hole, _fill, silent) = blackhole();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let good = Target::Tcp(listener.local_addr().unwrap());
    let id = rig.dial(vec![refusing(), silent.clone(), good], Duration::from_secs(1)).unwrap();
    rig.until("the third address", |rig| rig.probe.link(id).open);
    rig.close(id);

    let (began, within) = (Instant::now(), Duration::from_millis(100));
    let id = rig.dial(vec![silent, refusing()], within).unwrap();
    rig.until("the refusal", |rig| !rig.probe.failed.is_empty());
    let (failed, error) = rig.probe.failed.remove(0);
    assert_eq!((failed, error.kind()), (id, std::io::ErrorKind::ConnectionRefused));
    assert!(Instant::now() - began >= within / 2, "the silent address had half of the time");
    assert!(rig.dial(vec![], PATIENCE).is_err());
    rig.shut_down();
}

pub(crate) fn connect_gives_up_at_its_deadline<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (_hole, _fill, silent) = blackhole();
    let (began, within) = (Instant::now(), Duration::from_millis(80));
    let id = rig.dial(vec![silent.clone(), silent], within).unwrap();
    rig.until("the deadline", |rig| !rig.probe.failed.is_empty());
    let (failed, error) = rig.probe.failed.remove(0);
    assert_eq!((failed, error.kind()), (id, std::io::ErrorKind::TimedOut));
    assert!(Instant::now() - began >= within);
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    rig.shut_down();
}

pub(crate) fn connects_over_every_family<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let path = unix_path("family");
    let unix = UnixListener::bind(&path).unwrap();
    let id = rig.dial(vec![Target::Unix(path.clone())], PATIENCE).unwrap();
    rig.until("the unix socket", |rig| rig.probe.link(id).open);
    let (mut peer, _) = unix.accept().unwrap();
    let writer = in_thread(move || peer.write_all(&message(0, &[BLOCK, 300_000])).unwrap());
    rig.heard(id, 1);
    writer.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    match TcpListener::bind("[::1]:0") {
        Ok(listener) => {
            let (id, mut peer) = rig.connected_to(&listener);
            peer.write_all(&message(0, &[5])).unwrap();
            rig.heard(id, 1);
        }
        // A machine without IPv6 says so, and the core passes it on.
        Err(_) => {
            let address: SocketAddr = "[::1]:6379".parse().unwrap();
            if rig.dial(vec![Target::Tcp(address)], PATIENCE).is_ok() {
                rig.until("a refusal", |rig| !rig.probe.failed.is_empty());
            }
        }
    }
    let long = Target::Unix("/tmp/".to_owned().repeat(40).into());
    let error = rig.dial(vec![long], PATIENCE).unwrap_err();
    assert!(error.to_string().contains("107"), "{error}");
    rig.shut_down();
}

/// Restores the limit of open files.
pub(crate) struct FileLimit(libc::rlimit);

impl FileLimit {
    pub(crate) fn lower(to: u64) -> FileLimit {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid rlimit to write to, then one to read.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
            let lower = libc::rlimit { rlim_cur: to, ..limit };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &lower), 0);
        }
        FileLimit(limit)
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        // SAFETY: a valid rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

pub(crate) fn a_limit_is_named<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    let limit = FileLimit::lower(open_descriptors() as u64 + 40);
    let error = (0..100).find_map(|_| rig.dial(vec![target.clone()], PATIENCE).err());
    drop(limit);
    let text = error.unwrap().to_string();
    assert!(text.contains("RLIMIT_NOFILE"), "{text}");
    rig.until("the rest", |rig| rig.probe.links.values().all(|l| l.open));
    rig.shut_down();
}
