//! A run of everything at once, drawn from a seed.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use hedgerow::config::{ProtocolChoice, Secret};
use hedgerow::prelude::*;
use hedgerow::testing::{Asked, ModelServer, Reaction, Report, SimConfig, Simulation};
use hedgerow::{Error, LocalClient, LocalContext, Options};

use super::books::Books;
use super::clock::{Boxed, all, pass, step, unless};

/// Sizes around what has a border: the in-place body, the pooled body, blocks, exact buffers.
const SIZES: [usize; 22] = [
    0, 1, 80, 86, 87, 4_086, 4_096, 4_097, 16_370, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537,
    131_071, 131_072, 131_073, 262_143, 262_144, 262_145, 300_000,
];

/// The limit of a request that ends without one.
const FOREVER: Duration = Duration::from_secs(3_600);

/// A value that is kept, and what it was when it came.
type Kept = (Bytes, Vec<u8>);

/// What a seed decided.
#[derive(Debug)]
pub(super) struct Plan {
    faults: SimConfig,
    clients: usize,
    tasks: usize,
    steps: usize,
    connections: usize,
    in_flight_max: usize,
    /// Chance that the server misbehaves on a request.
    mischief: f64,
    closes: bool,
    storms: usize,
    /// Nothing can swallow a reply, so requests need no deadline to end.
    patient: bool,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x706c_616e);
        let calm = seed.is_multiple_of(4);
        let faults = match calm {
            true => SimConfig { seed, ..SimConfig::default() },
            false => SimConfig::chaos(seed),
        };
        let mischief = if rng.bool() { 0.0 } else { 0.05 * rng.f64() };
        Plan {
            patient: calm && mischief == 0.0,
            faults,
            clients: rng.usize(1..4),
            tasks: rng.usize(1..8),
            steps: rng.usize(3..16),
            connections: *rng.choice(&[1, 1, 1, 2, 7]).unwrap(),
            in_flight_max: *rng.choice(&[1, 2, 5, 16_384, 16_384]).unwrap(),
            mischief,
            closes: rng.u8(..) < 64,
            storms: if rng.u8(..) < 64 { rng.usize(1..6) } else { 0 },
        }
    }

    fn options(&self, server: &ModelServer, rng: &mut Rng) -> Options {
        let mut options = server.options();
        let ms = Duration::from_millis;
        options.connections = self.connections;
        options.in_flight_max = self.in_flight_max;
        options.command_timeout = Some(ms(rng.u64(20..2_000)));
        options.connect_timeout = ms(rng.u64(5..2_000));
        options.queue_timeout = rng.bool().then(|| ms(rng.u64(1..500)));
        options.queue_commands_max = if rng.u8(..) < 32 { 3 } else { 10_000 };
        options.reconnect.initial = ms(rng.u64(1..50));
        options.reconnect.max = ms(rng.u64(50..500));
        options.reconnect.attempts = (rng.u8(..) < 32).then(|| rng.u32(1..4));
        options.protocol = *rng
            .choice(&[ProtocolChoice::Auto, ProtocolChoice::Auto, ProtocolChoice::Resp2])
            .unwrap();
        if self.patient {
            (options.command_timeout, options.queue_timeout) = (None, None);
            options.connect_timeout = ms(5_000);
        }
        options.client_name = rng.bool().then(|| "simulated".to_owned());
        if rng.bool() {
            options.password = Some(Secret::new("right"));
        }
        options
    }

    /// Longest delay after its deadline at which a request may end.
    fn late(&self) -> Duration {
        let jumps = self.faults.clock_jump > 0.0;
        let jump = if jumps { self.faults.clock_jump_max } else { Duration::ZERO };
        jump + Duration::from_millis(1)
    }
}

/// What a whole run was like.
pub(super) struct Run {
    pub(super) wrong: Vec<String>,
    pub(super) report: Report,
    pub(super) values: usize,
    pub(super) failures: usize,
}

/// Runs one seed.
pub(super) fn run(seed: u64) -> Run {
    let plan = Rc::new(Plan::new(seed));
    let mut rng = Rng::with_seed(seed ^ 0x776f_726b);
    let simulation = Simulation::with_faults(plan.faults.clone());
    let server = simulation.server();
    server.set_resp3(rng.u8(..) > 40);
    let options = plan.options(&server, &mut rng);
    if options.password.is_some() {
        server.set_password("right");
    }
    server.set_duration(Duration::from_micros(rng.u64(0..50)));
    misbehave(&server, plan.mischief, rng.fork());
    for _ in 0..plan.storms {
        let at = Duration::from_millis(rng.u64(0..400));
        let (down, up) = (server.clone(), server.clone());
        simulation.after(at, move || down.stop());
        simulation.after(at + Duration::from_millis(rng.u64(0..100)), move || up.resume());
    }
    let books = Books::default();
    let wrong = Rc::new(RefCell::new(Vec::new()));
    let (drops, dropper) = dropper();
    let outcome = simulation.run(|core| {
        let (plan, books, wrong) = (plan.clone(), books.clone(), wrong.clone());
        async move { drive(core, plan, options, books, wrong, drops, rng).await }
    });
    let mut wrong = std::mem::take(&mut *wrong.borrow_mut());
    wrong.extend(dropper.join().expect("the dropping thread"));
    let in_order = plan.connections == 1 && plan.in_flight_max > 1_000;
    wrong.extend(books.check(&server, plan.late(), in_order));
    if plan.patient && outcome.report.time > Duration::from_secs(120) {
        wrong.push("a request without a deadline hung".to_owned());
    }
    if !outcome.report.is_clean() {
        wrong.push(outcome.report.to_string());
    }
    let entries = books.entries();
    let values = entries.iter().filter(|e| matches!(e.ending, super::books::Ending::Value)).count();
    Run { wrong, report: outcome.report, values, failures: entries.len() - values }
}

/// A thread that checks and drops what it is sent.
fn dropper() -> (mpsc::Sender<Kept>, JoinHandle<Vec<String>>) {
    let (send, receive) = mpsc::channel::<Kept>();
    let body = move || {
        let odd = receive.into_iter().filter(|(kept, right)| kept != right);
        odd.map(|(kept, _)| format!("a kept value of {} bytes changed", kept.len())).collect()
    };
    (send, std::thread::spawn(body))
}

fn misbehave(server: &ModelServer, chance: f64, mut rng: Rng) {
    if chance == 0.0 {
        return;
    }
    server.on_request(move |_: &Asked<'_>| {
        if rng.f64() >= chance {
            return Reaction::Serve;
        }
        let time = Duration::from_micros(rng.u64(0..300_000));
        match rng.u8(0..12) {
            0 | 1 => Reaction::ServeAfter(time),
            2 => Reaction::HalfAnswer(rng.usize(0..200)),
            3 => Reaction::RunAndClose,
            4 => Reaction::RunAndReset,
            5 => Reaction::Close,
            6 => Reaction::Silence,
            7 => Reaction::Answer(b"-BUSY wait a little\r\n".to_vec()),
            8 => Reaction::Answer(b"?what is this\r\n".to_vec()),
            9 | 10 => Reaction::Before(b">2\r\n+message\r\n+hello\r\n".to_vec()),
            _ => Reaction::Pause(time),
        }
    });
}

/// One client of the run, and what its tasks share.
#[derive(Clone)]
struct Ground {
    core: LocalContext,
    client: LocalClient,
    books: Books,
    wrong: Rc<RefCell<Vec<String>>>,
    drops: mpsc::Sender<Kept>,
    kept: Rc<RefCell<Vec<Kept>>>,
    patient: bool,
    batches: Rc<Cell<usize>>,
}

async fn drive(
    core: LocalContext,
    plan: Rc<Plan>,
    options: Options,
    books: Books,
    wrong: Rc<RefCell<Vec<String>>>,
    drops: mpsc::Sender<Kept>,
    mut rng: Rng,
) {
    let (mut tasks, mut clients) = (Vec::new(), Vec::new());
    let batches = Rc::new(Cell::new(0));
    for _ in 0..plan.clients {
        let client = core.create(&options).expect("the options are valid");
        let ground = Ground {
            core: core.clone(),
            client,
            books: books.clone(),
            wrong: wrong.clone(),
            drops: drops.clone(),
            kept: Rc::default(),
            patient: plan.patient,
            batches: batches.clone(),
        };
        clients.push(ground.client.clone());
        for _ in 0..plan.tasks {
            let (ground, rng, steps) = (ground.clone(), rng.fork(), plan.steps);
            tasks.push(core.spawn(async move { ground.work(rng, steps).await }));
        }
        if plan.closes && rng.bool() {
            let (ground, after) = (ground.clone(), Duration::from_micros(rng.u64(0..200_000)));
            let limit = Duration::from_micros(rng.u64(0..20_000));
            tasks.push(core.spawn(async move {
                pass(&ground.core, after).await;
                ground.client.close(limit).await;
            }));
        }
    }
    for task in tasks {
        if let Err(panic) = task.await {
            wrong.borrow_mut().push(panic.to_string());
        }
    }
    if plan.patient {
        // Late replies to abandoned requests are in by then.
        pass(&core, Duration::from_secs(5)).await;
        let left: usize = clients.iter().map(LocalClient::live_requests).sum();
        if left > 0 {
            wrong.borrow_mut().push(format!("{left} cells are held though nothing is under way"));
        }
        // A place that is promised to nobody any more would hold this up.
        let (began, limit) = (core.now(), Duration::from_secs(1));
        for client in clients.iter().filter(|_| !plan.closes) {
            client.close(limit).await;
        }
        if core.now().since(began) >= limit {
            wrong.borrow_mut().push("a place in flight was not given back".to_owned());
        }
    }
}

/// A value that tells whose it is.
pub(super) fn value(id: usize, len: usize) -> Vec<u8> {
    let head = format!("e:{id}:");
    let filler = (0..len).map(|at| (at ^ (at >> 8) ^ id.wrapping_mul(37)) as u8);
    head.bytes().chain(filler).take(len).collect()
}

impl Ground {
    fn fault(&self, text: String) {
        self.wrong.borrow_mut().push(text);
    }

    async fn work(&self, mut rng: Rng, steps: usize) {
        for _ in 0..steps {
            match rng.u8(0..17) {
                0..4 => self.count(self.limit(&mut rng), 0).await,
                4..7 => self.write_and_read(&mut rng).await,
                7 => self.echo(rng.usize(32..2_000), self.limit(&mut rng), 0).await,
                8..10 => self.batch(&mut rng).await,
                10..12 => self.give_up(&mut rng).await,
                12 => pass(&self.core, Duration::from_micros(rng.u64(0..30_000))).await,
                13 => {
                    for _ in 0..rng.u32(1..50) {
                        step().await;
                    }
                }
                14 => self.panic(&mut rng).await,
                15 => self.forget(&mut rng).await,
                _ => self.let_go(&mut rng),
            }
        }
        while !self.kept.borrow().is_empty() {
            self.let_go(&mut rng);
        }
    }

    fn limit(&self, rng: &mut Rng) -> Duration {
        match rng.u8(0..8) {
            3..8 if self.patient => FOREVER,
            0 => Duration::from_micros(rng.u64(50..1_000)),
            1 | 2 => Duration::from_millis(rng.u64(1..60)),
            _ => Duration::from_millis(rng.u64(60..3_000)),
        }
    }

    /// A command of which the server must see at most one copy.
    async fn count(&self, limit: Duration, batch: usize) {
        let key = format!("c:{}", self.books.next());
        let at = self.books.open(&self.core, "INCR", key.clone(), limit, batch);
        let outcome: Result<i64, Error> = self.client.incr(&key).timeout(limit).await;
        self.books.close(at, &self.core, &outcome);
        if outcome.as_ref().is_ok_and(|n| *n != 1) {
            self.fault(format!("{key} was counted {outcome:?}"));
        }
    }

    async fn echo(&self, len: usize, limit: Duration, batch: usize) {
        let id = self.books.next();
        let right = value(id, len);
        let at = self.books.open(&self.core, "ECHO", format!("e:{id}"), limit, batch);
        let outcome: Result<Vec<u8>, Error> = self.client.echo(&right).timeout(limit).await;
        self.books.close(at, &self.core, &outcome);
        if outcome.is_ok_and(|got| got != right) {
            self.fault(format!("the echo of {id} is another's"));
        }
    }

    async fn write_and_read(&self, rng: &mut Rng) {
        let id = self.books.next();
        let (key, limit) = (format!("k:{id}"), self.limit(rng));
        let len = match rng.u8(0..32) {
            0 => 1 << 20,
            1 => rng.usize(300_000..2_500_000),
            2..12 => rng.usize(0..300),
            _ => *rng.choice(&SIZES).unwrap(),
        };
        let right = value(id, len);
        let at = self.books.open(&self.core, "SET", key.clone(), limit, 0);
        let outcome: Result<(), Error> = self.client.set(&key, &right).timeout(limit).await;
        self.books.close(at, &self.core, &outcome);
        if outcome.is_err() {
            return;
        }
        for _ in 0..rng.u32(1..3) {
            let limit = self.limit(rng);
            let got: Result<Option<Bytes>, Error> = self.client.get(&key).timeout(limit).await;
            match got {
                Ok(Some(got)) if got == right => {
                    if rng.bool() {
                        self.kept.borrow_mut().push((got, right.clone()));
                    }
                }
                Ok(got) => self.fault(format!("{key} is {:?} bytes", got.map(|g| g.len()))),
                Err(_) => {}
            }
        }
    }

    async fn batch(&self, rng: &mut Rng) {
        self.batches.set(self.batches.get() + 1);
        let batch = self.batches.get();
        let limit = self.limit(rng);
        let mut requests: Vec<Boxed<'_, ()>> = Vec::new();
        for _ in 0..rng.u32(2..20) {
            let (ground, len) = (self.clone(), rng.usize(32..500));
            let large = if rng.u8(..) < 8 { 40_000 } else { 0 };
            requests.push(match rng.bool() {
                true => Box::pin(async move { ground.count(limit, batch).await }),
                false => Box::pin(async move { ground.echo(len + large, limit, batch).await }),
            });
        }
        all(requests).await;
    }

    /// A request whose future is dropped, before or after its first poll, or long after.
    async fn give_up(&self, rng: &mut Rng) {
        let limit = self.limit(rng);
        let after = Duration::from_micros(rng.u64(0..3_000));
        match rng.u8(0..4) {
            0 => drop(self.client.incr("never-polled")),
            1 => drop(unless(step(), self.count(limit, 0)).await),
            2 => drop(unless(pass(&self.core, after), self.echo(5_000, limit, 0)).await),
            _ => drop(unless(pass(&self.core, after), self.count(limit, 0)).await),
        }
    }

    /// Requests that are polled once and then dropped together, some of them with a place that they
    /// were given meanwhile.
    async fn forget(&self, rng: &mut Rng) {
        let limit = self.limit(rng);
        let count = |_| -> Boxed<'_, ()> { Box::pin(self.count(limit, 0)) };
        let mut requests: Vec<_> = (0..rng.u32(1..6)).map(count).collect();
        poll_fn(|cx| {
            requests.retain_mut(|request| request.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        pass(&self.core, Duration::from_micros(rng.u64(0..3_000))).await;
    }

    /// A task that panics with a request under way; no other may notice.
    async fn panic(&self, rng: &mut Rng) {
        let (ground, after) = (self.clone(), Duration::from_micros(rng.u64(0..500)));
        let task = self.core.spawn(async move {
            let _ = unless(pass(&ground.core, after), ground.count(after, 0)).await;
            let request = ground.client.get::<Option<String>>("of a task that panics");
            let _under_way = unless(step(), request).await;
            // Without the hook, which would print.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        if task.await.is_ok() {
            self.fault("a panic got lost".to_owned());
        }
    }

    /// Checks kept values and drops them, here or on another thread.
    fn let_go(&self, rng: &mut Rng) {
        let Some((kept, right)) = self.kept.borrow_mut().pop() else { return };
        if kept != right {
            self.fault(format!("a kept value of {} bytes changed", right.len()));
        }
        if rng.bool() {
            let _ = self.drops.send((kept, right));
        }
    }
}
