//! The core and its sockets over every real kernel: rungs U2, U1 and E.
//!
//! Peers are plain `std` sockets, on this thread or on one of their own. Messages are made of parts
//! (a length whose highest bit says that another part follows, then bytes of one known text), so
//! that a reader learns the length of a message only as it comes. Every wait has a bound.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, RwLock, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::core::{Core, Drive, RemoteError, Turn};
use hedgerow_runtime::epoll::Epoll;
use hedgerow_runtime::io::{Connect, Handler, Io, SocketId, Target};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::ring::{Config, Ring};
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Batch, Progress, Rx};

/// Held shared by every test and alone by those that count or limit descriptors.
static DESCRIPTORS: RwLock<()> = RwLock::new(());
/// After this, what has not come is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The block that a socket begins with.
const BLOCK: usize = 16 * KIB;
/// Says that another part of the message follows.
const FOLLOWED: u32 = 1 << 31;

/// The bytes of a part: another piece of one random text for each number.
fn text(number: usize, len: usize) -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut text = vec![0; 64 * MIB + 4 * KIB];
        fastrand::Rng::with_seed(7).fill(&mut text);
        text
    });
    &TEXT[number % (4 * KIB)..][..len]
}

/// Message `number`, whose parts have these lengths.
fn message(number: usize, parts: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|len| len + 4).sum());
    for (at, len) in parts.iter().enumerate() {
        let followed = if at + 1 < parts.len() { FOLLOWED } else { 0 };
        bytes.extend((*len as u32 | followed).to_le_bytes());
        bytes.extend_from_slice(text(number + at, *len));
    }
    bytes
}

/// Length of the message at the start of `bytes`, or how many more bytes are needed to tell.
fn measure(bytes: &[u8], number: usize) -> Result<usize, usize> {
    let (mut at, mut part) = (0, 0);
    loop {
        let rest = &bytes[at..];
        let Some(head) = rest.first_chunk::<4>() else { return Err(4 - rest.len()) };
        let head = u32::from_le_bytes(*head);
        let len = (head & !FOLLOWED) as usize;
        let Some(body) = rest.get(4..4 + len) else { return Err(4 + len - rest.len()) };
        assert!(body == text(number + part, len), "message {number}, part {part} of {len} bytes");
        (at, part) = (at + 4 + len, part + 1);
        if head & FOLLOWED == 0 {
            return Ok(at);
        }
    }
}

#[derive(Default)]
struct Link {
    open: bool,
    paused: bool,
    /// Number of the next message.
    heard: usize,
}

/// What a rig's sockets reported.
#[derive(Default)]
struct Probe {
    links: HashMap<SocketId, Link>,
    failed: Vec<(SocketId, std::io::Error)>,
    /// Ends, each with the number of messages that came before it.
    closed: Vec<(Option<std::io::Error>, usize)>,
    sent: Vec<(SocketId, usize, bool)>,
    /// Where messages go that are to be kept, with their numbers.
    keep: Option<Box<dyn FnMut(usize, Bytes)>>,
    /// Of the messages kept, how many were slices of their block.
    sliced: usize,
    by: Option<Instant>,
}

impl Probe {
    fn link(&mut self, id: SocketId) -> &mut Link {
        self.links.get_mut(&id).expect("a report of a socket that is gone")
    }
}

impl Handler for Probe {
    fn on_connected(&mut self, _: Instant, id: SocketId, outcome: std::io::Result<()>) {
        self.link(id).open = outcome.is_ok();
        if let Err(error) = outcome {
            self.links.remove(&id);
            self.failed.push((id, error));
        }
    }

    fn on_bytes(&mut self, _: Instant, id: SocketId, rx: &mut Rx) -> Progress {
        let link = self.links.get_mut(&id).expect("bytes of a socket that is gone");
        assert!(!link.paused, "bytes while receiving is off");
        let mut consumed = 0;
        loop {
            match measure(&rx.bytes()[consumed..], link.heard) {
                Ok(len) => {
                    if let Some(keep) = &mut self.keep {
                        let kept = rx.keep(consumed..consumed + len);
                        self.sliced += usize::from(kept.shares_block());
                        keep(link.heard, kept.into_bytes());
                    }
                    link.heard += 1;
                    consumed += len;
                }
                Err(need) => return Progress { consumed, need },
            }
        }
    }

    fn on_sent(&mut self, _: Instant, id: SocketId, n: usize, idle: bool) {
        self.link(id);
        self.sent.push((id, n, idle));
    }

    fn on_closed(&mut self, _: Instant, id: SocketId, error: Option<std::io::Error>) {
        let link = self.links.remove(&id).expect("an end of a socket that is gone");
        assert!(!link.paused, "an end while receiving is off");
        self.closed.push((error, link.heard));
    }
}

impl<K: Kernel> Drive<K> for Probe {
    fn on_flush(&mut self, _: Instant, _: &mut Io<K>) {}
    fn on_dispatched(&mut self, _: Instant) {}
    fn on_deadline(&mut self, _: Instant) {
        self.by = None;
    }
    fn next_deadline(&self) -> Instant {
        self.by.unwrap_or(Instant::NEVER)
    }
    fn in_flight(&self) -> bool {
        true
    }
}

/// A core and what its sockets reported.
struct Rig<K: Kernel> {
    core: Core<K>,
    probe: Probe,
}

impl<K: Kernel> Rig<K> {
    fn new(kernel: K) -> Rig<K> {
        let parker = Parker::new(ParkPolicy::Park, None, 1, 1);
        Rig { core: Core::new(kernel, parker), probe: Probe::default() }
    }

    fn turn(&mut self, turn: Turn) -> bool {
        self.core.turn(&mut self.probe, turn).unwrap()
    }

    /// Takes turns until `done`; returns how many.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> usize {
        let limit = Instant::now() + PATIENCE;
        let mut turns = 0;
        while !done(self) {
            assert!(Instant::now() < limit, "{what}: did not come");
            self.probe.by = Some(limit);
            self.turn(Turn::MayWait);
            turns += 1;
        }
        turns
    }

    /// Takes turns for a while; returns how many.
    fn rest(&mut self, time: Duration) -> usize {
        let until = Instant::now() + time;
        let mut turns = 0;
        while Instant::now() < until {
            self.probe.by = Some(until);
            self.turn(Turn::MayWait);
            turns += 1;
        }
        turns
    }

    fn dial(&mut self, targets: Vec<Target>, within: Duration) -> std::io::Result<SocketId> {
        let now = Instant::now();
        let id =
            self.core.io.connect(now, Connect { targets, by: now + within, keepalive: None })?;
        self.probe.links.insert(id, Link::default());
        Ok(id)
    }

    /// A connected socket and its peer.
    fn connected(&mut self) -> (SocketId, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.connected_to(&listener)
    }

    fn connected_to(&mut self, listener: &TcpListener) -> (SocketId, TcpStream) {
        let address = listener.local_addr().unwrap();
        let id = self.dial(vec![Target::Tcp(address)], PATIENCE).unwrap();
        self.until("a connection", |rig| rig.probe.link(id).open);
        let peer = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        (id, peer)
    }

    fn send(&mut self, id: SocketId, bytes: &[u8]) -> bool {
        let mut batch = Batch::new();
        batch.small().extend_from_slice(bytes);
        self.core.io.send(id, &mut batch)
    }

    fn heard(&mut self, id: SocketId, messages: usize) {
        self.until("a message", |rig| match rig.probe.links.get(&id) {
            Some(link) => link.heard >= messages,
            None => {
                let end = rig.probe.closed.last();
                assert!(matches!(end, Some((None, heard)) if *heard >= messages), "{end:?}");
                true
            }
        });
    }

    /// Takes turns without waiting: a send that went out whole ends no wait.
    fn poll_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < limit, "{what}: did not come");
            if !self.turn(Turn::Return) {
                std::thread::yield_now();
            }
        }
    }

    /// Adds a task; the cell tells that it ended. It yields after that, so that the turn in which
    /// it ends does not wait.
    fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Rc<Cell<bool>> {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        drop(self.core.local().spawn(async move {
            future.await;
            end.set(true);
            yield_now().await;
        }));
        ended
    }

    fn received(&self) -> u64 {
        self.core.io.counters().bytes_received
    }

    fn close(&mut self, id: SocketId) {
        self.core.io.close(id);
        self.probe.links.remove(&id);
    }

    fn receive(&mut self, id: SocketId, on: bool) {
        self.probe.link(id).paused = !on;
        self.core.io.receive(Instant::now(), id, on, &mut self.probe);
    }

    fn shut_down(mut self) {
        self.core.shut_down(&mut self.probe);
    }
}

fn in_thread(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(work)
}

/// An address where nobody listens.
fn refusing() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Target::Tcp(listener.local_addr().unwrap())
}

/// A listener whose full queue answers nobody, and what fills it.
fn blackhole() -> (TcpListener, Vec<TcpStream>, Target) {
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

fn unix_path(name: &str) -> std::path::PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("hedgerow-{name}-{}-{number}.sock", std::process::id()))
}

fn connect_goes_on_to_the_next_address<K: Kernel>(make: fn() -> K) {
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

fn connect_gives_up_at_its_deadline<K: Kernel>(make: fn() -> K) {
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

fn connects_over_every_family<K: Kernel>(make: fn() -> K) {
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

fn one_send_a_turn<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut sent = Vec::new();
    for round in 0..20 {
        let mut batch = Batch::new();
        for number in 0..50 {
            batch.small().extend_from_slice(&message(number, &[round]));
        }
        let bytes: Vec<u8> = batch.parts().flatten().copied().collect();
        let before = rig.core.io.counters();
        assert!(rig.core.io.send(id, &mut batch));
        assert!(!rig.send(id, b"another in the same turn"), "one send at a time");
        rig.turn(Turn::Return);
        let after = rig.core.io.counters();
        assert_eq!((after.sends - before.sends, after.enters - before.enters), (1, 1));
        assert_eq!(rig.probe.sent.pop(), Some((id, bytes.len(), true)));
        sent.extend(bytes);
    }
    let mut heard = vec![0; sent.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == sent);
    rig.shut_down();
}

fn short_sends_go_on<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let small = 4096i32;
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `small` is readable for `len` bytes.
    let done = unsafe {
        let value = (&raw const small).cast();
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, len)
    };
    assert_eq!(done, 0);
    let (id, mut peer) = rig.connected_to(&listener);
    let mut batch = Batch::new();
    for number in 0..200 {
        batch.small().extend_from_slice(text(number, number));
        batch.push_large(Bytes::from_static(text(number, 60 * KIB + number)));
    }
    batch.push_large(Bytes::new());
    batch.small().extend_from_slice(b"end");
    let sent: Vec<u8> = batch.parts().flatten().copied().collect();
    let total = sent.len();
    assert!(rig.core.io.send(id, &mut batch));
    rig.rest(Duration::from_millis(20));
    assert!(rig.core.io.unsent(id) > 0, "the peer has not read");
    let reader = in_thread(move || {
        let mut heard = vec![0; sent.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "bytes are lost, doubled or out of order");
    });
    rig.poll_until("the whole batch", |rig| rig.probe.sent.last().is_some_and(|s| s.2));
    assert_eq!(rig.probe.sent.iter().map(|s| s.1).sum::<usize>(), total);
    assert_eq!(rig.core.io.unsent(id), 0);
    reader.join().unwrap();
    rig.shut_down();
}

fn a_sent_part_is_let_go<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    struct Part(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Part {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let held = Arc::new(vec![1; 1000]);
    let mut batch = Batch::new();
    batch.push_large(Bytes::from_owner(Part(held.clone())));
    assert!(rig.core.io.send(id, &mut batch));
    rig.poll_until("the send", |rig| rig.probe.sent.last().is_some_and(|s| s.2));
    assert_eq!(Arc::strong_count(&held), 1, "an idle socket keeps the caller's bytes");
    peer.read_exact(&mut [0; 1000]).unwrap();
    rig.shut_down();
}

fn messages_split_at_every_byte<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    let mut written = rig.received();
    for parts in [&[0usize][..], &[1], &[60], &[0, 0, 7], &[20, 1]] {
        for split in 0..message(0, parts).len() {
            let bytes = message(number, parts);
            let (head, tail) = bytes.split_at(split);
            for piece in [head, tail] {
                peer.write_all(piece).unwrap();
                written += piece.len() as u64;
                rig.until("a piece", |rig| rig.received() == written);
            }
            number += 1;
            assert_eq!(rig.probe.link(id).heard, number, "{parts:?} split at {split}");
        }
    }
    rig.shut_down();
}

fn messages_end_at_every_place_of_a_block<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    let mut written = rig.received();
    for step in 0..60 {
        for len in [BLOCK / 2 - 8, BLOCK / 4, BLOCK / 4 - 4 + step % 3, 3, 0] {
            let bytes = message(number, &[len]);
            for piece in bytes.chunks(1 + 97 * step) {
                peer.write_all(piece).unwrap();
                written += piece.len() as u64;
                if step % 4 == 0 && piece.len() > 300 {
                    rig.until("a piece", |rig| rig.received() == written);
                }
            }
            number += 1;
        }
        rig.heard(id, number);
    }
    rig.shut_down();
}

fn values_of_every_size<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut sizes: Vec<usize> = vec![0, 1];
    for border in [BLOCK, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 4 * MIB] {
        sizes.extend(border - 9..border + 9);
    }
    sizes.extend([64 * MIB, 0, 1, 64 * KIB]);
    let count = sizes.len();
    let writer = in_thread(move || {
        for (number, len) in sizes.iter().enumerate() {
            peer.write_all(&message(number, &[*len])).unwrap();
        }
    });
    rig.heard(id, count);
    writer.join().unwrap();
    rig.shut_down();
}

fn no_byte_is_lost_around_exact_receives<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 400;
    let writer = in_thread(move || {
        let mut rng = fastrand::Rng::with_seed(25);
        let mut stream = Vec::new();
        for number in 0..count {
            // Parts of which many are longer than a block, so that exact buffers grow.
            let parts: Vec<usize> = (0..rng.usize(1..5))
                .map(|_| if rng.u8(..) < 100 { rng.usize(0..400 * KIB) } else { rng.usize(0..300) })
                .collect();
            stream.extend(message(number, &parts));
            while stream.len() > MIB || (number + 1 == count && !stream.is_empty()) {
                let n = rng.usize(1..200 * KIB).min(stream.len());
                peer.write_all(&stream[..n]).unwrap();
                stream.drain(..n);
            }
        }
    });
    rig.heard(id, count);
    writer.join().unwrap();
    rig.shut_down();
}

fn kept_values_never_change<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 1500;
    let len = |number: usize| 4 * KIB + (number * 7919) % (76 * KIB);
    let writer = in_thread(move || {
        for number in 0..count {
            peer.write_all(&message(number, &[len(number)])).unwrap();
        }
    });
    let (send, receive) = mpsc::channel::<(usize, Bytes)>();
    let checker = in_thread(move || {
        let check = |(number, bytes): &(usize, Bytes)| {
            assert!(bytes[4..] == *text(*number, len(*number)), "message {number} was overwritten");
        };
        let mut rng = fastrand::Rng::with_seed(4);
        let mut held = Vec::new();
        for kept in receive {
            check(&kept);
            held.push(kept);
            while held.len() > rng.usize(0..60) {
                check(&held.swap_remove(rng.usize(0..held.len())));
            }
        }
        held.iter().for_each(check);
    });
    rig.probe.keep = Some(Box::new(move |number, bytes| send.send((number, bytes)).unwrap()));
    rig.heard(id, count);
    assert!(rig.probe.sliced > count / 10, "values this large are slices of their blocks");
    rig.close(id);
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    let Rig { core, mut probe } = rig;
    probe.keep = None;
    checker.join().unwrap();
    writer.join().unwrap();
    assert_eq!(core.io.retained(), 0);
    core.shut_down(&mut probe);
}

fn what_users_keep_is_bounded<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 1200;
    let len = 70 * KIB;
    let writer = in_thread(move || {
        for number in 0..count {
            peer.write_all(&message(number, &[len])).unwrap();
        }
    });
    let kept = Rc::new(RefCell::new(Vec::new()));
    let into = kept.clone();
    rig.probe.keep = Some(Box::new(move |number, bytes| into.borrow_mut().push((number, bytes))));
    rig.heard(id, count);
    // A buffer of one value alone costs no more than a copy would; blocks beyond that are bounded.
    let alone = count * (len + 4) * 5 / 4;
    let (bound, retained) = (64 * MIB + 8 * 256 * KIB, rig.core.io.retained());
    assert!(retained <= bound.max(alone), "{retained} bytes are retained");
    assert!(retained > 32 * MIB && rig.probe.sliced > 0, "slices are not counted");
    for (number, bytes) in kept.borrow().iter() {
        assert!(bytes[4..] == *text(*number, len));
    }
    rig.close(id);
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    kept.borrow_mut().clear();
    assert_eq!(rig.core.io.retained(), 0);
    writer.join().unwrap();
    rig.shut_down();
}

fn an_empty_group_is_armed_again<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    for round in 0..10 {
        let (from, count) = (round * 40, 40);
        let writer = in_thread({
            let mut peer = peer.try_clone().unwrap();
            move || {
                for number in from..from + count {
                    peer.write_all(&message(number, &[50_000])).unwrap();
                }
            }
        });
        // More than all blocks hold waits before the first turn.
        while !writer.is_finished() && round % 2 == 0 {
            std::thread::yield_now();
            if queued(&peer) > 300 * KIB {
                break;
            }
        }
        rig.heard(id, from + count);
        writer.join().unwrap();
        let turns = rig.rest(Duration::from_millis(20));
        assert!(turns < 10, "{turns} turns with nothing to do");
    }
    peer.write_all(&message(400, &[1])).unwrap();
    rig.heard(id, 401);
    rig.shut_down();
}

/// Bytes that a peer sent and that were not acknowledged or received yet.
fn queued(peer: &TcpStream) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` is a writable int, which TIOCOUTQ fills.
    unsafe { libc::ioctl(peer.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    bytes as usize
}

fn receiving_off_shows_nothing<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    for round in 0..30 {
        // Half a message waits in its block, or in the spill.
        let bytes = message(number, &[BLOCK / 2 + 100 * round]);
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let before = rig.received();
        peer.write_all(head).unwrap();
        rig.until("half a message", |rig| rig.received() == before + head.len() as u64);
        if round % 3 == 0 {
            // What is on its way when it is switched off must wait too.
            peer.write_all(tail).unwrap();
            rig.receive(id, false);
        } else {
            rig.receive(id, false);
            peer.write_all(tail).unwrap();
        }
        peer.write_all(&message(number + 1, &[7])).unwrap();
        for _ in 0..5 {
            rig.turn(Turn::Return);
        }
        if round % 2 == 0 {
            rig.receive(id, true);
            rig.receive(id, false);
            rig.receive(id, true);
        } else {
            rig.receive(id, true);
        }
        number += 2;
        rig.heard(id, number);
    }
    rig.shut_down();
}

fn receiving_off_during_an_exact_receive<K: Kernel>(make: fn() -> K) {
    for late in [false, true] {
        let mut rig = Rig::new(make());
        let (id, mut peer) = rig.connected();
        let first = message(0, &[3 * MIB, 200 * KIB, 9]);
        let cut = if late { 3 * MIB - 10 } else { 64 * KIB };
        let head = first[..cut].to_vec();
        let writer = in_thread({
            let mut peer = peer.try_clone().unwrap();
            move || peer.write_all(&head).unwrap()
        });
        // An exact receive completes only at its end: all that went out has come in a while.
        rig.rest(Duration::from_millis(30));
        writer.join().unwrap();
        rig.receive(id, false);
        let writer = in_thread(move || {
            peer.write_all(&first[cut..]).unwrap();
            peer.write_all(&message(1, &[500_000])).unwrap();
            peer.write_all(&message(2, &[5])).unwrap();
        });
        rig.rest(Duration::from_millis(30));
        rig.receive(id, true);
        rig.until("the end", |rig| !rig.probe.closed.is_empty());
        let (error, heard) = rig.probe.closed.remove(0);
        assert!(error.is_none(), "an orderly end: {error:?}");
        assert_eq!(heard, 3, "all messages come before the end");
        writer.join().unwrap();
        rig.shut_down();
    }
}

fn stale_completions_touch_nobody<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = None;
    for round in 0..300 {
        let (id, mut peer) = rig.connected_to(&listener);
        // Numbers tell the tenants apart: the bytes of another one would not be its text.
        rig.probe.link(id).heard = round * 3;
        for number in 0..3 {
            peer.write_all(&message(round * 3 + number, &[5000])).unwrap();
        }
        if round % 4 != 0 {
            rig.heard(id, round * 3 + 1 + round % 3);
        }
        rig.send(id, b"on its way");
        rig.close(id);
        rig.close(id);
        assert!(!rig.send(id, b"gone"), "a stale name is refused");
        rig.core.io.receive(Instant::now(), id, true, &mut rig.probe);
        if let Some(old) = before.replace(id) {
            rig.core.io.close(old);
            assert_ne!(old, id);
        }
    }
    rig.until("all cells", |rig| rig.core.io.live() == 0);
    assert!(rig.probe.closed.is_empty(), "nothing is reported of a socket that we closed");
    rig.shut_down();
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn dropped_connects_leak_nothing<K: Kernel>(make: fn() -> K) {
    let total = 10_000;
    let before = open_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let server = in_thread(move || {
        let mut held = Vec::new();
        for (number, peer) in listener.incoming().enumerate() {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let mut peer = peer.unwrap();
            let _ = peer.write_all(&message(0, &[number % 300]));
            held.push(peer);
            if held.len() > 20 {
                held.swap_remove(number % held.len());
            }
        }
    });
    let mut rig = Rig::new(make());
    let mut rng = fastrand::Rng::with_seed(24);
    let mut made = 0;
    rig.poll_until("ten thousand", |rig| {
        for _ in 0..rng.usize(0..8) {
            if made < total && rig.core.io.live() < 100 {
                rig.dial(vec![refusing_or(address, &mut rng)], PATIENCE).unwrap();
                made += 1;
            }
        }
        let dropped: Vec<SocketId> =
            rig.probe.links.keys().copied().filter(|_| rng.u8(..) < 64).collect();
        for id in dropped {
            rig.send(id, b"half a com");
            rig.close(id);
        }
        rig.probe.closed.clear();
        rig.probe.failed.clear();
        made == total && rig.core.io.live() == 0
    });
    rig.shut_down();
    stop.store(true, Ordering::Relaxed);
    drop(TcpStream::connect(address));
    server.join().unwrap();
    assert_eq!(open_descriptors(), before);
}

/// Now and then a port where nobody listens.
fn refusing_or(address: SocketAddr, rng: &mut fastrand::Rng) -> Target {
    if rng.u8(..) < 8 { Target::Tcp(([127, 0, 0, 1], 1).into()) } else { Target::Tcp(address) }
}

fn teardown_while_peers_send<K: Kernel>(make: fn() -> K) {
    for orderly in [true, false] {
        let before = open_descriptors();
        let mut rig = Rig::new(make());
        let kept = Rc::new(RefCell::new(Vec::new()));
        let into = kept.clone();
        rig.probe.keep = Some(Box::new(move |number, bytes| {
            if number % 16 == 0 {
                into.borrow_mut().push((number, bytes));
            }
        }));
        let mut writers = Vec::new();
        for _ in 0..16 {
            let (id, mut peer) = rig.connected();
            let mut unread = peer.try_clone().unwrap();
            writers.push(in_thread(move || {
                let mut number = 0;
                while peer.write_all(&message(number, &[10 * KIB + number * 997 % MIB])).is_ok() {
                    number += 1;
                }
                let _ = unread.read(&mut [0; 64]);
            }));
            // A send that is blocked, and one that gathers, are on their way too.
            let mut batch = Batch::new();
            batch.small().extend_from_slice(&[0; 10]);
            batch.push_large(Bytes::from(vec![0; 8 * MIB]));
            assert!(rig.core.io.send(id, &mut batch));
        }
        rig.rest(Duration::from_millis(50));
        if orderly {
            rig.shut_down();
        } else {
            drop(rig);
        }
        // What is kept outlives the core, and the freed blocks are somebody else's now.
        let others: Vec<Vec<u8>> = (0..200).map(|_| vec![0x5a; 64 * KIB]).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(others.iter().all(|bytes| bytes.iter().all(|b| *b == 0x5a)), "a wild write");
        for (number, bytes) in kept.borrow().iter() {
            assert!(bytes[4..] == *text(*number, bytes.len() - 4));
        }
        assert_eq!(open_descriptors(), before, "orderly: {orderly}");
    }
}

/// Yields to the core once.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn a_busy_task_starves_nobody<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let task = rig.core.local().spawn(async {
        loop {
            yield_now().await;
        }
    });
    let sleeper = rig.core.local().clone();
    let nap = rig.spawn(async move { sleeper.sleep(Duration::from_millis(2)).await });
    for number in 0..50 {
        peer.write_all(&message(number, &[100])).unwrap();
        rig.heard(id, number + 1);
    }
    rig.until("a timer", |_| nap.get());
    assert!(!task.is_finished());
    rig.shut_down();
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a destructor");
        }
    }
}

impl Future for PanicsWhenDropped {
    type Output = u8;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<u8> {
        Poll::Ready(1)
    }
}

fn a_panic_ends_its_own_task<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let local = rig.core.local().clone();
    let other = local.clone();
    let lives = rig.spawn(async move {
        for _ in 0..20 {
            other.sleep(Duration::from_micros(300)).await;
        }
    });
    let plain = local.spawn(async {
        yield_now().await;
        panic!("in a task");
    });
    let dropped = local.spawn(PanicsWhenDropped);
    // Nobody takes this output, so the core drops it.
    drop(local.spawn(async { [PanicsWhenDropped] }));
    local.remote().run(|| panic!("in a job")).unwrap();
    let told = Rc::new(RefCell::new(Vec::new()));
    let into = told.clone();
    let listens = rig.spawn(async move {
        let plain: Result<(), _> = plain.await;
        into.borrow_mut().push(plain.unwrap_err().message().to_owned());
        let dropped = dropped.await.unwrap_err().message().to_owned();
        into.borrow_mut().push(dropped);
    });
    peer.write_all(&message(0, &[9])).unwrap();
    rig.heard(id, 1);
    rig.until("the other tasks", |_| lives.get() && listens.get());
    assert_eq!(told.take(), ["in a task", "in a destructor"]);
    rig.poll_until("the last tasks", |rig| !rig.turn(Turn::Return));
    assert_eq!(rig.core.local().live_tasks(), 0, "a task that panicked is gone");
    rig.shut_down();
}

/// Ends once `flag` is set; its waker is left for others.
async fn flagged(flag: Arc<AtomicBool>, wakers: mpsc::Sender<Waker>) {
    std::future::poll_fn(|cx| {
        if flag.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let _ = wakers.send(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

fn wakes_from_other_threads<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    // More than the mailbox holds, from several threads, while the core does not look.
    for tasks in [1usize, 3, 4096, 4097, 9000] {
        let flag = Arc::new(AtomicBool::new(false));
        let (send, wakers) = mpsc::channel();
        let ended: Vec<Rc<Cell<bool>>> =
            (0..tasks).map(|_| rig.spawn(flagged(flag.clone(), send.clone()))).collect();
        rig.turn(Turn::Return);
        let wakers: Vec<Waker> = wakers.try_iter().collect();
        assert_eq!(wakers.len(), tasks);
        flag.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            for part in wakers.chunks(tasks.div_ceil(3)) {
                scope.spawn(move || part.iter().for_each(Waker::wake_by_ref));
            }
        });
        rig.until("every task", |_| ended.iter().all(|ended| ended.get()));
    }
    let remote = rig.core.local().remote();
    let full = (0..5000).find_map(|_| remote.run(|| {}).err());
    assert_eq!(full, Some(RemoteError::Full));
    rig.poll_until("the jobs", |rig| !rig.turn(Turn::Return));
    rig.shut_down();
    assert_eq!(remote.run(|| {}), Err(RemoteError::Ended));
}

fn wakes_while_the_core_parks<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    for round in 0..2000usize {
        let flag = Arc::new(AtomicBool::new(false));
        let (send, wakers) = mpsc::channel::<Waker>();
        let ended = rig.spawn(flagged(flag.clone(), send));
        if round == 0 {
            rig.turn(Turn::Return);
        }
        let waking = in_thread(move || {
            let waker = wakers.recv().unwrap();
            for _ in 0..round % 50 * 20 {
                std::hint::spin_loop();
            }
            flag.store(true, Ordering::Release);
            waker.wake();
        });
        let turns = rig.until("a wake", |_| ended.get());
        assert!(turns < 100, "{turns} turns for one wake");
        waking.join().unwrap();
    }
    rig.shut_down();
}

fn sleeps_end_on_time<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let late = Rc::new(RefCell::new(Vec::new()));
    let (local, into) = (rig.core.local().clone(), late.clone());
    let ended = rig.spawn(async move {
        for round in 0..200u64 {
            let at = Instant::now() + Duration::from_micros(100 + round * 13);
            local.sleep_until(at).await;
            let now = Instant::now();
            assert!(now >= at, "{:?} early", at - now);
            into.borrow_mut().push(now - at);
        }
    });
    let turns = rig.until("the sleeper", |_| ended.get());
    let mut late = late.take();
    late.sort();
    assert_eq!(late.len(), 200, "a sleep ended early");
    // The best of many shows the resolution even on a busy machine.
    assert!(late[10] < Duration::from_micros(700), "{late:?}");
    assert!(turns < 2000, "{turns} turns for 200 sleeps");
    rig.shut_down();
}

fn a_host_never_oversleeps<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let ready = rig.core.io.kernel.ready_fd().unwrap();
    let (id, peer) = rig.connected();
    let local = rig.core.local().clone();
    let done = Rc::new(Cell::new(0u64));
    let counter = done.clone();
    rig.core.local().spawn(async move {
        loop {
            let at = Instant::now() + Duration::from_micros(200 + counter.get() % 7 * 150);
            local.sleep_until(at).await;
            counter.set(counter.get() + 1);
        }
    });
    let remote = rig.core.local().remote();
    let jobs = Arc::new(AtomicUsize::new(0));
    let ran = jobs.clone();
    let mut writing = peer.try_clone().unwrap();
    let other = in_thread(move || {
        for number in 0..200 {
            writing.write_all(&message(number, &[number])).unwrap();
            let ran = ran.clone();
            let job = move || {
                ran.fetch_add(1, Ordering::Relaxed);
            };
            remote.run(job).unwrap();
            if number % 3 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let limit = Instant::now() + PATIENCE;
    loop {
        while rig.turn(Turn::Return) {}
        let heard = rig.probe.link(id).heard;
        if heard == 200 && jobs.load(Ordering::Relaxed) == 200 && done.get() > 200 {
            break;
        }
        assert!(Instant::now() < limit);
        if rig.core.prepare_park(&rig.probe) {
            let mut poll = libc::pollfd { fd: ready, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            let woken = unsafe { libc::poll(&mut poll, 1, 10_000) };
            assert_eq!(woken, 1, "the host sleeps: {heard} heard, {} naps", done.get());
        }
    }
    other.join().unwrap();
    drop(peer);
    rig.shut_down();
}

/// Trap 7, trap 9. Fails if queues of a few entries drop an operation or a completion.
fn tiny_queues_lose_nothing<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut links: Vec<(SocketId, TcpStream)> =
        (0..100).map(|_| rig.connected_to(&listener)).collect();
    for round in 0..20 {
        // A receive, a send and a cancel of each socket, all between two turns.
        for (id, peer) in &mut links {
            for number in 0..5 {
                peer.write_all(&message(round * 5 + number, &[number * 4000])).unwrap();
            }
            assert!(rig.send(*id, &message(round, &[10])));
            if round % 3 == 0 {
                rig.receive(*id, false);
            }
        }
        rig.turn(Turn::Return);
        for (id, peer) in &mut links {
            if round % 3 == 0 {
                rig.receive(*id, true);
            }
            rig.heard(*id, (round + 1) * 5);
            let mut heard = vec![0; 14];
            peer.read_exact(&mut heard).unwrap();
            assert!(heard == message(round, &[10]));
        }
        rig.poll_until("the sends", |rig| rig.probe.sent.len() == (round + 1) * 100);
    }
    assert!(rig.probe.sent.iter().all(|s| s.1 == 14 && s.2));
    rig.shut_down();
}

fn a_peer_that_does_not_read_delays_no_other<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (full, _unread) = rig.connected();
    let (id, mut peer) = rig.connected();
    let mut batch = Batch::new();
    batch.push_large(Bytes::from(vec![0; 64 * MIB]));
    assert!(rig.core.io.send(full, &mut batch));
    for number in 0..200 {
        assert!(rig.send(id, &[1]));
        rig.poll_until("a send", |rig| {
            rig.probe.sent.iter().filter(|s| s.0 == id).count() > number
        });
        peer.read_exact(&mut [0]).unwrap();
        peer.write_all(&message(number, &[1])).unwrap();
        rig.heard(id, number + 1);
        assert!(rig.core.io.unsent(full) > 0);
    }
    let turns = rig.rest(Duration::from_millis(30));
    assert!(turns < 20, "{turns} turns: a full socket is spun for");
    rig.shut_down();
}

fn a_peer_that_leaves_ends_a_blocked_send<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut batch = Batch::new();
    batch.push_large(Bytes::from(vec![0; 64 * MIB]));
    assert!(rig.core.io.send(id, &mut batch));
    rig.rest(Duration::from_millis(20));
    assert!(rig.core.io.unsent(id) > 0);
    peer.write_all(&message(0, &[3])).unwrap();
    rig.heard(id, 1);
    // Unread bytes make it a reset.
    drop(peer);
    rig.until("the end", |rig| !rig.probe.closed.is_empty());
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    assert_eq!(rig.probe.closed.len(), 1, "one end is reported once");
    rig.shut_down();
}

/// Restores the limit of open files.
struct FileLimit(libc::rlimit);

impl FileLimit {
    fn lower(to: u64) -> FileLimit {
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

fn a_limit_is_named<K: Kernel>(make: fn() -> K) {
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

/// The suite for one rung.
macro_rules! suite {
    ($rung:ident, $type:ty, $make:expr, $tiny:expr) => {
        mod $rung {
            use super::*;

            fn make() -> $type {
                $make
            }

            fn tiny() -> $type {
                $tiny
            }

            macro_rules! case {
                ($test:ident: $proves:literal, $fails:literal) => {
                    case!($test, read, make: $proves, $fails);
                };
                ($test:ident, $lock:ident, $kernel:ident: $proves:literal, $fails:literal) => {
                    #[doc = concat!($proves, ". Fails if ", $fails, ".")]
                    #[test]
                    fn $test() {
                        let _lock = DESCRIPTORS.$lock().unwrap_or_else(|e| e.into_inner());
                        super::$test($kernel);
                    }
                };
            }

            case!(connect_goes_on_to_the_next_address: "Design 5", "one address ends the connect");
            case!(connect_gives_up_at_its_deadline: "Trap 10", "a cancelled connect names no timeout");
            case!(connects_over_every_family: "Design 5", "a family is laid out wrongly");
            case!(one_send_a_turn: "Design 5", "commands of one turn need a second call");
            case!(short_sends_go_on: "Trap 9", "the rest of a batch is lost or doubled");
            case!(a_sent_part_is_let_go: "Trap 9", "sent bytes stay until the next send");
            case!(messages_split_at_every_byte: "Trap 6", "a split is lost between two receives");
            case!(messages_end_at_every_place_of_a_block: "Trap 6", "a block's end is missed");
            case!(values_of_every_size: "Trap 6", "a size takes a road that loses bytes");
            case!(no_byte_is_lost_around_exact_receives: "Trap 25", "a growing frame loses a byte");
            case!(kept_values_never_change: "Trap 4", "a block with a slice is posted again");
            case!(what_users_keep_is_bounded: "Trap 5", "slices are not counted or never freed");
            case!(an_empty_group_is_armed_again: "Trap 1, trap 2", "it stalls or spins");
            case!(receiving_off_shows_nothing: "Design 5", "bytes are shown early or lost");
            case!(receiving_off_during_an_exact_receive: "Trap 25", "a large frame ignores it");
            case!(stale_completions_touch_nobody: "Trap 11", "a tenant gets another's bytes");
            case!(dropped_connects_leak_nothing, write, make: "Case behaviour/24", "one leaks");
            case!(teardown_while_peers_send, write, make: "Trap 12", "freed memory is written");
            case!(a_busy_task_starves_nobody: "Trap 8", "a self-waking task keeps the turn");
            case!(a_panic_ends_its_own_task: "Trap 13", "another task or socket ends with it");
            case!(wakes_from_other_threads: "Trap 14", "a wake beyond the mailbox is lost");
            case!(wakes_while_the_core_parks: "Trap 14", "a wake misses the park decision");
            case!(sleeps_end_on_time: "Design 5", "a timer is early or rounded to 1 ms");
            case!(a_host_never_oversleeps: "Design 3, trap 14", "a parked host misses work");
            case!(tiny_queues_lose_nothing, read, tiny: "Trap 7, trap 9", "a queue drops");
            case!(a_peer_that_does_not_read_delays_no_other: "Trap 24", "a full socket blocks");
            case!(a_peer_that_leaves_ends_a_blocked_send: "Trap 9", "a blocked send never ends");
            case!(a_limit_is_named, write, make: "Trap 18", "the error names no limit");
        }
    };
}

/// Rung U2, or U1 without incremental groups.
fn ring(incremental: bool) -> Ring {
    Ring::new(Config { incremental, ..Config::default() }).unwrap()
}

/// A ring that is full and overflows at once.
fn tiny_ring(incremental: bool) -> Ring {
    Ring::new(Config { entries: 8, completions: 32, incremental }).unwrap()
}

suite!(u2, Ring, ring(true), tiny_ring(true));
suite!(u1, Ring, ring(false), tiny_ring(false));
suite!(epoll, Epoll, Epoll::new().unwrap(), Epoll::new().unwrap());
