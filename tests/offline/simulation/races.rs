//! Random runs of a primary with replicas, hedging on: both copies of a read may answer, fail, lose their
//! connection, time out or be dropped by their caller, in any order.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelServer, Reaction, SimConfig, Simulation};
use hedgerow::{LocalClient, LocalContext, Options};

use super::clock::{pass, unless};

const MS: Duration = Duration::from_millis(1);
const KEYS: usize = 40;
/// How much later than its time a request may end in a simulated core.
const SLACK: Duration = Duration::from_millis(60);

const POLICIES: [ReadFrom; 6] = [
    ReadFrom::Replica,
    ReadFrom::PrimaryPreferred,
    ReadFrom::ReplicaPreferred,
    ReadFrom::Nearest,
    ReadFrom::Quickest,
    ReadFrom::AzAffinity,
];

/// What a seed decided.
#[derive(Debug)]
pub(super) struct Plan {
    faults: SimConfig,
    replicas: usize,
    connections: usize,
    in_flight_max: usize,
    interval: Duration,
    hedging: Hedging,
    policies: [ReadFrom; 2],
    mischief: f64,
    slow: f64,
    tasks: usize,
    steps: usize,
    seed: u64,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x7261_6365);
        let calm = rng.bool();
        let mut hedging = Hedging::default();
        hedging.delay = match rng.bool() {
            true => Delay::Fixed(Duration::from_micros(rng.u64(50..5_000))),
            false => Delay::adaptive(),
        };
        hedging.max_extra_load_percent = *rng.choice(&[1, 5, 50, 100]).expect("some");
        hedging.burst = *rng.choice(&[1, 1, 10]).expect("some");
        hedging.storm_guard = rng.bool();
        let mut policy = || *rng.choice(&POLICIES).expect("some");
        let policies = [policy(), policy()];
        Plan {
            faults: match calm {
                true => SimConfig { seed, ..SimConfig::default() },
                false => SimConfig { clock_jump: 0.0, ..SimConfig::chaos(seed) },
            },
            replicas: rng.usize(1..4),
            connections: rng.usize(1..3),
            in_flight_max: *rng.choice(&[1, 3, 16_384]).expect("some"),
            interval: *rng.choice(&[Duration::ZERO, 30 * MS, 1_000 * MS]).expect("some"),
            hedging,
            policies,
            mischief: if rng.bool() { 0.0 } else { 0.1 * rng.f64() },
            slow: 0.3 * rng.f64(),
            tasks: rng.usize(1..8),
            steps: rng.usize(5..40),
            seed,
        }
    }

    fn options(&self, primary: &ModelServer, replicas: &[ModelServer]) -> Options {
        let mut options = primary.options();
        options.replica_endpoints = replicas.iter().map(ModelServer::endpoint).collect();
        options.read_from = self.policies[0].into();
        options.client_availability_zone = Some("a".into());
        options.replica_refresh_interval = self.interval;
        options.connections = self.connections;
        options.in_flight_max = self.in_flight_max;
        options.hedging = Some(self.hedging);
        options.reconnect.initial = 5 * MS;
        options
    }

    /// What a server does with a request, after the set-up.
    fn reaction(&self, rng: &mut Rng, asked: &Asked<'_>) -> Reaction {
        if !matches!(asked.args[0], b"GET" | b"SET" | b"PING" | b"ROLE") || asked.number < 8 {
            return Reaction::Serve;
        }
        if rng.f64() < self.mischief {
            return match rng.u8(..8) {
                0 => Reaction::Close,
                1 => Reaction::RunAndReset,
                2 => Reaction::HalfAnswer(rng.usize(..6)),
                3 => Reaction::Silence,
                4 => Reaction::Answer(b"-LOADING x\r\n".to_vec()),
                5 => Reaction::Answer(b"-MASTERDOWN x\r\n".to_vec()),
                6 => Reaction::AnswerAfter(rng.u32(..20) * MS, b"-WRONGTYPE x\r\n".to_vec()),
                _ => Reaction::CloseAfter(rng.u32(..20) * MS),
            };
        }
        if rng.f64() < self.slow {
            return Reaction::ServeAfter(Duration::from_micros(rng.u64(..20_000)));
        }
        Reaction::Serve
    }
}

/// What is wrong with a run.
type Wrong = Rc<RefCell<Vec<String>>>;

/// Runs a seed; answers what is wrong, and how many hedges it sent.
pub(super) fn run(plan: Plan) -> (Vec<String>, u64) {
    let plan = Rc::new(plan);
    let simulation = Simulation::with_faults(plan.faults.clone());
    let primary = simulation.server();
    let replicas: Vec<_> = (0..plan.replicas).map(|_| simulation.replica(&primary)).collect();
    for key in 0..KEYS {
        primary.set_value(format!("k:{key}"), format!("v:{key}"));
    }
    for (at, server) in replicas.iter().chain([&primary]).enumerate() {
        server.set_zone(if at % 2 == 0 { "a" } else { "b" });
        let (plan, mut rng) = (plan.clone(), Rng::with_seed(plan.seed ^ (at as u64) << 40));
        server.on_request(move |asked| plan.reaction(&mut rng, asked));
    }
    if plan.seed.is_multiple_of(3) {
        let other = replicas[0].clone();
        simulation.after(15 * MS, move || other.promote());
    }
    let wrong: Wrong = Rc::default();
    let (plan_of, wrong_of) = (plan.clone(), wrong.clone());
    let options = plan.options(&primary, &replicas);
    let outcome = simulation.run(async move |core| {
        let client = core.create(&options).expect("valid options");
        drive(core, client, plan_of, wrong_of).await
    });
    let hedges = outcome.checked();
    let mut wrong = wrong.take();
    // Each SET has a key of its own: the server that reads one twice was sent it twice.
    let mut written: Vec<_> = primary.seen().into_iter().filter(|s| s.name == "SET").collect();
    written.sort_by(|a, b| a.key.cmp(&b.key));
    for two in written.windows(2).filter(|two| two[0].key == two[1].key) {
        wrong.push(format!("{:?} was sent twice", String::from_utf8_lossy(&two[0].key)));
    }
    for replica in &replicas {
        if replica.count("SET") > 0 {
            wrong.push("a SET went to a replica".into());
        }
    }
    (wrong, hedges)
}

async fn drive(core: LocalContext, client: LocalClient, plan: Rc<Plan>, wrong: Wrong) -> u64 {
    client.trace_reads(100_000);
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|task| {
            let (core, wrong) = (core.clone(), wrong.clone());
            let view = client.read_from(plan.policies[task % 2]).expect("a view");
            let rng = Rng::with_seed(plan.seed ^ (task as u64) << 20);
            let of_core = core.clone();
            of_core.spawn(work(core, view, plan.clone(), task, rng, wrong))
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let ledger = client.hedges();
    let most = ledger.reads * u64::from(plan.hedging.max_extra_load_percent) / 100
        + u64::from(plan.hedging.burst);
    let mut wrong = wrong.borrow_mut();
    if ledger.sent > most {
        wrong.push(format!("{} hedges where {most} were allowed", ledger.sent));
    }
    if ledger.sent < ledger.won + ledger.lost + ledger.both_failed {
        wrong.push(format!("more races ended than began: {ledger:?}"));
    }
    let (copies, _) = client.take_trace();
    if copies.iter().any(|copy| copy.node as usize > plan.replicas) {
        wrong.push("a copy came from no node".into());
    }
    ledger.sent
}

/// One task: reads and a few writes, some of which it gives up.
async fn work(
    core: LocalContext,
    client: LocalClient,
    plan: Rc<Plan>,
    task: usize,
    mut rng: Rng,
    wrong: Wrong,
) {
    for step in 0..plan.steps {
        let limit = Duration::from_micros(rng.u64(200..60_000));
        let begun = core.now();
        if rng.u8(..8) == 0 {
            let _ = client.set(format!("w:{task}:{step}"), "x").timeout(limit).await;
        } else {
            let key = rng.usize(..KEYS);
            let request = client.get::<Option<String>>(format!("k:{key}")).timeout(limit);
            let gives_up = match rng.u8(..6) {
                0 => Duration::from_micros(rng.u64(..8_000)),
                _ => Duration::from_secs(3_600),
            };
            match unless(pass(&core, gives_up), request).await {
                Some(Ok(Some(value))) if value == format!("v:{key}") => {}
                Some(Ok(other)) => {
                    wrong.borrow_mut().push(format!("key {key} came back as {other:?}"));
                }
                Some(Err(_)) | None => {}
            }
        }
        let took = core.now().since(begun);
        if took > limit + SLACK {
            wrong.borrow_mut().push(format!("a limit of {limit:?} took {took:?}"));
        }
        if rng.bool() {
            pass(&core, Duration::from_micros(rng.u64(..3_000))).await;
        }
    }
}
