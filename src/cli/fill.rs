//! Loads the keys that the mix reads, before the run: many in flight, all lanes together.

use super::drive::{Clock, LoadDoor};
use super::load::Order;
use super::mix::Verb;
use super::plan::Plan;
use super::record::Outcome;
use super::size::ValueSize;
use super::stop;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Requests in flight of one lane while it loads.
const IN_FLIGHT: u64 = 64;
/// Bytes in flight of one lane while it loads, values aside that are larger by themselves.
const BYTES_IN_FLIGHT: u64 = 8 << 20;

/// The keys that are still to be loaded.
#[derive(Debug)]
pub(crate) struct Fill {
    verbs: Vec<Verb>,
    keys: u64,
    key_prefix: String,
    value_size: ValueSize,
    seed: u64,
    next: AtomicU64,
    loaded: AtomicU64,
    failed: OnceLock<String>,
}

impl Fill {
    /// What the plan asks for; nothing to do if it asks for none.
    pub(crate) fn new(plan: &Plan) -> Fill {
        Fill {
            verbs: plan.loads.clone(),
            keys: plan.keys,
            key_prefix: plan.key_prefix.clone(),
            value_size: plan.value_size,
            seed: plan.seed,
            next: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            failed: OnceLock::new(),
        }
    }

    /// Keys to load in all.
    pub(crate) fn total(&self) -> u64 {
        self.keys.saturating_mul(self.verbs.len() as u64)
    }

    /// Keys loaded so far.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// The next order, until all are given, one failed, or the user stopped the run.
    fn next(&self, now: hedgerow_runtime::time::Instant) -> Option<Order> {
        if self.failed.get().is_some() || stop::is_asked() {
            return None;
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let verb = *self.verbs.get(usize::try_from(at / self.keys).ok()?)?;
        let key = at % self.keys;
        // A key's size depends on its number alone, so that every run loads the same.
        let mut dice = fastrand::Rng::with_seed(self.seed ^ key);
        let size = self.value_size.draw(&mut dice);
        Some(Order::loading(verb, &self.key_prefix, key, size, now))
    }

    fn in_flight(&self) -> u64 {
        (BYTES_IN_FLIGHT / self.value_size.mean().max(1)).clamp(1, IN_FLIGHT).min(self.total())
    }

    /// Loads this lane's share, which is whatever the other lanes leave. Errors name the first
    /// failure of any lane.
    pub(crate) async fn run<C: Clock, D: LoadDoor>(
        &self,
        clock: &C,
        doors: &[D],
        payload: &[u8],
    ) -> Result<(), String> {
        if doors.is_empty() {
            return Ok(());
        }
        let tasks = (0..self.in_flight() as usize).zip(doors.iter().cycle());
        all(tasks.map(|(_, door)| self.task(clock, door, payload)).collect()).await;
        match self.failed.get() {
            Some(kind) => Err(format!("keys cannot be loaded: {kind} (--no-load skips it)")),
            None => Ok(()),
        }
    }

    async fn task<C: Clock, D: LoadDoor>(&self, clock: &C, door: &D, payload: &[u8]) {
        while let Some(order) = self.next(clock.now()) {
            let value = payload.get(..order.value_len).unwrap_or(payload);
            match D::outcome(door.send(&order, value).await) {
                Outcome::Failed(kind) | Outcome::Lost(kind) => {
                    let _ = self.failed.set(kind.into_owned());
                }
                Outcome::Hit | Outcome::Miss => {
                    self.loaded.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Awaits all futures. Each wake-up polls all of them: they are few, and a batch of replies wakes
/// many at once.
async fn all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut pending: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|cx| {
        pending.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::super::args::BenchArgs;
    use super::super::mix::Mix;
    use super::*;
    use hedgerow_runtime::time::Instant;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::future::{Ready, ready};
    use std::rc::Rc;
    use std::task::{Context, Waker};

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant::ZERO
        }

        async fn sleep_until(&self, _: Instant) {}
    }

    #[derive(Clone)]
    struct Seen(Rc<RefCell<BTreeSet<Vec<u8>>>>, bool);

    impl LoadDoor for Seen {
        type Request = Ready<Outcome>;

        fn send(&self, order: &Order, value: &[u8]) -> Ready<Outcome> {
            assert!((16..=32).contains(&value.len()));
            if self.1 {
                return ready(Outcome::Failed("OOM".into()));
            }
            assert!(self.0.borrow_mut().insert(order.key.as_bytes().to_vec()), "loaded twice");
            ready(Outcome::Hit)
        }

        fn outcome(answer: Outcome) -> Outcome {
            answer
        }
    }

    fn run(fails: bool) -> (Result<(), String>, usize) {
        let plan = Plan::new(BenchArgs {
            mix: Some(Mix::parse("get,hget").unwrap()),
            value_size: Some(ValueSize { min: 16, max: 32 }),
            keys: Some(100),
            ..BenchArgs::default()
        });
        let (fill, door) = (Fill::new(&plan.unwrap()), [Seen(Rc::default(), fails)]);
        let mut run = Box::pin(fill.run(&Still, &door, &[b'x'; 32]));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(ended) = run.as_mut().poll(&mut cx) else { panic!("nothing to wait for") };
        drop(run);
        let seen = door[0].0.borrow().len();
        (ended, seen)
    }

    /// Every key of every type is loaded once. Fails if the last key or one type is left out.
    #[test]
    fn loads_every_key_once() {
        assert_eq!(run(false), (Ok(()), 200));
    }

    /// A failure ends loading with its kind. Fails if a full server is loaded on and on.
    #[test]
    fn failure_ends_loading() {
        let (ended, seen) = run(true);
        assert!(ended.unwrap_err().contains("OOM"));
        assert_eq!(seen, 0);
    }
}
