//! The simulated kernel against a model client that obeys the rules.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::socket::RawAddress;

const CONNECT: u8 = 1;
const SEND: u8 = 2;
const RECEIVE: u8 = 3;
const POLL: u8 = 4;
const CANCEL: u8 = 5;
const CLOSE: u8 = 6;
const EXACT: u8 = 7;

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 6379))
}

/// Sends back what it gets, and counts closes.
#[derive(Default)]
struct Echo {
    closed: BTreeSet<ConnId>,
}

impl Peer for Echo {
    fn on_bytes(&mut self, _now: Instant, conn: ConnId, bytes: &[u8], out: &mut PeerOut) {
        out.send(conn, Duration::from_micros(5), bytes);
    }

    fn on_close(&mut self, _now: Instant, conn: ConnId) {
        assert!(self.closed.insert(conn), "a connection closes once");
    }
}

/// Says nothing.
struct Silent;

impl Peer for Silent {
    fn on_bytes(&mut self, _: Instant, _: ConnId, _: &[u8], _: &mut PeerOut) {}
}

/// Memory that the kernel writes to.
struct Block(*mut u8, usize);

impl Block {
    fn new(len: usize) -> Block {
        Block(Box::into_raw(vec![0u8; len].into_boxed_slice()).cast(), len)
    }

    fn read(&self, from: usize, len: usize) -> &[u8] {
        assert!(from + len <= self.1);
        // SAFETY: in bounds; the kernel writes only beyond what it delivered.
        unsafe { std::slice::from_raw_parts(self.0.add(from), len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` with this length; tests drop the kernel first.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.0, self.1)) });
    }
}

const BLOCK_BYTES: usize = 64;
const BLOCKS: u16 = 4;

/// One socket with one group, and what came of it.
struct Client {
    sim: Sim,
    out: Vec<Completion>,
    address: RawAddress,
    fd: RawFd,
    group: GroupId,
    generation: u32,
    blocks: Vec<Block>,
    offsets: Vec<usize>,
    got: Vec<u8>,
}

impl Client {
    fn new(net: &SimNet) -> Client {
        let mut sim = net.kernel();
        let address = RawAddress::new(Address::Tcp(server())).unwrap();
        let incremental = sim.incremental();
        let group = sim.group(GroupConfig { entries: BLOCKS, incremental }).unwrap();
        let fd = sim.socket(Address::Tcp(server())).unwrap();
        let blocks: Vec<_> = (0..BLOCKS).map(|_| Block::new(BLOCK_BYTES)).collect();
        let offsets = vec![0; usize::from(BLOCKS)];
        let (out, got) = (Vec::new(), Vec::new());
        let mut client =
            Client { sim, out, address, fd, group, generation: 0, blocks, offsets, got };
        (0..BLOCKS).for_each(|index| client.post(index));
        client
    }

    fn post(&mut self, index: u16) {
        let block = &self.blocks[usize::from(index)];
        // SAFETY: the block lives as long as the client, whose kernel drops first.
        unsafe { self.sim.post(self.group, index, block.0, block.1 as u32) };
    }

    fn queue(&mut self, tag: u8, op: Op) -> Token {
        self.generation += 1;
        let token = Token::new(tag, 0, self.generation);
        // SAFETY: the tests keep what the op names until its completion or the kernel's end.
        unsafe { self.sim.queue(token, op) };
        token
    }

    fn connect(&mut self) -> Token {
        let (addr, len) = self.address.parts();
        self.queue(CONNECT, Op::Connect { fd: self.fd, addr, len })
    }

    fn receive(&mut self) -> Token {
        self.queue(RECEIVE, Op::RecvMulti { fd: self.fd, group: self.group })
    }

    fn send(&mut self, bytes: &'static [u8]) -> Token {
        self.queue(SEND, Op::Send { fd: self.fd, ptr: bytes.as_ptr(), len: bytes.len() as u32 })
    }

    /// The completion of `token`; `None` when `by` came first.
    fn next(&mut self, token: Token, by: Duration) -> Option<Completion> {
        let by = self.sim.now() + by;
        self.sim.arm(Instant::NEVER);
        // A send that goes out whole ends no wait.
        self.sim.enter(Wait::No, &mut self.out).unwrap();
        loop {
            if let Some(at) = self.out.iter().position(|c| c.token == token) {
                return Some(self.out.remove(at));
            }
            if self.sim.now() >= by || self.sim.ledger().deadlock() {
                return None;
            }
            self.sim.arm(by);
            self.sim.enter(Wait::Yes, &mut self.out).unwrap();
        }
    }

    fn result(&mut self, token: Token) -> i32 {
        self.next(token, Duration::from_secs(1000)).expect("a completion").result
    }

    fn connected(net: &SimNet) -> Client {
        let mut client = Client::new(net);
        let token = client.connect();
        assert_eq!(client.result(token), 0);
        client
    }

    /// Takes the bytes of a receive and posts the buffer again when it is done.
    fn take(&mut self, c: Completion) {
        let index = c.buffer.expect("bytes come in a buffer");
        let at = usize::from(index);
        let len = c.result as usize;
        self.got.extend(self.blocks[at].read(self.offsets[at], len));
        self.offsets[at] += len;
        assert!(!c.buffer_more || self.offsets[at] < BLOCK_BYTES);
        if !c.buffer_more {
            self.offsets[at] = 0;
            self.post(index);
        }
    }

    /// Cancels `token`, waits for its end, closes and removes everything; the books must be empty.
    fn tear_down(mut self, receive: Option<Token>) {
        if let Some(target) = receive {
            let token = self.queue(CANCEL, Op::Cancel { target });
            self.result(token);
            while self.next(target, Duration::from_secs(1000)).expect("its end").more {}
        }
        let token = self.queue(CLOSE, Op::Close { fd: self.fd });
        assert_eq!(self.result(token), 0);
        self.sim.ungroup(self.group);
        let ledger = self.sim.ledger();
        assert_eq!(ledger.violations(), Vec::<String>::new());
        assert_eq!((ledger.open_fds(), ledger.live_ops(), ledger.groups()), (0, 0, 0));
        assert_eq!(ledger.posted_buffers(), 0);
    }
}

fn echo_net(config: SimConfig) -> SimNet {
    let net = SimNet::new(config);
    net.listen(server(), Echo::default());
    net
}

const TEXT: &[u8] = b"the quick brown fox jumps over the lazy dog, again and again and again";

/// Sends TEXT `rounds` times and hears it back, as far as the faults allow. What was heard.
fn converse(client: &mut Client, rounds: usize) -> Option<Token> {
    let connect = client.connect();
    if client.result(connect) != 0 {
        return None;
    }
    let mut receive = client.receive();
    let patience = Duration::from_secs(20);
    for round in 0..rounds {
        let mut left = TEXT;
        while !left.is_empty() {
            let token = client.send(left);
            match client.result(token) {
                n if n > 0 => left = &left[n as usize..],
                n if n == -libc::EAGAIN => {
                    let token = client.queue(POLL, Op::PollOut { fd: client.fd });
                    assert!(client.result(token) > 0);
                }
                n => {
                    assert_eq!(n, -libc::EPIPE);
                    return Some(receive);
                }
            }
        }
        while client.got.len() < (round + 1) * TEXT.len() {
            // Nothing in time: this connection's answers vanish.
            let Some(c) = client.next(receive, patience) else { return Some(receive) };
            match c.result {
                n if n > 0 => client.take(c),
                n if n == -libc::ENOBUFS => {}
                _ => return None,
            }
            if !c.more {
                receive = client.receive();
            }
        }
    }
    Some(receive)
}

/// Whether `heard` is the beginning of TEXT repeated.
fn is_prefix(heard: &[u8]) -> bool {
    heard.iter().eq(TEXT.iter().cycle().take(heard.len()))
}

/// Design 8. Fails if bytes are lost, doubled or reordered without any fault.
#[test]
fn echo_without_faults() {
    let net = echo_net(SimConfig::default());
    let mut client = Client::new(&net);
    let start = net.now();
    let receive = converse(&mut client, 10);
    assert_eq!(client.got.len(), 10 * TEXT.len());
    assert!(is_prefix(&client.got));
    assert!(net.now() > start, "the virtual clock goes on");
    client.tear_down(receive);
}

/// Design 8, trap 2, trap 3. Fails if any mixture of faults corrupts a stream, breaks a rule of the
/// kernel or leaks.
#[test]
fn echo_under_chaos() {
    let mut whole = 0;
    for seed in 0..1500 {
        let net = echo_net(SimConfig::chaos(seed));
        let mut client = Client::new(&net);
        let receive = converse(&mut client, 20);
        assert!(is_prefix(&client.got), "seed {seed}");
        whole += usize::from(client.got.len() == 20 * TEXT.len());
        client.tear_down(receive);
    }
    assert!(whole > 300, "chaos must leave something alive: {whole}");
}

/// Design 8. Fails if anything but the seed decides, or if the seed decides nothing.
#[test]
fn same_seed_same_trace() {
    let run = |seed| {
        let net = echo_net(SimConfig::chaos(seed));
        let mut client = Client::new(&net);
        let receive = converse(&mut client, 5);
        let ledger = client.sim.ledger();
        client.tear_down(receive);
        ledger.trace()
    };
    let traces: BTreeSet<u64> = (0..100).map(run).collect();
    assert!((0..100).all(|seed| traces.contains(&run(seed))));
    assert!((0..100).map(run).eq((0..100).map(run)));
    assert!(traces.len() > 90);
}

/// R-019. Fails if a closed port or a refusing network lets a connect through.
#[test]
fn refused_connects() {
    let mut closed = Client::new(&SimNet::new(SimConfig::default()));
    let token = closed.connect();
    assert_eq!(closed.result(token), -libc::ECONNREFUSED);
    // The same socket may try again.
    let token = closed.connect();
    assert_eq!(closed.result(token), -libc::ECONNREFUSED);
    closed.tear_down(None);
    let mut refused = Client::new(&echo_net(SimConfig { refuse: 1.0, ..SimConfig::default() }));
    let token = refused.connect();
    assert_eq!(refused.result(token), -libc::ECONNREFUSED);
    refused.tear_down(None);
}

/// Trap 10. Fails if a connect into the void completes early or cannot be cancelled.
#[test]
fn blackholes() {
    let net = echo_net(SimConfig { blackhole: 1.0, ..SimConfig::default() });
    let mut client = Client::new(&net);
    let token = client.connect();
    assert!(client.next(token, Duration::from_secs(100)).is_none());
    let cancel = client.queue(CANCEL, Op::Cancel { target: token });
    assert_eq!((client.result(cancel), client.result(token)), (0, -libc::ECANCELED));
    let token = client.connect();
    assert_eq!(client.result(token), -libc::EALREADY);
    client.tear_down(None);
    let mut patient = Client::new(&net);
    let token = patient.connect();
    assert_eq!(patient.result(token), -libc::ETIMEDOUT);
    patient.tear_down(None);
}

/// Trap 9, trap 24. Fails if a paused peer never fills the socket or PollOut comes too early.
#[test]
fn full_socket() {
    struct Paused;
    impl Peer for Paused {
        fn on_connect(&mut self, _: Instant, conn: ConnId, out: &mut PeerOut) {
            out.pause_reading(conn, Duration::from_secs(3));
        }
        fn on_bytes(&mut self, _: Instant, _: ConnId, _: &[u8], _: &mut PeerOut) {}
    }
    let net = SimNet::new(SimConfig { send_buffer: 100, ..SimConfig::default() });
    net.listen(server(), Paused);
    let mut client = Client::connected(&net);
    let start = net.now();
    let results = [70, 30, -libc::EAGAIN].map(|_| {
        let token = client.send(TEXT);
        client.result(token)
    });
    assert_eq!(results, [70, 30, -libc::EAGAIN]);
    let poll = client.queue(POLL, Op::PollOut { fd: client.fd });
    assert!(client.result(poll) > 0);
    assert!(net.now() - start > Duration::from_millis(2900));
    client.tear_down(None);
}

/// Trap 9. Fails if a whole send ends a wait, or a short one does not.
#[test]
fn sends_and_waits() {
    let net = SimNet::new(SimConfig { send_buffer: 100, ..SimConfig::default() });
    net.listen(server(), Silent);
    let mut client = Client::connected(&net);
    client.sim.arm(net.now() + Duration::from_secs(5));
    let start = net.now();
    client.send(TEXT);
    client.sim.enter(Wait::Yes, &mut client.out).unwrap();
    assert!(net.now() - start >= Duration::from_secs(4));
    client.send(TEXT);
    client.send(TEXT);
    client.sim.arm(net.now() + Duration::from_secs(5));
    let start = net.now();
    client.sim.enter(Wait::Yes, &mut client.out).unwrap();
    assert!(net.now() - start < Duration::from_secs(1));
    client.out.clear();
    client.tear_down(None);
}

/// Trap 11. Fails if a late end of a cancelled operation hits the next one of the same name.
#[test]
fn late_cancels() {
    let mut after = 0;
    for seed in 0..50 {
        let config = SimConfig { seed, late_cancel: 1.0, ..SimConfig::default() };
        let net = echo_net(config);
        let mut client = Client::connected(&net);
        let receive = client.receive();
        let cancel = client.queue(CANCEL, Op::Cancel { target: receive });
        let told = client.result(cancel);
        assert!(told == 0 || told == -libc::EALREADY);
        // It is still there, and its memory in use, until its own completion.
        after += usize::from(client.sim.ledger().live_ops() == 1);
        assert_eq!(client.result(receive), -libc::ECANCELED);
        // SAFETY: as in `Client::queue`; the name is free again.
        unsafe {
            client.sim.queue(receive, Op::RecvMulti { fd: client.fd, group: client.group });
        }
        assert!(client.next(receive, Duration::from_secs(10)).is_none());
        client.tear_down(Some(receive));
    }
    assert_eq!(after, 50);
}

/// Trap 25. Fails if bytes that a cancelled exact receive took are not told.
#[test]
fn exact_receives() {
    let net = echo_net(SimConfig::default());
    let mut client = Client::connected(&net);
    let block = Block::new(200);
    let send = client.send(TEXT);
    let exact = client.queue(EXACT, Op::RecvExact { fd: client.fd, ptr: block.0, len: 60 });
    assert_eq!((client.result(send), client.result(exact)), (70, 60));
    let rest = client.queue(EXACT, Op::RecvExact { fd: client.fd, ptr: block.0, len: 60 });
    assert!(client.next(rest, Duration::from_secs(1)).is_none());
    let cancel = client.queue(CANCEL, Op::Cancel { target: rest });
    assert_eq!((client.result(cancel), client.result(rest)), (0, 10));
    assert_eq!(block.read(0, 10), &TEXT[60..]);
    client.tear_down(None);
}

/// Design 8. Fails if a reset, a cut, an orderly end or an alarm of the peer does not arrive.
#[test]
fn peers_that_end() {
    struct Ender;
    impl Peer for Ender {
        fn on_bytes(&mut self, _: Instant, conn: ConnId, bytes: &[u8], out: &mut PeerOut) {
            match bytes[0] {
                b'e' => out.end(conn, Duration::from_millis(1)),
                b'r' => out.reset(conn, Duration::from_millis(1)),
                _ => out.alarm(conn, Duration::from_secs(2)),
            }
        }
        fn on_alarm(&mut self, _: Instant, conn: ConnId, out: &mut PeerOut) {
            out.send(conn, Duration::ZERO, &b"late"[..]);
            out.end(conn, Duration::ZERO);
        }
    }
    let net = SimNet::new(SimConfig::default());
    net.listen(server(), Ender);
    for (text, end) in [(&b"e"[..], 0), (b"r", -libc::ECONNRESET), (b"cut", -libc::ECONNRESET)] {
        let mut client = Client::connected(&net);
        let receive = client.receive();
        client.send(text);
        if text == b"cut" {
            net.schedule(Duration::from_millis(5), |net| net.cut(server()));
        }
        let c = client.next(receive, Duration::from_secs(1)).unwrap();
        assert_eq!((c.result, c.more), (end, false));
        client.out.clear();
        client.tear_down(None);
    }
    let mut client = Client::connected(&net);
    let receive = client.receive();
    client.send(b"alarm");
    let c = client.next(receive, Duration::from_secs(3)).unwrap();
    client.take(c);
    assert_eq!(client.got, b"late");
    assert_eq!(client.result(receive), 0);
    client.out.clear();
    client.tear_down(None);
    assert_eq!(net.connections(), 1, "the last close is still on the wire");
}

/// Design 8. Fails if a misuse of the kernel goes unseen.
#[test]
fn violations_are_seen() {
    let net = echo_net(SimConfig::default());
    let mut client = Client::connected(&net);
    let ledger = client.sim.ledger();
    let expect = |client: &mut Client, part: &str| {
        client.sim.enter(Wait::No, &mut client.out).unwrap();
        let seen = ledger.violations();
        let last = seen.last().map_or("", String::as_str);
        assert!(last.contains(part), "{part:?} is not in {last:?}");
    };
    client.post(0);
    expect(&mut client, "posted already");
    client.queue(CANCEL, Op::Cancel { target: Token::new(99, 9, 9) });
    expect(&mut client, "whose cell never queued");
    client.queue(POLL, Op::PollOut { fd: 3 });
    expect(&mut client, "closed descriptor 3");
    client.sim.shutdown(4);
    expect(&mut client, "closed descriptor 4");
    let receive = client.receive();
    // SAFETY: as in `Client::queue`.
    unsafe { client.sim.queue(receive, Op::PollIn { fd: client.fd }) };
    expect(&mut client, "while an operation of that name is live");
    client.sim.ungroup(client.group);
    expect(&mut client, "receives into it");
    client.queue(CLOSE, Op::Close { fd: client.fd });
    expect(&mut client, "under live");
    client.sim.close_now(client.fd);
    expect(&mut client, "is not open");
}

/// Design 8. Fails if a wait that nothing can end hangs, or is not told.
#[test]
fn deadlock_is_told() {
    let net = SimNet::new(SimConfig::default());
    net.listen(server(), Silent);
    let mut client = Client::connected(&net);
    client.receive();
    client.sim.arm(net.now() + Duration::from_secs(1));
    client.sim.enter(Wait::Yes, &mut client.out).unwrap();
    assert!(!client.sim.ledger().deadlock());
    client.sim.waker().wake();
    client.sim.arm(Instant::NEVER);
    client.sim.enter(Wait::Yes, &mut client.out).unwrap();
    assert!(!client.sim.ledger().deadlock(), "a wake ends a wait");
    client.sim.enter(Wait::Yes, &mut client.out).unwrap();
    assert!(client.sim.ledger().deadlock());
}

/// Trap 1, trap 2. Fails if the faults of receives do not occur or lose bytes.
#[test]
fn receive_faults() {
    let off = SimConfig::default();
    for config in [
        SimConfig { no_buffers: 0.5, ..off.clone() },
        SimConfig { multishot_end: 0.5, ..off.clone() },
        SimConfig { split: 1.0, reorder: 1.0, spurious: 0.5, clock_jump: 0.5, ..off.clone() },
        SimConfig { incremental: false, split: 1.0, ..off.clone() },
        SimConfig { short_send: 1.0, send_again: 0.5, ..off },
    ] {
        let net = echo_net(config);
        let mut client = Client::new(&net);
        let receive = converse(&mut client, 20);
        assert_eq!(client.got.len(), 20 * TEXT.len());
        assert!(is_prefix(&client.got));
        client.tear_down(receive);
    }
}

/// Design 8. Fails if two kernels on one network skip each other's events.
#[test]
fn two_kernels() {
    let net = echo_net(SimConfig::default());
    let mut clients = [Client::new(&net), Client::new(&net)];
    let tokens = clients.each_mut().map(Client::connect);
    let mut done = 0;
    for _ in 0..100 {
        for (client, token) in clients.iter_mut().zip(tokens) {
            client.sim.enter(Wait::Yes, &mut client.out).unwrap();
            done += client.out.drain(..).filter(|c| c.token == token && c.result == 0).count();
        }
    }
    assert_eq!(done, 2);
    assert!(clients.iter().all(|c| !c.sim.ledger().deadlock()));
}
