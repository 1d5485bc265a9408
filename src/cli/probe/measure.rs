//! The passes of a probe, on one core: warm-up, blocks that take turns, and a check of the advice.

use super::super::lane::unless_stopped;
use super::super::pinned::Timer;
use super::super::stop;
use super::super::target::one_line;
use super::book::Book;
use super::deployment::{self, Probed};
use super::desk::{Desk, Stretch};
use super::drift::Drift;
use super::heat::Heat;
use super::plan::{GOAL_RANK, PASSES, Plan};
use super::predict::{self, Wish};
use super::told::Told;
use hedgerow::read::{Delay, Hedging, Ledger, ReadFrom};
use hedgerow::{LocalClient, LocalContext, Options};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Without hedges.
    Baseline,
    /// Hedges after a fixed delay.
    Fixed,
    /// Hedges after a delay that follows the latencies.
    Adaptive,
    /// Without hedges again: whether the machine and the deployment kept still.
    BaselineAgain,
    /// With the recommended delay and budget.
    Check,
    /// Without hedges, in turns with the check: what it is to be compared with.
    CheckBaseline,
}

impl Kind {
    /// The passes that take turns.
    const TURNS: [Kind; PASSES] =
        [Kind::Baseline, Kind::Fixed, Kind::Adaptive, Kind::BaselineAgain];

    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Baseline => "baseline",
            Kind::Fixed => "fixed",
            Kind::Adaptive => "adaptive",
            Kind::BaselineAgain => "baseline again",
            Kind::Check => "recommended",
            Kind::CheckBaseline => "baseline at check",
        }
    }

    /// Whether predictions are made from it.
    pub(crate) const fn is_baseline(self) -> bool {
        matches!(self, Kind::Baseline | Kind::BaselineAgain)
    }

    fn hedging(self, plan: &Plan) -> Option<Hedging> {
        match self {
            Kind::Baseline | Kind::BaselineAgain | Kind::Check | Kind::CheckBaseline => None,
            Kind::Fixed => Some(plan.fixed),
            Kind::Adaptive => {
                let mut hedging = plan.fixed;
                hedging.delay = Delay::adaptive();
                Some(hedging)
            }
        }
    }
}

/// One pass that was measured.
#[derive(Debug)]
pub(crate) struct Passed {
    /// What it was for.
    pub(crate) kind: Kind,
    /// Its hedging.
    pub(crate) hedging: Option<Hedging>,
    /// Its figures.
    pub(crate) book: Book,
    /// The books of its hedges, warm-up left out.
    pub(crate) ledger: Option<Ledger>,
}

/// All that a probe measured.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The passes, in the order of the report.
    pub(crate) passes: Vec<Passed>,
    /// The nodes, in the order of every figure by node.
    pub(crate) nodes: Vec<Probed>,
    /// When the nodes were slow.
    pub(crate) heat: Heat,
    /// Keys that were read.
    pub(crate) keys: usize,
    /// What the user should know of the deployment.
    pub(crate) remarks: Vec<String>,
    /// The user ended it.
    pub(crate) interrupted: bool,
}

/// The clients of the passes of one kind of hedging, and their books when the warm-up was over.
struct Runner {
    kind: Kind,
    hedging: Option<Hedging>,
    clients: Vec<LocalClient>,
    seat: usize,
    pass: usize,
    before: Ledger,
}

/// What the steps of a probe share.
struct Probe {
    local: LocalContext,
    plan: Arc<Plan>,
    options: Options,
    told: Arc<Told>,
    desk: Rc<Desk>,
    nodes: Vec<Probed>,
}

/// Runs all passes. `None`: the user ended it before the first read was measured.
pub(crate) async fn run(
    local: LocalContext,
    plan: Arc<Plan>,
    options: Options,
    told: Arc<Told>,
) -> Result<Option<Measured>, String> {
    told.tell("connecting", Duration::ZERO, Duration::ZERO);
    let mut remarks = deployment::check_roles(&local, &options).await?;
    let nodes = deployment::nodes(&local, &options).await?;
    let keys = deployment::keys(&local, &plan, &options, &nodes).await?;
    if keys.is_empty() {
        return Ok(None);
    }
    let key_count = keys.len();
    // A little longer than planned, since blocks wait for their last replies.
    let heat = Heat::new(nodes.len(), plan.duration.mul_f64(1.01));
    let places = nodes.iter().map(|node| node.endpoint.clone());
    let places = if options.cluster.is_some() { places.collect() } else { Vec::new() };
    let desk = Desk::new(local.clone(), keys, heat, places, plan.seed);
    let probe = Probe { local, plan, options, told, desk, nodes };
    let Some(mut runners) = probe.runners().await? else { return Ok(None) };
    remarks.extend(probe.zone_remark(&runners[0].clients));
    let went_on = probe.turns(&mut runners).await;
    let heat = probe.desk.heat();
    if went_on && probe.plan.check {
        let baseline = runners[0].again(Kind::CheckBaseline, usize::MAX);
        runners.extend(probe.check(baseline).await?);
    }
    probe.desk.close();
    let books = probe.desk.take_books().into_iter();
    let passes = runners.into_iter().zip(books);
    let passes = passes.map(|(runner, book)| runner.passed(book)).collect();
    let interrupted = stop::is_asked();
    let nodes = probe.nodes;
    Ok(Some(Measured { passes, nodes, heat, keys: key_count, remarks, interrupted }))
}

impl Probe {
    /// The clients of the passes, warm; `None` if the user asked to stop.
    async fn runners(&self) -> Result<Option<Vec<Runner>>, String> {
        let mut runners: Vec<Runner> = Vec::new();
        for kind in Kind::TURNS {
            let hedging = kind.hedging(&self.plan);
            // Both baselines are one client, so that they differ by the time alone.
            let known = runners.iter().find(|other| other.hedging == hedging);
            let runner = match known {
                Some(other) => other.again(kind, self.open(hedging)),
                None => match self.connect(kind, hedging).await? {
                    Some(runner) => runner,
                    None => return Ok(None),
                },
            };
            runners.push(runner);
        }
        Ok(Some(runners))
    }

    /// Says so where no node told that it is in the zone of `--zone`: reads then go as if there was none.
    fn zone_remark(&self, clients: &[LocalClient]) -> Option<String> {
        let zone = self.options.client_availability_zone.as_ref()?;
        let seen = clients.first()?.nodes();
        if seen.iter().any(|node| node.zone.as_ref() == Some(zone)) {
            return None;
        }
        let mut zones: Vec<&str> = seen.iter().filter_map(|node| node.zone.as_deref()).collect();
        zones.sort_unstable();
        zones.dedup();
        let told = match zones.is_empty() {
            true => "none told a zone".into(),
            false => format!("they told {}", zones.join(", ")),
        };
        Some(format!("--zone {zone}: no node is in it ({told}), so reads do not keep to a zone"))
    }

    /// A book for a pass with this hedging.
    fn open(&self, hedging: Option<Hedging>) -> usize {
        let mut book = Book::new(self.nodes.len());
        if let (None, Some((primaries, _))) = (hedging, self.alone()) {
            book.served_by(|node| {
                self.nodes.get(node).is_some_and(|n| n.is_primary() == primaries)
            });
        }
        self.desk.open(book)
    }

    /// Where one node serves all reads of its shard: whether that is its primary, and a policy that reaches
    /// the others.
    fn alone(&self) -> Option<(bool, ReadFrom)> {
        let primaries = self.nodes.iter().filter(|node| node.is_primary()).count();
        let replicas = self.nodes.len() - primaries;
        // Shards are taken to be alike.
        self.plan.alone(replicas.div_ceil(primaries.max(1)))
    }

    /// The clients as they read from nodes that serve no reads otherwise; none where all do. Only without
    /// hedging: a hedge goes there by itself.
    fn spares(
        &self,
        clients: &[LocalClient],
        hedging: Option<Hedging>,
    ) -> Result<Vec<LocalClient>, String> {
        let Some((_, from)) = self.alone().filter(|_| hedging.is_none()) else {
            return Ok(Vec::new());
        };
        let spares = clients.iter().map(|client| client.read_from(from));
        spares.collect::<Result<_, _>>().map_err(|error| one_line(&error))
    }

    /// A client with its connections up and its warm-up behind it; `None` if the user asked to stop.
    async fn connect(
        &self,
        kind: Kind,
        hedging: Option<Hedging>,
    ) -> Result<Option<Runner>, String> {
        let mut options = self.options.clone();
        options.hedging = hedging;
        let mut clients = Vec::new();
        for _ in 0..self.plan.clients {
            let connecting = self.local.connect(&options);
            match unless_stopped(&Timer(self.local.clone()), connecting).await {
                Some(client) => clients.push(client.map_err(|error| one_line(&error))?),
                None => return Ok(None),
            }
        }
        let spares = self.spares(&clients, hedging)?;
        let (seat, pass) = (self.desk.seat(clients.clone(), spares), self.open(hedging));
        let warmup = self.stretch(seat, pass, self.plan.warmup, false);
        let begin = self.local.now();
        let tell = || {
            let text = format!("warming up: {}", kind.name());
            self.told.tell(text, self.local.now().since(begin), self.plan.warmup);
        };
        if !self.desk.run(warmup, tell).await {
            return Ok(None);
        }
        let before = books_of(&clients);
        Ok(Some(Runner { kind, hedging, clients, seat, pass, before }))
    }

    fn stretch(&self, seat: usize, pass: usize, length: Duration, measured: bool) -> Stretch {
        Stretch { pass, seat, rate_per_s: self.plan.rate_per_s, length, measured }
    }

    /// The blocks of all passes, in an order that is drawn anew for each round. False if the user asked to
    /// stop.
    async fn turns(&self, runners: &mut [Runner]) -> bool {
        let mut dice = fastrand::Rng::with_seed(self.plan.seed ^ 0x9E37_79B9_7F4A_7C15);
        let begin = self.local.now();
        self.desk.map_heat(true);
        let mut went_on = true;
        'rounds: for round in 0..self.plan.blocks {
            let mut order: Vec<usize> = (0..runners.len()).collect();
            dice.shuffle(&mut order);
            for at in order {
                let Runner { kind, seat, pass, .. } = runners[at];
                let block = self.stretch(seat, pass, self.plan.block(), true);
                let tell = || {
                    let (round, of) = (round + 1, self.plan.blocks);
                    let reads = self.desk.answered();
                    let text = format!("{}, block {round} of {of}, {reads} reads", kind.name());
                    self.told.tell(text, self.local.now().since(begin), self.plan.duration);
                };
                went_on = self.desk.run(block, tell).await;
                if !went_on {
                    break 'rounds;
                }
            }
        }
        self.desk.map_heat(false);
        went_on
    }

    /// What is recommended, in turns with no hedges, together as long as a pass; nothing where nothing is
    /// recommended.
    async fn check(&self, mut baseline: Runner) -> Result<Vec<Runner>, String> {
        let Some(hedging) = self.recommended() else { return Ok(Vec::new()) };
        let Some(check) = self.connect(Kind::Check, Some(hedging)).await? else {
            return Ok(Vec::new());
        };
        baseline.pass = self.open(None);
        let length = self.plan.duration / PASSES as u32;
        let begin = self.local.now();
        let tell = || {
            let text = "checking what is recommended";
            self.told.tell(text, self.local.now().since(begin), length);
        };
        let block = |runner: &Runner| {
            self.stretch(runner.seat, runner.pass, length / (2 * self.plan.blocks), true)
        };
        'rounds: for round in 0..self.plan.blocks {
            let mut turns = [block(&check), block(&baseline)];
            turns.rotate_left(round as usize % 2);
            for turn in turns {
                if !self.desk.run(turn, tell).await {
                    break 'rounds;
                }
            }
        }
        Ok(vec![check, baseline])
    }

    /// The settings to check; `None` where none are recommended.
    fn recommended(&self) -> Option<Hedging> {
        let burst = self.plan.fixed.burst;
        let percent_max = self.plan.fixed.max_extra_load_percent;
        let wish = Wish { rank: GOAL_RANK, percent_max, burst, delay: None, seed: self.plan.seed };
        self.desk.with_books(|books| {
            let baselines = Kind::TURNS.iter().zip(books).filter(|(kind, _)| kind.is_baseline());
            let baselines: Vec<&Book> = baselines.map(|(_, book)| book).collect();
            if let [first, .., second] = baselines[..] {
                let drift = Drift::new(first.service.histogram(), second.service.histogram());
                if drift.disagrees() {
                    return None;
                }
            }
            predict::recommended(baselines.into_iter(), &wish)
        })
    }
}

impl Runner {
    fn again(&self, kind: Kind, pass: usize) -> Runner {
        let (clients, before) = (self.clients.clone(), Ledger::default());
        Runner { kind, hedging: self.hedging, clients, seat: self.seat, pass, before }
    }

    fn passed(self, book: Book) -> Passed {
        let Runner { kind, hedging, clients, before, .. } = self;
        let ledger = hedging.map(|_| books_of(&clients).since(&before));
        Passed { kind, hedging, book, ledger }
    }
}

/// The books of several clients together.
fn books_of(clients: &[LocalClient]) -> Ledger {
    let mut all = Ledger::default();
    clients.iter().for_each(|client| all.merge(&client.hedges()));
    all
}
