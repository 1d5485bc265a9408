//! Inside glommio, in a latency queue.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::AsyncRead;
use glommio::net::UnixStream;
use glommio::timer::Timer;
use glommio::{Latency, Shares, Task};

use super::{Hosted, Next, step};

/// How long other queues may run before glommio comes back to the driver's.
const LATENCY: Duration = Duration::from_micros(100);
/// The driver's share of a contended executor, the most that glommio grants.
const SHARES: usize = 1000;

/// The longest that a wait lasts after work, and when idle; it doubles in between.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

/// Spawns [`drive`] into a latency queue of its own, which is where it belongs: in the common queue
/// replies wait behind whatever the application computes. Dropping the task, or cancelling it, shuts
/// the driver down.
///
/// # Errors
/// When glommio refuses the queue.
///
/// # Panics
/// As glommio does: outside of its executor.
pub fn spawn(driver: impl Hosted + 'static) -> io::Result<Task<io::Error>> {
    let matters = Latency::Matters(LATENCY);
    let queue = glommio::executor().create_task_queue(Shares::Static(SHARES), matters, "hedgerow");
    glommio::spawn_local_into(drive(driver), queue).map_err(|e| io::Error::other(e.to_string()))
}

/// Turns `driver` for as long as the returned future is polled. Ends only with the error that made the
/// driver unusable. Dropping it shuts the driver down, which waits up to a second for the kernel to
/// let go of its sockets. Prefer [`spawn`].
///
/// glommio 0.9 has no readiness call for foreign descriptors. What comes nearest: a stream that it
/// makes from a descriptor begins with a POLL_ADD on it, and reads only when that is done. So each wait
/// costs a duplicate of the driver's descriptor, the POLL_ADD, and a read that fails because the
/// descriptor is no socket, which is the news that it is readable. This holds for 0.9.0, to which the
/// dependency is pinned. Each wait is bounded besides: by 1 ms after work, doubling to 64 ms when idle.
///
/// Experimental: under load glommio was seen to sleep on with this task's wait and timer outstanding.
/// The cause is not known yet; use another host where that matters.
///
/// # Panics
/// As glommio does: outside of its executor.
pub async fn drive(driver: impl Hosted) -> io::Error {
    match turn_for_ever(driver).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn turn_for_ever(mut driver: impl Hosted) -> io::Result<Infallible> {
    let (mut standing, mut bound) = (None::<Watch>, SHORTEST);
    let mut timer: Option<Timer> = None;
    poll_fn(|cx| {
        let late = timer.as_mut().is_some_and(|timer| Pin::new(timer).poll(cx).is_ready());
        if late {
            (timer, bound) = (None, (bound * 2).min(LONGEST));
        }
        if late || standing.as_mut().is_some_and(|watch| watch.is_readable(cx)) {
            standing = None;
        }
        if step(&mut driver, cx.waker())? == Next::Turn {
            (timer, bound) = (None, SHORTEST);
            // At the queue's end, so that the tasks which the turn woke run first and share a send.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let watch = match &mut standing {
            Some(watch) => watch,
            None => standing.insert(Watch::new(driver.ready_fd()?)?),
        };
        let over = watch.is_readable(cx)
            || Pin::new(timer.get_or_insert_with(|| Timer::new(bound))).poll(cx).is_ready();
        if over {
            (standing, timer) = (None, None);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// One wait for a descriptor.
struct Watch(UnixStream);

impl Watch {
    fn new(fd: BorrowedFd<'_>) -> io::Result<Watch> {
        let fd = fd.try_clone_to_owned()?.into_raw_fd();
        // SAFETY: a duplicate that nobody else owns. That it is no socket only makes reads fail.
        Ok(Watch(unsafe { UnixStream::from_raw_fd(fd) }))
    }

    fn is_readable(&mut self, cx: &mut Context<'_>) -> bool {
        // The error of a read from what is no socket (or anything else that ended the wait).
        Pin::new(&mut self.0).poll_read(cx, &mut [0]).is_ready()
    }
}
