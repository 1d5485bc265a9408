//! A primary and its replicas on a simulated network, for the tests of reads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelServer, Reaction, Simulation};
use hedgerow::{Error, LocalClient, LocalContext, Options};

use super::clock::pass;

pub(super) const MS: Duration = Duration::from_millis(1);

/// A primary and its replicas on one simulated network.
pub(super) struct Fleet {
    pub(super) simulation: Simulation,
    pub(super) primary: ModelServer,
    pub(super) replicas: Vec<ModelServer>,
}

impl Fleet {
    pub(super) fn new(replicas: usize) -> Fleet {
        let simulation = Simulation::new(16);
        let primary = simulation.server();
        let replicas = (0..replicas).map(|_| simulation.replica(&primary)).collect();
        Fleet { simulation, primary, replicas }
    }

    pub(super) fn options(&self, from: ReadFrom) -> Options {
        let mut options = self.primary.options();
        options.replica_endpoints = self.replicas.iter().map(ModelServer::endpoint).collect();
        options.read_from = from.into();
        options
    }

    /// Runs `main` with a client of `options` whose replicas had time to connect.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        options: Options,
        main: impl FnOnce(LocalContext, LocalClient) -> F + 'static,
    ) -> T {
        let outcome = self.simulation.run(async move |core| {
            let client = core.connect(&options).await.expect("a connection");
            pass(&core, 10 * MS).await;
            main(core, client).await
        });
        outcome.checked()
    }

    /// How many GETs each node has read, the primary's first.
    pub(super) fn gets(&self) -> Vec<usize> {
        let all = std::iter::once(&self.primary).chain(&self.replicas);
        all.map(|server| server.count("GET")).collect()
    }
}

/// What a server does with its GETs, one after the other; then it serves.
pub(super) fn does(server: &ModelServer, reactions: impl IntoIterator<Item = Reaction>) {
    let mut reactions: VecDeque<Reaction> = reactions.into_iter().collect();
    server.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"GET" => reactions.pop_front().unwrap_or_default(),
        _ => Reaction::Serve,
    });
}

pub(super) fn hedging(delay: Duration) -> Hedging {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(delay);
    hedging.max_extra_load_percent = 100;
    hedging
}

pub(super) async fn get(client: &LocalClient) -> Result<Option<String>, Error> {
    client.get("k").await
}

pub(super) fn after(ms: u32) -> Reaction {
    Reaction::ServeAfter(ms * MS)
}

/// From now on the server does this with each request of that name, and serves others.
pub(super) fn always(server: &ModelServer, name: &'static str, reaction: Reaction) {
    switch(server, name, reaction).set(true);
}

/// As [`always`], while the switch is on; it is off at first.
pub(super) fn switch(
    server: &ModelServer,
    name: &'static str,
    reaction: Reaction,
) -> Rc<Cell<bool>> {
    let on = Rc::new(Cell::new(false));
    let is_on = on.clone();
    server.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        word if is_on.get() && word == name.as_bytes() => reaction.clone(),
        _ => Reaction::Serve,
    });
    on
}
