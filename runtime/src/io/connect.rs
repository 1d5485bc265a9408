//! Connecting: addresses in turn, each with its share of the time.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{CONNECT, Cell, Handler, Io, Phase, SocketId};
use crate::kernel::{Address, Kernel};
use crate::op::{Op, Token};
use crate::send::Send;
use crate::socket::{Keepalive, RawAddress, name_limit};
use crate::time::Instant;

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl Target {
    fn address(&self) -> Address<'_> {
        match self {
            Target::Tcp(a) => Address::Tcp(*a),
            Target::Unix(p) => Address::Unix(p),
        }
    }
}

/// How a connection is to be made.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Addresses, tried in this order; the first that connects is used.
    pub targets: Vec<Target>,
    /// When to give up as a whole. The remaining time is split evenly over the addresses left.
    pub by: Instant,
    /// Kernel TCP keepalive, off if `None`.
    pub keepalive: Option<Keepalive>,
}

pub(super) struct Attempt {
    pub(super) connect: Connect,
    tried: usize,
    address: Option<RawAddress>,
    /// When this address is given up.
    until: Instant,
    timed_out: bool,
    last: Option<io::Error>,
}

impl<K: Kernel> Io<K> {
    /// Begins to connect. The outcome comes as [`Handler::on_connected`].
    ///
    /// # Errors
    /// When not even a socket can be made for the first address, or no address is given.
    pub fn connect(&mut self, now: Instant, connect: Connect) -> io::Result<SocketId> {
        let index = self.free.pop().unwrap_or(self.cells.len() as u32);
        if index > Token::INDEX_MAX {
            return Err(io::Error::other("a core holds at most 16,777,215 sockets"));
        }
        if index as usize == self.cells.len() {
            self.cells.push(Cell {
                generation: 0,
                fd: -1,
                phase: Phase::Free,
                send: Send::default(),
                recv: None,
                gone: None,
                in_kernel: 0,
            });
        }
        let cell = &mut self.cells[index as usize];
        cell.gone = None;
        let id = SocketId { index, generation: cell.generation };
        cell.phase = Phase::Connecting(Box::new(Attempt {
            connect,
            tried: 0,
            address: None,
            until: now,
            timed_out: false,
            last: None,
        }));
        self.connecting += 1;
        self.live += 1;
        if let Err(error) = self.try_next(now, id) {
            self.connecting -= 1;
            self.release(index);
            return Err(error);
        }
        Ok(id)
    }

    /// Opens a socket for the next address and queues its connect.
    fn try_next(&mut self, now: Instant, id: SocketId) -> io::Result<()> {
        let cell = &mut self.cells[id.index as usize];
        let Phase::Connecting(attempt) = &mut cell.phase else {
            return Err(io::Error::other("the socket is not connecting"));
        };
        loop {
            let left = attempt.connect.targets.len() - attempt.tried;
            let Some(target) = attempt.connect.targets.get(attempt.tried) else {
                let none = || io::Error::new(io::ErrorKind::NotFound, "no address to connect to");
                return Err(attempt.last.take().unwrap_or_else(none));
            };
            attempt.tried += 1;
            let share = attempt.connect.by.since(now) / left as u32;
            attempt.until = now + share;
            attempt.timed_out = false;
            let prepared = RawAddress::new(target.address()).and_then(|address| {
                let fd = self.kernel.socket(target.address())?;
                if let Some(keepalive) = &attempt.connect.keepalive
                    && matches!(target, Target::Tcp(_))
                {
                    // A connection without keepalive is still a connection.
                    let _ = self.kernel.keepalive(fd, keepalive);
                }
                Ok((fd, address))
            });
            match prepared {
                Ok((fd, address)) => {
                    cell.fd = fd;
                    let (addr, len) = attempt.address.insert(address).parts();
                    cell.in_kernel += 1;
                    let token = Token::new(CONNECT, id.index, id.generation);
                    // SAFETY: the address is boxed inside the attempt, which outlives the
                    // operation: a cell is released only when nothing of it is in the kernel.
                    unsafe { self.kernel.queue(token, Op::Connect { fd, addr, len }) };
                    return Ok(());
                }
                Err(error) => attempt.last = Some(error),
            }
        }
    }

    pub(super) fn on_connect<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        result: i32,
        handler: &mut H,
    ) {
        let cell = &mut self.cells[id.index as usize];
        let Phase::Connecting(attempt) = &mut cell.phase else { return };
        // EISCONN: the system had connected before it saw the cancel.
        if result == 0 || result == -libc::EISCONN {
            self.connecting -= 1;
            cell.phase = Phase::Open;
            let opened = self.open(id);
            if opened.is_err() {
                self.begin_close(id.index);
            }
            return handler.on_connected(now, id, opened);
        }
        attempt.last = Some(if attempt.timed_out {
            io::Error::from(io::ErrorKind::TimedOut)
        } else {
            name_limit(io::Error::from_raw_os_error(-result))
        });
        self.kernel.close_now(std::mem::replace(&mut cell.fd, -1));
        if let Err(error) = self.try_next(now, id) {
            self.begin_close(id.index);
            handler.on_connected(now, id, Err(error));
        }
    }

    /// A connecting cell whose close has begun has no addresses left to try.
    pub(super) fn is_closing_connect(&self, index: usize) -> bool {
        matches!(&self.cells[index].phase,
            Phase::Connecting(a) if a.connect.targets.is_empty())
    }

    /// When [`Io::expire_connects`] has to be called, `NEVER` if nothing is connecting.
    pub fn next_deadline(&self) -> Instant {
        if self.connecting == 0 {
            return Instant::NEVER;
        }
        let untils = self.cells.iter().filter_map(|c| match &c.phase {
            Phase::Connecting(a) if !a.timed_out && !a.connect.targets.is_empty() => Some(a.until),
            _ => None,
        });
        untils.min().unwrap_or(Instant::NEVER)
    }

    /// Gives up connects whose time is over; the next address is tried when the old attempt ended.
    pub fn expire_connects(&mut self, now: Instant) {
        if self.connecting == 0 {
            return;
        }
        for index in 0..self.cells.len() {
            let cell = &mut self.cells[index];
            let generation = cell.generation;
            if let Phase::Connecting(a) = &mut cell.phase
                && !a.timed_out
                && a.until <= now
                && !a.connect.targets.is_empty()
            {
                a.timed_out = true;
                self.queue_cancel(index as u32, generation, CONNECT);
            }
        }
    }
}
