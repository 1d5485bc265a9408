//! The gate where lanes wait for each other: all begin at the same instant, or none does.

use super::drive::Clock;
use hedgerow_runtime::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a waiting lane looks.
const LOOK: Duration = Duration::from_millis(1);

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

    /// A lane cannot come, so nobody waits for it.
    pub(crate) fn break_up(&self) {
        self.broken.store(true, Ordering::Release);
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
