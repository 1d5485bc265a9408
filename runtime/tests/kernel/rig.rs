//! A kernel, and memory that outlives it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::RawFd;
use std::time::Duration;

use hedgerow_runtime::kernel::{Address, GroupConfig, Kernel, Wait};
use hedgerow_runtime::op::{Completion, GroupId, Op, Token};

/// After this a missing completion is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const CONNECT: Token = Token::new(1, 1, 1);
pub(crate) const RECEIVE: Token = Token::new(2, 1, 1);
pub(crate) const SEND: Token = Token::new(3, 1, 1);
pub(crate) const POLL: Token = Token::new(4, 1, 1);
pub(crate) const CANCEL: Token = Token::new(5, 1, 1);
pub(crate) const CLOSE: Token = Token::new(6, 1, 1);
pub(crate) const EXACT: Token = Token::new(7, 1, 1);

/// A kernel, the completions nobody asked for yet, and memory that outlives it.
pub(crate) struct Rig<K: Kernel> {
    pub(crate) kernel: K,
    pub(crate) out: Vec<Completion>,
    /// Fields drop in order: the kernel goes before the memory it may write to.
    pub(crate) memory: Vec<Memory>,
}

/// Memory that the kernel writes to behind the compiler's back.
pub(crate) struct Memory {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn of(bytes: Vec<u8>) -> Memory {
        let len = bytes.len();
        Memory { ptr: Box::into_raw(bytes.into_boxed_slice()).cast(), len }
    }

    pub(crate) fn read(&self, from: usize, len: usize) -> Vec<u8> {
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
    pub(crate) fn new(kernel: K) -> Rig<K> {
        Rig { kernel, out: Vec::new(), memory: Vec::new() }
    }

    pub(crate) fn queue(&mut self, token: Token, op: Op) {
        // SAFETY: all memory the tests name lies in `self.memory`, which outlives the kernel, or
        // is kept until the completion was taken.
        unsafe { self.kernel.queue(token, op) };
    }

    /// New memory, kept until the rig goes.
    pub(crate) fn memory(&mut self, bytes: Vec<u8>) -> (usize, *mut u8) {
        let memory = Memory::of(bytes);
        let ptr = memory.ptr;
        self.memory.push(memory);
        (self.memory.len() - 1, ptr)
    }

    /// A group of `count` posted buffers; the place of the first in `self.memory`.
    pub(crate) fn group(
        &mut self,
        count: u16,
        bytes: usize,
        incremental: bool,
    ) -> (GroupId, usize) {
        let entries = count.next_power_of_two();
        let group = self.kernel.group(GroupConfig { entries, incremental }).unwrap();
        let first = self.memory.len();
        for index in 0..count {
            let (_, ptr) = self.memory(vec![0; bytes]);
            self.post(group, index, ptr, bytes);
        }
        (group, first)
    }

    pub(crate) fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, bytes: usize) {
        // SAFETY: the memory lives in `self.memory`, and the tests post an index only when it is
        // not posted.
        unsafe { self.kernel.post(group, index, ptr, bytes as u32) };
    }

    pub(crate) fn enter(&mut self, wait: Wait) {
        self.kernel.enter(wait, &mut self.out).unwrap();
    }

    /// The next completion of `token`.
    pub(crate) fn next(&mut self, token: Token) -> Completion {
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
    pub(crate) fn expect_silence(&mut self, token: Token) {
        for _ in 0..10 {
            self.enter(Wait::No);
        }
        assert!(!self.out.iter().any(|c| c.token == token), "{token:?} completed too early");
    }

    pub(crate) fn start_connect(&mut self, to: SocketAddr) -> RawFd {
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
    pub(crate) fn connected(&mut self) -> (RawFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = self.start_connect(listener.local_addr().unwrap());
        assert_eq!(self.next(CONNECT).result, 0);
        let peer = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        (fd, peer)
    }

    pub(crate) fn send_all(&mut self, fd: RawFd, bytes: &[u8]) {
        let (_, ptr) = self.memory(bytes.to_vec());
        self.queue(SEND, Op::Send { fd, ptr, len: bytes.len() as u32 });
        assert_eq!(self.next(SEND).result, bytes.len() as i32);
    }

    /// Receives `want` bytes by an armed multishot over non-incremental buffers of `first..`,
    /// posting each again.
    pub(crate) fn receive(&mut self, group: GroupId, first: usize, want: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < want {
            let c = self.next(RECEIVE);
            assert!(c.more && c.result > 0 && !c.buffer_more, "{c:?}");
            self.take(group, first, c, &mut got);
        }
        got
    }

    /// Moves a completion's bytes to `got` and posts its buffer again.
    pub(crate) fn take(&mut self, group: GroupId, first: usize, c: Completion, got: &mut Vec<u8>) {
        let index = c.buffer.unwrap();
        let memory = &self.memory[first + usize::from(index)];
        got.extend(memory.read(0, c.result as usize));
        let (ptr, len) = (memory.ptr, memory.len);
        self.post(group, index, ptr, len);
    }

    pub(crate) fn close(&mut self, fd: RawFd) {
        self.queue(CLOSE, Op::Close { fd });
        assert_eq!(self.next(CLOSE).result, 0);
    }
}

/// Bytes that differ at every offset up to a large period.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}
