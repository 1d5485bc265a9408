//! Inside monoio, on its io_uring driver or its legacy one (epoll).

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::Poll;

use monoio::net::UnixStream as Watched;

use super::{Hosted, Next, step};

/// Turns `driver` for as long as the returned future is polled; give it to `monoio::spawn`. Ends only
/// with the error that made the driver unusable. Dropping it shuts the driver down, which waits up to
/// a second for the kernel to let go of its sockets.
///
/// It waits by a POLL_ADD on monoio's own ring, or by its epoll where it runs on the legacy driver; no
/// thread and no timer are needed, so deadlines keep the precision of our own timer (monoio's is 1 ms).
/// A panic in a task ends a monoio thread: what may panic is better spawned on the core, where it
/// ends alone.
///
/// # Panics
/// As monoio's sockets do: outside of its runtime.
pub async fn drive(driver: impl Hosted) -> io::Error {
    match turn_for_ever(driver).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn turn_for_ever(mut driver: impl Hosted) -> io::Result<Infallible> {
    // monoio 0.2 offers readiness only on its sockets, but asks nothing else of them for it.
    let ready = driver.ready_fd()?.try_clone_to_owned()?;
    let ready = Watched::from_std(UnixStream::from(ready))?;
    // One wait stands over as many turns as it lasts. `false`: the legacy driver asks for the present
    // state instead of believing an old event.
    let mut readable = pin!(ready.readable(false));
    let mut stands = false;
    poll_fn(|cx| {
        if stands && let Poll::Ready(seen) = readable.as_mut().poll(cx) {
            seen?;
            stands = false;
            readable.set(ready.readable(false));
        }
        if step(&mut driver, cx.waker())? == Next::Wait {
            stands = readable.as_mut().poll(cx)?.is_pending();
            if stands {
                return Poll::Pending;
            }
            readable.set(ready.readable(false));
        }
        // At the queue's end, so that the tasks which the turn woke run first and share a send.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
