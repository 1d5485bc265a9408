//! A client that sends bytes and expects bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hedgerow::testing::Server;

/// Longest wait for bytes: only a failing test ever waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::to(server.addr().expect("a TCP address"))
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("send");
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut got = vec![0; bytes.len()];
        let read = self.0.read_exact(&mut got);
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes), "{read:?}");
    }

    /// One inline command and its whole reply.
    #[track_caller]
    pub(crate) fn says(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n"));
        self.expect(reply);
    }

    /// The bytes up to the end of the stream, and how it ended.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Option<ErrorKind>) {
        let mut bytes = Vec::new();
        let end = self.0.read_to_end(&mut bytes);
        (bytes, end.err().map(|error| error.kind()))
    }

    /// One bulk string or integer line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn bulk(&mut self) -> String {
        let header = self.line();
        let length: usize = header[1..].parse().expect("a bulk header");
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).expect("a bulk");
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
