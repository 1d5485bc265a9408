//! Connections that are lost, and how they come back.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use hedgerow::config::{Endpoint, Keepalive, Reconnect};
use hedgerow::engine::{ConnectionState, Engine, Line, LinkId, Outside, Pressure};
use hedgerow::prelude::*;
use hedgerow::runtime::Rx;
use hedgerow::runtime::time::Instant;
use hedgerow::testing::{Admission, Close, Cut, Gate, Script, ScriptServer, Server};
use hedgerow::topology::{Board, Topology};
use hedgerow::{ErrorKind, Fate, Options};

use crate::placement::{Client, Placement, on_each_placement, options_for, until};

const MS: Duration = Duration::from_millis(1);

/// Fails if a lost connection is not made again without a caller, or if the states
/// that are told are not those of its life.
async fn a_lost_connection_comes_back_by_itself<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    let mut states = client.states();
    assert!(client.is_connected());
    server.faults().disconnect_all(Close::Reset);
    let mut seen = Vec::new();
    while seen.last() != Some(&ConnectionState::Connected) {
        let change = states.next().await.expect("the client is open");
        let lost = change.state == ConnectionState::Disconnected;
        assert_eq!(change.error.is_some(), lost, "{change:?}");
        assert!(matches!(change.endpoint, Endpoint::Tcp { .. }));
        seen.push(change.state);
    }
    use ConnectionState::{Connected, Connecting, Disconnected};
    assert_eq!(seen, [Disconnected, Connecting, Connected]);
    assert!(client.is_connected());
    assert_eq!(client.counters().connects, 2);
    client.ping().await.expect("up again");
}

/// Fails if a client says that it is connected while nothing listens, or its states go on
/// after it was closed.
async fn states_end_with_the_client<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    let mut states = client.states();
    server.faults().admit(Admission::Refuse);
    server.faults().disconnect_all(Close::End);
    until(&place, "the loss", || !client.is_connected()).await;
    let first = states.next().await.expect("a change");
    assert_eq!(first.state, ConnectionState::Disconnected);
    client.close(Duration::ZERO).await;
    assert!(states.next().await.is_none());
    assert!(!client.is_connected());
}

/// Fails if a command whose connection was lost before, while or after the server ran
/// it is sent again.
async fn an_accepted_command_is_never_sent_again<P: Placement>(place: P) {
    let once = |script: Script| {
        let then = Script::new().answer("PING", "+PONG\r\n").answer("INCR", ":9\r\n");
        ScriptServer::builder().then(script).then(then).start().expect("a scripted server")
    };
    for script in [
        Script::new().expect("INCR n").close(),
        Script::new().expect("INCR n").reset(),
        Script::new().expect("INCR n").reply(":").close(),
    ] {
        let server = once(script);
        let client = place.connect(&options_for(server.addr())).await.expect("up");
        let error = client.incr("n").await.expect_err("lost");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Disconnected, Fate::Unknown));
        client.ping().await.expect("a new connection");
        let sent = server.received().iter().filter(|r| r.text() == "INCR n").count();
        assert_eq!(sent, 1);
    }
    let server = Server::start().expect("a server");
    let client = place.connect(&options_for(server.addr().expect("tcp"))).await.expect("up");
    server.faults().disconnect_on("INCR", Cut::AfterRunning, Close::Reset, 1);
    client.incr("n").await.expect_err("lost");
    assert_eq!(client.get::<i64>("n").await.expect("a value"), 1);
}

/// Fails if a command that waited for a connection is not sent once there is one, or is
/// sent more than once.
async fn a_waiting_command_is_sent_once_connected<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::Refuse);
    let client = place.create(&options_for(server.addr().expect("tcp"))).expect("valid options");
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            place.spawn(async move { client.incr("n").await })
        })
        .collect();
    until(&place, "ten requests", || client.live_requests() == 10).await;
    server.faults().admit(Admission::Open);
    let mut values = Vec::new();
    for call in calls {
        values.push(call.await.expect("its task").expect("a value"));
    }
    assert_eq!(values, (1..=10).collect::<Vec<_>>());
}

/// Fails if giving up after a number of attempts is forgotten, comes early, or leaves callers
/// waiting.
async fn attempts_may_be_bounded<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    server.faults().admit(Admission::CloseAtOnce);
    let mut options = options_for(server.addr().expect("tcp"));
    options.reconnect.attempts = Some(3);
    let client = place.create(&options).expect("valid options");
    let error = client.get::<()>("k").await.expect_err("given up");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Handshake, Fate::NotSent));
    assert_eq!(server.stats().accepted, 4);
    let error = client.get::<()>("k").await.expect_err("for good");
    assert_eq!((error.fate(), error.command()), (Fate::NotSent, Some("GET")));
}

/// case behaviour/10, R-098. Fails if one of many connections is not back when the server is, or
/// stays out of step with its commands.
async fn many_connections_all_come_back<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let mut options = options_for(server.addr().expect("tcp"));
    options.connections = 50;
    let client = place.connect(&options).await.expect("up");
    server.faults().admit(Admission::ResetAtOnce);
    server.faults().disconnect_all(Close::Reset);
    let error = client.get_within("k", 20 * MS).await.expect_err("nobody serves");
    assert_ne!(error.fate(), Fate::Answered);
    server.faults().admit(Admission::Open);
    until(&place, "all connections", || server.stats().open == 50).await;
    let calls = (0..100).map(|i| client.set(format!("k{i}"), i));
    for outcome in futures::future::join_all(calls).await {
        outcome.expect("set");
    }
}

/// case behaviour/10, R-102. Fails if an attempt that is accepted and cut starts the delays anew: the
/// times between attempts are the subject here.
async fn a_flapping_server_is_not_rushed<P: Placement>(place: P) {
    let gate = Gate::new();
    let flap = Script::new().expect_start("HELLO 3").close();
    let server = ScriptServer::builder()
        .then(Script::new().expect("GET k").reply("_\r\n").wait(&gate).close())
        .then(flap)
        .start()
        .expect("a scripted server");
    let mut options = options_for(server.addr());
    options.reconnect.initial = 10 * MS;
    options.reconnect.max = 80 * MS;
    let client = place.connect(&options).await.expect("up");
    client.get::<()>("k").await.expect("nil");
    gate.open();
    until(&place, "six attempts", || server.received().iter().any(|r| r.connection == 6)).await;
    let hellos = |r: &&hedgerow::testing::Received| r.text() == "HELLO 3" && r.connection > 0;
    let times: Vec<_> = server.received().iter().filter(hellos).map(|r| r.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // From the second delay on, each at least four fifths of twice the one before.
    for (gap, least) in gaps.iter().zip([16, 32, 51, 51, 51]) {
        assert!(*gap >= Duration::from_millis(least), "{gaps:?}");
    }
}

/// case behaviour/10, R-103. Fails if the delays do not grow while a server that answered before
/// refuses every attempt: the times between attempts are the subject here.
async fn refusals_are_met_ever_more_slowly<P: Placement>(place: P) {
    let server = Server::start().expect("a server");
    let mut options = options_for(server.addr().expect("tcp"));
    options.reconnect.initial = 10 * MS;
    options.reconnect.max = 160 * MS;
    let client = place.connect(&options).await.expect("up");
    client.ping().await.expect("an answer");
    let mut states = client.states();
    server.faults().admit(Admission::Refuse);
    server.faults().disconnect_all(Close::End);
    let mut times = Vec::new();
    while times.len() < 6 {
        let change = states.next().await.expect("the client is open");
        if change.state == ConnectionState::Disconnected {
            times.push(std::time::Instant::now());
        }
    }
    // Five delays, each at least four fifths of its length.
    let whole = times[5] - times[0];
    assert!(whole >= Duration::from_millis((10 + 20 + 40 + 80 + 160) * 8 / 10), "{whole:?}");
}

/// What an engine asked for, with the time of asking.
#[derive(Default)]
struct Asked {
    now: Instant,
    connects: Vec<(Instant, LinkId)>,
    armed: Instant,
}

/// A world without sockets, whose clock the test moves.
struct Imagined(Rc<RefCell<Asked>>);

impl Outside for Imagined {
    type Rx = Rx;

    fn dirty(&mut self, _link: LinkId) {}
    fn connect(&mut self, link: LinkId, _: &Endpoint, _by: Instant, _: Option<Keepalive>) {
        let mut asked = self.0.borrow_mut();
        let now = asked.now;
        asked.connects.push((now, link));
    }
    fn close(&mut self, _link: LinkId) {}
    fn receive(&mut self, _link: LinkId, _on: bool) {}
    fn arm(&mut self, at: Instant, _fine: bool) {
        self.0.borrow_mut().armed = at;
    }
    fn wake(&mut self, _waker: Waker) {}
    fn log(&mut self, _line: Line) {}
    fn coordinate(&mut self, _board: &Arc<Board>) {}
    fn pressure(&self) -> Pressure {
        Pressure::default()
    }
}

/// The attempts of 200 connections while connects fail for `outage`, by link.
fn attempts_during(outage: Duration, accepts: bool) -> Vec<Vec<Instant>> {
    let mut options = Options::from_url("redis://192.0.2.1").expect("a URL");
    options.connections = 200;
    options.reconnect = Reconnect { initial: 100 * MS, max: 2_000 * MS, ..Reconnect::default() };
    let asked = Rc::new(RefCell::new(Asked::default()));
    let topology = Arc::new(Topology::of(&Arc::new(options)));
    let start = Instant::default() + Duration::from_secs(1);
    let mut engine = Engine::new(Imagined(asked.clone()), topology, 200, start, 7);
    asked.borrow_mut().now = start;
    engine.start(start);
    let mut attempts = vec![Vec::new(); 200];
    loop {
        let (now, connects) = {
            let mut asked = asked.borrow_mut();
            (asked.now, std::mem::take(&mut asked.connects))
        };
        for (at, link) in connects {
            attempts[link.0 as usize].push(at);
            if accepts {
                engine.handle_connected(now, link, Ok(()));
                engine.handle_closed(now, link, None);
            } else {
                let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                engine.handle_connected(now, link, Err(refused));
            }
        }
        let next = asked.borrow().armed;
        if next.since(start) > outage {
            return attempts;
        }
        asked.borrow_mut().now = next;
        engine.handle_deadline(next);
    }
}

/// case behaviour/10, R-103. Fails if the delays of 200 connections do not grow, pass their cap, go
/// below half the base, or if more than 20 attempts meet in 10 ms after the first second. On an
/// imagined clock, at the case's own scale.
#[test]
fn a_fleet_does_not_come_back_in_step() {
    for accepts in [false, true] {
        let attempts = attempts_during(Duration::from_secs(10), accepts);
        let start = attempts[0][0];
        for times in &attempts {
            let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
            assert!(gaps.iter().all(|g| *g >= 50 * MS && *g <= 2_000 * MS), "{gaps:?}");
            for (at, gap) in gaps.iter().take(4).enumerate() {
                let grown = 100 * MS * (1 << at);
                assert!(*gap >= grown * 8 / 10 && *gap <= grown * 12 / 10, "{gaps:?}");
            }
            assert!(gaps[5..].iter().all(|g| *g >= 1_600 * MS), "{gaps:?}");
        }
        let mut all: Vec<_> = attempts.concat();
        all.retain(|at| at.since(start) > Duration::from_secs(1));
        all.sort();
        let crowd =
            |at: &Instant| all.iter().filter(|t| *t >= at && t.since(*at) < 10 * MS).count();
        let most = all.iter().map(crowd).max();
        assert!(most <= Some(20), "{most:?} attempts in 10 ms");
    }
}

on_each_placement!(
    a_lost_connection_comes_back_by_itself,
    states_end_with_the_client,
    an_accepted_command_is_never_sent_again,
    a_waiting_command_is_sent_once_connected,
    attempts_may_be_bounded,
    many_connections_all_come_back,
    a_flapping_server_is_not_rushed,
    refusals_are_met_ever_more_slowly,
);
