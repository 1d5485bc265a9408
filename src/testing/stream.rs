//! A listener or a connection, over TCP or a Unix socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

use super::faults::Close;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Place {
    pub(super) fn label(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("{}:0", path.display()),
        }
    }
}

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens, and says where: the port that was free when 0 was asked.
    pub(super) fn bind(place: &Place) -> io::Result<(Self, Place)> {
        match place {
            Place::Tcp(address) => {
                let listener = TcpListener::bind(*address)?;
                let bound = listener.local_addr()?;
                Ok((Self::Tcp(listener), Place::Tcp(bound)))
            }
            Place::Unix(path) => {
                Ok((Self::Unix(UnixListener::bind(path)?), Place::Unix(path.clone())))
            }
        }
    }

    /// Accepts a connection and says where it comes from.
    pub(super) fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                // Fails only on a connection that is gone already, which the first read tells.
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), from.to_string()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                Ok((Stream::Unix(stream), String::new()))
            }
        }
    }

    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => registry.register(stream, token, interest),
            Self::Unix(stream) => registry.register(stream, token, interest),
        }
    }

    /// Ends the connection.
    pub(super) fn close(mut self, close: Close) {
        match close {
            Close::Reset => {
                // Zero seconds of linger turn the close into a reset; a Unix socket ignores it.
                let _ = rustix::net::sockopt::set_socket_linger(&self, Some(Duration::ZERO));
            }
            Close::End => self.discard(),
        }
    }

    /// Reads what has arrived, since closing with bytes unread would be a reset.
    fn discard(&mut self) {
        let mut sink = [0u8; 16 * 1024];
        for _ in 0..64 {
            match self.read(&mut sink) {
                Ok(count) if count > 0 => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
