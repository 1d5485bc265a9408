//! Level-triggered epoll without any client: one read for each readiness event.

use clap::Parser;
use harness::{Arrivals, Pipeline, Workload, connect, now_ns, start};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

#[derive(Parser)]
#[command(about = "Loop over epoll")]
struct Options {
    #[command(flatten)]
    workload: Workload,
    /// Never block in epoll_wait (always so in an open loop)
    #[arg(long)]
    spin: bool,
}

struct Link {
    socket: TcpStream,
    pipeline: Pipeline,
    index: u64,
    wants_room: bool,
}

impl Link {
    fn open(workload: &Workload, index: u64, epoll: &Epoll) -> io::Result<Link> {
        let socket = connect(workload);
        socket.set_nonblocking(true)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, index))?;
        Ok(Link { socket, pipeline: Pipeline::new(workload, index), index, wants_room: false })
    }

    fn flush(&mut self, epoll: &Epoll) -> io::Result<()> {
        let out = &mut self.pipeline.out;
        if out.is_empty() {
            return Ok(());
        }
        match self.socket.write(out) {
            Ok(len) if len == out.len() => out.clear(),
            Ok(len) => drop(out.drain(..len)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        let wants_room = !out.is_empty();
        if wants_room != self.wants_room {
            self.wants_room = wants_room;
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, wants_room);
            epoll.modify(&self.socket, &mut EpollEvent::new(flags, self.index))?;
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self.socket.read(buffer) {
            Ok(0) => Err(io::Error::other("the server closed the connection")),
            Ok(len) => {
                self.pipeline.received(&buffer[..len]);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e),
        }
    }
}

fn main() -> io::Result<()> {
    let Options { workload, spin } = Options::parse();
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let links: io::Result<Vec<Link>> =
        (0..workload.connections).map(|i| Link::open(&workload, i as u64, &epoll)).collect();
    let mut links = links?;
    let mut buffer = vec![0; workload.read_buffer_len()];
    start(&workload);
    let mut arrivals = workload.is_open().then(|| Arrivals::new(workload.rate, 1));
    if arrivals.is_none() {
        for link in &mut links {
            link.pipeline.fill(workload.depth);
            link.flush(&epoll)?;
        }
    }
    let timeout = if spin || arrivals.is_some() { EpollTimeout::ZERO } else { EpollTimeout::NONE };
    let mut events = [EpollEvent::empty(); 64];
    let mut turn = 0;
    loop {
        if let Some(arrivals) = &mut arrivals {
            let now = now_ns();
            while let Some(at) = arrivals.due(now) {
                links[turn].pipeline.fill_at(at);
                turn = (turn + 1) % workload.connections;
            }
            links.iter_mut().try_for_each(|link| link.flush(&epoll))?;
        }
        let ready = epoll.wait(&mut events, timeout)?;
        for event in &events[..ready] {
            let link = &mut links[event.data() as usize];
            if event.events().contains(EpollFlags::EPOLLIN) {
                link.receive(&mut buffer)?;
            }
            link.flush(&epoll)?;
        }
    }
}
