//! The load from pinned cores: each core is a lane, and everything of a lane stays on its thread.

use super::bench::Run;
use super::door::Through;
use super::drive::{Clock, Cost, Ground, LoadDoor, Measured, dispatcher, sender, watch};
use super::load::Load;
use super::nodes::NodeBook;
use super::plan::Plan;
use super::{lane, stop, threads};
use hedgerow::read::Ledger;
use hedgerow::{Cores, LocalContext, Options};
use hedgerow_runtime::time::Instant;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Runs all lanes on their cores against the server of `options`.
pub(crate) fn run(
    plan: &Arc<Plan>,
    run: &Arc<Run>,
    cores: &Cores,
    options: &Options,
) -> Result<Vec<Measured>, String> {
    let (plan, run, options) = (plan.clone(), run.clone(), options.clone());
    let lanes = cores.run(move |local: LocalContext| {
        run_lane(local, plan.clone(), run.clone(), options.clone())
    });
    lanes.map_err(|error| error.to_string())?.into_iter().collect()
}

async fn run_lane(
    local: LocalContext,
    plan: Arc<Plan>,
    run: Arc<Run>,
    options: Options,
) -> Result<Measured, String> {
    // Kept until the lane is through the gate: the others do not wait for one that cannot connect.
    let _promise = run.loaded.promise();
    let number = local.core_index();
    let mut doors = Vec::new();
    for _ in 0..plan.connections {
        let connecting = local.connect(&options);
        let Some(client) = lane::unless_stopped(&Timer(local.clone()), connecting).await else {
            return Ok(Measured { interrupted: true, ..Measured::default() });
        };
        let client = client.map_err(|error| error.to_string())?;
        doors.push(Through(client));
    }
    let load = lane::prepare(&plan, &run, number, &Timer(local.clone()), &doors).await?;
    let Some(load) = load else {
        return Ok(Measured { interrupted: stop::is_asked(), ..Measured::default() });
    };
    let pinned = Pinned {
        load: Rc::new(RefCell::new(load)),
        timer: Timer(local.clone()),
        run: run.clone(),
        number,
    };
    let mut tasks = Vec::new();
    for (index, door) in (0..plan.tasks(number)).zip(doors.iter().cycle()) {
        let sender = sender(pinned.clone(), door.clone(), index, run.payload.clone());
        tasks.push(local.spawn(sender));
    }
    if !plan.is_closed() {
        tasks.push(local.spawn(dispatcher(pinned.clone(), Timer(local.clone()))));
    }
    let mut book = plan.reads.cluster.then(NodeBook::default);
    let measured = watch(&pinned, |start| {
        book.iter_mut().for_each(|book| doors.iter().for_each(|door| door.collect(book, start)));
    });
    let mut measured = measured.await;
    book.iter_mut().for_each(|book| doors.iter().for_each(|door| door.close(book)));
    measured.nodes = book;
    if plan.reads.hedges().is_some() {
        let mut all = Ledger::default();
        doors.iter().for_each(|Through(client)| all.merge(&client.hedges()));
        measured.hedges = Some(all);
    }
    // Ends whatever still waits.
    drop(tasks);
    Ok(measured)
}

/// A core's clock and timers.
#[derive(Clone)]
pub(crate) struct Timer(pub(crate) LocalContext);

impl Clock for Timer {
    fn now(&self) -> Instant {
        // Read anew: the turn's own instant may be some microseconds old.
        Instant::now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        self.0.sleep_until(at)
    }
}

/// The ground of one lane.
#[derive(Clone)]
struct Pinned {
    load: Rc<RefCell<Load>>,
    timer: Timer,
    run: Arc<Run>,
    number: usize,
}

impl Clock for Pinned {
    fn now(&self) -> Instant {
        self.timer.now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        self.timer.sleep_until(at)
    }
}

impl Ground for Pinned {
    fn load<R>(&self, f: impl FnOnce(&mut Load) -> R) -> R {
        f(&mut self.load.borrow_mut())
    }

    fn cost(&self) -> Cost {
        Cost { cpu_ns: threads::own_cpu_ns(), enters: Some(self.timer.0.counters().enters) }
    }

    fn is_stopped(&self) -> bool {
        stop::is_asked()
    }

    fn tell(&self, progress: (u64, u64)) {
        self.run.told.tell(self.number, progress);
    }
}
