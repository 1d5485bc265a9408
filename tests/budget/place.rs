//! A core with a client on it, and a server beside it.

use std::future::Future;

use hedgerow::runtime::caps::Rung;
use hedgerow::runtime::{cpu, park::ParkPolicy};
use hedgerow::testing::Server;
use hedgerow::{Cores, LocalClient, LocalContext, Options};

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
    let options = Options::from_url(&server.url()).expect("its address");
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
