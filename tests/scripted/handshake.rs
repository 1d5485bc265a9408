//! How a connection is set up, byte by byte, and what servers may answer.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use hedgerow::config::{ProtocolChoice, Secret};
use hedgerow::prelude::*;
use hedgerow::testing::{Gate, Script, ScriptServer, Server};
use hedgerow::{Error, ErrorKind, Fate, Options};

use crate::placement::{Client, Placement, on_each_placement, options_for, until};
use crate::raw::PATIENCE;

const UNKNOWN: &str = "-ERR unknown command 'HELLO'\r\n";
const SETINFO: usize = 2;

/// What a script received, without the library's own name.
fn said(server: &ScriptServer) -> Vec<String> {
    let texts = server.received().into_iter().map(|r| r.text());
    texts.filter(|t| !t.starts_with("CLIENT SETINFO")).collect()
}

fn with_credentials(options: &mut Options, user: &str) {
    options.username = Some(user.to_owned());
    options.password = Some(Secret::new("pw1"));
    options.database = 2;
}

/// A server that takes exactly these bytes and answers with those, turn by turn.
fn exact(turns: &'static [(&'static str, &'static str)]) -> (Options, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let options = options_for(listener.local_addr().expect("an address"));
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        for (wanted, reply) in turns {
            let mut got = vec![0; wanted.len()];
            stream.read_exact(&mut got).expect("the client's bytes");
            assert_eq!(String::from_utf8_lossy(&got), *wanted);
            stream.write_all(reply.as_bytes()).expect("answered");
        }
    });
    (options, thread)
}

const MAP: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";
const SETINFO_BYTES: &str = concat!(
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$8\r\nhedgerow\r\n",
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n0.1.0\r\n"
);

/// Fails if a byte of the RESP3 set-up differs, or one comes before its turn.
async fn resp3_set_up_is_these_bytes<P: Placement>(place: P) {
    let (mut options, server) = exact(&[
        (
            "*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$3\r\npw1\r\n\
             $7\r\nSETNAME\r\n$4\r\nshop\r\n",
            MAP,
        ),
        ("*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n", "+OK\r\n"),
        (SETINFO_BYTES, "+OK\r\n+OK\r\n"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$1\r\nv\r\n"),
    ]);
    with_credentials(&mut options, "app");
    options.client_name = Some("shop".into());
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "v");
    server.join().expect("as written");
}

/// Fails if a plain connection says more than HELLO 3 before its first command.
async fn a_plain_set_up_is_hello_alone<P: Placement>(place: P) {
    let (options, server) = exact(&[
        ("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", MAP),
        (SETINFO_BYTES, "+OK\r\n+OK\r\n"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$1\r\nv\r\n"),
    ]);
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "v");
    server.join().expect("as written");
}

/// Fails if a byte of the RESP2 set-up differs, or it takes more than one round trip.
async fn resp2_set_up_is_these_bytes<P: Placement>(place: P) {
    let (mut options, server) = exact(&[
        (
            "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$3\r\npw1\r\n\
             *3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$4\r\nshop\r\n\
             *2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n",
            "+OK\r\n+OK\r\n+OK\r\n",
        ),
        (SETINFO_BYTES, "+OK\r\n+OK\r\n"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$1\r\nv\r\n"),
    ]);
    with_credentials(&mut options, "app");
    options.client_name = Some("shop".into());
    options.protocol = ProtocolChoice::Resp2;
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "v");
    server.join().expect("as written");
}

/// Fails if the fallback leaves the socket, leaves out a step of the set-up, or lets a
/// command go before its end.
async fn fallback_bytes_on_the_same_socket<P: Placement>(place: P) {
    let (mut options, server) = exact(&[
        (
            "*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$3\r\npw1\r\n\
             $7\r\nSETNAME\r\n$4\r\nshop\r\n",
            "-NOPROTO unsupported protocol version\r\n",
        ),
        (
            "*2\r\n$4\r\nAUTH\r\n$3\r\npw1\r\n\
             *3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$4\r\nshop\r\n\
             *2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n",
            "+OK\r\n+OK\r\n+OK\r\n",
        ),
        (SETINFO_BYTES, "+OK\r\n+OK\r\n"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$1\r\nv\r\n"),
    ]);
    with_credentials(&mut options, "default");
    options.client_name = Some("shop".into());
    let client = place.create(&options).expect("valid options");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "v");
    server.join().expect("as written");
}

fn old_server() -> Script {
    Script::new()
        .answer("HELLO", UNKNOWN)
        .answer("AUTH app", "-ERR wrong number of arguments for 'auth' command\r\n")
        .answer("SET k v", "+OK\r\n")
}

/// case behaviour/09, R-055, R-065. Fails if an old server (A), one without RESP3 (B), one that
/// refuses names (E) or one that answers in RESP2 (F) is not lived with.
async fn servers_that_know_less_are_lived_with<P: Placement>(place: P) {
    let flat = "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n\
                $5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
                $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    let ok = |s: Script| s.answer("SET k v", "+OK\r\n");
    let variants = [
        ("A", "default", old_server(), "AUTH pw1"),
        ("B", "app", ok(Script::new().answer("HELLO", "-NOPROTO no\r\n")), "AUTH app pw1"),
        (
            "E",
            "app",
            ok(Script::new()
                .answer("CLIENT SETINFO", "-ERR unknown subcommand\r\n")
                .answer("CLIENT SETNAME", "-ERR unknown command\r\n")),
            "HELLO 3 AUTH app pw1",
        ),
        ("F", "app", ok(Script::new().answer("HELLO", flat)), "HELLO 3 AUTH app pw1"),
    ];
    for (name, user, script, expected) in variants {
        let server = script.start().expect("a scripted server");
        let mut options = options_for(server.addr());
        with_credentials(&mut options, user);
        let client = place.connect(&options).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        client.set("k", "v").await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let said = said(&server);
        assert!(said.iter().any(|s| s.starts_with(expected)), "{name}: {said:?}");
        assert_eq!(said[said.len() - 2..], ["SELECT 2", "SET k v"], "{name}: {said:?}");
        assert_eq!(server.accepted(), 1, "{name}");
    }
}

/// case behaviour/09, R-056. Fails if an old server with a named user (A) is anything but a clear
/// authentication error, or a server that hangs up on HELLO (D) is asked in RESP2.
async fn servers_that_cannot_be_used_say_why<P: Placement>(place: P) {
    let server = old_server().start().expect("a scripted server");
    let mut options = options_for(server.addr());
    with_credentials(&mut options, "app");
    let error = place.connect(&options).await.expect_err("no such user");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Handshake, Fate::NotSent));
    assert!(error.to_string().contains("authentication: ERR wrong number"), "{error}");

    let server = Script::new().expect_start("HELLO 3").close().start().expect("a server");
    let error = place.connect(&options_for(server.addr())).await.expect_err("it hangs up");
    assert_eq!(error.kind(), ErrorKind::Handshake);
    assert!(error.to_string().contains("HELLO"), "{error}");
    assert!(said(&server).iter().all(|s| s.starts_with("HELLO 3")), "{:?}", said(&server));
}

/// case behaviour/09 C, R-054. Fails if HELLO goes out without the password.
async fn the_password_travels_inside_hello<P: Placement>(place: P) {
    let refusal = "-NOAUTH HELLO must be called with the client already authenticated\r\n";
    let script = Script::new().answer("HELLO 3", refusal);
    let script = script.answer("HELLO 3 AUTH default pw1", MAP).answer("GET k", "_\r\n");
    let server = script.start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.password = Some(Secret::new("pw1"));
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<Option<String>>("k").await.expect("nil"), None);
}

async fn refused<P: Placement>(place: &P, answer: &str) -> (Option<Error>, Vec<String>) {
    let script = Script::new().answer("HELLO", format!("{answer}\r\n"));
    let server = script.start().expect("a scripted server");
    let outcome = place.connect(&options_for(server.addr())).await;
    let said = said(&server);
    (outcome.err(), said)
}

/// Fails if one of the wordings of servers that do not know HELLO fails the connection.
async fn known_wordings_fall_back<P: Placement>(place: P) {
    for answer in [
        "-ERR unknown command 'HELLO'",
        "-ERR unknown command `HELLO`, with args beginning with: `3`, ",
        "-ERR unknown command 'HELLO', with args beginning with: '3' ",
        "-ERR unknown command 'hello'",
        "-ERR unknown command \"HELLO\"",
        "-ERR unknown command HELLO",
        "-ERR unknown command: HELLO",
        "-ERR Unknown command 'HELLO'",
        "-NOPROTO unsupported protocol version",
        "-NOPROTO",
    ] {
        let (error, said) = refused(&place, answer).await;
        assert!(error.is_none(), "{answer}: {error:?}");
        assert_eq!(said, ["HELLO 3"], "{answer}");
    }
}

/// Fails if a wording that is no proof falls back, loses the server's words, or lacks the
/// hint at RESP2.
async fn near_misses_fail_with_a_hint<P: Placement>(place: P) {
    for answer in [
        "-ERR unknown command 'HELLOWORLD'",
        "-ERR unknown command 'PING'",
        "-ERR unknown command",
        "-ERR unrecognized command HELLO",
        "-ERR command HELLO is not supported",
        "-UNKNOWN command 'HELLO'",
        "-ERR Unknown or disabled command 'HELLO'",
    ] {
        let (error, said) = refused(&place, answer).await;
        let error = error.unwrap_or_else(|| panic!("{answer} fell back"));
        assert_eq!(said, ["HELLO 3"], "{answer}");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Handshake, Fate::NotSent));
        let text = error.to_string();
        assert!(text.contains(&answer[1..]) && text.contains("resp2"), "{answer}: {text}");
        assert_eq!(error.server_error().map(|e| e.line()), Some(&answer[1..]), "{answer}");
    }
}

/// Fails if an error about access or of another kind falls back, or is told with a hint
/// at RESP2.
async fn other_errors_fail_without_a_hint<P: Placement>(place: P) {
    for answer in [
        "-NOAUTH HELLO must be called with the client already authenticated",
        "-WRONGPASS invalid username-password pair or user is disabled.",
        "-NOPERM this user has no permissions to run the 'hello' command",
        "-NOPERM unknown command 'HELLO' for this user",
        "-ERR unknown command 'AUTH' is denied by ACL",
        "-ERR max number of clients reached",
        "-LOADING server is loading the dataset in memory",
        "-ERR NOPROTO unsupported protocol version",
        "-NOPROTOCOL x",
    ] {
        let (error, said) = refused(&place, answer).await;
        let error = error.unwrap_or_else(|| panic!("{answer} fell back"));
        assert!(said.iter().all(|s| s == "HELLO 3"), "{answer}: {said:?}");
        // A full server may have room soon: that is no refusal of the set-up.
        let is_full = answer.contains("max number of clients");
        let kind = if is_full { ErrorKind::Connect } else { ErrorKind::Handshake };
        assert_eq!(error.kind(), kind, "{answer}");
        let text = error.to_string();
        assert!(text.contains(&answer[1..]) && !text.contains("resp2"), "{answer}: {text}");
    }
}

/// Fails if a malformed answer to HELLO, a reset or an end falls back, or if bytes
/// that are no RESP are tried again.
async fn broken_answers_never_fall_back<P: Placement>(place: P) {
    let hello = || Script::new().expect_start("HELLO 3");
    let scripts = [
        (hello().reply("+OK\r\n"), Some(ErrorKind::Handshake)),
        (hello().reply("*0\r\n"), Some(ErrorKind::Handshake)),
        (hello().reply("%1\r\n$5\r\nproto\r\n$1\r\nx\r\n"), Some(ErrorKind::Handshake)),
        (hello().reply("%1\r\n$5\r\nproto\r\n:4\r\n"), Some(ErrorKind::Handshake)),
        (hello().reply("_\r\n"), Some(ErrorKind::Handshake)),
        (hello().reply("%x\r\n"), Some(ErrorKind::Protocol)),
        (hello().reply("HTTP/1.1 400 Bad Request\r\n\r\n"), Some(ErrorKind::Protocol)),
        (hello().reply("%4\r\n$6\r\nser").close(), None),
        (hello().reset(), None),
        (hello().close(), None),
    ];
    for (at, (script, kind)) in scripts.into_iter().enumerate() {
        let server = script.start().expect("a scripted server");
        let error = place.connect(&options_for(server.addr())).await.expect_err("no set-up");
        let wanted = kind.unwrap_or(ErrorKind::Handshake);
        assert_eq!(error.kind(), wanted, "{at}: {error}");
        assert!(said(&server).iter().all(|s| s == "HELLO 3"), "{at}: {:?}", said(&server));
        assert!(error.node().is_some(), "{at}: {error}");
    }
}

/// Fails if a server that does not answer HELLO is waited for longer than the command
/// timeout, or is then asked in RESP2. The time is the subject here.
async fn an_unanswered_hello_follows_the_command_timeout<P: Placement>(place: P) {
    let server = Script::new().without_greeting().start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.command_timeout = Some(Duration::from_millis(50));
    let began = std::time::Instant::now();
    let error = place.connect(&options).await.expect_err("no answer");
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::NotSent));
    assert_eq!(error.timeout(), options.command_timeout);
    assert!(error.to_string().contains("HELLO"), "{error}");
    assert!(said(&server).iter().all(|s| s == "HELLO 3"), "{:?}", said(&server));
}

/// Fails if a command leaves before HELLO is answered, twice, or if a command costs a
/// word more than itself.
async fn no_command_before_the_set_up_or_twice<P: Placement>(place: P) {
    for answer in [MAP, UNKNOWN] {
        let gate = Gate::new();
        let script = Script::new().answer("GET", "$-1\r\n").expect_start("HELLO 3").wait(&gate);
        let server = script.reply(answer).start().expect("a scripted server");
        let client = place.create(&options_for(server.addr())).expect("valid options");
        let first = place.spawn({
            let client = client.clone();
            async move { client.get::<Option<String>>("first").await }
        });
        until(&place, "HELLO", || !said(&server).is_empty()).await;
        place.pause(Duration::from_millis(5)).await;
        assert_eq!(said(&server), ["HELLO 3"], "{answer}");
        assert!(!client.is_connected());
        gate.open();
        assert_eq!(first.await.expect("its task").expect("nil"), None);
        for _ in 0..3 {
            client.get::<Option<String>>("more").await.expect("nil");
        }
        let expected = ["HELLO 3", "GET first", "GET more", "GET more", "GET more"];
        assert_eq!(said(&server), expected, "{answer}");
        assert_eq!(server.received().len(), expected.len() + SETINFO);
    }
}

/// Fails if a new connection skips HELLO because of what an earlier one learned, or says it
/// more than once.
async fn each_reconnect_asks_anew<P: Placement>(place: P) {
    let gate = Gate::new();
    let first = Script::new().answer("HELLO", UNKNOWN).answer("GET", "_\r\n").wait(&gate).close();
    let then = Script::new().answer("GET", "_\r\n");
    let builder = ScriptServer::builder().then(first).then(then);
    let server = builder.start().expect("a scripted server");
    let client = place.create(&options_for(server.addr())).expect("valid options");
    until(&place, "HELLO", || !said(&server).is_empty()).await;
    gate.open();
    until(&place, "a reconnect", || server.accepted() == 2).await;
    while client.get::<Option<String>>("k").await.is_err() {}
    let hellos = |n: usize| {
        let all = server.received();
        all.iter().filter(|r| r.connection == n && r.text() == "HELLO 3").count()
    };
    assert_eq!((hellos(0), hellos(1)), (1, 1));
}

/// Fails if explicit RESP3 lives with a server that lacks it, or explicit RESP2 says HELLO.
async fn explicit_protocols_are_obeyed<P: Placement>(place: P) {
    for answer in [UNKNOWN, "-NOPROTO no\r\n", "*2\r\n$5\r\nproto\r\n:2\r\n"] {
        let server = Script::new().answer("HELLO", answer).start().expect("a scripted server");
        let mut options = options_for(server.addr());
        options.protocol = ProtocolChoice::Resp3;
        let error = place.connect(&options).await.expect_err("no RESP3 there");
        assert_eq!(error.kind(), ErrorKind::Handshake, "{answer}");
        assert_eq!(said(&server), ["HELLO 3"], "{answer}");
    }
    let server = Script::new().answer("GET", "$-1\r\n").start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.protocol = ProtocolChoice::Resp2;
    let client = place.connect(&options).await.expect("up");
    assert_eq!(client.get::<Option<String>>("k").await.expect("nil"), None);
    assert_eq!(said(&server), ["GET k"]);
}

/// Fails if the connections of one client must agree in their protocol, or a typed command
/// reads the two shapes differently.
async fn a_pool_may_mix_protocols<P: Placement>(place: P) {
    let old = Script::new().answer("HELLO", UNKNOWN);
    let old = old.answer("HGETALL h", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n");
    let new =
        Script::new().answer("HGETALL h", "%2\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n");
    let server = ScriptServer::builder().then(old).then(new).start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.connections = 2;
    let client = place.connect(&options).await.expect("up");
    for _ in 0..4 {
        let pairs = client.hgetall::<Vec<(String, u8)>>("h").await.expect("pairs");
        assert_eq!(pairs, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    }
    let count = |n| {
        let all = server.received();
        all.iter().filter(|r| r.connection == n && r.text() == "HGETALL h").count()
    };
    assert_eq!((count(0), count(1)), (2, 2));
}

/// Fails if a wrong password is not an error of connect itself, or is tried again.
async fn a_wrong_password_fails_connect<P: Placement>(place: P) {
    let server = Server::builder().password("right").start().expect("a server");
    let mut options = options_for(server.addr().expect("tcp"));
    options.password = Some(Secret::new("wrong"));
    let error = place.connect(&options).await.expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Handshake);
    assert_eq!(error.code(), Some("WRONGPASS"));

    let client = place.create(&options).expect("valid options");
    let error = client.get::<()>("k").await.expect_err("never up");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Handshake, Fate::NotSent));
    assert_eq!(error.command(), Some("GET"));
    let accepted = server.stats().accepted;
    place.pause(Duration::from_millis(50)).await;
    assert_eq!(server.stats().accepted, accepted, "it was tried again");
}

/// Fails if a server that quotes HELLO's words brings the password into an error.
async fn a_quoted_password_stays_out_of_errors<P: Placement>(place: P) {
    for answer in [
        "-ERR cannot parse: HELLO 3 AUTH app s3cr3t\r\n",
        "-ERR unknown command 'HELO', with args beginning with: '3' 'AUTH' 'app' 's3cr3t'\r\n",
        "-WRONGPASS s3cr3t is wrong\r\n",
    ] {
        let server = Script::new().answer("HELLO", answer).start().expect("a scripted server");
        let mut options = options_for(server.addr());
        options.username = Some("app".into());
        options.password = Some(Secret::new("s3cr3t"));
        let error = place.connect(&options).await.expect_err("refused");
        let line = error.server_error().expect("the server's words").line().to_owned();
        let told = format!("{error} {error:?} {line}");
        assert!(!told.contains("s3cr3t"), "{told}");
    }
}

/// Fails if a connection that is lost in the moment in which it is up leaves `connect` waiting
/// for as long as the server goes on like that.
async fn up_and_lost_at_once_fails_connect<P: Placement>(place: P) {
    // Replies that nobody asked for, in one piece with the greeting.
    let script = Script::new().answer("HELLO", format!("{MAP}{}", "+OK\r\n".repeat(4)));
    let server = script.start().expect("a scripted server");
    let error = place.connect(&options_for(server.addr())).await.expect_err("lost at once");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");

    // Here the end may come a little later than the greeting: then it was up for that while.
    let script = Script::new().expect_start("HELLO 3").reply(MAP).close();
    let server = script.start().expect("a scripted server");
    for _ in 0..50 {
        let _ = place.connect(&options_for(server.addr())).await;
    }
}

on_each_placement!(
    resp3_set_up_is_these_bytes,
    a_plain_set_up_is_hello_alone,
    resp2_set_up_is_these_bytes,
    fallback_bytes_on_the_same_socket,
    servers_that_know_less_are_lived_with,
    servers_that_cannot_be_used_say_why,
    the_password_travels_inside_hello,
    known_wordings_fall_back,
    near_misses_fail_with_a_hint,
    other_errors_fail_without_a_hint,
    broken_answers_never_fall_back,
    an_unanswered_hello_follows_the_command_timeout,
    no_command_before_the_set_up_or_twice,
    each_reconnect_asks_anew,
    explicit_protocols_are_obeyed,
    a_pool_may_mix_protocols,
    a_wrong_password_fails_connect,
    up_and_lost_at_once_fails_connect,
    a_quoted_password_stays_out_of_errors,
);
