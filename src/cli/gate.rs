//! The gate where lanes wait for each other: all begin at the same instant, or none does.

use super::drive::Clock;
use hedgerow_runtime::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a waiting lane looks.
const LOOK: Duration = Duration::from_millis(1);

/// See [`Gate::promise`].
#[derive(Debug)]
pub(crate) struct Promise<'a>(&'a Gate);

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        // An open gate is not looked at for this.
        self.0.broken.store(true, Ordering::Release);
    }
}

/// One gate for all lanes of a run.
#[derive(Debug)]
pub(crate) struct Gate {
    lanes: usize,
    here: AtomicUsize,
    begin_ns: AtomicU64,
    broken: AtomicBool,
}

impl Gate {
    /// A gate that opens when so many lanes are there.
    pub(crate) fn new(lanes: usize) -> Gate {
        let (here, begin_ns) = (AtomicUsize::new(0), AtomicU64::new(0));
        Gate { lanes, here, begin_ns, broken: AtomicBool::new(false) }
    }

    /// A lane's promise to come: while it stands the others wait; when it is dropped before the
    /// gate opened (an error, a panic) nobody waits any longer.
    pub(crate) fn promise(&self) -> Promise<'_> {
        Promise(self)
    }

    /// The instant at which the last lane came.
    fn opened(&self) -> Option<Instant> {
        match self.begin_ns.load(Ordering::Acquire) {
            0 => None,
            ns => Some(Instant::from_nanos(ns)),
        }
    }

    /// Waits for the other lanes, and gives the common begin; `None` if one failed or the user
    /// stopped the run.
    pub(crate) async fn pass<C: Clock>(&self, clock: &C) -> Option<Instant> {
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.lanes {
            let begin = clock.now() + 2 * LOOK;
            self.begin_ns.store(begin.as_nanos(), Ordering::Release);
        }
        loop {
            if let Some(begin) = self.opened() {
                clock.sleep_until(begin).await;
                return Some(begin);
            }
            if self.broken.load(Ordering::Acquire) || super::stop::is_asked() {
                return None;
            }
            clock.sleep_until(clock.now() + LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// A clock that moves on by itself; a sleep yields once, so that others run.
    #[derive(Default)]
    struct Moving(Cell<u64>);

    impl Clock for Moving {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0.get() + 1)
        }

        async fn sleep_until(&self, at: Instant) {
            let mut yielded = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.0.set(self.0.get().max(at.as_nanos()));
        }
    }

    /// Lanes begin at one instant. Fails if the first one begins without the others.
    #[test]
    fn opens_for_all() {
        let (gate, clock) = (Gate::new(2), Moving::default());
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, mut two) = (pin!(gate.pass(&clock)), pin!(gate.pass(&clock)));
        for _ in 0..5 {
            assert!(one.as_mut().poll(&mut cx).is_pending());
        }
        let mut begins = [two.as_mut(), one.as_mut()].map(|mut lane| {
            loop {
                if let Poll::Ready(begin) = lane.as_mut().poll(&mut cx) {
                    break begin;
                }
            }
        });
        begins.sort();
        assert!(begins[0].is_some() && begins[0] == begins[1]);
    }

    /// A lane that failed frees the others. Fails if they wait for it for ever.
    #[test]
    fn broken_promise_frees_the_others() {
        let (gate, clock) = (Gate::new(2), Moving::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut one = pin!(gate.pass(&clock));
        assert!(one.as_mut().poll(&mut cx).is_pending());
        drop(gate.promise());
        let mut ended = one.as_mut().poll(&mut cx);
        while ended.is_pending() {
            ended = one.as_mut().poll(&mut cx);
        }
        assert_eq!(ended, Poll::Ready(None));
    }
}
