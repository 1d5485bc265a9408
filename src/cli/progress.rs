//! The progress bar, on standard error where that is a terminal.

use super::fill::Fill;
use super::plan::{Plan, Until};
use hedgerow_runtime::time::Instant;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(200);

/// What lanes tell about a run: one writer per lane, each on cells of its own.
#[derive(Debug)]
pub(crate) struct Told {
    begin_ns: AtomicU64,
    lanes: Vec<Lane>,
}

/// Padded, so that lanes share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    requests: AtomicU64,
    errors: AtomicU64,
}

impl Told {
    /// For so many lanes.
    pub(crate) fn new(lanes: usize) -> Told {
        let lanes = (0..lanes).map(|_| Lane::default()).collect();
        Told { begin_ns: AtomicU64::new(0), lanes }
    }

    /// The load begins.
    pub(crate) fn begin(&self, at: Instant) {
        self.begin_ns.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Lane `lane`'s successes and errors so far.
    pub(crate) fn tell(&self, lane: usize, (requests, errors): (u64, u64)) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.requests.store(requests, Ordering::Relaxed);
            lane.errors.store(errors, Ordering::Relaxed);
        }
    }

    fn total(&self) -> (u64, u64) {
        let sum = |f: fn(&Lane) -> &AtomicU64| {
            self.lanes.iter().map(|lane| f(lane).load(Ordering::Relaxed)).sum()
        };
        (sum(|lane| &lane.requests), sum(|lane| &lane.errors))
    }

    /// Time since the load began; `None` before.
    fn running(&self) -> Option<Duration> {
        match self.begin_ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Instant::now().since(Instant::from_nanos(ns))),
        }
    }
}

/// A bar that is drawn until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    over: Arc<AtomicBool>,
    drawing: Option<JoinHandle<()>>,
}

impl Progress {
    /// Draws the progress of run `run` (from 0).
    pub(crate) fn start(plan: &Plan, run: u32, told: Arc<Told>, fill: Arc<Fill>) -> Progress {
        let (warmup, until, runs) = (plan.warmup, plan.until, plan.runs);
        Progress::draw(move || {
            let (at, length, text) = state(&told, &fill, warmup, until);
            let text = if runs > 1 { format!("run {} of {runs}: {text}", run + 1) } else { text };
            (at, length, text)
        })
    }

    /// Draws what `state` says: position, length and text.
    pub(crate) fn draw(state: impl Fn() -> (u64, u64, String) + Send + 'static) -> Progress {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let drawing = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            while !ended.load(Ordering::Relaxed) {
                let (at, length, text) = state();
                bar.set_length(length);
                bar.set_position(at.min(length));
                bar.set_message(text);
                std::thread::park_timeout(DRAW);
            }
            bar.finish_and_clear();
        });
        // Without a thread there is no bar, and the run goes on.
        Progress { over, drawing: drawing.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(drawing) = self.drawing.take() {
            drawing.thread().unpark();
            let _ = drawing.join();
        }
    }
}

/// Position, length and text of the bar.
fn state(told: &Told, fill: &Fill, warmup: Duration, until: Until) -> (u64, u64, String) {
    let Some(running) = told.running() else {
        return (fill.loaded(), fill.total().max(1), format!("loading keys: {}", fill.loaded()));
    };
    let (requests, errors) = told.total();
    if running < warmup {
        return (0, 1, "warming up".into());
    }
    let measuring = running - warmup;
    let text = format!("{:.0} s, {requests} requests, {errors} errors", measuring.as_secs_f64());
    match until {
        Until::Time(time) => (measuring.as_millis() as u64, time.as_millis() as u64, text),
        Until::Requests(all) => (requests + errors, all, text),
    }
}
