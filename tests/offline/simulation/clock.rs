//! Waiting on the simulated clock, and futures that tests are made of.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hedgerow::LocalContext;

/// Ends after so much simulated time.
pub(super) async fn pass(core: &LocalContext, time: Duration) {
    core.sleep(time).await;
}

/// Lets every other task of the core run once, by waking itself.
pub(super) async fn step() {
    let mut woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The output of `future`, unless `limit` ends first; then it is dropped as it is.
pub(super) async fn unless<T>(
    limit: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut limit, mut future) = (pin!(limit), pin!(future));
    poll_fn(|cx| match (future.as_mut().poll(cx), limit.as_mut().poll(cx)) {
        (Poll::Ready(output), _) => Poll::Ready(Some(output)),
        (_, Poll::Ready(())) => Poll::Ready(None),
        _ => Poll::Pending,
    })
    .await
}

/// A future of whatever type.
pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// All outputs; the futures are polled in their order.
pub(super) async fn all<T>(futures: Vec<Boxed<'_, T>>) -> Vec<T> {
    let mut left: Vec<_> = futures.into_iter().map(Ok).collect();
    poll_fn(|cx| {
        let mut over = true;
        for place in &mut left {
            if let Ok(future) = place {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *place = Err(output),
                    Poll::Pending => over = false,
                }
            }
        }
        if over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    left.into_iter().filter_map(Result::err).collect()
}
