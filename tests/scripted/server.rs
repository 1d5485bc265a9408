//! The in-process server itself, over plain sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hedgerow::testing::Server;

/// A client that sends bytes and expects bytes.
struct Raw(TcpStream);

impl Raw {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addr().expect("a TCP address")).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("send");
    }

    #[track_caller]
    fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut got = vec![0; bytes.len()];
        let read = self.0.read_exact(&mut got);
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes), "{read:?}");
        read.expect("read");
    }

    /// One inline command and its whole reply.
    #[track_caller]
    fn says(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n").as_bytes());
        self.expect(reply);
    }
}

/// Fails if the greeting is not a RESP3 map or the strings do not come back.
#[test]
fn greets_and_keeps_strings() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("PING", "+PONG\r\n");
    raw.says("SET a 1", "+OK\r\n");
    raw.says("GET a", "$1\r\n1\r\n");
    raw.says("GET b", "$-1\r\n");
    raw.says("HELLO 3", "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n");
}
