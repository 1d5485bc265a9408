//! Requests that are dropped while they are under way.

use std::time::{Duration, Instant};

use futures::future::{AbortHandle, Abortable, Either, join_all, select};
use hedgerow::prelude::*;
use hedgerow::testing::{Delay, Script, ScriptServer, Server};

use crate::placement::{Client, Placement, on_each_placement, options_for};

const MS: Duration = Duration::from_millis(1);

/// How a request under way loses whoever waited for it.
#[derive(Clone, Copy, Debug)]
enum Way {
    Drop,
    Abort,
    Timeout,
}

/// Answers `GET a` once after 100 ms, and everything behind it at once.
fn slow_first() -> ScriptServer {
    let script = Script::new()
        .answer("GET a", "$1\r\nA\r\n")
        .answer("GET b", "$1\r\nB\r\n")
        .expect("GET a")
        .delay(100 * MS)
        .reply("$1\r\nA\r\n");
    script.start().expect("a scripted server")
}

async fn give_up<P: Placement>(place: &P, client: &P::Client, way: Way, after: Duration) {
    let request = Box::pin(client.get::<String>("a"));
    match way {
        Way::Drop | Way::Timeout => {
            let pause = place.pause(after);
            if let Either::Left((answer, _)) = select(request, pause).await {
                assert_eq!(answer.expect("its own reply"), "A");
            }
        }
        Way::Abort => {
            let client = client.clone();
            let (abort, registration) = AbortHandle::new_pair();
            let task = async move { client.get::<String>("a").await };
            drop(request);
            let done = place.spawn(Abortable::new(task, registration));
            place.pause(after).await;
            abort.abort();
            if let Ok(Ok(answer)) = done.await {
                assert_eq!(answer.expect("its own reply"), "A");
            }
        }
    }
}

/// case behaviour/01, R-076. Fails if a dropped, aborted or timed out request shifts the replies of
/// later ones, or keeps its cell. The instants of dropping are the case's own.
async fn dropped_requests_shift_no_reply<P: Placement>(place: P) {
    let one = |way: Way, after: u64| {
        let place = place.clone();
        async move {
            let server = slow_first();
            let client = place.connect(&options_for(server.addr())).await.expect("up");
            give_up(&place, &client, way, Duration::from_millis(after)).await;
            assert_eq!(client.get::<String>("b").await.expect("b"), "B", "{way:?} {after}");
            assert_eq!(client.ping().await.expect("ping"), "PONG", "{way:?} {after}");
            for _ in 0..100 {
                assert_eq!(client.get::<String>("b").await.expect("b"), "B", "{way:?} {after}");
            }
            assert_eq!(client.live_requests(), 0, "{way:?} {after}");
            assert_eq!(server.accepted(), 1);
        }
    };
    let instants = [0, 1, 5, 20, 50, 99, 100, 101];
    let ways = [Way::Drop, Way::Abort, Way::Timeout];
    join_all(ways.iter().flat_map(|w| instants.map(|after| one(*w, after)))).await;
}

/// case behaviour/01, R-113. Fails if one of fifty requests gets another's reply when every third is
/// dropped in flight.
async fn every_third_of_fifty_is_dropped<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    for i in 0..50 {
        client.set(format!("k{i}"), i).await.expect("set");
    }
    server.faults().delay(Delay::Constant(20 * MS));
    let calls = (0..50).map(|i| {
        let request = Box::pin(client.get::<u32>(format!("k{i}")));
        let pause = place.pause(if i % 3 == 0 { 5 * MS } else { crate::placement::LIMIT });
        async move {
            match select(request, pause).await {
                Either::Left((answer, _)) => assert_eq!(answer.expect("a reply"), i),
                Either::Right(_) => assert_eq!(i % 3, 0),
            }
        }
    });
    join_all(calls).await;
    client.ping().await.expect("ping");
    assert_eq!(client.live_requests(), 0);
}

/// Fails if a request that is dropped before its bytes are handed over is written
/// after all, or if one that nobody polled is.
async fn what_is_dropped_while_queued_is_never_written<P: Placement>(place: P) {
    let server = Script::new()
        .answer("GET", "$1\r\nx\r\n")
        .answer("SET", "+OK\r\n")
        .start()
        .expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    client.get::<String>("warm").await.expect("up");
    {
        let mut never = Box::pin(client.set("dropped", "1"));
        assert!(futures::poll!(&mut never).is_pending());
        let _unpolled = client.set("unpolled", "1");
    }
    client.get::<String>("after").await.expect("a reply");
    let texts: Vec<String> = server.received().iter().map(|r| r.text()).collect();
    assert!(texts.iter().all(|t| !t.contains("polled")), "{texts:?}");
    if P::QUEUES {
        assert!(texts.iter().all(|t| !t.contains("dropped")), "{texts:?}");
    }
    assert_eq!(client.live_requests(), 0);
}

/// Fails if a request's own timeout is not obeyed, is told as anything but a timeout
/// that may have run, or names another length of time than the one that ran out.
async fn a_request_has_its_own_timeout<P: Placement>(place: P) {
    let server = Script::new().start().expect("a scripted server");
    let client = place.connect(&options_for(server.addr())).await.expect("up");
    let began = Instant::now();
    let error = client.get_within("k", 30 * MS).await.expect_err("nobody answers");
    assert!(began.elapsed() >= 30 * MS && began.elapsed() < 5_000 * MS);
    assert_eq!(error.kind(), hedgerow::ErrorKind::Timeout);
    assert_eq!(error.fate(), hedgerow::Fate::Unknown);
    assert_eq!(error.timeout(), Some(30 * MS));
    assert_eq!(error.command(), Some("GET"));
}

on_each_placement!(
    dropped_requests_shift_no_reply,
    every_third_of_fifty_is_dropped,
    what_is_dropped_while_queued_is_never_written,
    a_request_has_its_own_timeout,
);
