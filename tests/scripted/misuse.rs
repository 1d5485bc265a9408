//! Callers that do what nobody should: the client stays whole, and says what was wrong.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::join_all;
use hedgerow::prelude::*;
use hedgerow::resp::{ConvertError, FromReply, Kept, Reply};
use hedgerow::testing::{Close, Script, ScriptServer, Server};
use hedgerow::{Client, Cores, ErrorKind, LocalClient, LocalContext, Options};
use tokio::runtime::{Builder, Runtime};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::Layer;

use crate::log::listen;
use crate::placement::{LIMIT, on_core, on_tokio, one_core, options_for, until};

fn server() -> (Server, Options) {
    let server = Server::start().expect("a server");
    let options = options_for(server.addr().expect("TCP"));
    (server, options)
}

/// Never answers GET.
fn silent() -> (ScriptServer, Options) {
    let server = Script::new().start().expect("a scripted server");
    let options = options_for(server.addr());
    (server, options)
}

fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let one = Builder::new_current_thread().enable_all().build();
    [several.expect("a runtime"), one.expect("a runtime")]
}

/// Runs `f` on a thread; a hang fails the test instead of holding it up for ever.
#[track_caller]
fn bounded<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = send.send(f());
    });
    match receive.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it panicked"))
        }
    }
}

/// Design section 3. Fails if a request whose runtime ends hangs, in flight or queued, or does not
/// say why; on either sort of runtime.
#[test]
fn the_runtime_ends_under_requests() {
    for runtime in runtimes() {
        bounded(move || {
            let (_server, options) = silent();
            let mut options = options;
            options.command_timeout = None;
            let client = runtime.block_on(Client::connect(&options)).expect("up");
            let mut calls: Vec<_> =
                (0..100).map(|i| Box::pin(client.get::<Option<String>>(format!("k{i}")))).collect();
            let waiting = calls.len() / 2;
            runtime.block_on(async {
                for call in calls.iter_mut().take(waiting) {
                    assert!(futures::poll!(call).is_pending());
                }
            });
            runtime.shutdown_background();
            for outcome in block_on(join_all(calls)) {
                let error = outcome.expect_err("nobody answers");
                let known = matches!(error.kind(), ErrorKind::Runtime | ErrorKind::Closed);
                assert!(known, "{error}");
            }
            block_on(client.close(Duration::MAX));
            assert!(!client.is_connected());
        });
    }
}

/// Design section 3. Fails if a client asked for in a runtime without I/O, or without timers, panics or
/// hangs instead of naming `enable_all`.
#[test]
fn a_runtime_without_drivers_is_refused() {
    for mut builder in [Builder::new_multi_thread(), Builder::new_current_thread()] {
        let (_server, options) = server();
        let none = builder.worker_threads(1).build().expect("a runtime");
        let only_io = builder.enable_io().build().expect("a runtime");
        for runtime in [none, only_io] {
            let options = options.clone();
            let error =
                bounded(move || runtime.block_on(Client::connect(&options)).expect_err("no"));
            assert_eq!(error.kind(), ErrorKind::Runtime);
            assert!(error.to_string().contains("enable_all"), "{error}");
        }
    }
}

/// Fails if a client used on a thread outside its runtime cannot be closed there, with or
/// without time to drain, twice and at once.
#[test]
fn closed_outside_its_runtime() {
    let [runtime, _] = runtimes();
    let (server, options) = server();
    let client = runtime.block_on(Client::connect(&options)).expect("up");
    server.faults().pause();
    bounded(move || {
        let mut call = Box::pin(client.get::<()>("k"));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let closes = [1, 0, 5].map(|ms| client.close(Duration::from_millis(ms)));
        block_on(join_all(closes));
        assert_eq!(block_on(call).expect_err("closed").kind(), ErrorKind::Closed);
        block_on(client.close(Duration::ZERO));
    });
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Bomb>) {
        panic!("a waker that panics");
    }
}

/// A reply that cannot be read without a panic.
#[derive(Debug)]
struct Cursed;

impl<K: Kept> FromReply<K> for Cursed {
    fn from_reply(_: Reply<'_, K>) -> Result<Cursed, ConvertError> {
        panic!("a conversion that panics");
    }
}

/// Trap 13, invariant 1. Fails if a waker or a conversion that panics costs other requests their wake,
/// the reader or the lock their life, or the request its place.
#[test]
fn wakers_and_conversions_that_panic_in_tokio() {
    on_tokio(|_| async {
        let (server, options) = server();
        let client = Client::connect(&options).await.expect("up");
        server.faults().pause();
        let bomb = Waker::from(Arc::new(Bomb));
        let mut doomed: Vec<_> =
            (0..10).map(|i| Box::pin(client.get::<Option<String>>(format!("k{i}")))).collect();
        for call in &mut doomed {
            let poll = || call.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending();
            let _ = catch_unwind(AssertUnwindSafe(poll));
        }
        let mut well = Box::pin(client.get::<Option<String>>("well"));
        assert!(futures::poll!(&mut well).is_pending());
        server.faults().resume();
        assert_eq!(well.await.expect("a reply"), None);
        for call in doomed {
            assert_eq!(call.await.expect("a reply"), None);
        }
        let cursed = tokio::spawn(client.get::<Cursed>("k").into_future());
        assert!(cursed.await.expect_err("it panics").is_panic());
        assert_eq!(client.live_requests(), Some(0));
        assert_eq!(client.get::<Option<String>>("k").await.expect("alive"), None);
        assert_eq!(client.counters().expect("hosted").connects, 1);
    });
}

/// Trap 13, invariant 1. Fails if a waker that panics, of a request or of a sleep, ends its core.
#[test]
fn wakers_that_panic_on_a_core() {
    on_core(|place| async move {
        let (_server, options) = server();
        let client = place.0.connect(&options).await.expect("up");
        let bomb = Waker::from(Arc::new(Bomb));
        let mut cx = Context::from_waker(&bomb);
        let mut doomed = Box::pin(client.get::<Option<String>>("k"));
        assert!(doomed.as_mut().poll(&mut cx).is_pending());
        let mut sleep = pin!(place.0.sleep(Duration::from_millis(1)));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        let others = (0..10).map(|i| client.get::<Option<String>>(format!("k{i}")));
        for other in join_all(others).await {
            assert_eq!(other.expect("a reply"), None);
        }
        place.0.sleep(Duration::from_millis(5)).await;
        assert_eq!(doomed.await.expect("a reply"), None);
    });
}

thread_local! {
    static ASKED: RefCell<Option<(LocalContext, LocalClient)>> = const { RefCell::new(None) };
}

/// Reading one begins a request of the same client, and drops it or leaves it queued.
#[derive(Debug, PartialEq)]
struct Nosy;

impl<K: Kept> FromReply<K> for Nosy {
    fn from_reply(_: Reply<'_, K>) -> Result<Nosy, ConvertError> {
        let (context, client) = ASKED.with_borrow(Clone::clone).expect("a client");
        let mut dropped = client.get::<Nosy>("k");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut dropped).poll(&mut cx).is_pending());
        assert!(client.live_requests() > 0 && client.is_connected());
        let mut left = client.get::<()>("left");
        assert!(Pin::new(&mut left).poll(&mut cx).is_pending());
        drop(context.spawn(left));
        Ok(Nosy)
    }
}

/// Invariant 1. Fails if a conversion of the user's runs while the engine is borrowed, whatever it is
/// wrapped in and however long the reply is.
#[test]
fn conversions_use_the_client_on_a_core() {
    on_core(|place| async move {
        let (server, options) = server();
        let client = place.0.connect(&options).await.expect("up");
        ASKED.set(Some((place.0.clone(), client.clone())));
        for len in [0, 9, 10, 77, 78, 79, 99, 100, 4_096, 4_122, 4_123, 20_000] {
            client.set("k", vec![b'x'; len]).await.expect("set");
            assert_eq!(client.get::<Nosy>("k").await.expect("a reply"), Nosy);
            assert_eq!(client.get::<Option<Nosy>>("k").await.expect("a reply"), Some(Nosy));
            let many = client.mget::<Vec<Nosy>>(["k", "none"]).await.expect("a reply");
            assert_eq!(many, [Nosy, Nosy]);
        }
        ASKED.take();
        until(&place, "the end of what was left", || client.live_requests() == 0).await;
        drop(server);
    });
}

/// Logs into the very client that it is told about.
struct IntoRedis(Arc<OnceLock<Client>>, Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for IntoRedis {
    fn on_event(&self, _: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if let Some(client) = self.0.get() {
            let _ = (client.is_connected(), client.counters());
            let mut push = pin!(client.get::<()>("log"));
            let _ = push.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Invariant 1. Fails if a subscriber that uses the client is called while its engine is locked, which
/// would lock it up for ever.
#[test]
fn a_subscriber_uses_the_client() {
    bounded(|| {
        let (client, count) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let layer = IntoRedis(client.clone(), count.clone());
        let _guard = listen(layer);
        let [_, runtime] = runtimes();
        runtime.block_on(async {
            let (server, options) = server();
            let made = client.get_or_init(|| Client::create(&options).expect("a client"));
            assert_eq!(made.get::<Option<String>>("k").await.expect("a reply"), None);
            server.faults().disconnect_all(Close::Reset);
            let _ = made.get::<Option<String>>("k").await;
            assert_eq!(made.get::<Option<String>>("k").await.expect("again"), None);
        });
        assert!(count.load(Ordering::Relaxed) >= 3, "lines were said");
    });
}

/// Holds the core of `cores` while `meanwhile` runs, with a mailbox that `other` has filled.
fn clogged(
    cores: &Cores,
    other: &Client,
    inside: impl Fn() + Send + Sync + 'static,
    meanwhile: impl FnOnce(),
) {
    let (held, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (told, asked) = (held.clone(), free.clone());
    let inside = Arc::new(inside);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ended = cores.run(move |_| {
                let (told, asked, inside) = (told.clone(), asked.clone(), inside.clone());
                async move {
                    told.store(true, Ordering::SeqCst);
                    while !asked.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    inside();
                }
            });
            ended.expect("the core goes on");
        });
        while !held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Each asks the core once, and waits for nothing.
        for _ in 0..5_000 {
            other.is_connected();
        }
        meanwhile();
        free.store(true, Ordering::SeqCst);
    });
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// R-115, trap 14. Fails if a request that found its core's mailbox full with what another client sent
/// is never called again, or if closing or watching a client is lost there.
#[test]
fn a_mailbox_that_another_client_filled() {
    bounded(|| {
        let (_server, options) = server();
        let cores = one_core();
        let connect = || block_on(cores.connect(&options)).expect("up");
        let (client, closing, other) = (connect(), connect(), connect());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut call = pin!(client.get::<Option<String>>("k"));
        let mut close = pin!(closing.close(Duration::ZERO));
        let mut states = None;
        clogged(
            &cores,
            &other,
            || {},
            || {
                let mut cx = Context::from_waker(&waker);
                assert!(call.as_mut().poll(&mut cx).is_pending());
                assert!(close.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                states = Some(client.states());
            },
        );
        let begun = Instant::now();
        while !woken.0.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LIMIT / 2, "nobody called");
            std::thread::yield_now();
        }
        assert_eq!(block_on(call).expect("a reply"), None);
        block_on(close);
        let error = block_on(closing.get::<()>("k")).expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed);
        let mut states = states.expect("they were made");
        let next = pin!(states.next());
        assert!(next.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "still open");
    });
}

/// Fails if the last handle of a client that a core drops makes that core wait for room in its
/// own mailbox, or if a finished request that is polled again panics.
#[test]
fn a_client_dropped_by_its_own_full_core() {
    bounded(|| {
        let (_server, options) = server();
        let cores = one_core();
        let client = block_on(cores.connect(&options)).expect("up");
        let mut call = client.get::<Option<String>>("k");
        assert_eq!(block_on(&mut call).expect("a reply"), None);
        let again = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(again, Poll::Ready(Err(e)) if e.kind() == ErrorKind::Closed));
        let other = block_on(cores.connect(&options)).expect("up");
        let last = Arc::new(Mutex::new(Some(client)));
        let taken = last.clone();
        clogged(&cores, &other, move || drop(taken.lock().expect("ours").take()), || {});
        assert!(last.lock().expect("ours").is_none());
        assert_eq!(block_on(other.get::<Option<String>>("k")).expect("a reply"), None);
    });
}

/// Fails if cores whose last owner is a task of their own make it wait for itself.
#[test]
fn cores_dropped_by_their_own_task() {
    bounded(|| {
        let cores = Arc::new(one_core());
        let (send, receive) = mpsc::channel();
        let owner = Arc::new(Mutex::new(Some(cores.clone())));
        let ran = cores.run(move |context| {
            let (owner, send) = (owner.lock().expect("ours").take(), send.clone());
            let later = context.clone();
            drop(context.spawn(async move {
                later.sleep(Duration::from_millis(20)).await;
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(owner)));
                let _ = send.send(dropped.is_ok());
            }));
            async {}
        });
        ran.expect("it ran");
        drop(cores);
        assert_eq!(receive.recv(), Ok(true));
    });
}

/// Fails if a limit that no server could keep to, or that a stack could not hold, is taken,
/// or is refused without its name.
#[test]
fn limits_out_of_range_are_named() {
    let (_server, good) = server();
    type Spoil = fn(&mut Options);
    let spoils: [(&str, Spoil); 6] = [
        ("`limits.depth`", |o| o.limits.depth = u32::MAX),
        ("`limits.depth`", |o| o.limits.depth = 0),
        ("`limits.bulk`", |o| o.limits.bulk = 0),
        ("`limits.reply`", |o| o.limits.reply = 1),
        ("`limits.elements`", |o| o.limits.elements = 3),
        ("`connections`", |o| o.connections = usize::MAX),
    ];
    let [_, runtime] = runtimes();
    for (name, spoil) in spoils {
        let mut options = good.clone();
        spoil(&mut options);
        let error = runtime.block_on(Client::connect(&options)).expect_err("out of range");
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(name), "{error}");
    }
}

/// Fails if a deadline that is past, or farther than the clock reaches, is anything but an
/// immediate timeout, or none.
#[test]
fn deadlines_at_the_ends_of_time() {
    on_tokio(|_| async {
        let (_server, options) = server();
        let client = Client::connect(&options).await.expect("up");
        let get = || client.get::<Option<String>>("k");
        for late in [get().deadline(Instant::now()), get().timeout(Duration::ZERO)] {
            assert_eq!(late.await.expect_err("late").kind(), ErrorKind::Timeout);
        }
        assert_eq!(get().timeout(Duration::MAX).await.expect("a reply"), None);
        let far = Instant::now().checked_add(Duration::from_secs(1 << 40));
        if let Some(far) = far {
            assert_eq!(get().deadline(far).await.expect("a reply"), None);
        }
        client.close(Duration::MAX).await;
        assert_eq!(get().await.expect_err("closed").kind(), ErrorKind::Closed);
    });
}

/// Fails if 100,000 requests at once, of which every third is dropped half-way, lose a reply
/// or leave anything behind.
#[test]
fn a_crowd_of_requests() {
    on_tokio(|_| async {
        let (_server, options) = server();
        let client = Client::connect(&options).await.expect("up");
        let mut calls: Vec<_> = (0..100_000).map(|_| Some(Box::pin(client.incr("n")))).collect();
        for call in calls.iter_mut().flatten() {
            let _ = futures::poll!(call);
        }
        let mut dropped = 0;
        for call in calls.iter_mut().step_by(3) {
            *call = None;
            dropped += 1;
        }
        let kept = 100_000 - dropped;
        let mut answers: Vec<i64> = Vec::new();
        for outcome in join_all(calls.into_iter().flatten()).await {
            answers.push(outcome.expect("a reply"));
        }
        answers.sort_unstable();
        answers.dedup();
        assert_eq!(answers.len(), kept);
        assert_eq!(client.live_requests(), Some(0));
    });
}
