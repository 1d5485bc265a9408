//! A core with a client on it, and a server beside it.

use std::future::Future;
use std::time::Duration;

use hedgerow::runtime::caps::Rung;
use hedgerow::runtime::{cpu, park::ParkPolicy};
use hedgerow::testing::{Builder, Server};
use hedgerow::{Cores, Endpoint, LocalClient, LocalContext, Options};

/// Every rung that this machine has.
pub(crate) fn rungs() -> Vec<Rung> {
    let has = |rung: &Rung| Cores::builder().cpus([cpu()]).rung(*rung).build().is_ok();
    [Rung::U2, Rung::U1, Rung::Epoll].into_iter().filter(has).collect()
}

fn cpu() -> u32 {
    let allowed = cpu::allowed().expect("the allowed cpus");
    allowed.iter().last().expect("a cpu")
}

/// Runs `scenario` on a core of this rung, with a client of a server on a thread of its own.
#[track_caller]
pub(crate) fn on_core<T, F>(
    rung: Rung,
    scenario: impl Fn(LocalContext, LocalClient) -> F + Send + Sync + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let server = Server::start().expect("a server");
    run(rung, Options::from_url(&server.url()).expect("its address"), scenario)
}

/// As [`on_core`], with a replica beside this primary, and settings of the scenario's own.
#[track_caller]
pub(crate) fn on_fleet<T, F>(
    rung: Rung,
    primary: Builder,
    set: impl FnOnce(&mut Options),
    scenario: impl Fn(LocalContext, LocalClient) -> F + Send + Sync + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let primary = primary.start().expect("a server");
    let replica = Server::builder().replica().start().expect("a replica");
    let mut options = Options::from_url(&primary.url()).expect("its address");
    let at = replica.addr().expect("tcp");
    options.replica_endpoints = vec![Endpoint::tcp(at.ip().to_string(), at.port())];
    // Asking for the role is no part of a read.
    options.replica_refresh_interval = Duration::from_secs(3_600);
    set(&mut options);
    run(rung, options, scenario)
}

#[track_caller]
fn run<T, F>(
    rung: Rung,
    options: Options,
    scenario: impl Fn(LocalContext, LocalClient) -> F + Send + Sync + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let builder = Cores::builder().cpus([cpu()]).park(ParkPolicy::Park).rung(rung);
    let cores = builder.build().expect("a core");
    let scenario = std::sync::Arc::new(scenario);
    let outcomes = cores.run(move |context| {
        let (scenario, options) = (scenario.clone(), options.clone());
        async move {
            let client = context.connect(&options).await.expect("a connection");
            scenario(context, client).await
        }
    });
    outcomes.expect("the core ran").pop().expect("one core")
}
