//! How the in-process server reads requests, in bytes that no client should send.

use hedgerow::testing::Server;

use crate::raw::Raw;

/// Design section 4, test server. Fails if any of these breaches is answered with another text, or
/// the connection stays open.
#[test]
fn broken_requests_get_the_servers_text_and_the_end() {
    let server = Server::start().expect("start");
    for (bytes, text) in [
        ("*1\r\n+PING\r\n", "expected '$', got '+'"),
        ("*x\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("GET \"a\r\n", "unbalanced quotes in request"),
        ("GET 'a'b\r\n", "unbalanced quotes in request"),
    ] {
        let mut raw = Raw::connect(&server);
        raw.send(format!("PING\r\n{bytes}"));
        let expected = format!("+PONG\r\n-ERR Protocol error: {text}\r\n");
        let (got, end) = raw.rest();
        assert_eq!((String::from_utf8_lossy(&got).as_ref(), end), (expected.as_str(), None));
    }
}

/// Design section 4, test server. Fails if a line without an end is collected for ever instead of
/// refused at 64 KiB.
#[test]
fn endless_lines_are_refused() {
    let server = Server::start().expect("start");
    for (start, text) in [
        ("G", "too big inline request"),
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
    ] {
        let mut raw = Raw::connect(&server);
        raw.send(format!("{start}{}", "1".repeat(65_537)));
        raw.expect(format!("-ERR Protocol error: {text}\r\n"));
    }
}

/// Design section 4, test server. Fails if a stranger may make the server collect large requests
/// before a login.
#[test]
fn strangers_may_send_little() {
    let server = Server::builder().password("p").start().expect("start");
    for (bytes, text) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut raw = Raw::connect(&server);
        raw.send(bytes);
        raw.expect(format!("-ERR Protocol error: {text}\r\n"));
    }
}

/// Design section 4, test server. Fails if a request cut at any byte is lost, run twice or read
/// otherwise.
#[test]
fn requests_may_be_split_at_every_byte() {
    let server = Server::start().expect("start");
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n*1\r\n\
        get \"\\x61\"\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n";
    for at in 1..request.len() {
        let mut raw = Raw::connect(&server);
        raw.send(&request[..at]);
        // Arrives apart: the server must have read the first part to answer this on another
        // connection after it.
        Raw::connect(&server).says("PING", "+PONG\r\n");
        raw.send(&request[at..]);
        raw.expect("+OK\r\n$4\r\n\r\n*1\r\n+PONG\r\n");
    }
    let commands = server.stats().commands;
    assert_eq!(commands, 4 * (request.len() as u64 - 1));
}

/// Design section 4, test server. Fails if a value beyond the read buffer's first size is cut, or
/// its last bytes are taken for a command.
#[test]
fn large_values_come_back_whole() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    for size in [65_000, 65_536, 1 << 20, 9_000_001] {
        let value: Vec<u8> = (0..size).map(|at: usize| (at * 7 % 251) as u8).collect();
        let mut set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${size}\r\n").into_bytes();
        set.extend_from_slice(&value);
        set.extend_from_slice(b"\r\nGET k\r\n");
        raw.send(&set);
        let mut expected = format!("+OK\r\n${size}\r\n").into_bytes();
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\n");
        raw.expect(&expected);
    }
}

/// Design section 4, test server. Fails if replies that nobody reads pile up without bound, or are
/// lost when reading goes on.
#[test]
fn a_client_that_does_not_read_loses_nothing() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    let value = "v".repeat(100_000);
    raw.says(&format!("SET k {}", &value[..50_000]), "+OK\r\n");
    raw.says(&format!("APPEND k {}", &value[..50_000]), ":100000\r\n");
    let mut writer = Raw(raw.0.try_clone().expect("clone"));
    let sending = std::thread::spawn(move || writer.send("GET k\r\n".repeat(1000)));
    sending.join().expect("sent");
    // Others are served meanwhile.
    Raw::connect(&server).says("PING", "+PONG\r\n");
    let reply = format!("$100000\r\n{value}\r\n");
    for _ in 0..1000 {
        raw.expect(&reply);
    }
    raw.says("PING", "+PONG\r\n");
}
