//! The scripted server.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use hedgerow::testing::{Gate, Script, ScriptServer};

use crate::raw::{PATIENCE, Raw};

const GREETING: &str = "%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n\
    $5\r\nproto\r\n:3\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";

/// Design section 4, test server. Fails if the greeting differs from the bytes that the cases
/// state.
#[test]
fn it_greets_as_the_cases_say() {
    let server = Script::new().expect("GET a").reply("$1\r\nA\r\n").start().expect("start");
    let mut raw = Raw::to(server.addr());
    raw.says("HELLO 3 SETNAME x", GREETING);
    for command in ["AUTH u p", "SELECT 2", "CLIENT SETINFO LIB-NAME x", "READONLY"] {
        raw.says(command, "+OK\r\n");
    }
    raw.says("ping", "+PONG\r\n");
    raw.says("get a", "$1\r\nA\r\n");
    raw.says("PING", "+PONG\r\n");
    server.verify().expect("as scripted");
    let received = server.received();
    assert_eq!(received.len(), 8);
    assert_eq!(received[6].text(), "get a");
    assert!(received.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

/// Design section 4, test server. Fails if a wrong command, or one that never comes, goes
/// unnoticed.
#[test]
fn verify_tells_what_went_otherwise() {
    let server = Script::new().expect("GET a").start().expect("start");
    let mut raw = Raw::to(server.addr());
    raw.send("GET b\r\n");
    assert_eq!(raw.rest(), (Vec::new(), None));
    drop(raw);
    drop(Raw::to(server.addr()));
    assert!(server.wait_ended(1, PATIENCE).is_some());
    let expected = "connection 0: expected `GET a`, got `GET b`";
    while server.verify().expect_err("two failures").lines().count() < 2 {
        std::thread::yield_now();
    }
    let failures = server.verify().expect_err("two failures");
    assert!(failures.contains(expected), "{failures}");
    assert!(failures.contains("connection 1 ended before `GET a` came"), "{failures}");
}

/// Design section 4, test server. Fails if a script cannot answer the greeting itself.
#[test]
fn a_script_may_greet_otherwise() {
    let script = Script::new()
        .without_greeting()
        .expect_start("HELLO 3")
        .reply("-NOPROTO unsupported protocol version\r\n")
        .expect_any()
        .reply("HTTP/1.1 400 Bad Request\r\n\r\n")
        .reset();
    let server = script.start().expect("start");
    let mut raw = Raw::to(server.addr());
    raw.says("HELLO 3 AUTH u p", "-NOPROTO unsupported protocol version\r\n");
    raw.says("PING", "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(raw.rest().1, Some(ErrorKind::ConnectionReset));

    let map = Script::new().answer("CLUSTER SLOTS", "*0\r\n").answer("PING", "+HERE\r\n");
    let server = map.expect_words(["SET", "a b", "\r\n"]).reply("+OK\r\n").start().expect("start");
    let mut raw = Raw::to(server.addr());
    raw.says("CLUSTER SLOTS", "*0\r\n");
    raw.says("PING", "+HERE\r\n");
    raw.says("SET 'a b' \"\\r\\n\"", "+OK\r\n");
}

/// Design section 4, test server. Fails if a connection plays another's script, or a connection
/// beyond the last script is served.
#[test]
fn each_connection_has_its_script() {
    let server = ScriptServer::builder()
        .then(Script::new().reply("one\r\n").close())
        .then(Script::new().reply("two\r\n").end_writing().expect("PING").close())
        .only_these()
        .start()
        .expect("start");
    assert_eq!(Raw::to(server.addr()).rest(), (b"one\r\n".to_vec(), None));
    let mut two = Raw::to(server.addr());
    assert_eq!(two.rest(), (b"two\r\n".to_vec(), None));
    two.send("PING\r\n");
    assert!(server.wait_for("PING", PATIENCE).is_some());
    let refused = std::net::TcpStream::connect(server.addr()).map(|stream| Raw(stream).rest());
    assert!(refused.is_err() || refused.is_ok_and(|(bytes, _)| bytes.is_empty()));
    assert_eq!(server.accepted(), 2);
}

/// Design section 4, test server. Fails if a script passes a gate or a delay too early, or does not
/// record what arrives meanwhile.
#[test]
fn gates_and_delays_hold() {
    let (gate, delay) = (Gate::new(), Duration::from_millis(15));
    let script = Script::new().expect("GET a").wait(&gate).reply("$1\r\nA\r\n").delay(delay);
    let server = script.reply_in_pieces("+abc\r\n", 2, Duration::ZERO).start().expect("start");
    let mut raw = Raw::to(server.addr());
    raw.send("GET a\r\nPING 2\r\n");
    let received = server.wait_received(2, PATIENCE).expect("both");
    assert_eq!(received[1].text(), "PING 2");
    let opened = Instant::now();
    gate.open();
    raw.expect("$1\r\nA\r\n+abc\r\n+PONG\r\n");
    assert!(opened.elapsed() >= delay);
}

/// Design section 4, test server. Fails if a script that stopped reading still drains its socket,
/// or cannot be stopped.
#[test]
fn a_script_can_stop_reading() {
    use std::io::Write;
    let server = Script::new().expect("PING").stop_reading().reply("+PONG\r\n").start();
    let server = server.expect("start");
    let mut raw = Raw::to(server.addr());
    raw.says("PING", "+PONG\r\n");
    raw.0.set_nonblocking(true).expect("nonblocking");
    let full = (0..10_000).find_map(|_| raw.0.write(&[b'x'; 65_536]).err());
    assert_eq!(full.expect("a full socket").kind(), ErrorKind::WouldBlock);
    server.stop();
}
