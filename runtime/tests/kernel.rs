//! What every kernel over real sockets must do, run against each of them.
//!
//! The peer is a plain blocking `std` socket, mostly on the same thread: loopback holds what it
//! writes. Each wait has a bound, so that a lost completion fails and does not hang.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::RwLock;
use std::time::Duration;

use hedgerow_runtime::kernel::{Address, GroupConfig, Kernel, Wait};
use hedgerow_runtime::op::{Completion, GroupId, Op, Token};
use hedgerow_runtime::time::Instant;

/// Held shared by every test and alone by the one that counts descriptors.
static DESCRIPTORS: RwLock<()> = RwLock::new(());
/// After this a missing completion is a failure.
const PATIENCE: Duration = Duration::from_secs(10);

const CONNECT: Token = Token::new(1, 1, 1);
const RECEIVE: Token = Token::new(2, 1, 1);
const SEND: Token = Token::new(3, 1, 1);
const POLL: Token = Token::new(4, 1, 1);
const CANCEL: Token = Token::new(5, 1, 1);
const CLOSE: Token = Token::new(6, 1, 1);
const EXACT: Token = Token::new(7, 1, 1);

/// A kernel, the completions nobody asked for yet, and memory that outlives it.
struct Rig<K: Kernel> {
    kernel: K,
    out: Vec<Completion>,
    /// Fields drop in order: the kernel goes before the memory it may write to.
    memory: Vec<Memory>,
}

/// Memory that the kernel writes to behind the compiler's back.
struct Memory {
    ptr: *mut u8,
    len: usize,
}

impl Memory {
    fn of(bytes: Vec<u8>) -> Memory {
        let len = bytes.len();
        Memory { ptr: Box::into_raw(bytes.into_boxed_slice()).cast(), len }
    }

    fn read(&self, from: usize, len: usize) -> Vec<u8> {
        assert!(from + len <= self.len, "a completion must not claim more than the buffer holds");
        // SAFETY: in bounds as just checked; the tests read only what a completion delivered, and
        // the kernel does not write there again.
        unsafe { std::slice::from_raw_parts(self.ptr.add(from), len) }.to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.ptr, self.len);
        // SAFETY: made by `Box::into_raw` with this length, and the kernel is gone.
        drop(unsafe { Box::from_raw(slice) });
    }
}

impl<K: Kernel> Rig<K> {
    fn new(kernel: K) -> Rig<K> {
        Rig { kernel, out: Vec::new(), memory: Vec::new() }
    }

    fn queue(&mut self, token: Token, op: Op) {
        // SAFETY: all memory the tests name lies in `self.memory`, which outlives the kernel, or
        // is kept until the completion was taken.
        unsafe { self.kernel.queue(token, op) };
    }

    /// New memory, kept until the rig goes.
    fn memory(&mut self, bytes: Vec<u8>) -> (usize, *mut u8) {
        let memory = Memory::of(bytes);
        let ptr = memory.ptr;
        self.memory.push(memory);
        (self.memory.len() - 1, ptr)
    }

    /// A group of `count` posted buffers; the place of the first in `self.memory`.
    fn group(&mut self, count: u16, bytes: usize, incremental: bool) -> (GroupId, usize) {
        let entries = count.next_power_of_two();
        let group = self.kernel.group(GroupConfig { entries, incremental }).unwrap();
        let first = self.memory.len();
        for index in 0..count {
            let (_, ptr) = self.memory(vec![0; bytes]);
            self.post(group, index, ptr, bytes);
        }
        (group, first)
    }

    fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, bytes: usize) {
        // SAFETY: the memory lives in `self.memory`, and the tests post an index only when it is
        // not posted.
        unsafe { self.kernel.post(group, index, ptr, bytes as u32) };
    }

    fn enter(&mut self, wait: Wait) {
        self.kernel.enter(wait, &mut self.out).unwrap();
    }

    /// The next completion of `token`.
    fn next(&mut self, token: Token) -> Completion {
        let limit = self.kernel.now() + PATIENCE;
        // A send that goes out whole ends no wait.
        self.enter(Wait::No);
        loop {
            if let Some(at) = self.out.iter().position(|c| c.token == token) {
                return self.out.remove(at);
            }
            assert!(self.kernel.now() < limit, "no completion of {token:?} came");
            self.kernel.arm(limit);
            self.enter(Wait::Yes);
        }
    }

    /// Goes through some turns without waiting; `token` must not complete in them.
    fn expect_silence(&mut self, token: Token) {
        for _ in 0..10 {
            self.enter(Wait::No);
        }
        assert!(!self.out.iter().any(|c| c.token == token), "{token:?} completed too early");
    }

    fn start_connect(&mut self, to: SocketAddr) -> RawFd {
        let fd = self.kernel.socket(Address::Tcp(to)).unwrap();
        let SocketAddr::V4(v4) = to else { panic!("the tests use IPv4") };
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: v4.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let len = size_of::<libc::sockaddr_in>();
        // SAFETY: a sockaddr_in is plain data without padding, readable for its size.
        let raw = unsafe { std::slice::from_raw_parts((&raw const address).cast::<u8>(), len) };
        // Aligned or not, the kernel copies it byte by byte.
        let (_, ptr) = self.memory(raw.to_vec());
        let (addr, len) = (ptr.cast(), len as libc::socklen_t);
        self.queue(CONNECT, Op::Connect { fd, addr, len });
        fd
    }

    /// A connected socket of the kernel and its blocking peer.
    fn connected(&mut self) -> (RawFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = self.start_connect(listener.local_addr().unwrap());
        assert_eq!(self.next(CONNECT).result, 0);
        let peer = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        (fd, peer)
    }

    fn send_all(&mut self, fd: RawFd, bytes: &[u8]) {
        let (_, ptr) = self.memory(bytes.to_vec());
        self.queue(SEND, Op::Send { fd, ptr, len: bytes.len() as u32 });
        assert_eq!(self.next(SEND).result, bytes.len() as i32);
    }

    /// Receives `want` bytes by an armed multishot over non-incremental buffers of `first..`,
    /// posting each again.
    fn receive(&mut self, group: GroupId, first: usize, want: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < want {
            let c = self.next(RECEIVE);
            assert!(c.more && c.result > 0 && !c.buffer_more, "{c:?}");
            self.take(group, first, c, &mut got);
        }
        got
    }

    /// Moves a completion's bytes to `got` and posts its buffer again.
    fn take(&mut self, group: GroupId, first: usize, c: Completion, got: &mut Vec<u8>) {
        let index = c.buffer.unwrap();
        let memory = &self.memory[first + usize::from(index)];
        got.extend(memory.read(0, c.result as usize));
        let (ptr, len) = (memory.ptr, memory.len);
        self.post(group, index, ptr, len);
    }

    fn close(&mut self, fd: RawFd) {
        self.queue(CLOSE, Op::Close { fd });
        assert_eq!(self.next(CLOSE).result, 0);
    }
}

/// Bytes that differ at every offset up to a large period.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// What went out comes back in order, over buffers that are posted again as they empty.
fn echo_in_order<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(8, 512, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    for round in 0..50 {
        let sent = pattern(100 + round * 40);
        rig.send_all(fd, &sent);
        let mut heard = vec![0; sent.len()];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(heard, sent);
        peer.write_all(&heard).unwrap();
        assert_eq!(rig.receive(group, first, sent.len()), sent);
    }
    rig.close(fd);
}

/// Gathers from an iovec in order.
fn gathered_send<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let mut parts = [&b"one "[..], b"two ", b"three"]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all-zero is a valid msghdr (null pointers, zero lengths).
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    rig.queue(SEND, Op::SendMsg { fd, msg: &raw const msg });
    assert_eq!(rig.next(SEND).result, 13);
    let mut heard = [0; 13];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"one two three");
}

/// A wait is not ended by a send's own completion, which comes along with what ended it.
fn sends_do_not_end_the_wait<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, _peer) = rig.connected();
    let (_, ptr) = rig.memory(vec![b'x'; 10]);
    rig.queue(SEND, Op::Send { fd, ptr, len: 10 });
    let at = rig.kernel.now() + Duration::from_millis(20);
    rig.kernel.arm(at);
    rig.enter(Wait::Yes);
    assert!(rig.kernel.now() >= at, "the send alone ended the wait");
    assert_eq!(rig.next(SEND).result, 10);
}

/// A send that came short does end the wait: no reply can come before the rest went out.
fn short_send_ends_the_wait<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, _peer) = rig.connected();
    let len = 64 << 20;
    let (_, ptr) = rig.memory(vec![0; len]);
    rig.queue(SEND, Op::Send { fd, ptr, len: len as u32 });
    let at = rig.kernel.now() + PATIENCE;
    rig.kernel.arm(at);
    while rig.out.is_empty() && rig.kernel.now() < at {
        rig.enter(Wait::Yes);
    }
    assert!(rig.kernel.now() < at, "the rest of a command waits for a reply to it");
    assert!(rig.next(SEND).result < len as i32);
}

/// Successive receives land one after the other in one buffer, whose last says that it is done.
fn incremental_offsets<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    if !rig.kernel.incremental() {
        return;
    }
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(2, 100, true);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let sent = pattern(150);
    let mut offsets = [0usize; 2];
    let mut got = Vec::new();
    for piece in sent.chunks(30) {
        peer.write_all(piece).unwrap();
        let goal = got.len() + piece.len();
        while got.len() < goal {
            let c = rig.next(RECEIVE);
            assert!(c.more && c.result > 0, "{c:?}");
            let index = usize::from(c.buffer.unwrap());
            got.extend(rig.memory[first + index].read(offsets[index], c.result as usize));
            offsets[index] += c.result as usize;
            assert_eq!(c.buffer_more, offsets[index] < 100, "{c:?} at {}", offsets[index]);
        }
    }
    assert_eq!(got, sent);
    assert_eq!(offsets, [100, 50], "buffers are used in the order in which they were posted");
}

/// An empty group ends the multishot; a new one goes on with the very next byte.
fn empty_group_ends_then_rearm<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(2, 16, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let sent = pattern(64);
    peer.write_all(&sent).unwrap();
    let mut got = Vec::new();
    let mut full = Vec::new();
    loop {
        let c = rig.next(RECEIVE);
        if c.result < 0 {
            assert_eq!((c.result, c.more, c.buffer), (-libc::ENOBUFS, false, None));
            break;
        }
        got.extend(rig.memory[first + usize::from(c.buffer.unwrap())].read(0, c.result as usize));
        full.push(c.buffer.unwrap());
        if !c.more {
            // A kernel may end it together with the last buffer.
            break;
        }
    }
    assert_eq!(full, [0, 1]);
    rig.expect_silence(RECEIVE);
    for index in full {
        let ptr = rig.memory[first + usize::from(index)].ptr;
        rig.post(group, index, ptr, 16);
    }
    while got.len() < sent.len() {
        rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        loop {
            let c = rig.next(RECEIVE);
            if c.result > 0 {
                rig.take(group, first, c, &mut got);
            }
            if !c.more || got.len() == sent.len() {
                break;
            }
        }
    }
    assert_eq!(got, sent);
}

/// A cancelled multishot ends with ECANCELED; one that had ended cannot be cancelled.
fn cancel_against_complete<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    peer.write_all(b"before").unwrap();
    assert_eq!(rig.receive(group, first, 6), b"before");
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    assert_eq!(rig.next(CANCEL).result, 0);
    let end = rig.next(RECEIVE);
    assert_eq!((end.result, end.more), (-libc::ECANCELED, false));
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    assert_eq!(rig.next(CANCEL).result, -libc::ENOENT);
    peer.write_all(b"after").unwrap();
    rig.expect_silence(RECEIVE);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    assert_eq!(rig.receive(group, first, 5), b"after");
}

/// A stream that goes on while a multishot is cancelled for an exact receive arrives whole.
fn exact_after_cancel_loses_nothing<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let sent = pattern(3 << 20);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
    let (group, first) = rig.group(4, 4096, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let mut got = rig.receive(group, first, 10_000);
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    loop {
        let c = rig.next(RECEIVE);
        if c.result > 0 {
            rig.take(group, first, c, &mut got);
        }
        if !c.more {
            break;
        }
    }
    let rest = sent.len() - got.len();
    let (at, ptr) = rig.memory(vec![0; rest]);
    rig.queue(EXACT, Op::RecvExact { fd, ptr, len: rest as u32 });
    assert_eq!(rig.next(EXACT).result, rest as i32);
    got.extend(rig.memory[at].read(0, rest));
    assert!(got == sent, "bytes were lost or doubled");
    let mut peer = writer.join().unwrap().unwrap();
    rig.queue(Token(RECEIVE.0 + 1), Op::RecvMulti { fd, group });
    peer.write_all(b"on").unwrap();
    let c = rig.next(Token(RECEIVE.0 + 1));
    assert_eq!(c.result, 2);
}

/// An exact receive that meets the end of the stream says how far it came.
fn exact_cut_short<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (at, ptr) = rig.memory(vec![0; 100]);
    rig.queue(EXACT, Op::RecvExact { fd, ptr, len: 100 });
    peer.write_all(b"short").unwrap();
    rig.expect_silence(EXACT);
    drop(peer);
    assert_eq!(rig.next(EXACT).result, 5);
    assert_eq!(rig.memory[at].read(0, 5), b"short");
}

/// A peer that does not read: short send, EAGAIN, PollOut; another socket is not delayed.
fn full_socket_then_poll_out<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (other, mut other_peer) = rig.connected();
    let chunk = 1 << 20;
    let (_, ptr) = rig.memory(pattern(chunk));
    let mut sent = 0usize;
    loop {
        rig.queue(SEND, Op::Send { fd, ptr, len: chunk as u32 });
        match rig.next(SEND).result {
            result if result > 0 => sent += result as usize,
            result => break assert_eq!(result, -libc::EAGAIN),
        }
    }
    rig.queue(POLL, Op::PollOut { fd });
    rig.expect_silence(POLL);
    rig.send_all(other, b"not delayed");
    let mut heard = [0; 11];
    other_peer.read_exact(&mut heard).unwrap();
    rig.expect_silence(POLL);
    let reader = std::thread::spawn(move || {
        let mut sink = vec![0; sent];
        peer.read_exact(&mut sink).map(|()| peer)
    });
    assert!(rig.next(POLL).result > 0);
    let _peer = reader.join().unwrap().unwrap();
    rig.queue(POLL, Op::PollOut { fd });
    assert!(rig.next(POLL).result > 0, "an edge that was reported before must not be waited for");
}

/// The last bytes, then the end.
fn end_of_stream<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    for round in 0..20 {
        let (fd, mut peer) = rig.connected();
        let (group, first) = rig.group(4, 64, false);
        let late = round % 2 == 0;
        if late {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
            rig.enter(Wait::No);
        }
        peer.write_all(b"last words").unwrap();
        drop(peer);
        if !late {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        }
        let mut got = Vec::new();
        let end = loop {
            let c = rig.next(RECEIVE);
            if c.result <= 0 {
                break c;
            }
            rig.take(group, first, c, &mut got);
        };
        assert_eq!((end.result, end.more), (0, false));
        assert_eq!(got, b"last words");
        rig.close(fd);
        rig.kernel.ungroup(group);
    }
}

/// A peer that resets: ECONNRESET ends the receive and sends fail, without a signal.
fn reset_by_peer<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, peer) = rig.connected();
    let (group, _) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    rig.enter(Wait::No);
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: `linger` is readable for `len` bytes.
    let done = unsafe {
        libc::setsockopt(peer.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len)
    };
    assert_eq!(done, 0);
    drop(peer);
    let end = rig.next(RECEIVE);
    assert_eq!((end.result, end.more), (-libc::ECONNRESET, false));
    let (_, ptr) = rig.memory(vec![1; 8]);
    rig.queue(SEND, Op::Send { fd, ptr, len: 8 });
    assert_eq!(rig.next(SEND).result, -libc::EPIPE);
}

/// A port where nobody listens.
fn connect_refused<K: Kernel>(kernel: K) {
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
fn blackhole_then_cancel<K: Kernel>(kernel: K) {
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

/// The armed instant ends the wait, not before it; a later one and none are obeyed too.
fn armed_instant<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    for delay_us in [0, 50, 200, 1_000, 5_000] {
        let at = rig.kernel.now() + Duration::from_micros(delay_us);
        rig.kernel.arm(at);
        while rig.kernel.now() < at {
            rig.enter(Wait::Yes);
        }
        assert!(rig.kernel.now() - at < Duration::from_secs(5));
    }
    let (early, late) = (Duration::from_millis(1), Duration::from_millis(15));
    let start = rig.kernel.now();
    rig.kernel.arm(start + early);
    rig.enter(Wait::No);
    rig.kernel.arm(start + late);
    let before = rig.kernel.enters();
    while rig.kernel.now() < start + late {
        rig.enter(Wait::Yes);
    }
    assert!(rig.kernel.enters() - before < 10, "an instant that moved later must not be spun for");
    rig.kernel.arm(start + Duration::from_secs(3600));
    rig.kernel.arm(rig.kernel.now() + early);
    rig.enter(Wait::Yes);
    assert!(rig.out.is_empty());
}

/// Another thread ends the wait, whether it came before it or during it.
fn woken_by_another_thread<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let start = rig.kernel.now();
    rig.kernel.arm(start + PATIENCE);
    let waker = rig.kernel.waker();
    for round in 0..200 {
        let waker = waker.clone();
        if round % 2 == 0 {
            waker.wake();
            waker.wake();
            rig.enter(Wait::Yes);
        } else {
            let thread = std::thread::spawn(move || waker.wake());
            rig.enter(Wait::Yes);
            thread.join().unwrap();
        }
    }
    assert!(rig.kernel.now() < start + PATIENCE, "a wake was lost");
    drop(rig);
    waker.wake();
}

/// Readiness of a descriptor from elsewhere, asked for again and again (the mailbox's eventfd).
fn poll_in_repeats<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    // SAFETY: no pointers; the result is checked.
    let raw = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    assert!(raw >= 0);
    // SAFETY: just made and nobody else's.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    for round in 0..4 {
        if round % 2 == 0 {
            file.write_all(&1u64.to_ne_bytes()).unwrap();
        }
        rig.queue(POLL, Op::PollIn { fd: raw });
        if round % 2 == 1 {
            rig.expect_silence(POLL);
            file.write_all(&1u64.to_ne_bytes()).unwrap();
        }
        assert!(rig.next(POLL).result > 0);
        rig.queue(POLL, Op::PollIn { fd: raw });
        assert!(rig.next(POLL).result > 0, "still readable: must complete at once");
        file.read_exact(&mut [0; 8]).unwrap();
    }
}

/// What a host does: waits on the descriptor, as long as the kernel says that it may.
fn host_wait<K: Kernel>(rig: &mut Rig<K>, fd: RawFd, between: impl FnOnce()) -> bool {
    let safe = rig.kernel.prepare_park();
    between();
    if !safe {
        return true;
    }
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit_ms = PATIENCE.as_millis() as i32;
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, limit_ms) == 1 }
}

/// The park protocol with bytes arriving between each two of its steps.
fn park_and_bytes<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, peer) = rig.connected();
    let (group, first) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let ready = rig.kernel.ready_fd().unwrap();
    for step in 0..40 {
        let write = || (&peer).write_all(b"12345").unwrap();
        match step % 4 {
            0 => {
                write();
                rig.enter(Wait::No);
            }
            1 => {
                rig.enter(Wait::No);
                write();
            }
            _ => rig.enter(Wait::No),
        }
        let at = rig.kernel.now() + PATIENCE * 4;
        rig.kernel.arm(at);
        if rig.out.is_empty() {
            let between = || {
                if step % 4 == 2 {
                    write();
                }
            };
            if step % 4 == 3 {
                let late = peer.try_clone().unwrap();
                let thread = std::thread::spawn(move || (&late).write_all(b"12345").unwrap());
                assert!(host_wait(&mut rig, ready, between), "step {step}: the host sleeps");
                thread.join().unwrap();
            } else {
                assert!(host_wait(&mut rig, ready, between), "step {step}: the host sleeps");
            }
        }
        assert_eq!(rig.receive(group, first, 5), b"12345", "step {step}");
    }
}

/// The park protocol with the armed instant arriving between each two of its steps.
fn park_and_time<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let ready = rig.kernel.ready_fd().unwrap();
    let pass = |at: Instant| while Instant::now() < at {};
    for step in 0..12 {
        let at = rig.kernel.now() + Duration::from_micros(300);
        rig.kernel.arm(at);
        if step % 4 == 0 {
            pass(at);
        }
        rig.enter(Wait::No);
        if step % 4 == 1 {
            pass(at);
        }
        // A core that finds its deadline passed deals with it and does not park.
        while step % 4 != 0 && (step % 4 == 1 || rig.kernel.now() < at) {
            assert!(host_wait(&mut rig, ready, || if step % 4 == 2 {
                pass(at)
            }));
            rig.enter(Wait::No);
            if rig.kernel.now() >= at {
                break;
            }
        }
        rig.kernel.arm(Instant::NEVER);
    }
}

/// A wake from another thread turns the host's descriptor readable.
fn park_and_wake<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let ready = rig.kernel.ready_fd().unwrap();
    for step in 0..20 {
        let waker = rig.kernel.waker();
        rig.enter(Wait::No);
        if step % 2 == 0 {
            waker.wake();
        }
        assert!(host_wait(&mut rig, ready, || if step % 2 == 1 {
            waker.wake();
        }));
        rig.kernel.arm(rig.kernel.now() + PATIENCE);
        rig.enter(Wait::Yes);
    }
}

/// A socket that always has bytes leaves room for others, and gets all of its own.
fn greedy_socket_is_bounded<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (quiet, mut quiet_peer) = rig.connected();
    let (group, first) = rig.group(64, 16 * 1024, false);
    let (quiet_group, _) = rig.group(1, 64, false);
    let quiet_token = Token(RECEIVE.0 + 9);
    let sent = pattern(8 << 20);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    rig.queue(quiet_token, Op::RecvMulti { fd: quiet, group: quiet_group });
    quiet_peer.write_all(b"me too").unwrap();
    assert_eq!(rig.next(quiet_token).result, 6);
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let c = rig.next(RECEIVE);
        if c.result > 0 {
            rig.take(group, first, c, &mut got);
        }
        if !c.more {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        }
    }
    assert!(got == sent);
    drop(writer.join().unwrap());
}

/// A Unix stream socket connects and carries bytes.
fn unix_socket<K: Kernel>(kernel: K) {
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

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sockets closed, groups removed and the kernel dropped: no descriptor stays.
fn nothing_leaks<K: Kernel>(make: fn() -> K) {
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

/// The whole suite for one kernel.
macro_rules! suite {
    ($name:ident, $make:ident) => {
        mod $name {
            use super::*;

            macro_rules! case {
                ($test:ident: $proves:literal, $fails:literal) => {
                    #[doc = concat!($proves, ". Fails if ", $fails, ".")]
                    #[test]
                    fn $test() {
                        let _shared = DESCRIPTORS.read().unwrap_or_else(|e| e.into_inner());
                        super::$test(super::$make());
                    }
                };
            }

            case!(echo_in_order: "Design 5", "bytes are reordered or a buffer is not reused");
            case!(gathered_send: "Design 5", "an iovec is dropped or reordered");
            case!(sends_do_not_end_the_wait: "Design 5", "a turn needs two enters per send");
            case!(short_send_ends_the_wait: "Trap 9", "the rest of a large command is never sent");
            case!(incremental_offsets: "Trap 3", "a buffer is done early, late or out of order");
            case!(empty_group_ends_then_rearm: "Trap 1, trap 2", "it spins or loses the edge");
            case!(cancel_against_complete: "Trap 10", "either completion is missing or doubled");
            case!(exact_after_cancel_loses_nothing: "Trap 25", "a byte is lost or comes twice");
            case!(exact_cut_short: "Trap 25", "bytes before the end of the stream are forgotten");
            case!(full_socket_then_poll_out: "Trap 24, trap 9", "a full socket delays another");
            case!(end_of_stream: "Trap 2", "a short receive hides the end behind it");
            case!(reset_by_peer: "Trap 9", "a reset reads as an end or raises SIGPIPE");
            case!(connect_refused: "Design 5", "a failed connect reports success");
            case!(blackhole_then_cancel: "Trap 10", "a connect without answer cannot be ended");
            case!(armed_instant: "Design 5", "a wait ends early or spins");
            case!(woken_by_another_thread: "Trap 14", "a wake before the wait is lost");
            case!(poll_in_repeats: "Trap 14", "readiness reported once is not reported again");
            case!(park_and_bytes: "Design 3", "bytes between two steps leave the host asleep");
            case!(park_and_time: "Design 3", "an instant between two steps leaves it asleep");
            case!(park_and_wake: "Design 3, trap 14", "a wake leaves the host asleep");
            case!(greedy_socket_is_bounded: "Trap 8", "one busy socket starves another");
            case!(unix_socket: "Design 5", "Unix sockets take another road");

            /// Case behaviour/24. Fails if any descriptor outlives its kernel.
            #[test]
            fn nothing_leaks() {
                let _alone = DESCRIPTORS.write().unwrap_or_else(|e| e.into_inner());
                super::nothing_leaks(super::$make);
            }
        }
    };
}

fn make_epoll() -> hedgerow_runtime::epoll::Epoll {
    hedgerow_runtime::epoll::Epoll::new().unwrap()
}

suite!(epoll, make_epoll);

fn make_ring() -> hedgerow_runtime::ring::Ring {
    hedgerow_runtime::ring::Ring::new(hedgerow_runtime::ring::Config::default()).unwrap()
}

suite!(ring, make_ring);

/// Without incremental groups, as on kernels before 6.12.
fn make_plain_ring() -> hedgerow_runtime::ring::Ring {
    let config = hedgerow_runtime::ring::Config { incremental: false, ..Default::default() };
    hedgerow_runtime::ring::Ring::new(config).unwrap()
}

suite!(plain_ring, make_plain_ring);
