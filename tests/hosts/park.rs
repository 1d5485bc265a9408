//! The park protocol: whatever comes between two of its steps ends the host's wait.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hedgerow::{Driver, LocalClient, LocalContext, Options, prelude::*};

use crate::by_hand::{Bell, PATIENCE, block_on, core, poll_once, readable, settle};
use crate::load::{RUNGS, client, server};

/// A peer whose replies the test writes itself, at the moment that it chooses.
struct Peer(TcpStream);

impl Peer {
    /// A client that is connected to a peer.
    fn connect(context: &LocalContext, driver: &mut Driver) -> (LocalClient, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}?protocol=2", listener.local_addr().expect("bound"));
        let options = Options::from_url(&url).expect("a URL");
        let greeter = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            stream.set_nodelay(true).expect("a TCP socket");
            // Every command up to the PING is content with OK.
            stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
            let (mut seen, mut answered) = (Vec::new(), 0);
            let mut chunk = [0; 4096];
            while !seen.ends_with(b"PING\r\n") {
                let n = stream.read(&mut chunk).expect("the handshake");
                assert!(n > 0, "closed in the handshake");
                seen.extend_from_slice(&chunk[..n]);
                let commands = seen.iter().filter(|b| **b == b'*').count();
                stream.write_all(&b"+OK\r\n".repeat(commands - answered)).expect("answered");
                answered = commands;
            }
            Peer(stream)
        });
        let client = block_on(driver, async {
            let client = context.connect(&options).await.expect("connects");
            client.ping().await.expect("PING");
            client
        });
        (client, greeter.join().expect("greeted"))
    }

    /// Takes one GET.
    fn take(&mut self) {
        let mut request = Vec::new();
        let mut chunk = [0; 256];
        while !request.ends_with(b"key\r\n") {
            let n = self.0.read(&mut chunk).expect("the request");
            request.extend_from_slice(&chunk[..n]);
        }
    }

    fn answer(&mut self) {
        self.0.write_all(b"$2\r\nhi\r\n").expect("answered");
    }
}

/// Trap 14. A reply between each two steps: before the last turn, before the park decision, right
/// after it, and while the host sleeps. Fails if one of them leaves the host asleep.
#[test]
fn a_reply_between_any_two_steps() {
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        let (client, mut peer) = Peer::connect(&context, &mut driver);
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        for round in 0..200 {
            let mut get = client.get::<String>("key");
            assert!(poll_once(&mut get, &waker).is_pending());
            while driver.turn().expect("a turn") {}
            peer.take();
            let step = round % 4;
            if step == 0 {
                peer.answer();
            }
            let worked = driver.turn().expect("a turn");
            if step == 1 {
                peer.answer();
            }
            let safe = !worked && driver.prepare_park();
            if step == 2 {
                peer.answer();
            }
            let late = (step == 3).then(|| {
                let mut peer = Peer(peer.0.try_clone().expect("a duplicate"));
                std::thread::spawn(move || peer.answer())
            });
            if safe {
                let woken = readable(driver.ready_fd().expect("made"), PATIENCE);
                assert!(woken, "rung {rung}, step {step}: the host sleeps");
            }
            late.into_iter().for_each(|late| late.join().expect("answered"));
            assert_eq!(block_on(&mut driver, get).expect("a reply"), "hi");
        }
    }
}

/// Trap 14, design section 5. The same with the instant of a timer, which the ring's standing TIMEOUT
/// or the timerfd tells. Fails if a deadline alone does not turn the descriptor readable.
#[test]
fn a_deadline_between_any_two_steps() {
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        settle(&mut driver);
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        for round in 0..100 {
            let step = round % 4;
            let time = Duration::from_micros(400);
            let at = Instant::now() + time;
            let pass = || while Instant::now() < at {};
            let mut sleep = context.sleep(time);
            assert!(poll_once(&mut sleep, &waker).is_pending());
            if step == 0 {
                pass();
            }
            while driver.turn().expect("a turn") {}
            if step == 1 {
                pass();
            }
            let mut safe = driver.prepare_park();
            if step == 2 {
                pass();
            }
            while !bell.take() {
                if safe {
                    let woken = readable(driver.ready_fd().expect("made"), PATIENCE);
                    assert!(woken, "rung {rung}, step {step}: the host sleeps");
                }
                safe = !driver.turn().expect("a turn") && driver.prepare_park();
            }
            assert!(poll_once(&mut sleep, &waker).is_ready());
            assert!(Instant::now() >= at, "rung {rung}, step {step}: early");
        }
    }
}

/// Trap 14. Fails if work that a host's task makes while the driver is parked does not call the host,
/// by its waker or else by the descriptor, or calls it more than once.
#[test]
fn work_while_parked_calls_the_host() {
    let (_server, options) = server();
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        let client = block_on(&mut driver, client(&context, &options));
        // What the set-up left to be answered has come before this: nothing else makes the fd readable.
        block_on(&mut driver, client.get::<String>("greeting")).expect("a reply");
        let (task, host) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let waker = Waker::from(task.clone());
        for with_waker in [false, true] {
            if with_waker {
                driver.set_waker(&Waker::from(host.clone()));
            }
            let called = |driver: &mut Driver| {
                let fd = readable(driver.ready_fd().expect("made"), Duration::ZERO);
                let woken = host.times.swap(0, Ordering::Relaxed);
                assert_eq!((woken, fd), if with_waker { (1, false) } else { (0, true) }, "{rung}");
            };
            settle(&mut driver);
            let mut gets = [client.get::<String>("greeting"), client.get("greeting")];
            for get in &mut gets {
                assert!(poll_once(get, &waker).is_pending());
            }
            called(&mut driver);
            for get in gets {
                assert_eq!(block_on(&mut driver, get).expect("a reply"), "hello");
            }
            settle(&mut driver);
            let mut sleep = context.sleep(Duration::from_secs(3600));
            assert!(poll_once(&mut sleep, &waker).is_pending());
            called(&mut driver);
            settle(&mut driver);
            let spawned = context.spawn(async {});
            called(&mut driver);
            block_on(&mut driver, spawned).expect("no panic");
            settle(&mut driver);
            let other = context.create(&options).expect("valid options");
            called(&mut driver);
            // Here, too, all that the set-up waits for has come then.
            block_on(&mut driver, other.get::<String>("greeting")).expect("a reply");
            settle(&mut driver);
            drop(other);
            called(&mut driver);
        }
    }
}

/// Trap 14. A wake from another thread for a task of the core, right after the park decision. Fails if
/// the mailbox's bell does not reach the host's descriptor.
#[test]
fn a_foreign_wake_ends_the_wait() {
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        for _ in 0..50 {
            let (wakers, waker) = std::sync::mpsc::channel::<Waker>();
            let mut sent = false;
            let task = context.spawn(std::future::poll_fn(move |cx| {
                if std::mem::replace(&mut sent, true) {
                    return Poll::Ready(());
                }
                wakers.send(cx.waker().clone()).expect("the test waits");
                Poll::Pending
            }));
            settle(&mut driver);
            let waker = waker.recv().expect("polled");
            let thread = std::thread::spawn(move || waker.wake());
            assert!(readable(driver.ready_fd().expect("made"), PATIENCE), "rung {rung}");
            thread.join().expect("woke");
            block_on(&mut driver, task).expect("no panic");
        }
    }
}
