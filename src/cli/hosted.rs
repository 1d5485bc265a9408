//! The load from a client hosted in a tokio runtime: each worker thread's worth of tasks is a
//! lane. Tasks may move between the threads, so a lane's load stands behind a lock.

use super::bench::Run;
use super::door::Through;
use super::drive::{Clock, Cost, Ground, LoadDoor, Measured, dispatcher, sender, watch};
use super::load::Load;
use super::nodes::NodeBook;
use super::plan::Plan;
use super::target::one_line;
use super::threads::Threads;
use super::{lane, stop};
use hedgerow::{Client, Options};
use hedgerow_runtime::time::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};

/// Makes a runtime of so many workers and a client in it, and runs all lanes over that client.
pub(crate) fn load(
    workers: u32,
    plan: &Arc<Plan>,
    shared: &Arc<Run>,
    options: &Options,
) -> Result<Vec<Measured>, String> {
    let (runtime, threads) = runtime(workers)?;
    let mut options = options.clone();
    options.connections = plan.connections as usize;
    let ended = runtime.block_on(async {
        let connecting = Client::connect(&options);
        let Some(client) = lane::unless_stopped(&Coarse, connecting).await else {
            return Ok(vec![Measured { interrupted: true, ..Measured::default() }]);
        };
        let client = client.map_err(|error| one_line(&error))?;
        let mut lanes = run(plan, shared, &threads, &Through(client.clone())).await?;
        // One client serves all lanes: the first one has its books.
        if let (true, Some(first)) = (plan.reads.hedges().is_some(), lanes.first_mut()) {
            first.hedges = client.hedges();
        }
        Ok(lanes)
    });
    // A task that a silent server keeps waiting is not waited for.
    runtime.shutdown_background();
    ended
}

/// A tokio runtime of so many worker threads, and these threads for their CPU time.
fn runtime(workers: u32) -> Result<(Runtime, Threads), String> {
    let threads = Threads::default();
    let (starts, stops) = (threads.clone(), threads.clone());
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers as usize)
        .thread_name("load")
        .on_thread_start(move || starts.add_this())
        .on_thread_stop(move || stops.remove_this())
        .enable_all()
        .build()
        .map_err(|error| format!("the tokio runtime cannot start: {error}"))?;
    Ok((runtime, threads))
}

/// Runs all lanes in this runtime over `door`, whose clones share the client's connections.
async fn run<D>(
    plan: &Arc<Plan>,
    run: &Arc<Run>,
    threads: &Threads,
    door: &D,
) -> Result<Vec<Measured>, String>
where
    D: LoadDoor<Request: Send> + Send + Sync + 'static,
{
    let mut lanes = Vec::new();
    for number in 0..plan.lanes() {
        let place =
            Place { plan: plan.clone(), run: run.clone(), threads: threads.clone(), number };
        lanes.push(tokio::spawn(run_lane(place, door.clone())));
    }
    let mut measured = Vec::new();
    for lane in lanes {
        measured.push(lane.await.map_err(|error| format!("a lane ended early: {error}"))??);
    }
    // One client serves all lanes: what it remembers is whole when the last of them has ended.
    let books = measured.iter_mut().filter_map(|measured| measured.nodes.as_mut());
    books.for_each(|book| door.close(book));
    Ok(measured)
}

/// What a lane is given.
#[derive(Clone, Debug)]
struct Place {
    plan: Arc<Plan>,
    run: Arc<Run>,
    threads: Threads,
    number: usize,
}

async fn run_lane<D>(place: Place, door: D) -> Result<Measured, String>
where
    D: LoadDoor<Request: Send> + Send + Sync + 'static,
{
    let (plan, run) = (place.plan.clone(), place.run.clone());
    let doors = [door];
    let load = lane::prepare(&plan, &run, place.number, &Coarse, &doors).await?;
    let Some(load) = load else {
        return Ok(Measured { interrupted: stop::is_asked(), ..Measured::default() });
    };
    let [door] = doors;
    // The first lane has the books of all.
    let mut book = (plan.reads.cluster && place.number == 0).then(NodeBook::default);
    let hosted = Hosted { load: Arc::new(Mutex::new(load)), place };
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..plan.tasks(hosted.place.number) {
        tasks.spawn(sender(hosted.clone(), door.clone(), index, run.payload.clone()));
    }
    if !plan.is_closed() {
        let clock = Fine::new().map_err(|error| format!("no timer for the schedule: {error}"))?;
        tasks.spawn(dispatcher(hosted.clone(), clock));
    }
    let measured = watch(&hosted, |start| {
        book.iter_mut().for_each(|book| door.collect(book, start));
    });
    let mut measured = measured.await;
    measured.nodes = book;
    // Dropping the set ends whatever still waits.
    drop(tasks);
    Ok(measured)
}

/// tokio's clock: a millisecond fine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coarse;

impl Clock for Coarse {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        tokio::time::sleep(at.since(Instant::now()))
    }
}

/// A timer of the kernel for one task's sleeps: tokio's are rounded up to a millisecond, which
/// would show as latency in an open loop.
#[derive(Debug)]
struct Fine(AsyncFd<OwnedFd>);

impl Fine {
    // What makes `new` unsound in general cannot happen here: an `OwnedFd` keeps its one descriptor
    // open until it is dropped. The successor is an unsafe function, which this crate forbids.
    #[allow(deprecated)]
    fn new() -> io::Result<Fine> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Fine(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    async fn wait(&self, at: Instant) -> io::Result<()> {
        // Zero would switch the timer off; the past fires at once.
        let ns = at.as_nanos().max(1);
        let it_value = Timespec {
            tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (ns % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &timer)?;
        loop {
            let mut guard = self.0.readable().await?;
            let read = guard.try_io(|fd| Ok(rustix::io::read(fd, &mut [0u8; 8])?));
            match read {
                Ok(read) => return read.map(|_| ()),
                // A readiness of the last sleep: wait on.
                Err(_) => continue,
            }
        }
    }
}

impl Clock for Fine {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn sleep_until(&self, at: Instant) {
        if self.wait(at).await.is_err() {
            Coarse.sleep_until(at).await;
        }
    }
}

/// The ground of one lane.
#[derive(Clone, Debug)]
struct Hosted {
    load: Arc<Mutex<Load>>,
    place: Place,
}

impl Clock for Hosted {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        Coarse.sleep_until(at)
    }
}

impl Ground for Hosted {
    fn load<R>(&self, f: impl FnOnce(&mut Load) -> R) -> R {
        f(&mut self.load.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn cost(&self) -> Cost {
        // The threads belong to all lanes: the first one counts them.
        let cpu_ns = if self.place.number == 0 { self.place.threads.cpu_ns() } else { 0 };
        Cost { cpu_ns, enters: None }
    }

    fn is_stopped(&self) -> bool {
        stop::is_asked()
    }

    fn tell(&self, progress: (u64, u64)) {
        self.place.run.told.tell(self.place.number, progress);
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::BenchArgs;
    use super::super::bench::shared;
    use super::super::load::Order;
    use super::super::mix::Mix;
    use super::super::record::Outcome;
    use super::*;
    use std::pin::Pin;
    use std::time::Duration;

    #[derive(Clone, Debug)]
    struct Slow;

    impl LoadDoor for Slow {
        type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

        fn send(&self, _: &Order, _: &[u8]) -> Self::Request {
            Box::pin(tokio::time::sleep(Duration::from_millis(1)))
        }

        fn outcome((): ()) -> Outcome {
            Outcome::Hit
        }
    }

    fn measured(args: BenchArgs) -> Measured {
        let args = BenchArgs {
            door: Some(super::super::args::DoorName::Hosted),
            warmup: Some(Duration::ZERO),
            mix: Some(Mix::parse("ping").unwrap()),
            ..args
        };
        let plan = Arc::new(Plan::new(args).unwrap());
        let shared = Arc::new(shared(&plan, 0));
        let (runtime, threads) = runtime(2).unwrap();
        let lanes = runtime.block_on(run(&plan, &shared, &threads, &Slow)).unwrap();
        Measured::of_lanes(lanes)
    }

    /// Both loops run to their count over two lanes. Fails if a lane's share is lost or a wake-up
    /// between the dispatcher and a sender is.
    #[test]
    fn lanes_share_the_requests() {
        for (rate, depth) in [(None, Some(3)), (Some(1000.0), None), (Some(100_000.0), Some(2))] {
            let args = BenchArgs { requests: Some(101), rate, depth, ..BenchArgs::default() };
            let measured = measured(args);
            assert_eq!(measured.load.recorder.total().latency.count(), 101);
            assert_eq!((measured.load.unsent, measured.load.unanswered), (0, 0));
        }
    }
}
