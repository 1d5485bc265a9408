//! Timeouts: what ran out, how far the command had come, what the connection looked like.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hedgerow::engine::{Diagnostics, Stage};
use hedgerow::prelude::*;
use hedgerow::testing::{Gate, Script, ScriptServer, Server};
use hedgerow::{Error, ErrorKind, Fate, Options};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use crate::placement::{Client, Placement, on_each_placement, options_for, until};

const MS: Duration = Duration::from_millis(1);

/// A port whose backlog is full: connects to it neither succeed nor fail.
fn deaf_port() -> (SocketAddr, impl Sized) {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    listen(&fd, 0).expect("listening");
    let address = SocketAddr::try_from(getsockname(&fd).expect("its address")).expect("an address");
    let wait = 100 * MS;
    let fill: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, wait).ok()).take(64).collect();
    assert!(fill.len() < 64, "the backlog has no end");
    (address, (fd, fill))
}

fn stage(error: &Error) -> Stage {
    seen(error).stage
}

fn seen(error: &Error) -> &Diagnostics {
    error.diagnostics().unwrap_or_else(|| panic!("no diagnostics: {error}"))
}

/// Fails if a connect that takes too long is not a timeout of CONNECT while connecting,
/// or follows the command timeout. The time is the subject here.
async fn an_expired_connect_is_a_timeout_of_connect<P: Placement>(place: P) {
    let (address, _full) = deaf_port();
    place.pause(MS).await;
    let mut options = options_for(address);
    options.connect_timeout = 60 * MS;
    options.command_timeout = Some(10_000 * MS);
    let began = Instant::now();
    let error = place.connect(&options).await.expect_err("nobody accepts");
    assert!(began.elapsed() >= 60 * MS && began.elapsed() < 5_000 * MS, "{:?}", began.elapsed());
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::NotSent));
    assert_eq!((error.command(), error.timeout()), (Some("CONNECT"), Some(60 * MS)));
    assert_eq!(stage(&error), Stage::Connecting);
    assert_eq!(error.node(), Some(&options.endpoint));
}

/// Fails if a command that waits for a connection ends late, as sent, or with numbers of
/// a connection that there is not.
async fn a_command_without_a_connection_was_connecting<P: Placement>(place: P) {
    let (address, _full) = deaf_port();
    let client = place.create(&options_for(address)).expect("valid options");
    let error = client.get_within("k", 20 * MS).await.expect_err("not connected");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::NotConnected, Fate::NotSent));
    assert_eq!((error.command(), error.timeout()), (Some("GET"), Some(20 * MS)));
    let seen = seen(&error);
    assert_eq!(seen.stage, Stage::Connecting);
    let unknown = (seen.connection, seen.replies_outstanding, seen.bytes_unwritten);
    assert_eq!(unknown, (None, None, None));
    assert_eq!((seen.since_read, seen.since_write), (None, None));
    assert_eq!(client.live_requests(), 0);
}

/// Fails if the snapshot of a command that awaits its reply misses a number.
async fn a_snapshot_tells_of_the_connection<P: Placement>(place: P) {
    let server = Script::new().answer("SET", "+OK\r\n").start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    client.set("k", "v").await.expect("set");
    let waits = place.spawn({
        let client = client.clone();
        async move { client.get_within("longer", 10_000 * MS).await }
    });
    until(&place, "GET", || server.received().iter().any(|r| r.text() == "GET longer")).await;
    let error = client.get_within("k", 30 * MS).await.expect_err("no answer");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::Unknown));
    let seen = seen(&error);
    assert_eq!(seen.stage, Stage::AwaitingReply);
    assert_eq!(seen.endpoint.as_ref(), error.node());
    assert!(seen.connection.is_some_and(|n| n > 0));
    let of_two = "*2\r\n$3\r\nGET\r\n$6\r\nlonger\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".len() as u64;
    assert_eq!((seen.replies_outstanding, seen.bytes_outstanding), (Some(2), Some(of_two)));
    assert_eq!(seen.bytes_unwritten, Some(0));
    assert!(seen.since_read.is_some_and(|t| t >= 20 * MS), "{:?}", seen.since_read);
    assert!(seen.since_write.is_some_and(|t| t >= 20 * MS), "{:?}", seen.since_write);
    assert!(seen.pressure.requests.is_some_and(|n| n >= 2));
    // A core knows its turn; a tokio runtime's is not ours to look into.
    let pressure = seen.pressure;
    let core = (pressure.lag.is_some(), pressure.tasks_ready.is_some());
    assert_eq!(core, (pressure.completions.is_some(), pressure.queue_full.is_some()));
    assert!(!seen.hint().is_empty());
    client.close(Duration::ZERO).await;
    waits.await.expect("its task").expect_err("closed");
}

/// Fails if a key, a value or a password is in an error's text, a hint states a
/// cause, or a write is told as the server's work.
async fn errors_hold_no_key_value_or_password<P: Placement>(place: P) {
    let server = Script::new().start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.username = Some("app".into());
    options.password = Some(hedgerow::config::Secret::new("hush-password"));
    options.command_timeout = Some(300 * MS);
    let client = place.connect(&options).await.expect("up");
    let error = client.set("hush-key", "hush-value").await.expect_err("no answer");
    let told = format!("{error} {error:?} {:?} {options:?} {client:?}", error.diagnostics());
    assert!(!told.contains("hush") && !told.contains("executed"), "{told}");
    assert!(seen(&error).hint().contains("check"), "{}", seen(&error).hint());
}

/// Fails if an error that quotes a command's arguments brings them into a message, or
/// loses its code.
async fn server_errors_keep_code_and_command<P: Placement>(place: P) {
    let quoting = "-ERR unknown command 'GET', with args beginning with: 'hush-key' \r\n";
    let script = Script::new().expect_start("GET").reply(quoting);
    let codes = ["LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "WRONGTYPE", "OOM"];
    let script =
        codes.iter().fold(script, |s, c| s.expect_start("GET").reply(format!("-{c} x\r\n")));
    let server = script.start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let error = client.get::<()>("hush-key").await.expect_err("unknown");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    for (at, code) in codes.into_iter().enumerate() {
        let error = client.get::<()>("k").await.expect_err(code);
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Server, Fate::Answered));
        assert_eq!((error.code(), error.command()), (Some(code), Some("GET")));
        assert_eq!(error.is_transient(), at < 5, "{code}");
    }
}

/// Reads no more after `GET last`.
fn deaf_server() -> ScriptServer {
    let script = Script::new().expect("GET last").reply("+OK\r\n").stop_reading();
    script.start().expect("a scripted server")
}

/// More than the system holds for a loopback connection, on both of its sides.
const MORE_THAN_BUFFERS: usize = 48 << 20;

/// Fills the socket to a server that does not read; answers the client.
async fn stuck<P: Placement>(place: &P, options: &Options) -> P::Client {
    let client = place.connect(options).await.expect("up");
    client.get::<()>("last").await.expect("a reply");
    let own = client.clone();
    drop(place.spawn(async move { own.set("k", vec![b'x'; MORE_THAN_BUFFERS]).await }));
    place.pause(20 * MS).await;
    client
}

/// Fails if commands behind a full socket are told as written: part of one may be, what
/// is behind it is not.
async fn behind_a_full_socket_commands_are_queued_or_in_part_written<P: Placement>(place: P) {
    let server = deaf_server();
    let client = stuck(&place, &options_for(server.addr())).await;
    let error = client.get_within("k", 20 * MS).await.expect_err("never sent");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::NotSent));
    let seen = seen(&error);
    assert_eq!(seen.stage, Stage::Buffered);
    assert!(seen.bytes_unwritten.is_some_and(|n| n > 1 << 20), "{seen:?}");
    client.close(Duration::ZERO).await;
    until(&place, "the end of all", || client.live_requests() == 0).await;
}

/// Fails if what was being written when the connection was lost counts as not sent, or
/// what was only queued as sent.
async fn a_lost_connection_tells_fates_apart<P: Placement>(place: P) {
    let gate = Gate::new();
    let script = Script::new().expect("GET first").stop_reading();
    let server = script.wait(&gate).reset().start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let call = |client: &P::Client, key: &'static str| {
        let client = client.clone();
        place.spawn(async move { client.get::<()>(key).await.expect_err("lost") })
    };
    let first = call(&client, "first");
    until(&place, "GET", || server.received().iter().any(|r| r.text() == "GET first")).await;
    let bulky = place.spawn({
        let client = client.clone();
        let value = vec![b'x'; MORE_THAN_BUFFERS];
        async move { client.set("k", value).await.expect_err("lost") }
    });
    place.pause(20 * MS).await;
    let last = call(&client, "last");
    place.pause(5 * MS).await;
    gate.open();
    let first = first.await.expect("its task");
    assert_eq!((stage(&first), first.fate()), (Stage::AwaitingReply, Fate::Unknown));
    assert_eq!(first.kind(), ErrorKind::Disconnected);
    let bulky = bulky.await.expect("its task");
    assert_eq!((stage(&bulky), bulky.fate()), (Stage::Writing, Fate::Unknown));
    let last = last.await.expect("its task");
    assert_eq!((stage(&last), last.fate()), (Stage::Buffered, Fate::NotSent));
}

/// Fails if more commands than the limit are on a connection, if a producer that
/// waits for room fails early, or if its timeout is told as anything but waiting for room.
async fn producers_wait_for_room<P: Placement>(place: P) {
    let gate = Gate::new();
    let script = (0..4).fold(Script::new(), |s, i| s.expect(&format!("GET k{i}")));
    let script = script.wait(&gate).reply("+0\r\n+1\r\n+2\r\n+3\r\n");
    let script =
        (4..8).fold(script, |s, i| s.expect(&format!("GET k{i}")).reply(format!("+{i}\r\n")));
    let server = script.start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.in_flight_max = 4;
    let client = place.connect(&options).await.expect("up");
    let calls: Vec<_> = (0..8)
        .map(|i| {
            let client = client.clone();
            place.spawn(async move { client.get::<u8>(format!("k{i}")).await })
        })
        .collect();
    let gets = || server.received().iter().filter(|r| r.text().starts_with("GET")).count();
    until(&place, "four GETs", || gets() == 4).await;
    let error = client.get_within("late", 20 * MS).await.expect_err("no room");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::NotSent));
    assert_eq!(stage(&error), Stage::WaitingForCapacity);
    assert_eq!(gets(), 4);
    gate.open();
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.expect("its task").expect("a reply"), i as u8);
    }
    server.verify().expect("as scripted");
    assert_eq!(client.live_requests(), 0);
}

/// Fails if the smallest ring stalls: after the set-up's own commands, or when those that
/// filled it are dropped before they are sent.
async fn a_ring_of_one_never_stalls<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let mut options = options_for(server.addr().expect("tcp"));
    options.in_flight_max = 1;
    options.command_timeout = None;
    let client = place.connect(&options).await.expect("up");
    let calls = (0..20).map(|i| client.set(format!("k{i}"), i));
    for outcome in futures::future::join_all(calls).await {
        outcome.expect("set");
    }
    let mut first = Box::pin(client.get::<u8>("k1"));
    let mut second = Box::pin(client.get::<u8>("k2"));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(second.await.expect("a reply"), 2);
}

/// Fails if a deadline that has passed already lets a command out, or one moved while
/// the request is under way or over is forgotten or kept for another.
async fn deadlines_may_be_past_or_moved<P: Placement>(place: P) {
    let server = Script::new().answer("GET there", "+x\r\n").start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let error = client.get_within("past", Duration::ZERO).await.expect_err("over already");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Timeout, Fate::NotSent));
    assert_eq!(client.get::<String>("there").await.expect("a reply"), "x");
    let texts: Vec<_> = server.received().iter().map(|r| r.text()).collect();
    assert!(!texts.contains(&"GET past".to_owned()), "{texts:?}");
    for _ in 0..3 {
        // The cell of one that ended is used by the next.
        let error = client.get_within("gone", 20 * MS).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let error = client.get_within("gone", 70 * MS).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}

/// Fails if commands that expire together do not all end, or not as one look at the
/// connection tells.
async fn one_sweep_ends_all_that_are_due<P: Placement>(place: P) {
    let server = Script::new().start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.command_timeout = Some(400 * MS);
    let client = place.connect(&options).await.expect("up");
    let calls = (0..100).map(|i| client.get::<()>(format!("k{i}")));
    let errors = futures::future::join_all(calls).await;
    for error in &errors {
        let error = error.as_ref().expect_err("no answer");
        assert_eq!((error.kind(), error.timeout()), (ErrorKind::Timeout, Some(400 * MS)));
        assert_eq!(stage(error), Stage::AwaitingReply);
    }
    assert_eq!(client.counters().timeouts, 100);
}

/// Fails if a command that waits on the server is let onto the shared connection, where it
/// would hold up all others.
async fn blocking_commands_stay_off_the_shared_connection<P: Placement>(place: P) {
    let server = Script::new().start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let request = client.command("BLPOP").arg("list").arg(0).send::<()>();
    let error = request.await.expect_err("not on this connection");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Refused, Fate::NotSent));
    assert!(server.received().iter().all(|r| !r.text().starts_with("BLPOP")));
}

/// Fails if a request whose caller is gone is ended by its deadline as well.
async fn a_dropped_request_has_no_deadline_left<P: Placement>(place: P) {
    let server = Script::new().start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    {
        let mut gone = Box::pin(client.get_within("k", 10 * MS));
        assert!(futures::poll!(&mut gone).is_pending());
    }
    let error = client.get_within("k", 40 * MS).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(client.counters().timeouts, 1);
}

on_each_placement!(
    an_expired_connect_is_a_timeout_of_connect,
    a_command_without_a_connection_was_connecting,
    a_snapshot_tells_of_the_connection,
    errors_hold_no_key_value_or_password,
    server_errors_keep_code_and_command,
    behind_a_full_socket_commands_are_queued_or_in_part_written,
    a_lost_connection_tells_fates_apart,
    producers_wait_for_room,
    a_ring_of_one_never_stalls,
    deadlines_may_be_past_or_moved,
    one_sweep_ends_all_that_are_due,
    blocking_commands_stay_off_the_shared_connection,
    a_dropped_request_has_no_deadline_left,
);
