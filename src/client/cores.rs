//! Pinned cores: threads that each own a cpu, a ring and their connections.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use hedgerow_runtime::caps::{self, Rung};
use hedgerow_runtime::core::{Local, Remote, Turn};
use hedgerow_runtime::epoll::Epoll;
use hedgerow_runtime::io::Counters;
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::ring::{self, Ring};
use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Quota, Task, cpu};

use super::local::LocalClient;
use crate::config::Options;
use crate::error::{Error, ErrorKind, Fate};
use crate::placement::core::{CoreDesk, CoreDriver};
use crate::topology::Board;

/// The environment variable that forces a rung: `u2`, `u1` or `epoll`.
pub(crate) const RUNG_VARIABLE: &str = "HEDGEROW_RUNG";

/// How cores are made.
#[derive(Clone, Debug, Default)]
pub struct CoresBuilder {
    cpus: Option<Vec<u32>>,
    park: ParkPolicy,
    rung: Option<Rung>,
    require_uring: bool,
}

impl CoresBuilder {
    /// One core on each of these cpus, by the system's numbers (`hedgerow doctor` tells which are
    /// allowed). Default: one core, on the first cpu
    /// that this process may use.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> CoresBuilder {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// How idle cores wait, default adaptive. Spinning is switched off, with one line in the log,
    /// under a CPU quota and where cores outnumber cpus.
    pub fn park(mut self, policy: ParkPolicy) -> CoresBuilder {
        self.park = policy;
        self
    }

    /// Forces a rung. Default: the variable `HEDGEROW_RUNG`, else the best that passes its
    /// self-test here.
    pub fn rung(mut self, rung: impl Into<Option<Rung>>) -> CoresBuilder {
        self.rung = rung.into();
        self
    }

    /// Makes a machine without a usable io_uring an error instead of a warning.
    pub fn require_uring(mut self, require: bool) -> CoresBuilder {
        self.require_uring = require;
        self
    }

    /// Starts the cores. When one cannot start, those that did are stopped again.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for cpus that cannot be used, [`ErrorKind::Runtime`] when a ring or a
    /// thread cannot be made; the text names the limit and what to change.
    pub fn build(self) -> Result<Cores, Error> {
        let allowed = cpu::allowed().map_err(|e| runtime("reading the allowed cpus", e))?;
        let cpus = match self.cpus {
            Some(cpus) => cpus,
            None => allowed.iter().take(1).collect(),
        };
        if cpus.is_empty() {
            return Err(Error::config("`cpus` names no cpu"));
        }
        if let Some(odd) = cpus.iter().find(|c| !allowed.contains(**c)) {
            let text = format!("`cpus`: cpu {odd} may not be used by this process; {allowed} may");
            return Err(Error::config(text));
        }
        let forced = match self.rung {
            Some(rung) => Some(rung),
            None => rung_of_environment()?,
        };
        let choice = caps::choose(forced, self.require_uring)
            .map_err(|e| runtime("choosing how to reach the kernel", e))?;
        if choice.falls_back() {
            tracing::warn!(rung = %choice.rung, why = %choice.why, "io_uring is not used");
        }
        let parker = Parker::new(self.park, Quota::detect(), allowed.len(), cpus.len());
        let mut cores = Cores { cores: Vec::with_capacity(cpus.len()), rung: choice.rung };
        for cpu in cpus {
            // Dropping the vector stops and joins those that started.
            cores.cores.push(CoreThread::start(cpu, choice.rung, parker.clone())?);
        }
        Ok(cores)
    }
}

pub(super) fn rung_of_environment() -> Result<Option<Rung>, Error> {
    match std::env::var(RUNG_VARIABLE) {
        Ok(word) if !word.is_empty() => {
            let rung = word.parse();
            rung.map(Some).map_err(|e| Error::config(format!("{RUNG_VARIABLE}: {e}")))
        }
        _ => Ok(None),
    }
}

pub(super) fn runtime(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Runtime, Fate::NotSent, format!("{what}: {error}"))
}

/// Running cores. Dropping them ends their tasks, closes their connections and joins the threads.
///
/// ```no_run
/// use hedgerow::{Cores, Options, prelude::*};
///
/// let options = Options::from_url("redis://localhost")?;
/// let cores = Cores::builder().cpus([0, 1]).build()?;
/// let greetings: Vec<Option<String>> = cores.run(move |core| {
///     let options = options.clone();
///     async move {
///         let client = core.connect(&options).await?;
///         client.get("greeting").await
///     }
/// })?.into_iter().collect::<Result<_, _>>()?;
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Debug)]
pub struct Cores {
    cores: Vec<CoreThread>,
    rung: Rung,
}

impl Cores {
    /// Describes cores to start.
    pub fn builder() -> CoresBuilder {
        CoresBuilder::default()
    }

    /// How the cores reach the kernel.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.cores.len()
    }

    /// Whether there are none (there is always one).
    pub fn is_empty(&self) -> bool {
        self.cores.is_empty()
    }

    /// Runs `main` once on each core and waits for all; answers their outputs in the order of cpus.
    /// Must not be called from a core or an async task, which it would block.
    ///
    /// # Errors
    /// [`ErrorKind::Runtime`] when a `main` panicked or a core ended.
    pub fn run<T, F, Fut>(&self, main: F) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Fn(LocalContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let main = Arc::new(main);
        let mut outputs = Vec::with_capacity(self.cores.len());
        for (index, core) in self.cores.iter().enumerate() {
            let (send, receive) = mpsc::channel();
            let (main, cpu) = (main.clone(), core.cpu);
            core.post(move |desk| {
                let context = LocalContext::new(desk.clone(), index, Some(cpu));
                let job = desk.local().spawn(async move { main(context).await });
                desk.local().spawn(async move {
                    let _ = send.send(job.await.map_err(|panic| panic.to_string()));
                });
            })?;
            outputs.push(receive);
        }
        let ended = |_| runtime("running on a core", "the core ended before its task did");
        let output = |receive: mpsc::Receiver<Result<T, String>>| {
            receive.recv().map_err(ended)?.map_err(|panic| runtime("running on a core", panic))
        };
        outputs.into_iter().map(output).collect()
    }
}

#[cfg(feature = "hosted")]
impl Cores {
    /// A [`Client`](super::Client) whose connections live on these cores (`connections` of them on
    /// each), once they are up. For callers on any executor; each command pays a hop to its core.
    /// The client may outlive these cores, but not work without them.
    ///
    /// # Errors
    /// As [`LocalContext::connect`].
    pub async fn connect(&self, options: &Options) -> Result<super::Client, Error> {
        use super::pinned::Pinned;
        let number = Pinned::number();
        let mut waiting = Vec::with_capacity(self.cores.len());
        for (index, core) in self.cores.iter().enumerate() {
            let (send, receive) = tokio::sync::oneshot::channel();
            let (options, cpu) = (options.clone(), core.cpu);
            core.post(move |desk| {
                let context = LocalContext::new(desk.clone(), index, Some(cpu));
                desk.local().spawn(async move {
                    let made = context.connect(&options).await;
                    let _ = send.send(made.map(|client| Pinned::seat(number, client)));
                });
            })?;
            waiting.push(receive);
        }
        let remotes = self.cores.iter().map(|core| core.remote.clone()).collect();
        // Made first: dropping it unseats the clients of the cores that did connect.
        let pinned = Pinned::new(number, remotes, options);
        for receive in waiting {
            receive.await.map_err(|_| Error::closed())??;
        }
        Ok(super::Client::over(pinned))
    }
}

/// One core's thread.
#[derive(Debug)]
struct CoreThread {
    cpu: u32,
    remote: Remote,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

thread_local! {
    /// The desk of the core that this thread is.
    static DESK: RefCell<Option<CoreDesk>> = const { RefCell::new(None) };
}

impl CoreThread {
    fn start(cpu: u32, rung: Rung, parker: Parker) -> Result<CoreThread, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = mpsc::channel();
        let flag = stop.clone();
        let body = move || run_thread(cpu, rung, parker, &flag, send);
        let thread = std::thread::Builder::new()
            .name(format!("hedgerow-{cpu}"))
            .spawn(body)
            .map_err(|e| runtime("starting a core's thread", e))?;
        let started = receive.recv();
        let remote =
            started.map_err(|_| runtime("starting a core", "its thread ended at once"))??;
        Ok(CoreThread { cpu, remote, stop, thread: Some(thread) })
    }

    /// Runs `job` on the core. Waits a little while its mailbox is full.
    fn post(&self, job: impl FnOnce(&CoreDesk) + Send + 'static) -> Result<(), Error> {
        let run = move || {
            if let Some(desk) = DESK.with_borrow(Clone::clone) {
                job(&desk);
            }
        };
        self.remote.run(run).map_err(|e| runtime("reaching a core", e))
    }
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // An empty job ends a wait. A full mailbox means that the core is awake.
        let _ = self.remote.run(|| {});
        // The last owner may be a task of this very core, which would wait for itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

type Started = mpsc::Sender<Result<Remote, Error>>;

fn run_thread(cpu: u32, rung: Rung, parker: Parker, stop: &AtomicBool, started: Started) {
    if let Err(error) = cpu::pin(cpu) {
        let _ = started.send(Err(runtime("pinning a core", error)));
        return;
    }
    match rung {
        Rung::Epoll => match Epoll::new() {
            Ok(kernel) => drive(kernel, parker, stop, &started),
            Err(e) => _ = started.send(Err(runtime("making an epoll instance", e))),
        },
        Rung::U1 | Rung::U2 => {
            let config = ring::Config { incremental: rung == Rung::U2, ..Default::default() };
            match Ring::new(config) {
                Ok(kernel) => drive(kernel, parker, stop, &started),
                Err(e) => {
                    let refusal = caps::Refusal::from_error(rung, "making a core's ring", e);
                    _ = started.send(Err(runtime("starting a core", refusal)));
                }
            }
        }
    }
}

fn drive<K: Kernel>(kernel: K, parker: Parker, stop: &AtomicBool, started: &Started) {
    let mut driver = CoreDriver::new(kernel, parker);
    if let Some(reason) = driver.core().take_park_reason() {
        tracing::warn!(%reason, "cores park instead of spinning");
    }
    let desk = driver.desk();
    let _ = started.send(Ok(desk.local().remote()));
    DESK.set(Some(desk));
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = driver.turn(Turn::MayWait) {
            tracing::error!(%error, "a core's kernel failed; the core ends");
            break;
        }
    }
    driver.shut_down();
    DESK.set(None);
}

/// What code on a core is given: its core, and clients on it. `!Send`; clones are the same core.
#[derive(Clone)]
pub struct LocalContext {
    desk: CoreDesk,
    index: usize,
    cpu: Option<u32>,
}

impl LocalContext {
    pub(crate) fn new(desk: CoreDesk, index: usize, cpu: Option<u32>) -> LocalContext {
        LocalContext { desk, index, cpu }
    }

    fn local(&self) -> &Local {
        self.desk.local()
    }

    /// A client with its own connections, once they are up.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for invalid options, [`ErrorKind::Connect`], [`ErrorKind::Timeout`] or
    /// [`ErrorKind::Handshake`] when the first attempt fails (R-001).
    pub async fn connect(&self, options: &Options) -> Result<LocalClient, Error> {
        let client = self.create(options)?;
        client.up().await?;
        Ok(client)
    }

    /// A client whose connections are made in the background; commands wait for them.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for invalid options.
    pub fn create(&self, options: &Options) -> Result<LocalClient, Error> {
        LocalClient::open(&self.desk, options)
    }

    /// The client of a deployment's coordinator: one connection to each node, and none of what makes reads
    /// quick.
    pub(crate) fn control(&self, board: &Arc<Board>) -> Result<LocalClient, Error> {
        LocalClient::control(&self.desk, board)
    }

    /// Which core this is, from 0, in the order of the cpus given.
    pub fn core_index(&self) -> usize {
        self.index
    }

    /// The cpu that it is pinned to; `None` in a host, whose thread is the host's affair.
    pub fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// Adds a task to this core. A panic ends that task only.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.local().spawn(future)
    }

    /// The monotonic clock, read now; in a simulation the simulated one.
    pub fn now(&self) -> Instant {
        self.local().read_clock()
    }

    /// The clock as of this turn; no system call. Outside of a host's turns, the clock itself.
    pub fn turn_now(&self) -> Instant {
        self.local().now()
    }

    /// Ends at `at`, to about 50 us.
    pub fn sleep_until(&self, at: Instant) -> hedgerow_runtime::core::Sleep {
        self.local().sleep_until(at)
    }

    /// Ends after `time`.
    pub fn sleep(&self, time: Duration) -> hedgerow_runtime::core::Sleep {
        self.local().sleep(time)
    }

    /// The core's counters as of the last turn.
    pub fn counters(&self) -> Counters {
        self.local().counters()
    }
}

impl std::fmt::Debug for LocalContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalContext").field("index", &self.index).field("cpu", &self.cpu).finish()
    }
}
