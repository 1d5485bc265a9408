//! A core, and what its sockets reported.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::core::{Core, Drive, Turn};
use hedgerow_runtime::io::{Connect, Handler, Io, SocketId, Target};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Batch, Progress, Rx};

use crate::message::measure;

/// After this, what has not come is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;
/// The block that a socket begins with.
pub(crate) const BLOCK: usize = 16 * KIB;

#[derive(Default)]
pub(crate) struct Link {
    pub(crate) open: bool,
    pub(crate) paused: bool,
    /// Number of the next message.
    pub(crate) heard: usize,
}

/// What a rig's sockets reported.
#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) links: HashMap<SocketId, Link>,
    pub(crate) failed: Vec<(SocketId, std::io::Error)>,
    /// Ends, each with the number of messages that came before it.
    pub(crate) closed: Vec<(Option<std::io::Error>, usize)>,
    pub(crate) sent: Vec<(SocketId, usize, bool)>,
    /// Where messages go that are to be kept, with their numbers.
    pub(crate) keep: Option<Box<dyn FnMut(usize, Bytes)>>,
    /// Of the messages kept, how many were slices of their block.
    pub(crate) sliced: usize,
    pub(crate) by: Option<Instant>,
}

impl Probe {
    pub(crate) fn link(&mut self, id: SocketId) -> &mut Link {
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
pub(crate) struct Rig<K: Kernel> {
    pub(crate) core: Core<K>,
    pub(crate) probe: Probe,
}

impl<K: Kernel> Rig<K> {
    pub(crate) fn new(kernel: K) -> Rig<K> {
        let parker = Parker::new(ParkPolicy::Park, None, 1, 1);
        Rig { core: Core::new(kernel, parker), probe: Probe::default() }
    }

    pub(crate) fn turn(&mut self, turn: Turn) -> bool {
        self.core.turn(&mut self.probe, turn).unwrap()
    }

    /// Takes turns until `done`; returns how many.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> usize {
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
    pub(crate) fn rest(&mut self, time: Duration) -> usize {
        let until = Instant::now() + time;
        let mut turns = 0;
        while Instant::now() < until {
            self.probe.by = Some(until);
            self.turn(Turn::MayWait);
            turns += 1;
        }
        turns
    }

    pub(crate) fn dial(
        &mut self,
        targets: Vec<Target>,
        within: Duration,
    ) -> std::io::Result<SocketId> {
        let now = Instant::now();
        let id =
            self.core.io.connect(now, Connect { targets, by: now + within, keepalive: None })?;
        self.probe.links.insert(id, Link::default());
        Ok(id)
    }

    /// A connected socket and its peer.
    pub(crate) fn connected(&mut self) -> (SocketId, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.connected_to(&listener)
    }

    pub(crate) fn connected_to(&mut self, listener: &TcpListener) -> (SocketId, TcpStream) {
        let address = listener.local_addr().unwrap();
        let id = self.dial(vec![Target::Tcp(address)], PATIENCE).unwrap();
        self.until("a connection", |rig| rig.probe.link(id).open);
        let peer = listener.accept().unwrap().0;
        peer.set_nodelay(true).unwrap();
        (id, peer)
    }

    pub(crate) fn send(&mut self, id: SocketId, bytes: &[u8]) -> bool {
        let mut batch = Batch::new();
        batch.small().extend_from_slice(bytes);
        self.core.io.send(id, &mut batch)
    }

    pub(crate) fn heard(&mut self, id: SocketId, messages: usize) {
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
    pub(crate) fn poll_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
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
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Rc<Cell<bool>> {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        drop(self.core.local().spawn(async move {
            future.await;
            end.set(true);
            yield_now().await;
        }));
        ended
    }

    pub(crate) fn received(&self) -> u64 {
        self.core.io.counters().bytes_received
    }

    pub(crate) fn close(&mut self, id: SocketId) {
        self.core.io.close(id);
        self.probe.links.remove(&id);
    }

    pub(crate) fn receive(&mut self, id: SocketId, on: bool) {
        self.probe.link(id).paused = !on;
        self.core.io.receive(Instant::now(), id, on, &mut self.probe);
    }

    pub(crate) fn shut_down(mut self) {
        self.core.shut_down(&mut self.probe);
    }
}

pub(crate) fn in_thread(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(work)
}

/// Yields to the core once.
pub(crate) async fn yield_now() {
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

pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
