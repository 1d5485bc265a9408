//! A simulated clock, tasks and server for the load's tests: seconds of load in milliseconds.

use super::drive::{Clock, Cost, Ground, LoadDoor, Measured, dispatcher, sender, watch};
use super::load::{Frame, Load, Order};
use super::plan::Plan;
use super::record::Outcome;
use hedgerow_runtime::time::Instant;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

type Task = Pin<Box<dyn Future<Output = ()>>>;
/// When the reply of an order is there that arrives at an instant; nanoseconds.
type Answers = dyn Fn(&Order, u64) -> u64;
type Ready = Arc<Mutex<VecDeque<usize>>>;

/// Clock, timers and tasks.
pub(crate) struct World {
    now_ns: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    timer_id: Cell<u64>,
    tasks: RefCell<Vec<Option<Task>>>,
    ready: Ready,
    load: RefCell<Load>,
    /// When the user presses Ctrl-C.
    stop_at: Instant,
    server: Box<Answers>,
}

struct TaskWaker(usize, Ready);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push_back(self.0);
    }
}

#[derive(Clone)]
struct Here(Rc<World>);

impl Here {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.push(Some(Box::pin(task)));
        self.0.ready.lock().unwrap().push_back(tasks.len() - 1);
    }

    /// Runs until nothing is left to do.
    fn run(&self) {
        loop {
            let next = self.0.ready.lock().unwrap().pop_front();
            if let Some(index) = next {
                let task = self.0.tasks.borrow_mut()[index].take();
                let Some(mut task) = task else { continue };
                let waker = Waker::from(Arc::new(TaskWaker(index, self.0.ready.clone())));
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    self.0.tasks.borrow_mut()[index] = Some(task);
                }
                continue;
            }
            let timer = self.0.timers.borrow_mut().pop_first();
            let Some(((at, _), waker)) = timer else { return };
            self.0.now_ns.set(self.0.now_ns.get().max(at));
            waker.wake();
        }
    }
}

impl Clock for Here {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now_ns.get())
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        let world = self.0.clone();
        poll_fn(move |cx| {
            if world.now_ns.get() >= at.as_nanos() {
                return Poll::Ready(());
            }
            let id = world.timer_id.get();
            world.timer_id.set(id + 1);
            world.timers.borrow_mut().insert((at.as_nanos(), id), cx.waker().clone());
            Poll::Pending
        })
    }
}

impl Ground for Here {
    fn load<R>(&self, f: impl FnOnce(&mut Load) -> R) -> R {
        f(&mut self.0.load.borrow_mut())
    }

    fn cost(&self) -> Cost {
        Cost { cpu_ns: self.0.now_ns.get(), enters: Some(1) }
    }

    fn is_stopped(&self) -> bool {
        self.now() >= self.0.stop_at
    }

    fn tell(&self, _: (u64, u64)) {}
}

impl LoadDoor for Here {
    type Request = Pin<Box<dyn Future<Output = Outcome>>>;

    fn send(&self, order: &Order, value: &[u8]) -> Self::Request {
        assert_eq!(value.len(), order.value_len);
        let (here, at) = (self.clone(), (self.0.server)(order, self.0.now_ns.get()));
        Box::pin(async move {
            here.sleep_until(Instant::from_nanos(at)).await;
            if here.now() >= BEGIN + DIES { Outcome::Lost("gone".into()) } else { Outcome::Hit }
        })
    }

    fn outcome(answer: Outcome) -> Outcome {
        answer
    }
}

/// No request of a simulated load is answered so long after its begin.
pub(crate) const DIES: Duration = Duration::from_secs(60);

/// When every simulated load begins.
pub(crate) const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// Runs one lane of `plan` against a server that tells, for a request that arrives at an instant
/// (nanoseconds after the begin), when its reply is there; Ctrl-C comes `stop_after` the begin.
pub(crate) fn run(
    plan: &Plan,
    stop_after: Duration,
    server: impl Fn(&Order, u64) -> u64 + 'static,
) -> Measured {
    let begin = BEGIN.as_nanos();
    let load = Load::new(plan, Frame::new(plan, BEGIN), 0, 0).unwrap();
    let here = Here(Rc::new(World {
        now_ns: Cell::new(begin),
        timers: RefCell::default(),
        timer_id: Cell::new(0),
        tasks: RefCell::default(),
        ready: Ready::default(),
        load: RefCell::new(load),
        stop_at: BEGIN + stop_after,
        server: Box::new(move |order, at| server(order, at - begin).saturating_add(begin)),
    }));
    let payload: Arc<[u8]> = vec![b'x'; plan.value_size.max].into();
    for index in 0..plan.tasks(0) {
        here.spawn(sender(here.clone(), here.clone(), index, payload.clone()));
    }
    if !plan.is_closed() {
        here.spawn(dispatcher(here.clone(), here.clone()));
    }
    let measured = Rc::new(RefCell::new(None));
    let (out, watcher) = (measured.clone(), here.clone());
    here.spawn(async move {
        *out.borrow_mut() = Some(watch(&watcher, |_| ()).await);
        // The lane ends here, whatever its tasks still wait for.
        watcher.0.timers.borrow_mut().clear();
        watcher.0.ready.lock().unwrap().clear();
    });
    here.run();
    here.0.tasks.borrow_mut().clear();
    measured.take().unwrap()
}

mod tests {
    use super::super::args::{Args, Task as Typed};
    use super::super::mix::Verb;
    use super::super::report::Figures;
    use super::*;
    use clap::Parser;

    const NEVER: Duration = Duration::from_secs(1 << 30);

    fn plan(typed: &str) -> Plan {
        let words = ["hedgerow", "bench", "--seed", "1", "--keys", "10", "--warmup", "0s"];
        let words = words.into_iter().chain(typed.split_whitespace());
        match Args::try_parse_from(words).unwrap().task {
            Typed::Bench(args) => Plan::new(*args).unwrap(),
            _ => unreachable!("the word bench was given"),
        }
    }

    fn figures(plan: &Plan, measured: &Measured) -> Figures {
        Figures::new(plan, measured)
    }

    fn near(value: Option<f64>, aim: f64, fraction: f64) {
        let value = value.unwrap();
        assert!((value - aim).abs() <= aim * fraction, "{value} is not near {aim}");
    }

    /// A server that answers in 0.1 ms and stalls from 5 s to 6 s.
    fn stalls(_: &Order, at: u64) -> u64 {
        let stalled = (5_000_000_000..6_000_000_000).contains(&at);
        if stalled { 6_000_100_000 } else { at + 100_000 }
    }

    /// Case behaviour/27: a stall of a second. Fails if latency counts from the real send, or if
    /// requests that were due in the stall are left out.
    #[test]
    fn stall_shows_in_the_percentiles() {
        for depth in ["", "--depth 1", "--depth 16 --connections 2"] {
            for arrivals in ["poisson", "constant"] {
                let typed = format!("--rate 1000 --arrivals {arrivals} --mix get {depth}");
                let plan = plan(&typed);
                let figures = figures(&plan, &run(&plan, NEVER, stalls));
                near(Some(figures.requests as f64), 10_000.0, 0.03);
                assert!(figures.latency_us.p85.unwrap() < 10_000.0);
                near(figures.latency_us.p95, 500_000.0, 0.15);
                near(figures.latency_us.p99, 900_000.0, 0.15);
                near(figures.latency_us.max, 1_050_000.0, 0.05);
                assert_eq!((figures.unsent, figures.unanswered), (0, 0));
                if depth == "--depth 1" {
                    // One request was in the server's hands: the others waited on our side.
                    assert!(figures.service_us.p99.unwrap() < 200.0);
                    near(figures.service_us.max, 1_000_000.0, 0.05);
                }
            }
        }
    }

    /// Case behaviour/27, closed loop. Fails if the figures do not say that the loop is closed.
    #[test]
    fn closed_loop_says_so() {
        let plan = plan("--mix get");
        let figures = figures(&plan, &run(&plan, NEVER, stalls));
        assert_eq!((figures.kind, figures.asked_per_s), ("closed", None));
        near(Some(figures.requests as f64), 90_000.0, 0.01);
        assert!(figures.latency_us.p99_99.unwrap() < 200.0, "the stall is one sample");
    }

    /// Case behaviour/27, a rate out of reach. Fails if the run overruns, or if a backlog that was
    /// never sent goes unsaid.
    #[test]
    fn rate_out_of_reach() {
        for depth in ["", "--depth 4"] {
            let plan = plan(&format!("--rate 1000 --mix get {depth}"));
            let free = Cell::new(0);
            let measured = run(&plan, NEVER, move |_, at| {
                free.set(free.get().max(at) + 2_000_000);
                free.get()
            });
            let figures = figures(&plan, &measured);
            assert_eq!(figures.asked_per_s, Some(1000.0));
            near(Some(figures.throughput_per_s), 500.0, 0.02);
            assert!(figures.elapsed_s <= 11.01, "{}", figures.elapsed_s);
            near(figures.latency_us.max, 5_000_000.0, 0.15);
            let asked = figures.requests + figures.unsent + figures.unanswered;
            near(Some(asked as f64), 10_000.0, 0.03);
            assert!(figures.unsent > 3000);
        }
    }

    fn two_commands(order: &Order, at: u64) -> u64 {
        at + if order.verb == Verb::Set { 400_000 } else { 900_000 }
    }

    /// Case behaviour/28. Fails if a mean is rounded, or a total is not the sum of its parts.
    #[test]
    fn totals_agree() {
        let plan = plan("--mix set:1,get:10");
        let mut measured = run(&plan, NEVER, two_commands);
        let one = figures(&plan, &measured);
        let (set, get) = (&one.by_command["set"], &one.by_command["get"]);
        near(set.latency_us.mean, 400.0, 1e-9);
        near(get.latency_us.mean, 900.0, 1e-9);
        assert_eq!(set.requests + get.requests, one.requests);
        let weighted =
            (400.0 * set.requests as f64 + 900.0 * get.requests as f64) / one.requests as f64;
        near(one.latency_us.mean, weighted, 1e-9);
        assert_eq!(one.per_second.iter().map(|s| s.requests).sum::<u64>(), one.requests);
        assert_eq!(one.latency_us.p100, one.latency_us.max);
        let again = measured.load.recorder.clone();
        measured.merge_run(&run(&plan, NEVER, two_commands));
        measured.merge_run(&run(&plan, NEVER, two_commands));
        let all = figures(&plan, &measured);
        assert_eq!(all.requests, 3 * again.total().latency.count());
        near(Some(all.throughput_per_s), one.throughput_per_s, 1e-3);
        assert_eq!(all.per_second.iter().map(|s| s.requests).sum::<u64>(), all.requests);
    }

    /// A number of requests is met exactly, the warm-up aside. Fails if warm-up requests count.
    #[test]
    fn counted_requests() {
        for typed in ["--rate 2000", "--depth 7", "--rate 100000 --depth 1"] {
            let plan = plan(&format!("--requests 1000 --mix get {typed}"));
            let plan = Plan { warmup: Duration::from_millis(100), ..plan };
            let figures = figures(&plan, &run(&plan, NEVER, |_, at| at + 100_000));
            assert_eq!((figures.requests, figures.unsent), (1000, 0), "{typed}");
            assert_eq!(figures.per_second[0].second, 0);
        }
    }

    /// Ctrl-C: the figures so far. Fails if the time that never was enters the throughput.
    #[test]
    fn stop_gives_the_figures_so_far() {
        for typed in ["", "--rate 1000", "--requests 1000000000", "--rate 0.15 --arrivals constant"]
        {
            let plan = plan(&format!("--mix get {typed}"));
            let measured = run(&plan, Duration::from_secs(2), |_, at| at + 1_000_000);
            let figures = figures(&plan, &measured);
            assert!(figures.interrupted && (2.0..2.2).contains(&figures.elapsed_s), "{typed}");
            if !typed.starts_with("--rate 0.15") {
                near(Some(figures.throughput_per_s), 1000.0, 0.1);
            }
        }
    }

    /// A server that dies ends a run that counts requests. Fails if errors pass for replies, so that
    /// the program goes on for ever.
    #[test]
    fn dead_server_ends_the_run() {
        for typed in ["", "--rate 500"] {
            let plan = plan(&format!("--mix get --requests 1000000000 {typed}"));
            let figures = figures(&plan, &run(&plan, NEVER, |_, at| at + 1_000_000));
            assert!(figures.stalled && (74.0..77.0).contains(&figures.elapsed_s), "{typed}");
            assert!(figures.requests > 25_000 && figures.errors_by_kind["gone"] > 1000);
        }
    }

    /// A server that never answers ends the run. Fails if the load waits for it without bound.
    #[test]
    fn silent_server_ends_the_run() {
        for (typed, at_most_s) in [("--requests 10", 17.0), ("", 11.1), ("--rate 1000", 11.1)] {
            let plan = plan(&format!("--mix get {typed}"));
            let measured = run(&plan, NEVER, |_, _| u64::MAX / 2);
            let figures = figures(&plan, &measured);
            assert_eq!(figures.requests, 0);
            assert!(figures.unanswered > 0 && figures.elapsed_s < at_most_s, "{typed}");
            assert_eq!(figures.stalled, typed == "--requests 10");
        }
    }
}
