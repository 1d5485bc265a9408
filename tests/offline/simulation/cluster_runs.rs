//! Random runs of a cluster: slots move, keys migrate, replicas take over, nodes die, views are split and
//! replies get lost, in any order, under load.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use hedgerow::config::Cluster;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelCluster, Reaction, SimConfig, Simulation};
use hedgerow::{Error, Fate, LocalClient, LocalContext, Options};

use super::clock::{pass, unless};

const MS: Duration = Duration::from_millis(1);
const KEYS: usize = 60;
/// How much later than its time a request may end in a simulated core.
const SLACK: Duration = Duration::from_millis(60);

const POLICIES: [ReadFrom; 6] = [
    ReadFrom::Primary,
    ReadFrom::Replica,
    ReadFrom::PrimaryPreferred,
    ReadFrom::ReplicaPreferred,
    ReadFrom::Nearest,
    ReadFrom::Quickest,
];

/// What a seed decided.
#[derive(Debug)]
pub(super) struct Plan {
    faults: SimConfig,
    primaries: usize,
    replicas_each: usize,
    connections: usize,
    in_flight_max: usize,
    sockets_max: usize,
    hedges: bool,
    policy: ReadFrom,
    mischief: f64,
    events: usize,
    tasks: usize,
    steps: usize,
    seed: u64,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x636c_7573);
        let replicas_each = rng.usize(..3);
        // Without any replica that one serves nothing.
        let policies = if replicas_each == 0 { &POLICIES[..1] } else { &POLICIES[..] };
        Plan {
            faults: match rng.bool() {
                true => SimConfig { seed, ..SimConfig::default() },
                // One that is mute for ever takes no part in getting well again.
                false => SimConfig { clock_jump: 0.0, mute: 0.0, ..SimConfig::chaos(seed) },
            },
            primaries: rng.usize(1..5),
            replicas_each,
            connections: rng.usize(1..3),
            in_flight_max: *rng.choice(&[1, 3, 16_384]).expect("some"),
            sockets_max: *rng.choice(&[2, 4096, 4096]).expect("some"),
            hedges: rng.bool(),
            policy: *rng.choice(policies).expect("some"),
            mischief: if rng.bool() { 0.0 } else { 0.05 * rng.f64() },
            events: rng.usize(..12),
            tasks: rng.usize(1..8),
            steps: rng.usize(5..40),
            seed,
        }
    }

    fn options(&self, cluster: &ModelCluster) -> Options {
        let mut options = cluster.options();
        let mut settings = Cluster::default();
        settings.seeds = cluster.servers().iter().skip(1).map(|server| server.endpoint()).collect();
        settings.sockets_max = self.sockets_max;
        options.cluster = Some(settings);
        options.read_from = self.policy.into();
        options.connections = self.connections;
        options.in_flight_max = self.in_flight_max;
        options.reconnect.initial = 5 * MS;
        if self.hedges {
            let mut hedging = Hedging::default();
            hedging.delay = Delay::Fixed(MS);
            hedging.max_extra_load_percent = 50;
            options.hedging = Some(hedging);
        }
        options
    }

    /// What a node does with a request of the application.
    fn reaction(&self, rng: &mut Rng, asked: &Asked<'_>) -> Reaction {
        let is_ours = matches!(asked.args[0], b"GET" | b"INCR" | b"MGET" | b"CLUSTER");
        if !is_ours || asked.number < 6 || rng.f64() >= self.mischief {
            return Reaction::Serve;
        }
        match rng.u8(..8) {
            0 => Reaction::Close,
            1 => Reaction::RunAndReset,
            2 => Reaction::HalfAnswer(rng.usize(..6)),
            3 => Reaction::Answer(b"-MASTERDOWN x\r\n".to_vec()),
            4 => Reaction::Answer(b"-LOADING x\r\n".to_vec()),
            5 => Reaction::Answer(b"-TRYAGAIN x\r\n".to_vec()),
            6 => Reaction::Answer(b"-MOVED 99999 nowhere\r\n".to_vec()),
            _ => Reaction::ServeAfter(rng.u32(..20) * MS),
        }
    }
}

/// Something happens to the cluster.
fn happen(cluster: &ModelCluster, rng: &mut Rng) {
    let servers = cluster.servers().len();
    let primaries = cluster.primaries();
    let primary = *rng.choice(&primaries).expect("a primary");
    let key = format!("k:{}", rng.usize(..KEYS));
    let slot = hedgerow::command::slot::slot_of(key.as_bytes());
    match rng.u8(..10) {
        0 | 1 => {
            let first = rng.u16(..16_000);
            cluster.move_slots(first..=first + rng.u16(..4_000).min(16_383 - first), primary);
        }
        2 => cluster.begin_migration(slot, primary),
        3 => cluster.move_key(&key),
        4 => cluster.end_migration(slot),
        5 | 6 => {
            if let Some(replica) = cluster.replicas_of(primary).first() {
                cluster.fail_over(*replica);
            }
        }
        7 => cluster.set_read_only(primary, rng.bool()),
        8 => cluster.set_down(rng.bool()),
        _ => {
            let view = cluster.view();
            cluster.set_view(rng.usize(..servers), rng.bool().then_some(view));
        }
    }
}

/// The cluster is well again.
fn heal(cluster: &ModelCluster) {
    cluster.set_down(false);
    for node in 0..cluster.servers().len() {
        cluster.set_read_only(node, false);
        cluster.set_view(node, None);
        cluster.server(node).on_request(|_| Reaction::Serve);
    }
    for key in 0..KEYS {
        cluster.end_migration(hedgerow::command::slot::slot_of(format!("k:{key}").as_bytes()));
    }
}

/// What became of the increments of keys that have one each.
type Increments = Rc<RefCell<BTreeMap<String, Result<(), Option<Fate>>>>>;
/// What is wrong with a run.
type Wrong = Rc<RefCell<Vec<String>>>;

/// Runs a seed; answers what is wrong, and how many commands were sent again.
pub(super) fn run(plan: Plan) -> (Vec<String>, u64) {
    let plan = Rc::new(plan);
    let simulation = Simulation::with_faults(plan.faults.clone());
    let cluster = simulation.cluster(plan.primaries, plan.replicas_each);
    for key in 0..KEYS {
        cluster.set_value(format!("k:{key}"), format!("v:{key}"));
    }
    for node in 0..cluster.servers().len() {
        let (plan, mut rng) = (plan.clone(), Rng::with_seed(plan.seed ^ (node as u64) << 40));
        cluster.server(node).on_request(move |asked| plan.reaction(&mut rng, asked));
    }
    let mut rng = Rng::with_seed(plan.seed ^ 0x6576);
    for _ in 0..plan.events {
        let (cluster, mut of_event) = (cluster.clone(), rng.fork());
        simulation.after(rng.u32(..80) * MS, move || happen(&cluster, &mut of_event));
    }
    let (wrong, increments): (Wrong, Increments) = Default::default();
    let options = plan.options(&cluster);
    let told = (plan.clone(), cluster.clone(), wrong.clone(), increments.clone());
    let outcome = simulation.run(async move |core| {
        let client = core.create(&options).expect("valid options");
        drive(core, client, told).await
    });
    let again = outcome.checked();
    check_increments(&cluster, &increments.borrow(), &mut wrong.borrow_mut());
    (wrong.take(), again)
}

/// Each key was incremented once: its value says what became of that.
fn check_increments(
    cluster: &ModelCluster,
    increments: &BTreeMap<String, Result<(), Option<Fate>>>,
    wrong: &mut Vec<String>,
) {
    for (key, outcome) in increments {
        let value = cluster.value(key);
        let value = value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned());
        let is_right = matches!(
            (outcome, value.as_deref()),
            (Ok(()), Some("1"))
                | (Err(Some(Fate::NotSent | Fate::Answered)), None)
                | (Err(Some(Fate::Unknown) | None), None | Some("1"))
        );
        if !is_right {
            wrong.push(format!("{key}: {outcome:?}, and its value is {value:?}"));
        }
    }
}

type Told = (Rc<Plan>, ModelCluster, Wrong, Increments);

async fn drive(core: LocalContext, client: LocalClient, told: Told) -> u64 {
    let (plan, cluster, wrong, _) = &told;
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|task| {
            let rng = Rng::with_seed(plan.seed ^ (task as u64) << 20);
            core.spawn(work(core.clone(), client.clone(), told.clone(), task, rng))
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    // Whatever was to happen has happened by then.
    pass(&core, 100 * MS).await;
    heal(cluster);
    if let Err(error) = is_well(&core, &client).await {
        wrong.borrow_mut().push(format!("not well again: {error}"));
    }
    client.counters().again
}

/// Whether every key can be read again, a while after all was well.
async fn is_well(core: &LocalContext, client: &LocalClient) -> Result<(), Error> {
    let mut left: Vec<_> = (0..KEYS).collect();
    let mut last = Ok(());
    for _ in 0..100 {
        pass(core, 1_000 * MS).await;
        let mut missing = Vec::new();
        for key in left {
            if let Err(error) = client.get::<Option<String>>(format!("k:{key}")).await {
                missing.push(key);
                last = Err(error);
            }
        }
        left = missing;
        if left.is_empty() {
            return Ok(());
        }
    }
    last
}

/// One task: reads, increments and reads of several keys, some of which it gives up.
async fn work(core: LocalContext, client: LocalClient, told: Told, task: usize, mut rng: Rng) {
    let (plan, _, wrong, increments) = told;
    for step in 0..plan.steps {
        let limit = Duration::from_micros(rng.u64(200..120_000));
        let gives_up = match rng.u8(..6) {
            0 => Duration::from_micros(rng.u64(..8_000)),
            _ => Duration::from_secs(3_600),
        };
        let begun = core.now();
        let until = pass(&core, gives_up);
        match rng.u8(..6) {
            0 | 1 => {
                let key = format!("n:{task}:{step}");
                let done = unless(until, client.incr(&key).timeout(limit)).await;
                let outcome = match done {
                    Some(Ok(1)) => Ok(()),
                    Some(Ok(other)) => {
                        wrong.borrow_mut().push(format!("{key} became {other}"));
                        Ok(())
                    }
                    Some(Err(error)) => Err(Some(error.fate())),
                    None => Err(None),
                };
                increments.borrow_mut().insert(key, outcome);
            }
            2 => {
                let keys: Vec<_> = (0..rng.usize(1..5)).map(|_| rng.usize(..KEYS)).collect();
                let names: Vec<_> = keys.iter().map(|key| format!("k:{key}")).collect();
                let request = client.mget::<Vec<Option<String>>>(&names).timeout(limit);
                let right: Vec<_> = keys.iter().map(|key| Some(format!("v:{key}"))).collect();
                if let Some(Ok(values)) = unless(until, request).await
                    && values != right
                {
                    wrong.borrow_mut().push(format!("{names:?} came back as {values:?}"));
                }
            }
            _ => {
                let key = rng.usize(..KEYS);
                let request = client.get::<Option<String>>(format!("k:{key}")).timeout(limit);
                if let Some(Ok(value)) = unless(until, request).await
                    && value != Some(format!("v:{key}"))
                {
                    wrong.borrow_mut().push(format!("key {key} came back as {value:?}"));
                }
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
