//! Servers that break the protocol, are none, or say more than they were asked.

use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::testing::{Gate, Script, ScriptServer, Server};
use hedgerow::{ErrorKind, Fate};

use crate::placement::{Client, Placement, on_each_placement, options_for, until};

fn served(script: Script) -> ScriptServer {
    script.start().expect("a scripted server")
}

/// Fails if a port that speaks HTTP, TLS or SSH is not told apart in words, hangs, or
/// is tried again and again.
async fn a_port_of_another_protocol_is_named<P: Placement>(place: P) {
    let alert = [0x15, 3, 1, 0, 2, 2, 70];
    let cases: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "HTTP"),
        (&alert, "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "broke the protocol"),
        (b"\x00\xff\x17\x00\x00\x00", "broke the protocol"),
    ];
    for (bytes, words) in cases {
        let server = served(Script::new().without_greeting().expect_any().reply(bytes));
        let error = place.connect(&options_for(server.addr())).await.expect_err("no Redis");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(error.node().is_some(), "{error}");
        assert_eq!(server.accepted(), 1, "{words}");
    }
}

/// Fails if a server that speaks first, before HELLO reached it, hangs the set-up.
async fn a_server_that_speaks_first_is_refused<P: Placement>(place: P) {
    for banner in ["+hello there\r\n", "220 mail.test ESMTP\r\n", "-ERR max clients\r\n"] {
        let server = served(Script::new().without_greeting().reply(banner));
        let error = place.connect(&options_for(server.addr())).await.expect_err("no set-up");
        let right = [ErrorKind::Protocol, ErrorKind::Handshake];
        assert!(right.contains(&error.kind()), "{banner}: {error}");
    }
}

/// Fails if garbage after a good reply is taken for one, spares the commands behind it, or is
/// not lived through on a new connection.
async fn garbage_ends_the_connection_only<P: Placement>(place: P) {
    let broken =
        Script::new().expect("GET a").reply("$1\r\nA\r\n").expect("GET b").reply("?what\r\n");
    let sound = Script::new().answer("GET", "$1\r\nB\r\n");
    let builder = ScriptServer::builder().then(broken).then(sound);
    let server = builder.start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    assert_eq!(client.get::<String>("a").await.expect("a reply"), "A");
    let error = client.get::<String>("b").await.expect_err("no reply");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Protocol, Fate::Unknown));
    assert_eq!(client.get::<String>("b").await.expect("a reply"), "B");
    assert_eq!(server.accepted(), 2);
}

/// Fails if a reply beyond a limit is read, fails more than its connection, or if memory is
/// reserved for what a header merely announces.
async fn a_limit_fails_that_connection_only<P: Placement>(place: P) {
    let other = Server::start().expect("a server");
    let bystander = place.connect(&options_for(other.addr().expect("tcp"))).await.expect("up");
    let replies = [
        format!("*{}\r\n", 1_000_000_000),
        format!("${}\r\n", 1 << 20),
        "*1\r\n".repeat(40),
        format!("*2\r\n${0}\r\n{1}\r\n${0}\r\n{1}\r\n", 700, "x".repeat(700)),
    ];
    for reply in replies {
        let first = Script::new().expect("GET k").reply(&reply);
        let then = Script::new().answer("GET", "$1\r\nx\r\n");
        let server = ScriptServer::builder().then(first).then(then).start().expect("a server");
        let mut options = options_for(server.addr());
        options.limits.depth = 32;
        options.limits.bulk = 1 << 19;
        options.limits.reply = 1 << 10;
        options.limits.elements = 1 << 10;
        let client = place.connect(&options).await.expect("up");
        let error = client.get::<String>("k").await.expect_err("beyond a limit");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(client.get::<String>("k").await.expect("on a new connection"), "x");
        bystander.ping().await.expect("untouched");
    }
    assert_eq!(other.stats().accepted, 1);
}

/// trap 19, R-113. Fails if a push or an attribute between replies shifts them, or a push is taken
/// for a reply.
async fn pushes_and_attributes_shift_no_reply<P: Placement>(place: P) {
    let push = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
    let invalidate = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    let attribute = "|1\r\n+ttl\r\n:3600\r\n";
    let hello = "%1\r\n$5\r\nproto\r\n:3\r\n";
    let script = Script::new()
        .answer("HELLO", format!("{push}{attribute}{hello}{push}"))
        .expect("GET a")
        .expect("GET b")
        .expect("GET c")
        .reply(format!("{push}{attribute}$1\r\nA\r\n{invalidate}>1\r\n_\r\n"))
        .reply_in_pieces(format!("{attribute}-ERR no\r\n{push}"), 3, Duration::ZERO)
        .reply(format!("{push}{push}$1\r\nC\r\n{push}"))
        .expect("GET d")
        .reply("$1\r\nD\r\n");
    let server = served(script);
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let get = |key| client.get::<String>(key);
    let (a, b, c) = futures::join!(get("a"), get("b"), get("c"));
    assert_eq!(a.expect("a"), "A");
    assert_eq!(b.expect_err("b").code(), Some("ERR"));
    assert_eq!(c.expect("c"), "C");
    assert_eq!(get("d").await.expect("d"), "D");
    assert_eq!(client.counters().pushes, 9);
    assert_eq!(client.live_requests(), 0);
}

/// trap 19, R-076. Fails if the reply to an abandoned request, or a push before it, reaches another.
async fn a_reply_to_an_abandoned_request_reaches_nobody<P: Placement>(place: P) {
    let gate = Gate::new();
    let script = Script::new()
        .expect("GET a")
        .wait(&gate)
        .reply(">2\r\n$1\r\nx\r\n$1\r\ny\r\n*2\r\n$1\r\nA\r\n-ERR inner\r\n")
        .expect("GET b")
        .reply("$1\r\nB\r\n");
    let server = served(script);
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let error = client.get_within("a", Duration::from_millis(20)).await.expect_err("late");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let b = client.get::<String>("b");
    gate.open();
    assert_eq!(b.await.expect("b"), "B");
    assert_eq!(client.live_requests(), 0);
    server.verify().expect("as scripted");
}

/// Fails if a reply that nobody asked for is kept for the next command.
async fn a_reply_nobody_asked_for_ends_the_connection<P: Placement>(place: P) {
    let first = Script::new().expect("GET a").reply("$1\r\nA\r\n$5\r\nstray\r\n");
    let then = Script::new().answer("GET", "$1\r\nB\r\n");
    let server = ScriptServer::builder().then(first).then(then).start().expect("a server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    assert_eq!(client.get::<String>("a").await.expect("a"), "A");
    until(&place, "a reconnect", || server.accepted() == 2).await;
    assert_eq!(client.get::<String>("b").await.expect("b"), "B");
}

/// Fails if the end of the server's sending side is not taken for the connection's, or loses
/// the replies that came before it.
async fn a_half_open_server_is_left<P: Placement>(place: P) {
    let first = Script::new().expect("GET a").expect("GET b").reply("$1\r\nA\r\n").end_writing();
    let then = Script::new().answer("GET", "$1\r\nC\r\n");
    let server = ScriptServer::builder().then(first).then(then).start().expect("a server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let (a, b) = futures::join!(client.get::<String>("a"), client.get::<String>("b"));
    assert_eq!(a.expect("a came before the end"), "A");
    let error = b.expect_err("b was never answered");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Disconnected, Fate::Unknown));
    assert_eq!(client.get::<String>("c").await.expect("c"), "C");
    until(&place, "the end", || server.wait_ended(0, Duration::ZERO).is_some()).await;
}

/// R-096, trap 6. Fails if a reply is read differently when it comes byte by byte.
async fn replies_may_come_byte_by_byte<P: Placement>(place: P) {
    let reply = "*3\r\n$5\r\nhello\r\n:-12\r\n%1\r\n+k\r\n,1.5\r\n";
    let script = Script::new().expect("LRANGE k 0 -1").reply_in_pieces(reply, 1, Duration::ZERO);
    let server = served(script.expect("GET k").reply_in_pieces("$2\r\nok\r\n", 1, Duration::ZERO));
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let value = client.lrange::<hedgerow::resp::Value>("k", 0, -1).await.expect("a value");
    assert_eq!(format!("{value:?}").matches("hello").count(), 1, "{value:?}");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "ok");
}

/// trap 24, R-115. Fails if a peer that stops reading delays another connection of its core.
async fn a_peer_that_stops_reading_delays_no_other<P: Placement>(place: P) {
    let stuck = served(Script::new().expect("GET last").reply("+OK\r\n").stop_reading());
    let lively = Server::start().expect("a server");
    let full = place.connect(&options_for(stuck.addr())).await.expect("up");
    let free = place.connect(&options_for(lively.addr().expect("tcp"))).await.expect("up");
    full.get::<()>("last").await.expect("a reply");
    let value = vec![b'x'; 1 << 20];
    for _ in 0..32 {
        let (full, value) = (full.clone(), value.clone());
        drop(place.spawn(async move { full.set("k", value).await }));
    }
    place.pause(Duration::from_millis(20)).await;
    assert_eq!(full.live_requests(), 32);
    for _ in 0..200 {
        let answer = free.get_within("k", Duration::from_secs(2)).await;
        assert_eq!(answer.expect("not delayed"), None);
    }
    assert_eq!(full.live_requests(), 32);
}

on_each_placement!(
    a_port_of_another_protocol_is_named,
    a_server_that_speaks_first_is_refused,
    garbage_ends_the_connection_only,
    a_limit_fails_that_connection_only,
    pushes_and_attributes_shift_no_reply,
    a_reply_to_an_abandoned_request_reaches_nobody,
    a_reply_nobody_asked_for_ends_the_connection,
    a_half_open_server_is_left,
    replies_may_come_byte_by_byte,
    a_peer_that_stops_reading_delays_no_other,
);
