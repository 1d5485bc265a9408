//! Inside tokio: a current-thread runtime or a `LocalSet`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Hosted, Next, step};

/// Turns `driver` for as long as the returned future is polled; spawn it with `spawn_local`. Ends
/// only with the error that made the driver unusable. Dropping it shuts the driver down, which waits
/// up to a second for the kernel to let go of its sockets.
///
/// It waits by `AsyncFd`, so it costs no thread and no timer, and deadlines keep the precision of
/// our own timer (tokio's is 1 ms).
///
/// # Panics
/// As `AsyncFd` does: when the runtime was built without its IO driver (`enable_io`).
pub async fn drive(driver: impl Hosted) -> io::Error {
    match turn_for_ever(driver).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn turn_for_ever(mut driver: impl Hosted) -> io::Result<Infallible> {
    tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    // A duplicate, so that tokio's registration may outlive the driver.
    let ready = driver.ready_fd()?.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` is one descriptor for its life, and nobody takes it out of the `AsyncFd`.
    let ready = unsafe { AsyncFd::register_with_interest(ready, Interest::READABLE) }?;
    poll_fn(|cx| {
        // Taken note of before the turn: what becomes readable from here on is a new event.
        if let Poll::Ready(seen) = ready.poll_read_ready(cx) {
            match seen {
                Ok(mut seen) => seen.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match step(&mut driver, cx.waker()) {
            Err(error) => return Poll::Ready(Err(error)),
            Ok(Next::Wait) if ready.poll_read_ready(cx).is_pending() => {}
            // At the queue's end, so that the tasks which the turn woke run first and share a send.
            Ok(_) => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    })
    .await
}
