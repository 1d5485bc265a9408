//! The servers themselves: each flavor starts, answers, can be paused, killed and brought back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::server::{Flavor, Server, encode, read_until};

/// One round trip of HELLO in `protocol`, and of PING.
fn greet(mut stream: impl Read + Write, protocol: &str) -> String {
    let mut request = Vec::new();
    encode(&mut request, &["HELLO", protocol]);
    encode(&mut request, &["PING"]);
    stream.write_all(&request).expect("the request is sent");
    read_until(&mut stream, b"+PONG\r\n").expect("HELLO and PING are answered")
}

fn answers_on_both_transports(flavor: Flavor) {
    let server = Server::start(flavor);
    let (name, version) = flavor.identity();
    for (protocol, head) in [("2", "*"), ("3", "%")] {
        let tcp = TcpStream::connect(server.address()).expect("TCP");
        let unix = UnixStream::connect(server.socket()).expect("Unix");
        for reply in [greet(tcp, protocol), greet(unix, protocol)] {
            assert!(reply.starts_with(head), "HELLO {protocol}: {reply:?}");
            assert!(reply.contains(&format!("${}\r\n{name}\r\n", name.len())), "{reply:?}");
            assert!(reply.contains(&format!("\r\n{version}")), "{reply:?}");
        }
    }
}

/// The server in place is the one it is named for, on TCP and Unix, in both protocols. Fails if the
/// fetched program is of another version or make.
#[test]
fn valkey_91_answers() {
    answers_on_both_transports(Flavor::Valkey91);
}

/// As above. Fails if the fetched program is of another version or make.
#[test]
fn valkey_90_answers() {
    answers_on_both_transports(Flavor::Valkey90);
}

/// As above. Fails if the fetched program is of another version or make.
#[test]
fn redis_70_answers() {
    answers_on_both_transports(Flavor::Redis70);
}

/// As above. Fails if the fetched program is of another version or make.
#[test]
fn redis_82_answers() {
    answers_on_both_transports(Flavor::Redis82);
}

/// A password, users and configuration lines reach every server. Fails if an option is lost on the
/// way into the configuration file.
#[test]
fn options_are_in_force() {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor)
            .password("first")
            .user("app on >second ~app:* +ping +hello")
            .line("maxclients 77")
            .start();
        assert!(server.tell(&["CONFIG", "GET", "maxclients"]).contains("\r\n77\r\n"));
        let mut stream = TcpStream::connect(server.address()).expect("TCP");
        let mut request = Vec::new();
        encode(&mut request, &["PING"]);
        encode(&mut request, &["AUTH", "app", "second"]);
        encode(&mut request, &["GET", "app:1"]);
        encode(&mut request, &["PING"]);
        stream.write_all(&request).expect("the request is sent");
        let reply = read_until(&mut stream, b"+PONG\r\n").expect("all four are answered");
        let codes: Vec<_> = reply.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(codes, ["-NOAUTH", "+OK", "-NOPERM", "+PONG"], "{flavor:?}: {reply}");
    }
}

/// A paused server keeps its connections, says nothing, and answers when it goes on. Fails if
/// `pause` returns before the process has stopped.
#[test]
fn a_paused_server_answers_later() {
    let server = Server::start(Flavor::Valkey91);
    let mut stream = TcpStream::connect(server.address()).expect("TCP");
    server.pause();
    stream.write_all(b"PING\r\n").expect("the kernel takes it");
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert!(read_until(&mut stream, b"+PONG\r\n").is_err(), "a stopped process answered");
    stream.set_read_timeout(None).expect("no timeout");
    server.resume();
    assert_eq!(read_until(&mut stream, b"+PONG\r\n").as_deref(), Ok("+PONG\r\n"));
}

/// A killed server ends its connections and comes back, empty, where it was. Fails if a restart
/// moves to another port or keeps the old process.
#[test]
fn a_killed_server_comes_back() {
    let mut server = Server::start(Flavor::Valkey91);
    assert_eq!(server.tell(&["SET", "kept", "1"]), "+OK\r\n");
    let address = server.address();
    let mut stream = TcpStream::connect(address).expect("TCP");
    server.kill();
    assert!(read_until(&mut stream, b"+PONG\r\n").is_err());
    assert!(TcpStream::connect(address).is_err(), "something still listens");
    server.restart();
    assert_eq!(server.address(), address);
    assert_eq!(greet(TcpStream::connect(address).expect("TCP"), "2").chars().next(), Some('*'));
    assert_eq!(server.tell(&["EXISTS", "kept"]), ":0\r\n");
}
