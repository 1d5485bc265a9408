//! Commands that wait for a server: how many, how long, and what becomes of them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hedgerow::prelude::*;
use hedgerow::testing::{Admission, Script, Server};
use hedgerow::{ErrorKind, Fate};

use crate::alone::{alone, resident};
use crate::placement::{
    Client, Placement, on_core, on_each_placement, on_tokio, options_for, until,
};

const MS: Duration = Duration::from_millis(1);
const MEMORY_MAX: usize = 64 << 20;

#[derive(Default)]
struct Ends {
    begun: Cell<usize>,
    full: Cell<usize>,
    late: Cell<usize>,
    other: Cell<usize>,
}

/// Begins 50 times 2,000 SETs of 4 KiB, 400 MB in all, and counts how they end.
async fn flood<P: Placement>(place: &P, client: &P::Client) -> Rc<Ends> {
    let ends = Rc::new(Ends::default());
    for round in 1..=50 {
        for _ in 0..2_000 {
            let (client, ends) = (client.clone(), ends.clone());
            drop(place.spawn(async move {
                ends.begun.set(ends.begun.get() + 1);
                let error = client.set("stale", vec![b'x'; 4096]).await.expect_err("no server");
                let count = match error.kind() {
                    ErrorKind::QueueFull => &ends.full,
                    ErrorKind::NotConnected | ErrorKind::Timeout => &ends.late,
                    _ => &ends.other,
                };
                let unsent = error.fate() == Fate::NotSent || error.kind() == ErrorKind::Timeout;
                assert!(unsent, "{error}");
                count.set(count.get() + 1);
            }));
        }
        // Tasks that no one polled yet are not the client's memory.
        until(place, "their begin", || ends.begun.get() == 2_000 * round).await;
        place.pause(5 * MS).await;
    }
    until(place, "the end of all", || {
        ends.full.get() + ends.late.get() + ends.other.get() == 100_000
    })
    .await;
    ends
}

/// Limits on what waits, with a wait of 50 ms where the case has 1 s.
async fn no_listener<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::Refuse);
    let mut options = options_for(server.addr().expect("tcp"));
    options.queue_timeout = Some(50 * MS);
    let client = place.create(&options).expect("valid options");
    let before = resident();
    let ends = flood(&place, &client).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{grown} bytes more");
    let (full, late, other) = (ends.full.get(), ends.late.get(), ends.other.get());
    assert!(full > 0 && late > 0 && other == 0, "{full} {late} {other}");
    assert_eq!(client.live_requests(), 0);
    server.faults().admit(Admission::Open);
    assert_eq!(client.get::<Option<String>>("stale").await.expect("up now"), None);
    assert_eq!(server.stats().commands, 4, "HELLO, two names and the GET");
}

/// A server that takes the connection and reads nothing after the set-up: 25,000 SETs of 4 KiB, 100 MB
/// in all, from 50 tasks.
async fn zero_window<P: Placement>(place: P) {
    let script = Script::new().expect("GET last").reply("+OK\r\n").stop_reading();
    let server = script.start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    client.get::<()>("last").await.expect("a reply");
    let before = resident();
    let producers = (0..50).map(|_| {
        let client = client.clone();
        place.spawn(async move {
            for _ in 0..500 {
                let set = P::Client::within(client.set("k", vec![b'x'; 4096]), 5 * MS);
                let error = set.await.expect_err("never read");
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
        })
    });
    for producer in producers.collect::<Vec<_>>() {
        producer.await.expect("its task");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY_MAX, "{grown} bytes more");
    assert_eq!(client.counters().timeouts, 25_000);
}

/// case behaviour/20, R-115, R-101. Fails if what waits for a server is unbounded, is kept beyond its
/// wait, or is sent once the server is there. On a core.
#[test]
fn the_queue_is_bounded_on_a_core() {
    alone("queue::the_queue_is_bounded_on_a_core", || on_core(no_listener));
}

/// case behaviour/20, R-115, R-101. Fails if what waits for a server is unbounded, is kept beyond its
/// wait, or is sent once the server is there. Hosted.
#[test]
fn the_queue_is_bounded_in_tokio() {
    alone("queue::the_queue_is_bounded_in_tokio", || on_tokio(no_listener));
}

/// case behaviour/20, R-116. Fails if commands for a server that does not read pile up beyond their
/// deadlines. On a core.
#[test]
fn a_zero_window_is_bounded_on_a_core() {
    alone("queue::a_zero_window_is_bounded_on_a_core", || on_core(zero_window));
}

/// case behaviour/20, R-116. Fails if commands for a server that does not read pile up beyond their
/// deadlines. Hosted.
#[test]
fn a_zero_window_is_bounded_in_tokio() {
    alone("queue::a_zero_window_is_bounded_in_tokio", || on_tokio(zero_window));
}

/// case behaviour/20, R-076. Fails if a dropped call stays in the queue, or takes the place of
/// another.
async fn a_dropped_call_leaves_the_queue<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::Refuse);
    let mut options = options_for(server.addr().expect("tcp"));
    options.queue_commands_max = 10;
    let client = place.create(&options).expect("valid options");
    for round in 0..100 {
        let calls: Vec<_> = (0..10).map(|_| Box::pin(client.incr("n"))).collect();
        let mut kept = Vec::new();
        for mut call in calls {
            assert!(futures::poll!(&mut call).is_pending(), "{round}");
            kept.push(call);
        }
        let error = client.incr("n").await.expect_err("full");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::QueueFull, Fate::NotSent));
        assert!(error.is_transient());
    }
    assert_eq!(client.live_requests(), 0);
    server.faults().admit(Admission::Open);
    assert_eq!(client.incr("n").await.expect("up now"), 1);
}

/// case behaviour/20. Fails if the bytes that wait are not bounded, or a call over the bound waits.
async fn waiting_bytes_are_bounded<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::Refuse);
    let mut options = options_for(server.addr().expect("tcp"));
    options.queue_bytes_max = 10_000;
    let client = place.create(&options).expect("valid options");
    let mut first = Box::pin(client.set("k", vec![b'x'; 9_000]));
    assert!(futures::poll!(&mut first).is_pending());
    let error = client.set("k", vec![b'x'; 2_000]).await.expect_err("full");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::QueueFull, Fate::NotSent));
    drop(first);
    let mut second = Box::pin(client.set("k", vec![b'x'; 2_000]));
    assert!(futures::poll!(&mut second).is_pending());
    server.faults().admit(Admission::Open);
    second.await.expect("up now");
}

/// case behaviour/20, R-081. Fails if the limit on waiting for a connection goes on to count after the
/// command was sent.
async fn the_wait_limit_ends_with_the_wait<P: Placement>(place: P) {
    let script = Script::new().without_greeting().expect("HELLO 3").delay(60 * MS);
    let script = script.reply("%1\r\n$5\r\nproto\r\n:3\r\n").answer("CLIENT", "+OK\r\n");
    let script = script.expect("GET k").delay(100 * MS).reply("+late\r\n");
    let server = script.start().expect("a scripted server");
    let mut options = options_for(server.addr());
    options.queue_timeout = Some(130 * MS);
    let client = place.create(&options).expect("valid options");
    assert_eq!(client.get::<String>("k").await.expect("a reply"), "late");
}

/// Fails if the limit on waiting for a connection is counted from a clock that is behind.
async fn the_wait_limit_never_comes_early<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::Refuse);
    let mut options = options_for(server.addr().expect("tcp"));
    options.queue_timeout = Some(3 * MS);
    let client = place.create(&options).expect("valid options");
    for step in 0..40 {
        // At any distance from a tick of the slow clock.
        place.pause(Duration::from_micros(700 + 130 * step)).await;
        let begun = Instant::now();
        let error = client.get::<Option<String>>("k").await.expect_err("no server");
        let waited = begun.elapsed();
        assert!(waited >= 3 * MS, "after {waited:?}: {error}");
    }
}

/// Fails if a deadline that a waiting request is given lifts the limit on its wait.
#[test]
fn a_later_deadline_keeps_the_wait_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = Server::start().expect("a server");
        server.faults().admit(Admission::Refuse);
        let mut options = options_for(server.addr().expect("tcp"));
        options.queue_timeout = Some(20 * MS);
        let client = hedgerow::Client::create(&options).expect("valid options");
        let mut get = client.get::<Option<String>>("k");
        assert!(futures::poll!(&mut get).is_pending());
        let begun = Instant::now();
        let error = get.timeout(Duration::from_secs(60)).await.expect_err("no server");
        assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
    });
}

on_each_placement!(
    a_dropped_call_leaves_the_queue,
    the_wait_limit_never_comes_early,
    waiting_bytes_are_bounded,
    the_wait_limit_ends_with_the_wait,
);
