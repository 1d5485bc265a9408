//! What the scenarios need of a client, wherever it lives: each is written once and runs on every
//! placement.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::future::{Either, LocalBoxFuture, select};
use hedgerow::engine::{Counters, SeenNode, StateChange};
use hedgerow::prelude::*;
use hedgerow::read::{Ledger, Reads};
use hedgerow::resp::FromReply;
use hedgerow::runtime::cpu;
use hedgerow::runtime::park::ParkPolicy;
use hedgerow::topology::TopologyChanges;
use hedgerow::{Cores, Error, LocalClient, LocalContext, Options};

/// Longest time of a scenario: only one that hangs ever takes so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Where clients and tasks of a scenario live.
pub(crate) trait Placement: Clone + 'static {
    type Client: Client;

    /// Whether what is queued in a task waits for the end of its step to be written.
    const QUEUES: bool;

    /// A client whose connections are up.
    fn connect(&self, options: &Options) -> LocalBoxFuture<'static, Result<Self::Client, Error>>;

    /// A client that connects in the background.
    fn create(&self, options: &Options) -> Result<Self::Client, Error>;

    /// Runs a task beside this one; the receiver gets its output.
    fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> oneshot::Receiver<T>;

    /// Ends after `time`.
    fn pause(&self, time: Duration) -> LocalBoxFuture<'static, ()>;
}

/// A client of either placement.
pub(crate) trait Client: Door + Clone + Debug + 'static {
    fn is_connected(&self) -> bool;
    fn live_requests(&self) -> usize;
    fn counters(&self) -> Counters;
    fn close(&self, limit: Duration) -> LocalBoxFuture<'static, ()>;
    /// The next state of each call on the returned closure.
    fn states(&self) -> Box<dyn States>;
    /// A request with a limit of its own.
    fn within<R: FromReply<Self::Kept>>(
        request: Self::Request<R>,
        limit: Duration,
    ) -> Self::Request<R>;
    /// GET with a limit of its own.
    fn get_within(&self, key: &str, limit: Duration) -> Self::Request<Option<String>> {
        Self::within(self.get(key), limit)
    }
    /// This client with its reads served otherwise.
    fn view(&self, reads: impl Into<Reads>) -> Self;
    /// The books of its hedges; `None` over cores, which keep their own.
    fn hedges(&self) -> Option<Ledger>;
    /// Its nodes; `None` over cores.
    fn nodes(&self) -> Option<Vec<SeenNode>>;
    /// How its topology changes.
    fn topology_changes(&self) -> Option<TopologyChanges>;
}

/// The state changes of a client.
pub(crate) trait States {
    fn next(&mut self) -> LocalBoxFuture<'_, Option<StateChange>>;
}

/// A pinned core.
#[derive(Clone)]
pub(crate) struct OnCore(pub(crate) LocalContext);

impl Placement for OnCore {
    type Client = LocalClient;
    const QUEUES: bool = true;

    fn connect(&self, options: &Options) -> LocalBoxFuture<'static, Result<LocalClient, Error>> {
        let (context, options) = (self.0.clone(), options.clone());
        Box::pin(async move { context.connect(&options).await })
    }

    fn create(&self, options: &Options) -> Result<LocalClient, Error> {
        self.0.create(options)
    }

    fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        drop(self.0.spawn(async move {
            let _ = sender.send(task.await);
        }));
        receiver
    }

    fn pause(&self, time: Duration) -> LocalBoxFuture<'static, ()> {
        let context = self.0.clone();
        Box::pin(async move { context.sleep(time).await })
    }
}

impl Client for LocalClient {
    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn live_requests(&self) -> usize {
        self.live_requests()
    }

    fn counters(&self) -> Counters {
        self.counters()
    }

    fn close(&self, limit: Duration) -> LocalBoxFuture<'static, ()> {
        let client = self.clone();
        Box::pin(async move { LocalClient::close(&client, limit).await })
    }

    fn states(&self) -> Box<dyn States> {
        Box::new(self.states())
    }

    fn within<R: FromReply<Self::Kept>>(
        request: Self::Request<R>,
        limit: Duration,
    ) -> Self::Request<R> {
        request.timeout(limit)
    }

    fn view(&self, reads: impl Into<Reads>) -> Self {
        self.read_from(reads).expect("a view")
    }

    fn hedges(&self) -> Option<Ledger> {
        Some(self.hedges())
    }

    fn nodes(&self) -> Option<Vec<SeenNode>> {
        Some(self.nodes())
    }

    fn topology_changes(&self) -> Option<TopologyChanges> {
        self.topology_changes()
    }
}

impl States for hedgerow::client::LocalStates {
    fn next(&mut self) -> LocalBoxFuture<'_, Option<StateChange>> {
        Box::pin(self.next())
    }
}

/// A tokio runtime, whose workers run the connections and the scenario's thread its tasks.
#[derive(Clone)]
pub(crate) struct Hosted;

impl Placement for Hosted {
    type Client = hedgerow::Client;
    const QUEUES: bool = false;

    fn connect(&self, options: &Options) -> LocalBoxFuture<'static, Result<Self::Client, Error>> {
        let options = options.clone();
        Box::pin(async move { hedgerow::Client::connect(&options).await })
    }

    fn create(&self, options: &Options) -> Result<Self::Client, Error> {
        hedgerow::Client::create(options)
    }

    fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        tokio::task::spawn_local(async move {
            let _ = sender.send(task.await);
        });
        receiver
    }

    fn pause(&self, time: Duration) -> LocalBoxFuture<'static, ()> {
        let until = tokio::time::Instant::now() + time;
        let elapsed = std::future::pending::<()>();
        Box::pin(async move {
            let _ = tokio::time::timeout_at(until, elapsed).await;
        })
    }
}

impl Client for hedgerow::Client {
    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn live_requests(&self) -> usize {
        self.live_requests().expect("hosted")
    }

    fn counters(&self) -> Counters {
        self.counters().expect("hosted")
    }

    fn close(&self, limit: Duration) -> LocalBoxFuture<'static, ()> {
        let client = self.clone();
        Box::pin(async move { hedgerow::Client::close(&client, limit).await })
    }

    fn states(&self) -> Box<dyn States> {
        Box::new(self.states())
    }

    fn within<R: FromReply<Self::Kept>>(
        request: Self::Request<R>,
        limit: Duration,
    ) -> Self::Request<R> {
        request.timeout(limit)
    }

    fn view(&self, reads: impl Into<Reads>) -> Self {
        self.read_from(reads).expect("a view")
    }

    fn hedges(&self) -> Option<Ledger> {
        self.hedges()
    }

    fn nodes(&self) -> Option<Vec<SeenNode>> {
        self.nodes()
    }

    fn topology_changes(&self) -> Option<TopologyChanges> {
        self.topology_changes()
    }
}

impl States for hedgerow::client::ClientStates {
    fn next(&mut self) -> LocalBoxFuture<'_, Option<StateChange>> {
        Box::pin(self.next())
    }
}

/// Pinned cores, whose client a tokio runtime uses.
#[derive(Clone)]
pub(crate) struct OverCores(Arc<Cores>);

impl Placement for OverCores {
    type Client = hedgerow::Client;
    const QUEUES: bool = false;

    fn connect(&self, options: &Options) -> LocalBoxFuture<'static, Result<Self::Client, Error>> {
        let (cores, options) = (self.0.clone(), options.clone());
        Box::pin(async move { cores.connect(&options).await })
    }

    fn create(&self, _options: &Options) -> Result<Self::Client, Error> {
        panic!("a client over cores begins connected")
    }

    fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
        Hosted.spawn(task)
    }

    fn pause(&self, time: Duration) -> LocalBoxFuture<'static, ()> {
        Hosted.pause(time)
    }
}

/// Runs a scenario inside a tokio runtime.
#[track_caller]
pub(crate) fn on_tokio<T, Fut: Future<Output = T>>(scenario: impl FnOnce(Hosted) -> Fut) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let tasks = tokio::task::LocalSet::new();
    let bounded = async { tokio::time::timeout(LIMIT, scenario(Hosted)).await };
    tasks.block_on(&runtime, bounded).expect("the scenario hangs")
}

/// Runs a scenario inside a tokio runtime with a core beside it.
#[track_caller]
pub(crate) fn over_cores<T, Fut: Future<Output = T>>(scenario: impl FnOnce(OverCores) -> Fut) -> T {
    let cores = OverCores(Arc::new(one_core()));
    on_tokio(|_| scenario(cores))
}

/// Spreads the tests' cores over the cpus that there are.
fn next_cpu() -> u32 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = cpu::allowed().expect("the allowed cpus");
    let cpus: Vec<u32> = allowed.iter().collect();
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    cpus[turn % cpus.len()]
}

/// One parked core.
pub(crate) fn one_core() -> Cores {
    let builder = Cores::builder().cpus([next_cpu()]).park(ParkPolicy::Park);
    builder.build().expect("a core")
}

/// Runs a scenario on a pinned core.
#[track_caller]
pub(crate) fn on_core<T, Fut>(scenario: impl Fn(OnCore) -> Fut + Send + Sync + 'static) -> T
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let bounded = move |context: LocalContext| {
        let place = OnCore(context);
        let limit = place.pause(LIMIT);
        let scenario = Box::pin(scenario(place));
        async move {
            match select(scenario, limit).await {
                Either::Left((output, _)) => output,
                Either::Right(_) => panic!("the scenario hangs"),
            }
        }
    };
    let outputs = one_core().run(bounded);
    outputs.unwrap_or_else(|error| panic!("{error}")).pop().expect("one core's output")
}

/// Makes the tests of scenarios: each on every placement.
macro_rules! on_each_placement {
    ($($scenario:ident),+ $(,)?) => {
        mod core {
            $(#[test]
            fn $scenario() {
                $crate::placement::on_core(super::$scenario);
            })+
        }

        mod hosted {
            $(#[test]
            fn $scenario() {
                $crate::placement::on_tokio(super::$scenario);
            })+
        }
    };
}
pub(crate) use on_each_placement;

/// Makes the tests of scenarios: each on every placement, and of a client over cores.
macro_rules! on_every_placement {
    ($($scenario:ident),+ $(,)?) => {
        $crate::placement::on_each_placement!($($scenario),+);

        mod over_cores {
            $(#[test]
            fn $scenario() {
                $crate::placement::over_cores(super::$scenario);
            })+
        }
    };
}
pub(crate) use on_every_placement;

/// Waits for what a server or another task is to bring about; only a failing test waits long.
pub(crate) async fn until<P: Placement>(place: &P, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT / 2, "{what} does not come");
        place.pause(Duration::from_millis(1)).await;
    }
}

/// Options for a server at `address`, with limits that fit a test.
pub(crate) fn options_for(address: std::net::SocketAddr) -> Options {
    let mut options = Options::from_url(&format!("redis://{address}")).expect("a URL");
    options.command_timeout = Some(Duration::from_secs(10));
    options.connect_timeout = Duration::from_secs(10);
    options.reconnect.initial = Duration::from_millis(5);
    options.reconnect.max = Duration::from_millis(20);
    options
}
