//! Work that could starve a core or a connection, and a server that stands still.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use hedgerow::prelude::*;
use hedgerow::testing::{Delay, Gate, Script, Server};
use hedgerow::{ErrorKind, Options};

use crate::placement::{Client, OnCore, Placement, on_core, on_each_placement, options_for, until};

const MS: Duration = Duration::from_millis(1);
/// A busy machine may spoil a measurement; starvation spoils every one.
const TRIES: usize = 10;

fn options_of(server: &Server) -> Options {
    options_for(server.addr().expect("tcp"))
}

/// How many GETs a loop ends in 100 ms; none may time out.
async fn gets_in_100_ms<C: Client>(client: &C) -> usize {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < 100 * MS {
        client.get_within("k", 5_000 * MS).await.expect("no timeout");
        count += 1;
    }
    count
}

async fn greedy(stop: Rc<Cell<bool>>) {
    while !stop.get() {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut yielded, true) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

fn breed(place: OnCore, stop: Rc<Cell<bool>>) {
    let again = place.clone();
    drop(place.spawn(async move {
        if !stop.get() {
            breed(again, stop);
        }
    }));
}

async fn always_ready_tasks(place: OnCore) {
    let server = Server::builder().delay(Delay::Constant(MS)).start().expect("a server");
    let client = place.connect(&options_of(&server)).await.expect("up");
    for at in 0..TRIES {
        let alone = gets_in_100_ms(&client).await;
        let stop = Rc::new(Cell::new(false));
        drop(place.spawn(greedy(stop.clone())));
        breed(place.clone(), stop.clone());
        let beside = gets_in_100_ms(&client).await;
        let due = Instant::now() + 10 * MS;
        place.pause(10 * MS).await;
        let late = due.elapsed();
        stop.set(true);
        if beside * 2 >= alone && late < 10 * MS {
            return;
        }
        println!("try {at}: {alone} alone, {beside} beside, timer {late:?} late");
    }
    panic!("tasks that are always ready starve the core");
}

/// case behaviour/22, trap 8. Fails if tasks that are always ready keep replies or timers from a core:
/// a loop of GETs falls below half its speed, or a timer is 10 ms late, at every try.
#[test]
fn always_ready_tasks_starve_nobody() {
    on_core(always_ready_tasks);
}

/// The longest of 100 small GETs that run while `busy` does.
async fn longest_beside<C: Client, T>(small: &C, busy: impl Future<Output = T>) -> Duration {
    let gets = async {
        let mut longest = Duration::ZERO;
        for _ in 0..100 {
            let began = Instant::now();
            small.get_within("k", 10_000 * MS).await.expect("no timeout");
            longest = longest.max(began.elapsed());
        }
        longest
    };
    futures::join!(gets, busy).0
}

/// case behaviour/22, R-092. Fails if a reply of 64 MiB delays small GETs on another connection by
/// 20 ms at every try, or a byte of it is wrong.
async fn a_big_reply_delays_no_other_connection<P: Placement>(place: P) {
    let (one, other) = (Server::start().expect("a server"), Server::start().expect("a server"));
    let big = place.connect(&options_of(&one)).await.expect("up");
    let small = place.connect(&options_of(&other)).await.expect("up");
    let value: Vec<u8> = (0..64 << 20).map(|i: u32| (i % 251) as u8).collect();
    big.set("big", Bytes::from(value.clone())).await.expect("set");
    let mut longest = Vec::new();
    for _ in 0..TRIES {
        let whole = async {
            let got = big.get::<Bytes>("big").await.expect("a value");
            assert!(got == value, "another value of {} bytes", got.len());
        };
        let slowest = longest_beside(&small, whole).await;
        if slowest < 20 * MS {
            return;
        }
        longest.push(slowest);
    }
    panic!("small GETs took {longest:?}");
}

/// case behaviour/22, R-113. Fails if small GETs on another connection wait for all of 100,000 commands
/// at once, at every try, or one of their replies is another's. (The case's 20 ms are those of an
/// optimised build on an idle machine.)
async fn a_long_pipeline_delays_no_other_connection<P: Placement>(place: P) {
    let (one, other) = (Server::start().expect("a server"), Server::start().expect("a server"));
    let mut options = options_of(&one);
    options.in_flight_max = 200_000;
    let busy = place.connect(&options).await.expect("up");
    let small = place.connect(&options_of(&other)).await.expect("up");
    let mut total = 0;
    let mut longest = Vec::new();
    for _ in 0..TRIES {
        let pipeline = place.spawn({
            let busy = busy.clone();
            async move {
                let calls: Vec<_> = (0..100_000).map(|_| busy.incr("n")).collect();
                let replies = join_all(calls).await;
                replies.into_iter().map(|r| r.expect("a reply")).collect::<Vec<_>>()
            }
        });
        // Measured from the moment that the pipeline is queued: encoding it is one step of a task.
        place.pause(Duration::ZERO).await;
        let began = Instant::now();
        let slowest = longest_beside(&small, async {}).await;
        let replies = pipeline.await.expect("its task");
        assert!(replies.iter().copied().eq(total + 1..=total + 100_000), "out of order");
        let whole = began.elapsed();
        total += 100_000;
        if slowest < 20 * MS || slowest * 2 < whole {
            return;
        }
        longest.push((slowest, whole));
    }
    panic!("small GETs took {longest:?}");
}

/// case behaviour/23, R-056. Fails if a server that stands still for a while costs a connection, or
/// if a deadline that passes meanwhile ends its call more than once or not at all.
async fn a_server_that_stood_still_is_kept<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let mut options = options_of(&server);
    options.command_timeout = Some(400 * MS);
    let client = place.connect(&options).await.expect("up");
    client.set("k", "v").await.expect("set");
    server.faults().pause();
    let calls = (0..10).map(|_| client.get::<String>("k"));
    for outcome in join_all(calls.collect::<Vec<_>>()).await {
        assert_eq!(outcome.expect_err("it stands still").kind(), ErrorKind::Timeout);
    }
    server.faults().resume();
    let value = client.get_within("k", 10_000 * MS).await.expect("it goes on");
    assert_eq!(value.as_deref(), Some("v"));
    assert_eq!(client.counters().timeouts, 10);
    assert_eq!(server.stats().accepted, 1);
    assert_eq!(client.live_requests(), 0);
}

/// case behaviour/25, traps 1 and 2. Fails if one of 64 connections loses a byte or its place, is
/// closed or goes deaf when all get 256 KiB at once and every reply is held.
async fn buffers_may_run_out<P: Placement>(place: P) {
    const CONNECTIONS: usize = 64;
    const PUSHES: usize = 5;
    let gate = Gate::new();
    let value: Vec<u8> = (0..256 << 10).map(|i: u32| (i % 253) as u8).collect();
    let bulk = [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat();
    let push = ">2\r\n$1\r\nx\r\n$1\r\ny\r\n";
    let script = Script::new().expect("GET big").wait(&gate).reply(bulk);
    let script = (0..PUSHES).fold(script, |s, _| s.delay(10 * MS).reply(push));
    let server = script.expect("GET after").reply("+here\r\n").start().expect("a server");
    let connect = || place.connect(&options_for(server.addr()));
    let clients = join_all((0..CONNECTIONS).map(|_| connect())).await;
    let clients: Vec<_> = clients.into_iter().map(|c| c.expect("up")).collect();
    let big = clients.iter().map(|c| c.get::<Bytes>("big")).collect::<Vec<_>>();
    let asked = || server.received().iter().filter(|r| r.text() == "GET big").count();
    let (held, ()) = futures::join!(join_all(big), async {
        until(&place, "all GETs", || asked() == CONNECTIONS).await;
        gate.open();
    });
    place.pause(50 * MS).await;
    for reply in held {
        assert!(reply.expect("a value") == value);
    }
    let pushed = || clients.iter().all(|c| c.counters().pushes == PUSHES as u64);
    until(&place, "every push", pushed).await;
    for client in &clients {
        assert_eq!(client.get::<String>("after").await.expect("not deaf"), "here");
    }
    assert_eq!(server.accepted(), CONNECTIONS);
}

on_each_placement!(
    a_big_reply_delays_no_other_connection,
    a_long_pipeline_delays_no_other_connection,
    a_server_that_stood_still_is_kept,
    buffers_may_run_out,
);
