use crate::{KEY_LEN, Keys, Lane, Replies, Verb, Workload, now_ns};
use std::collections::VecDeque;
use std::net::TcpStream;

/// One connection without a client: the bytes to send, what is in flight, and since when.
#[derive(Debug)]
pub struct Pipeline {
    /// Bytes to send next; the loop takes them and clears this.
    pub out: Vec<u8>,
    in_flight: usize,
    keys: Keys,
    replies: Replies,
    lane: &'static Lane,
    command: Vec<u8>,
    key_at: usize,
    sent_ns: VecDeque<u64>,
    latency: bool,
    open: bool,
}

impl Pipeline {
    /// A pipeline for `workload` that draws its keys from `seed`.
    pub fn new(workload: &Workload, seed: u64) -> Self {
        let mut command = match workload.verb {
            Verb::Get => b"*2\r\n$3\r\nGET\r\n$16\r\n".to_vec(),
            Verb::Set => b"*3\r\n$3\r\nSET\r\n$16\r\n".to_vec(),
        };
        let key_at = command.len();
        command.extend_from_slice(b"key:000000000000\r\n");
        if workload.verb == Verb::Set {
            command.extend_from_slice(format!("${}\r\n", workload.size).as_bytes());
            command.extend_from_slice(&workload.value());
            command.extend_from_slice(b"\r\n");
        }
        Pipeline {
            out: Vec::with_capacity(64 << 10),
            in_flight: 0,
            keys: Keys::new(workload.keys, seed),
            replies: Replies::new(workload.verb, workload.size),
            lane: Lane::new(),
            command,
            key_at,
            sent_ns: VecDeque::with_capacity(4096),
            latency: workload.records_latency(),
            open: workload.is_open(),
        }
    }

    #[inline]
    fn push(&mut self) {
        let at = self.out.len() + self.key_at;
        self.out.extend_from_slice(&self.command);
        self.out[at..at + KEY_LEN].copy_from_slice(self.keys.roll());
        self.in_flight += 1;
    }

    /// Appends `n` commands to [`out`](Self::out).
    #[inline]
    pub fn fill(&mut self, n: usize) {
        for _ in 0..n {
            self.push();
        }
        if self.latency {
            let now = now_ns();
            self.sent_ns.extend(std::iter::repeat_n(now, n));
        }
    }

    /// Appends one command that arrived at `arrival_ns` (open loop).
    #[inline]
    pub fn fill_at(&mut self, arrival_ns: u64) {
        self.push();
        self.sent_ns.push_back(arrival_ns);
    }

    /// Takes received bytes; in a closed loop each reply makes room for the next command.
    #[inline]
    pub fn received(&mut self, bytes: &[u8]) {
        let n = self.replies.feed(bytes);
        if n == 0 {
            return;
        }
        assert!(n <= self.in_flight, "more replies than commands");
        self.in_flight -= n;
        self.lane.done(n as u64);
        if self.latency {
            let now = now_ns();
            for sent in self.sent_ns.drain(..n) {
                self.lane.took(now.saturating_sub(sent));
            }
        }
        if !self.open {
            self.fill(n);
        }
    }
}

/// A connected socket without Nagle's delay.
///
/// # Panics
/// If the server cannot be reached.
pub fn connect(workload: &Workload) -> TcpStream {
    let addr = workload.addr;
    let socket = TcpStream::connect(addr).unwrap_or_else(|e| panic!("connect to {addr}: {e}"));
    socket.set_nodelay(true).expect("TCP_NODELAY on a fresh socket");
    socket
}
