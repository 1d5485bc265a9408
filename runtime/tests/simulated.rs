//! The shipping core over the simulated kernel, under every mixture of faults.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use hedgerow_runtime::core::{Core, Drive, Turn};
use hedgerow_runtime::io::{Connect, Handler, Io, SocketId, Target};
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::sim::{ConnId, Peer, PeerOut, Sim, SimConfig, SimNet};
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Batch, Progress, Rx};

/// Longest frame; some are longer than a block, so that they are received exactly.
const LONGEST: usize = 1 << 17;
const LINKS: usize = 4;
/// A round that takes longer is given up and the link made anew.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for which receiving is switched off.
const OFF_US: u64 = 2_000;
const BACKOFF: Duration = Duration::from_millis(50);

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 6379))
}

/// Sends back what it gets.
struct Echo;

impl Peer for Echo {
    fn on_bytes(&mut self, _: Instant, conn: ConnId, bytes: &[u8], out: &mut PeerOut) {
        out.send(conn, Duration::from_micros(3), bytes);
    }
}

/// One connection that sends frames (a length, then bytes that tell the frame's number) and wants
/// each back, whole and in order.
#[derive(Default)]
struct Link {
    id: Option<SocketId>,
    open: bool,
    sent: u32,
    heard: u32,
    /// Lengths of the frames sent on this connection.
    lens: Vec<usize>,
    batch: Batch,
    by: Option<Instant>,
    /// Receiving is off until then.
    off_until: Option<Instant>,
}

struct Talk {
    links: Vec<Link>,
    rng: fastrand::Rng,
    frames: usize,
    /// Connections that were given up or broke.
    lost: usize,
    closing: bool,
}

/// The bytes of a frame: another part of one random text for each number.
fn payload(number: u32, len: usize) -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..LONGEST + 1024).map(|_| rng.u8(..)).collect()
    });
    let from = number as usize % 1024;
    &TEXT[from..from + len]
}

impl Talk {
    fn link(&mut self, id: SocketId) -> &mut Link {
        self.links.iter_mut().find(|l| l.id == Some(id)).expect("a report of a socket that is gone")
    }

    fn lose(link: &mut Link, now: Instant) {
        *link = Link { by: Some(now + BACKOFF), ..Link::default() };
    }

    fn dial(link: &mut Link, now: Instant, io: &mut Io<Sim>) {
        let targets = vec![Target::Tcp(server()), Target::Tcp(server())];
        let connect = Connect { targets, by: now + PATIENCE, keepalive: None };
        link.id = Some(io.connect(now, connect).unwrap());
        link.by = None;
    }

    fn write(link: &mut Link, now: Instant, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u32(1..5) {
            let len = 1usize << rng.u32(0..=LONGEST.ilog2());
            let len = rng.usize(0..len);
            let small = link.batch.small();
            small.extend((len as u32).to_le_bytes());
            small.extend_from_slice(payload(link.sent, len));
            link.lens.push(len);
            link.sent += 1;
        }
        link.by = Some(now + PATIENCE);
    }

    /// Now and then switches receiving on a link off for a while.
    fn switch(&mut self, now: Instant, io: &mut Io<Sim>) {
        for at in 0..LINKS {
            let link = &mut self.links[at];
            let Some(id) = link.id.filter(|_| link.open) else { continue };
            let on = match link.off_until {
                Some(until) => until <= now,
                None => self.rng.u8(..) >= 8,
            };
            if on == link.off_until.is_none() {
                continue;
            }
            let time = Duration::from_micros(self.rng.u64(0..OFF_US));
            link.off_until = (!on).then_some(now + time);
            io.receive(now, id, on, self);
        }
    }
}

impl Handler for Talk {
    fn on_connected(&mut self, now: Instant, id: SocketId, outcome: std::io::Result<()>) {
        let link = self.link(id);
        match outcome {
            Ok(()) => link.open = true,
            Err(_) => {
                Talk::lose(link, now);
                self.lost += 1;
            }
        }
    }

    fn on_bytes(&mut self, _now: Instant, id: SocketId, rx: &mut Rx) -> Progress {
        let link = self.link(id);
        assert!(link.off_until.is_none(), "bytes while receiving is off");
        let (mut consumed, mut frames) = (0, 0);
        let need = loop {
            let rest = &rx.bytes()[consumed..];
            let Some(head) = rest.first_chunk::<4>() else { break 4 - rest.len() };
            let len = u32::from_le_bytes(*head) as usize;
            assert_eq!(len, link.lens[link.heard as usize], "frame {} of {id:?}", link.heard);
            let Some(body) = rest.get(4..4 + len) else { break 4 + len - rest.len() };
            assert!(body == payload(link.heard, len), "frame {}", link.heard);
            link.heard += 1;
            frames += 1;
            consumed += 4 + len;
        };
        self.frames += frames;
        Progress { consumed, need }
    }

    fn on_sent(&mut self, _: Instant, _: SocketId, _: usize, _: bool) {}

    fn on_closed(&mut self, now: Instant, id: SocketId, error: Option<std::io::Error>) {
        let link = self.link(id);
        // A send may fail meanwhile; the peer's end waits.
        assert!(link.off_until.is_none() || error.is_some(), "an end while receiving is off");
        Talk::lose(link, now);
        self.lost += 1;
    }
}

impl Drive<Sim> for Talk {
    fn on_flush(&mut self, now: Instant, io: &mut Io<Sim>) {
        if !self.closing {
            self.switch(now, io);
        }
        let Talk { links, rng, lost, closing, .. } = self;
        for link in links.iter_mut().filter(|_| !*closing) {
            match link.id {
                None if link.by.is_none_or(|by| by <= now) => Talk::dial(link, now, io),
                None => {}
                Some(id) if link.by.is_some_and(|by| by <= now) => {
                    io.close(id);
                    Talk::lose(link, now);
                    *lost += 1;
                }
                Some(id) if link.open => {
                    if link.heard == link.sent {
                        Talk::write(link, now, rng);
                    }
                    if !link.batch.is_empty() {
                        io.send(id, &mut link.batch);
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn on_dispatched(&mut self, _: Instant) {}

    fn on_deadline(&mut self, _: Instant) {}

    fn next_deadline(&self) -> Instant {
        let instants = self.links.iter().flat_map(|l| [l.by, l.off_until]);
        instants.flatten().min().unwrap_or(Instant::NEVER)
    }

    fn in_flight(&self) -> bool {
        true
    }
}

/// Runs one seed: frames that came back, connections lost, the trace.
fn run(seed: u64, config: SimConfig) -> (usize, usize, u64) {
    // A core that spins takes more turns for as much.
    let (policy, turns) = match seed % 4 {
        0 => (ParkPolicy::Spin, 4_000),
        1 => (ParkPolicy::default(), 1_600),
        _ => (ParkPolicy::Park, 400),
    };
    let net = SimNet::new(config);
    net.listen(server(), Echo);
    let kernel = net.kernel();
    let ledger = kernel.ledger();
    let mut core = Core::new(kernel, Parker::new(policy, None, 1, 1));
    let links = (0..LINKS).map(|_| Link::default()).collect();
    let rng = fastrand::Rng::with_seed(seed);
    let mut talk = Talk { links, rng, frames: 0, lost: 0, closing: false };
    for _ in 0..turns {
        core.turn(&mut talk, Turn::MayWait).unwrap();
        assert!(!ledger.deadlock(), "seed {seed}: nothing can happen any more");
    }
    talk.closing = true;
    core.shut_down(&mut talk);
    assert_eq!(ledger.violations(), Vec::<String>::new(), "seed {seed}");
    let left = (ledger.open_fds(), ledger.live_ops(), ledger.groups(), ledger.posted_buffers());
    assert_eq!(left, (0, 0, 0, 0), "seed {seed}: descriptors, ops, groups, buffers");
    (talk.frames, talk.lost, ledger.trace())
}

/// Trap 1, trap 11, trap 25. Fails if any mixture of faults, with receiving switched off and on,
/// corrupts a stream, stalls a core, breaks a rule of the kernel or leaks.
#[test]
fn a_core_survives_chaos() {
    let frames: Vec<usize> = (0..1000).map(|seed| run(seed, SimConfig::chaos(seed)).0).collect();
    assert!(frames.iter().filter(|n| **n > 50).count() > 100, "{frames:?}");
}

/// Trap 1, trap 2, trap 9. Fails if a fault that a connection can live through ends or stalls one.
#[test]
fn harmless_faults_lose_nothing() {
    for seed in 0..400 {
        let config = SimConfig {
            refuse: 0.0,
            blackhole: 0.0,
            reset: 0.0,
            half_close: 0.0,
            mute: 0.0,
            clock_jump: 0.0,
            delay_tail: 0.0,
            ..SimConfig::chaos(seed)
        };
        let (frames, lost, _) = run(seed, config);
        assert!(lost == 0 && frames > 0, "seed {seed}: {lost} lost, {frames} frames");
    }
}

/// Design 8. Fails if a core without faults loses time to a deadline.
#[test]
fn a_core_without_faults() {
    let (frames, lost, _) = run(2, SimConfig::default());
    assert!(frames > 100 && lost == 0, "{frames} frames, {lost} lost");
}

/// Design 8. Fails if anything but the seed decides what a core does.
#[test]
fn a_core_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(run(seed, SimConfig::chaos(seed)), run(seed, SimConfig::chaos(seed)));
    }
}
