//! What every host is asked to do.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use hedgerow::host::Hosted;
use hedgerow::runtime::caps::Rung;
use hedgerow::testing::Server;
use hedgerow::{Driver, Embedded, LocalClient, LocalContext, Options, prelude::*};

pub(crate) const GETS: usize = 10_000;
pub(crate) const TASKS: usize = 64;

/// The rungs that a host may be on.
pub(crate) const RUNGS: [Rung; 3] = [Rung::U2, Rung::U1, Rung::Epoll];

/// A server and how to reach it.
pub(crate) fn server() -> (Server, Options) {
    let server = Server::start().expect("the test server starts");
    let options = Options::from_url(&server.url()).expect("its own URL");
    (server, options)
}

/// A client with the key that [`gets`] reads.
pub(crate) async fn client(context: &LocalContext, options: &Options) -> LocalClient {
    let client = context.connect(options).await.expect("connects");
    client.set("greeting", "hello").await.expect("SET");
    client
}

/// So many GETs, one after the other.
pub(crate) async fn gets(client: &LocalClient, count: usize) {
    for _ in 0..count {
        let value: String = client.get("greeting").await.expect("GET");
        assert_eq!(value, "hello");
    }
}

/// The share of one of [`TASKS`] tasks.
pub(crate) const fn share(task: usize) -> usize {
    GETS * (task + 1) / TASKS - GETS * task / TASKS
}

/// A timer set by the host's task ends, not early and without anything else that happens; then a
/// command whose limit counts from now, though the last turn is long ago.
pub(crate) async fn timers(server: &Server, context: &LocalContext, client: &LocalClient) {
    let start = Instant::now();
    context.sleep(Duration::from_millis(3)).await;
    let slept = start.elapsed();
    assert!(slept >= Duration::from_millis(3), "woke after {slept:?}");
    std::thread::sleep(Duration::from_millis(60));
    let value: String =
        client.get("greeting").timeout(Duration::from_millis(50)).await.expect("not late");
    assert_eq!(value, "hello");
    server.faults().pause();
    let start = Instant::now();
    let limit = Duration::from_millis(5);
    let late = client.get::<String>("greeting").timeout(limit).await.expect_err("paused");
    server.faults().resume();
    assert_eq!(late.kind(), hedgerow::ErrorKind::Timeout);
    assert!(start.elapsed() >= limit, "gave up after {:?}", start.elapsed());
}

/// A driver that counts its turns.
pub(crate) struct Counted {
    driver: Driver,
    turns: Rc<Cell<usize>>,
}

/// A core on `rung` in this thread, and how many turns its driver takes.
pub(crate) fn counted(rung: Rung) -> (LocalContext, Counted, Rc<Cell<usize>>) {
    let (context, driver) = Embedded::builder().rung(rung).build().expect("a core");
    assert_eq!(driver.rung(), rung);
    let turns = Rc::new(Cell::new(0));
    (context, Counted { driver, turns: turns.clone() }, turns)
}

impl Hosted for Counted {
    fn turn(&mut self) -> io::Result<bool> {
        self.turns.set(self.turns.get() + 1);
        self.driver.turn()
    }
    fn ready_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.driver.ready_fd()
    }
    fn prepare_park(&mut self) -> bool {
        self.driver.prepare_park()
    }
    fn set_waker(&mut self, waker: &Waker) {
        self.driver.set_waker(waker);
    }
}

/// A driver without work waits instead of turning, also after a wake from another thread: fewer than
/// `limit` turns in 50 ms.
pub(crate) async fn idle(context: &LocalContext, turns: &Cell<usize>, limit: usize) {
    let (wakers, waker) = std::sync::mpsc::channel::<Waker>();
    let mut sent = false;
    let task = context.spawn(std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut sent, true) {
            return std::task::Poll::Ready(());
        }
        wakers.send(cx.waker().clone()).expect("the test waits");
        std::task::Poll::Pending
    }));
    context.sleep(Duration::from_millis(1)).await;
    let waker = waker.recv().expect("polled");
    let thread = std::thread::spawn(move || waker.wake());
    task.await.expect("no panic");
    thread.join().expect("woke");
    let before = turns.get();
    context.sleep(Duration::from_millis(50)).await;
    let taken = turns.get() - before;
    assert!(taken < limit, "{taken} turns without any work");
}
