//! A load on a real cluster, and what holds of its replies whatever happens to the nodes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use hedgerow::config::Cluster as Settings;
use hedgerow::prelude::*;
use hedgerow::{Error, ErrorKind, Fate, Options};

use crate::cluster_client::options_of;
use crate::cluster_fleet::Cluster;
use crate::placement::{Client, Placement, until};

/// The time of a command.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);
/// How much later than that a busy machine may let it end.
const SLACK: Duration = Duration::from_millis(700);
/// Between two commands of one key.
const BREAK: Duration = Duration::from_millis(2);

/// Options of a client that is not to wait for long.
pub(crate) fn options_under_load(cluster: &Cluster) -> Options {
    let mut options = options_of(cluster);
    options.command_timeout = Some(TIMEOUT);
    options.connect_timeout = 2 * TIMEOUT;
    let mut settings = Settings::default();
    // Only what happens says that something happened.
    settings.refresh_interval = None;
    options.cluster = Some(settings);
    options
}

/// Runs what blocks on a thread of its own, so that the load goes on.
pub(crate) async fn beside<P: Placement, T: Send + 'static>(
    place: &P,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(work);
    until(place, what, || thread.is_finished()).await;
    thread.join().unwrap_or_else(|_| panic!("{what}"))
}

/// A command that ended.
#[derive(Debug)]
struct Call {
    begun: Instant,
    ended: Instant,
    error: Option<Error>,
}

/// What was done with one key: a counter, and a text beside it in the same slot.
#[derive(Debug)]
struct Line {
    key: String,
    /// INCRs that were answered.
    acknowledged: Cell<u64>,
    /// INCRs that may have run.
    unknown: Cell<u64>,
    /// The number of the last SET, and of the last that was answered.
    set: Cell<(u64, u64)>,
    /// Acknowledged writes that were not there any more.
    lost: Cell<u64>,
    calls: RefCell<Vec<Call>>,
}

impl Line {
    fn new(key: &str) -> Line {
        Line {
            key: key.to_owned(),
            acknowledged: Cell::default(),
            unknown: Cell::default(),
            set: Cell::default(),
            lost: Cell::default(),
            calls: RefCell::default(),
        }
    }

    /// The reply to a command; `None` for an error, which is written down.
    async fn timed<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Fate> {
        let begun = Instant::now();
        let outcome = request.await;
        let ended = Instant::now();
        let took = ended - begun;
        assert!(took <= TIMEOUT + SLACK, "{}: {took:?}: {:?}", self.key, outcome.err());
        let (outcome, error) = match outcome {
            Ok(value) => (Ok(value), None),
            Err(error) => (Err(error.fate()), Some(error)),
        };
        self.calls.borrow_mut().push(Call { begun, ended, error });
        outcome
    }

    /// One round of commands.
    async fn turn<C: Client>(&self, client: &C) {
        match self.timed(client.incr(&self.key)).await {
            Ok(sum) => {
                let least = self.acknowledged.get() + 1;
                self.check_sum(sum as u64, least);
                self.acknowledged.set(least);
            }
            // Also a server's error ends it for good.
            Err(Fate::NotSent | Fate::Answered) => {}
            Err(Fate::Unknown) => self.unknown.set(self.unknown.get() + 1),
        }
        let text_key = format!("{{{}}}text", self.key);
        let (last, answered) = self.set.get();
        let number = last + 1;
        self.set.set((number, answered));
        let text = format!("{}={number}", self.key);
        if self.timed(client.set(&text_key, text)).await.is_ok() {
            self.set.set((number, number));
        }
        if let Ok(text) = self.timed(client.get::<Option<String>>(&text_key)).await {
            self.check_text(text);
        }
    }

    /// A counter says how many INCRs were run: all that were acknowledged, and none twice.
    fn check_sum(&self, sum: u64, least: u64) {
        let most = least + self.unknown.get();
        assert!(sum <= most, "{}: {sum}, though at most {most} were sent", self.key);
        self.lost.set(self.lost.get().max(least.saturating_sub(sum)));
    }

    fn check_text(&self, text: Option<String>) {
        let (last, answered) = self.set.get();
        let number = text
            .as_deref()
            .map_or(Some(0), |text| text.strip_prefix(&self.key)?.strip_prefix('=')?.parse().ok());
        let number: u64 = number.unwrap_or_else(|| panic!("{}: another's {text:?}", self.key));
        assert!(number <= last, "{}: {number} of {last}", self.key);
        self.lost.set(self.lost.get().max(answered.saturating_sub(number)));
    }
}

/// Tasks that write and read, each with a key of its own.
pub(crate) struct Load {
    lines: Vec<Rc<Line>>,
    stop: Rc<Cell<bool>>,
    tasks: Vec<oneshot::Receiver<()>>,
}

impl Load {
    /// Begins; returns once each key was written.
    pub(crate) async fn start<P: Placement>(
        place: &P,
        client: &P::Client,
        keys: &[String],
    ) -> Load {
        let stop = Rc::new(Cell::new(false));
        let lines: Vec<_> = keys.iter().map(|key| Rc::new(Line::new(key))).collect();
        let task = |line: &Rc<Line>| {
            let (line, stop) = (line.clone(), stop.clone());
            let (place, client) = (place.clone(), client.clone());
            let own = place.clone();
            place.spawn(async move {
                while !stop.get() {
                    line.turn(&client).await;
                    own.pause(BREAK).await;
                }
            })
        };
        let tasks = lines.iter().map(task).collect();
        let load = Load { lines, stop, tasks };
        load.goes_on(place, 20).await;
        load
    }

    /// Waits until each key had so many more commands that succeeded.
    pub(crate) async fn goes_on<P: Placement>(&self, place: &P, count: usize) {
        let done = |line: &Rc<Line>| {
            line.calls.borrow().iter().filter(|call| call.error.is_none()).count()
        };
        let goals: Vec<usize> = self.lines.iter().map(|line| done(line) + count).collect();
        let is_there = || self.lines.iter().zip(&goals).all(|(line, goal)| done(line) >= *goal);
        until(place, "the load", is_there).await;
    }

    /// By key, how many INCRs were acknowledged by now.
    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        self.lines.iter().map(|line| line.acknowledged.get()).collect()
    }

    /// Ends it, and compares what is there with what was acknowledged, of which so many as `needed` says
    /// of a key by its place have to be there.
    pub(crate) async fn end<P: Placement>(
        mut self,
        client: &P::Client,
        needed: impl Fn(usize) -> u64,
    ) -> Calls {
        self.stop.set(true);
        for task in self.tasks.drain(..) {
            task.await.expect("no task met a wrong reply");
        }
        for (n, line) in self.lines.iter().enumerate() {
            let sum: Option<u64> = client.get(&line.key).await.expect("the sum");
            let (sum, acknowledged) = (sum.unwrap_or(0), line.acknowledged.get());
            line.check_sum(sum, acknowledged);
            let needed = needed(n).min(acknowledged);
            assert!(sum >= needed, "{}: {sum} of {needed} acknowledged", line.key);
        }
        Calls(self.lines)
    }
}

/// All commands of a load that has ended.
pub(crate) struct Calls(Vec<Rc<Line>>);

/// What a fault did to some keys.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// From the fault to the first error.
    pub(crate) noticed: Option<Duration>,
    /// From the fault to the first success after that error.
    pub(crate) back: Option<Duration>,
    /// Longest time without a success.
    pub(crate) longest: Duration,
    /// How often each error came.
    pub(crate) errors: BTreeMap<String, usize>,
}

impl Calls {
    /// What happened to these keys since `fault`.
    pub(crate) fn gap(&self, is_affected: impl Fn(&str) -> bool, fault: Instant) -> Gap {
        let lines: Vec<_> = self.0.iter().filter(|line| is_affected(&line.key)).collect();
        let calls: Vec<_> = lines.iter().map(|line| line.calls.borrow()).collect();
        let mut calls: Vec<&Call> = calls.iter().flat_map(|calls| calls.iter()).collect();
        calls.sort_by_key(|call| call.ended);
        let mut gap = Gap::default();
        let mut last = fault;
        for call in calls.into_iter().filter(|call| call.ended > fault) {
            match &call.error {
                Some(error) => {
                    gap.noticed.get_or_insert(call.ended - fault);
                    *gap.errors.entry(told(error)).or_default() += 1;
                }
                None => {
                    gap.longest = gap.longest.max(call.ended - last);
                    last = call.ended;
                    if gap.noticed.is_some() && call.begun > fault {
                        gap.back.get_or_insert(call.ended - fault);
                    }
                }
            }
        }
        gap
    }

    /// The time that all but one in a hundred commands of these keys took, from `since` on.
    pub(crate) fn p99(&self, is_meant: impl Fn(&str) -> bool, since: Instant) -> Duration {
        let mut took: Vec<Duration> = Vec::new();
        for line in self.0.iter().filter(|line| is_meant(&line.key)) {
            let calls = line.calls.borrow();
            let calls = calls.iter().filter(|call| call.begun >= since);
            took.extend(calls.map(|call| call.ended - call.begun));
        }
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }

    /// The mean time of those that failed as their node was known to be dead.
    pub(crate) fn refusal(&self) -> Option<Duration> {
        let mut took = Vec::new();
        for line in &self.0 {
            for call in line.calls.borrow().iter() {
                let error = call.error.as_ref();
                if error.is_some_and(|error| error.kind() == ErrorKind::NotConnected) {
                    took.push(call.ended - call.begun);
                }
            }
        }
        let count = u32::try_from(took.len()).ok().filter(|count| *count > 0)?;
        Some(took.iter().sum::<Duration>() / count)
    }

    /// How many acknowledged writes were not there any more.
    pub(crate) fn lost(&self) -> u64 {
        self.0.iter().map(|line| line.lost.get()).sum()
    }

    /// How many INCRs were acknowledged, and how many may have run.
    pub(crate) fn sums(&self) -> (u64, u64) {
        let sum = |count: fn(&Line) -> u64| self.0.iter().map(|line| count(line)).sum();
        (sum(|line| line.acknowledged.get()), sum(|line| line.unknown.get()))
    }
}

/// An error in a few words.
fn told(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split([';', '(']).next().unwrap_or_default().trim().to_owned();
    format!("{:?}, {:?}: {text}", error.kind(), error.fate())
}
