//! A server that costs next to nothing, so that the client is what is measured. One thread over
//! epoll; a command that begins like the last one of its connection and is as long is not parsed
//! again.

use bare::answers::{Patterns, Session, slots_of};
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

#[derive(Parser)]
#[command(about = "RESP server that answers GET with a fixed value and SET with OK")]
struct Options {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7400")]
    addr: SocketAddr,
    /// Length of each value in bytes
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Never block in epoll_wait: takes the server's wake-up out of every latency, for 100 % of a
    /// cpu
    #[arg(long)]
    spin: bool,
    /// Never answer GET and SET
    #[arg(long)]
    silent: bool,
    /// Say that it is so many primaries of a cluster: all nodes listen on the same port, each at the
    /// address after the last one's
    #[arg(long, default_value_t = 1)]
    primaries: u16,
    /// Replicas of each primary
    #[arg(long, default_value_t = 0)]
    replicas_each: u16,
}

impl Options {
    /// The addresses of all nodes.
    fn addresses(&self) -> Vec<SocketAddr> {
        let at = |n: u16| match self.addr.ip() {
            IpAddr::V4(first) => {
                let ip = Ipv4Addr::from_bits(first.to_bits() + u32::from(n));
                SocketAddr::from((ip, self.addr.port()))
            }
            IpAddr::V6(_) => self.addr,
        };
        (0..self.primaries * (1 + self.replicas_each)).map(at).collect()
    }
}

/// Tokens from here on are listeners.
const LISTENERS: u64 = u64::MAX - u16::MAX as u64;

struct Peer {
    socket: TcpStream,
    session: Session,
    waits_for_room: bool,
}

impl Peer {
    /// Serves one readiness event.
    fn on_ready(&mut self, events: EpollFlags, patterns: &Patterns) -> io::Result<()> {
        let readable = EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if events.intersects(readable) {
            match self.socket.read(self.session.room()) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.session.received(len)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        self.session.flush(&mut self.socket, patterns)
    }

    /// While answers are stuck nothing more is read: a client that does not read is not served.
    fn watch(&mut self, epoll: &Epoll) -> io::Result<()> {
        let waits = self.session.has_answers();
        if waits != self.waits_for_room {
            self.waits_for_room = waits;
            let flags = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let token = self.socket.as_raw_fd() as u64;
            epoll.modify(&self.socket, &mut EpollEvent::new(flags, token))?;
        }
        Ok(())
    }
}

fn accept(
    listener: &TcpListener,
    epoll: &Epoll,
    peers: &mut HashMap<u64, Peer>,
    options: &Options,
    slots: &Arc<[u8]>,
) -> io::Result<()> {
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let token = socket.as_raw_fd() as u64;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let session = Session::new(options.size).silent(options.silent).in_cluster(slots.clone());
        peers.insert(token, Peer { socket, session, waits_for_room: false });
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let patterns = Patterns::new(options.size);
    let addresses = options.addresses();
    let is_cluster = addresses.len() > 1;
    let slots: Arc<[u8]> = if is_cluster {
        slots_of(&addresses, options.primaries.into()).into()
    } else {
        Arc::default()
    };
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let mut listeners = Vec::new();
    for (address, token) in addresses.iter().zip(LISTENERS..) {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        listeners.push(listener);
    }
    let timeout = if options.spin { EpollTimeout::ZERO } else { EpollTimeout::NONE };
    let mut peers = HashMap::new();
    let mut events = [EpollEvent::empty(); 64];
    loop {
        let ready = match epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => continue,
            ready => ready?,
        };
        for event in &events[..ready] {
            let token = event.data();
            if let Some(at) = token.checked_sub(LISTENERS) {
                accept(&listeners[at as usize], &epoll, &mut peers, &options, &slots)?;
                continue;
            }
            let Some(peer) = peers.get_mut(&token) else { continue };
            if peer.on_ready(event.events(), &patterns).is_err() || peer.watch(&epoll).is_err() {
                peers.remove(&token);
            }
        }
    }
}
