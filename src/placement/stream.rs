//! tokio's two kinds of streams as one.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::config::{Endpoint, Keepalive};

/// The receiving half.
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl ReadHalf {
    /// Appends what there is to `into`; 0 is the end.
    pub(super) async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            ReadHalf::Tcp(half) => half.read_buf(into).await,
            ReadHalf::Unix(half) => half.read_buf(into).await,
        }
    }
}

/// The sending half.
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl WriteHalf {
    /// Sends without waiting.
    pub(super) fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, parts) {
            (WriteHalf::Tcp(half), [only]) => half.try_write(only),
            (WriteHalf::Tcp(half), parts) => half.try_write_vectored(parts),
            (WriteHalf::Unix(half), [only]) => half.try_write(only),
            (WriteHalf::Unix(half), parts) => half.try_write_vectored(parts),
        }
    }

    /// Waits until bytes can be sent again.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(half) => half.writable().await,
            WriteHalf::Unix(half) => half.writable().await,
        }
    }
}

/// Connects: every address of the name in turn, each with its share of the time that is left.
pub(super) async fn connect(
    endpoint: &Endpoint,
    time: Duration,
    keepalive: Option<Keepalive>,
) -> io::Result<(ReadHalf, WriteHalf)> {
    let dial = async {
        match endpoint {
            Endpoint::Unix(path) => {
                let (read, write) = UnixStream::connect(path).await?.into_split();
                Ok((ReadHalf::Unix(read), WriteHalf::Unix(write)))
            }
            Endpoint::Tcp { host, port } => dial_tcp(host, *port, time, keepalive).await,
        }
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(time, dial).await.map_err(late)?
}

async fn dial_tcp(
    host: &str,
    port: u16,
    time: Duration,
    keepalive: Option<Keepalive>,
) -> io::Result<(ReadHalf, WriteHalf)> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("resolving the host name: {e}"));
    let found = tokio::net::lookup_host((host, port)).await.map_err(named)?;
    let addresses: Vec<SocketAddr> = found.collect();
    let until = tokio::time::Instant::now() + time;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for (i, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        let share = left / (addresses.len() - i) as u32;
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(prepare(stream, keepalive)),
            Ok(Err(error)) => last = hedgerow_runtime::socket::name_limit(error),
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}

fn prepare(stream: TcpStream, keepalive: Option<Keepalive>) -> (ReadHalf, WriteHalf) {
    // A socket that refuses either still works.
    let _ = stream.set_nodelay(true);
    if let Some(keepalive) = keepalive {
        let _ = keepalive.apply(std::os::fd::AsRawFd::as_raw_fd(&stream));
    }
    let (read, write) = stream.into_split();
    (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
}
