//! The end of a client: everybody is answered.

use std::time::{Duration, Instant};

use futures::channel::oneshot;
use hedgerow::prelude::*;
use hedgerow::testing::{Admission, Close, Script, ScriptServer, Server};
use hedgerow::{Error, ErrorKind, Fate};

use crate::placement::{Client, Placement, on_each_placement, one_core, options_for, until};
use crate::raw::PATIENCE;

const MS: Duration = Duration::from_millis(1);
const CALLS: usize = 100;

type Calls = Vec<oneshot::Receiver<Result<Option<String>, Error>>>;

fn begin_calls<P: Placement>(place: &P, client: &P::Client) -> Calls {
    let call = |i| {
        let client = client.clone();
        place.spawn(async move { client.get(format!("k{i}")).await })
    };
    (0..CALLS).map(call).collect()
}

fn silent() -> ScriptServer {
    Script::new().start().expect("a scripted server")
}

/// Waits until the server has all calls.
async fn all_sent<P: Placement>(place: &P, server: &ScriptServer) {
    let gets = || server.received().iter().filter(|r| r.text().starts_with("GET")).count();
    until(place, "all GETs", || gets() == CALLS).await;
}

async fn all_closed(calls: Calls, fate: Fate) {
    for call in calls {
        let error = call.await.expect("its task").expect_err("never answered");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Closed, fate), "{error}");
        assert_eq!(error.command(), Some("GET"));
    }
}

/// case behaviour/21 a, R-011. Fails if a call hangs over the end of a client that waits 200 ms for
/// them, is told another fate than unknown, or if the socket stays open. The limit is the subject.
async fn close_answers_everyone_within_its_limit<P: Placement>(place: P) {
    let server = silent();
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let calls = begin_calls(&place, &client);
    all_sent(&place, &server).await;
    let began = Instant::now();
    client.close(200 * MS).await;
    assert!(began.elapsed() >= 200 * MS && began.elapsed() < 2_000 * MS, "{:?}", began.elapsed());
    all_closed(calls, Fate::Unknown).await;
    until(&place, "the end", || server.wait_ended(0, Duration::ZERO).is_some()).await;
    let error = client.get::<()>("k").await.expect_err("closed");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Closed, Fate::NotSent));
    client.close(200 * MS).await;
}

/// case behaviour/21, R-011. Fails if calls that are answered within the limit lose their replies, or
/// if closing waits longer than for them.
async fn close_lets_replies_come<P: Placement>(place: P) {
    let half = (0..CALLS).fold(Script::new(), |s, i| s.expect(&format!("GET k{i}")));
    let server = (0..CALLS / 2).fold(half, |s, i| s.reply(format!("+{i}\r\n")));
    let server = server.start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let mut calls = begin_calls(&place, &client);
    all_sent(&place, &server).await;
    client.close(50 * MS).await;
    let rest = calls.split_off(CALLS / 2);
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.expect("its task").expect("a reply"), Some(i.to_string()));
    }
    all_closed(rest, Fate::Unknown).await;

    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    let calls = begin_calls(&place, &client);
    until(&place, "all GETs", || client.counters().commands == CALLS as u64).await;
    let began = Instant::now();
    client.close(10_000 * MS).await;
    assert!(began.elapsed() < 5_000 * MS, "{:?}", began.elapsed());
    for call in calls {
        assert_eq!(call.await.expect("its task").expect("a reply"), None);
    }
}

/// case behaviour/21 b, R-011. Fails if dropping the last handle leaves a call waiting or the socket
/// open.
async fn dropping_the_last_handle_answers_everyone<P: Placement>(place: P) {
    let server = silent();
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let requests = (0..CALLS).map(|i| client.get::<()>(format!("k{i}")));
    let waiting = place.spawn(futures::future::join_all(requests.collect::<Vec<_>>()));
    all_sent(&place, &server).await;
    drop(client);
    for outcome in waiting.await.expect("their task") {
        let error = outcome.expect_err("never answered");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Closed, Fate::Unknown), "{error}");
    }
    until(&place, "the end", || server.wait_ended(0, Duration::ZERO).is_some()).await;
}

/// case behaviour/21 c, R-012. Fails if a task that was just answered, or that reads the states,
/// cannot close the client.
async fn a_task_may_close_its_own_client<P: Placement>(place: P) {
    let server = Script::new().answer("GET first", "_\r\n").start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let calls = begin_calls(&place, &client);
    // The first in line is never answered, so neither is this one: it is closed with the others.
    let own = place.spawn({
        let client = client.clone();
        async move {
            let mut states = client.states();
            client.close(Duration::ZERO).await;
            assert!(states.next().await.is_none());
            client.get::<()>("k").await.expect_err("closed").kind()
        }
    });
    assert_eq!(own.await.expect("its task"), ErrorKind::Closed);
    for call in calls {
        let error = call.await.expect("its task").expect_err("never answered");
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

/// case behaviour/21 d, R-011. Fails if closing twice at once hangs or one of them returns early.
async fn closing_twice_at_once_ends_once<P: Placement>(place: P) {
    let server = silent();
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let calls = begin_calls(&place, &client);
    all_sent(&place, &server).await;
    futures::join!(client.close(20 * MS), client.close(20 * MS));
    all_closed(calls, Fate::Unknown).await;
}

/// case behaviour/21 e, R-011. Fails if calls that wait for a connection outlive the client, or it
/// goes on connecting. Also the variant with the server stopped before the calls.
async fn closing_while_reconnecting_answers_everyone<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    server.faults().admit(Admission::CloseAtOnce);
    server.faults().disconnect_all(Close::End);
    until(&place, "the loss", || !client.is_connected()).await;
    let calls = begin_calls(&place, &client);
    until(&place, "all calls", || client.live_requests() == CALLS).await;
    client.close(20 * MS).await;
    all_closed(calls, Fate::NotSent).await;
    let accepted = server.stats().accepted;
    place.pause(50 * MS).await;
    assert!(server.stats().accepted <= accepted + 1, "it went on connecting");
}

/// case behaviour/21 f, R-012. Fails if a stream of states does not end with its client, however that
/// ends.
async fn streams_end_with_their_client<P: Placement>(place: P) {
    let server = silent();
    for by_drop in [false, true] {
        let client = place.connect(&options_for(server.addr())).await.expect("up");
        let mut states = client.states();
        let ended = place.spawn(async move { while states.next().await.is_some() {} });
        place.pause(MS).await;
        if by_drop {
            drop(client);
        } else {
            client.close(Duration::ZERO).await;
        }
        ended.await.expect("the stream ends");
    }
}

/// Fails if clients that come and go leave their connections at the server.
async fn clients_that_come_and_go_leave_nothing<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    for _ in 0..50 {
        let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
        let mut left = Box::pin(client.get::<()>("k"));
        assert!(futures::poll!(&mut left).is_pending());
        drop(client);
        if let Err(error) = left.await {
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
    }
    until(&place, "the end of all", || server.stats().open == 0).await;
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// case behaviour/21 d, R-011. Fails if two threads that close one client at once wait for each other.
#[test]
fn two_threads_may_close_at_once() {
    let (server, runtime) = (silent(), tokio_runtime());
    let options = options_for(server.addr());
    let client = runtime.block_on(hedgerow::Client::connect(&options)).expect("up");
    let call = runtime.spawn(client.get::<()>("k"));
    assert!(server.wait_for("GET k", PATIENCE).is_some());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| runtime.block_on(client.close(20 * MS)));
        }
    });
    let error = runtime.block_on(call).expect("its task").expect_err("never answered");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Closed, Fate::Unknown));
}

/// design section 3, R-011. Fails if a request outlives the tokio runtime that its client lived in:
/// connected, or between two attempts.
#[test]
fn requests_end_with_their_runtime() {
    for connected in [true, false] {
        let (server, runtime) = (silent(), tokio_runtime());
        let mut options = options_for(server.addr());
        options.command_timeout = None;
        if !connected {
            options.endpoint = hedgerow::Endpoint::tcp("127.0.0.1", 1);
            options.reconnect.initial = Duration::from_secs(60);
            options.reconnect.max = Duration::from_secs(60);
        }
        let entered = runtime.enter();
        let client = hedgerow::Client::create(&options).expect("a client");
        drop(entered);
        let waiting = std::thread::spawn({
            let client = client.clone();
            move || {
                let own = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                own.block_on(client.get::<()>("k"))
            }
        });
        let begun = Instant::now();
        while client.live_requests() != Some(1) && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        if connected {
            assert!(server.wait_for("GET k", PATIENCE).is_some());
        }
        runtime.shutdown_timeout(PATIENCE);
        let error = waiting.join().expect("its thread").expect_err("nobody reads any more");
        assert_eq!(error.kind(), ErrorKind::Runtime, "{error}");
    }
}

/// case behaviour/21, R-011. Fails if cores that end leave a socket open, or are not joined at once.
#[test]
fn cores_end_with_calls_in_flight() {
    let server = silent();
    let options = options_for(server.addr());
    let cores = one_core();
    let sent = cores.run(move |core| {
        let options = options.clone();
        async move {
            let client = core.connect(&options).await.expect("up");
            drop(core.spawn(async move { client.get::<()>("k").await }));
        }
    });
    sent.expect("run");
    assert!(server.wait_for("GET k", PATIENCE).is_some());
    let began = Instant::now();
    drop(cores);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(server.wait_ended(0, PATIENCE).is_some());
}

on_each_placement!(
    close_answers_everyone_within_its_limit,
    close_lets_replies_come,
    dropping_the_last_handle_answers_everyone,
    a_task_may_close_its_own_client,
    closing_twice_at_once_ends_once,
    closing_while_reconnecting_answers_everyone,
    streams_end_with_their_client,
    clients_that_come_and_go_leave_nothing,
);
