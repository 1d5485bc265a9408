use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

static WINDOW_OPEN: AtomicBool = AtomicBool::new(false);
static LANES: Mutex<Vec<&'static Lane>> = Mutex::new(Vec::new());

/// Where one thread or task counts its replies. Counting is a plain load and store, so each lane
/// must have one writer at a time; make one for each task that may run beside another.
#[repr(align(128))]
#[derive(Debug)]
pub struct Lane {
    done: AtomicU64,
    wrong: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl Lane {
    /// A new lane, which lives as long as the process and is part of the result.
    pub fn new() -> &'static Lane {
        let lane: &'static Lane = Box::leak(Box::new(Lane {
            done: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            latency: Mutex::new(histogram()),
        }));
        LANES.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
        lane
    }

    /// Counts `n` replies that were right.
    #[inline]
    pub fn done(&self, n: u64) {
        self.done.store(self.done.load(Relaxed) + n, Relaxed);
    }

    /// Counts one reply, right or wrong; a wrong one fails the run.
    #[inline]
    pub fn check(&self, right: bool) {
        if !right {
            self.wrong.fetch_add(1, Relaxed);
        }
        self.done(1);
    }

    /// Records one latency in ns if the window is open.
    #[inline]
    pub fn took(&self, ns: u64) {
        if WINDOW_OPEN.load(Relaxed) {
            self.latency.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(ns);
        }
    }
}

/// 1 ns to 100 s with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("these bounds are valid")
}

fn lanes() -> Vec<&'static Lane> {
    LANES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Opens or closes the window in which latencies are recorded.
pub(crate) fn set_window(open: bool) {
    WINDOW_OPEN.store(open, Relaxed);
}

/// Replies counted so far in all lanes.
pub(crate) fn done_total() -> u64 {
    lanes().iter().map(|lane| lane.done.load(Relaxed)).sum()
}

/// Wrong replies so far in all lanes.
pub(crate) fn wrong_total() -> u64 {
    lanes().iter().map(|lane| lane.wrong.load(Relaxed)).sum()
}

/// The latencies of all lanes.
pub(crate) fn latencies() -> Histogram<u64> {
    let mut all = histogram();
    for lane in lanes() {
        let one = lane.latency.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(&*one).expect("all lanes have the same bounds");
    }
    all
}
