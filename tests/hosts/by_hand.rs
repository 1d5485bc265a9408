//! A host that is a loop around `poll(2)`.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hedgerow::runtime::caps::Rung;
use hedgerow::{Driver, Embedded, LocalContext};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::load::{RUNGS, client, gets, server, timers};

/// Longer than anything that is waited for here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the descriptor became readable within `limit`.
pub(crate) fn readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let mut asked = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut asked, Some(&limit)).expect("poll") == 1
}

/// A waker that counts, and says whether its task is due.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) rung: AtomicBool,
    pub(crate) times: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    pub(crate) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::Relaxed)
    }
}

/// Turns until the driver says that waiting is safe.
pub(crate) fn settle(driver: &mut Driver) {
    while driver.turn().expect("a turn") || !driver.prepare_park() {}
}

/// Polls `future` as a host's task, and lets the driver wait in `poll(2)` only when it may.
pub(crate) fn block_on<F: Future>(driver: &mut Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    bell.rung.store(true, Ordering::Relaxed);
    loop {
        if bell.take()
            && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return output;
        }
        if !driver.turn().expect("a turn")
            && driver.prepare_park()
            && !bell.rung.load(Ordering::Relaxed)
        {
            assert!(
                readable(driver.ready_fd().expect("made"), PATIENCE),
                "the host sleeps for ever"
            );
        }
    }
}

pub(crate) fn core(rung: Rung) -> (LocalContext, Driver) {
    let (context, driver) = Embedded::builder().rung(rung).build().expect("a core");
    assert_eq!(driver.rung(), rung);
    (context, driver)
}

/// One poll as a host's task does it.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Trap 14. Fails if `ready_fd` misses a reply, a deadline or a connect: the host would sleep.
#[test]
fn gets_and_timers() {
    let (server, options) = server();
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        block_on(&mut driver, async {
            let client = client(&context, &options).await;
            gets(&client, 1_000).await;
            timers(&server, &context, &client).await;
            client.close(Duration::from_secs(1)).await;
        });
    }
}

/// Trap 17. Fails if a child that was forked after the start faults on the ring's memory, works on its
/// parent's descriptors, or says nothing of the fork.
#[test]
fn a_fork_is_told() {
    let (_server, options) = server();
    for rung in RUNGS {
        let (context, mut driver) = core(rung);
        let client = block_on(&mut driver, client(&context, &options));
        // SAFETY: the child calls into nothing that takes a lock of another thread but the allocator,
        // which glibc makes usable in a child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let told = driver.turn().is_err_and(|e| e.to_string().contains("forked"));
            let parks = driver.prepare_park();
            let fd = driver.ready_fd().is_err();
            drop(client);
            drop(driver);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(if told && !parks && fd { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "rung {rung}: the child's status");
        block_on(&mut driver, gets(&client, 10));
    }
}
