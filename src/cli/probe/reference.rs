//! The reference run: 1,000 reads one after the other, a replica that pauses for 50 ms on every
//! 20th, in three passes: without hedges, with them after 5 ms for at most 5 %, and without again.

use super::super::lane::unless_stopped;
use super::super::machine::Machine;
use super::super::output::Output;
use super::super::pinned::Timer;
use super::super::progress::Progress;
use super::super::target::{alone, one_line};
use super::super::{Failure, say};
use super::deployment::{self, Deployment, VALUE_SIZE};
use super::figures::{HedgingFigures, LedgerFigures};
use super::plan::Plan;
use super::report::us;
use super::told::Told;
use super::with_address;
use hedgerow::command::raw;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, Ledger, ReadFrom};
use hedgerow::testing::Faults;
use hedgerow::{Cores, LocalClient, LocalContext, Options};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Reads of a pass that count, and reads before them.
const SAMPLES: u64 = 1_000;
const WARMUP: u64 = 20;
/// The replica pauses on every so many.
const EVERY: u64 = 20;
/// For so long.
const PAUSE: Duration = Duration::from_millis(50);
/// After a pause the next read waits until it is over for certain: each pause is to hit one read.
const AFTER: Duration = Duration::from_millis(52);
const DELAY: Duration = Duration::from_millis(5);
const PERCENT: u32 = 5;
/// What hedging has to achieve.
const BASELINE_P99_MIN_US: f64 = 50_000.0;
const HEDGED_P99_MAX_US: f64 = 10_000.0;
/// The key that is written where none is named, and how long it lives.
const KEY: &str = "hedgerow:reference";
const KEY_LIVES: Duration = Duration::from_secs(600);
/// How long a replica may take to have it, and how often it is asked.
const REPLICATED_BY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// What one pass measured.
#[derive(Debug)]
struct Passed {
    name: &'static str,
    hedging: Option<Hedging>,
    samples_us: Vec<f64>,
    ledger: Ledger,
}

/// The report of the reference run.
#[derive(Debug, Serialize)]
struct Reference {
    schema: &'static str,
    version: &'static str,
    machine: Machine,
    nodes: Vec<String>,
    samples: u64,
    warmup: u64,
    pause_every: u64,
    pause_us: f64,
    value_bytes: Option<usize>,
    passes: Vec<PassFigures>,
    verdict: Verdict,
}

/// One pass of the report: nearest-rank percentiles and every sample.
#[derive(Debug, Serialize)]
struct PassFigures {
    name: &'static str,
    hedging: Option<HedgingFigures>,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
    ledger: Option<LedgerFigures>,
    samples_us: Vec<f64>,
}

/// Whether hedging did what it has to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Verdict {
    /// In both passes without hedges.
    baseline_p99_at_least_50_ms: bool,
    hedged_p99_below_10_ms: bool,
    /// Hedges for 100 reads, warm-up included: the budget's promise is for the client's whole life.
    hedges_at_most_5_percent: bool,
    holds: bool,
}

/// Runs it, prints the summary and writes the JSON report.
pub(crate) fn run(
    plan: &Arc<Plan>,
    deployment: &Deployment,
    cores: &Cores,
    json: Option<Output>,
) -> Result<(), Failure> {
    let mut options = deployment.options.clone();
    // One replica, so that every read goes to the one that pauses, and every hedge to the primary.
    options.replica_endpoints.truncate(1);
    options.read_from = ReadFrom::ReplicaPreferred.into();
    let told = Arc::new(Told::default());
    let progress = Progress::draw({
        let told = told.clone();
        move || told.state()
    });
    let faults = deployment.fleet().map(|fleet| fleet.replica(0).faults().clone());
    let (plan, of) = (plan.clone(), options.clone());
    let ended = cores.run(move |local: LocalContext| {
        passes(local, plan.clone(), of.clone(), faults.clone(), told.clone())
    });
    drop(progress);
    let ended = ended.map_err(|error| Failure::Failed(one_line(&error)))?;
    let passed = ended.into_iter().next().unwrap_or(Ok(None));
    let passed = passed.map_err(|e| Failure::Failed(with_address(&deployment.address(), e)))?;
    let Some(passed) = passed else {
        let line = "interrupted before the reference run was complete";
        return Err(Failure::Failed(line.into()));
    };
    let report = Reference::new(&options, passed);
    let said = say(&report.text());
    let json = json.map_or(Ok(()), |out| {
        out.write(|out| {
            serde_json::to_writer(&mut *out, &report)?;
            out.write_all(b"\n")
        })
    });
    let holds = if report.verdict.holds { Ok(()) } else { Err(report.verdict.failed()) };
    said.and(json.and(holds).map_err(Failure::Failed))
}

/// All passes; `None` if the user asked to stop.
async fn passes(
    local: LocalContext,
    plan: Arc<Plan>,
    options: Options,
    faults: Option<Faults>,
    told: Arc<Told>,
) -> Result<Option<Vec<Passed>>, String> {
    told.tell("connecting", Duration::ZERO, Duration::ZERO);
    deployment::check_roles(&local, &options).await?;
    let mut hedging = Hedging::default();
    (hedging.delay, hedging.max_extra_load_percent) = (Delay::Fixed(DELAY), PERCENT);
    let work = async {
        let replica = match &faults {
            Some(faults) => Pauses::Embedded(faults.clone()),
            None => Pauses::Real(Box::new(control(&local, &options).await?)),
        };
        let key = match (&replica, plan.named_keys.first()) {
            (Pauses::Embedded(_), _) => "key:000000000000".to_string(),
            (_, Some(key)) => key.clone(),
            (Pauses::Real(control), None) => written(&local, &options, control).await?,
        };
        let mut passed = Vec::new();
        let kinds = [("baseline", None), ("hedged", Some(hedging)), ("baseline again", None)];
        for (name, hedging) in kinds {
            let pass = Pass { local: &local, told: &told, replica: &replica, key: &key, name };
            passed.push(pass.run(&options, hedging).await?);
        }
        Ok(passed)
    };
    unless_stopped(&Timer(local.clone()), work).await.transpose()
}

/// How the replica is made to pause.
enum Pauses {
    /// By a stall of its own.
    Embedded(Faults),
    /// By CLIENT PAUSE, over a connection of its own.
    Real(Box<LocalClient>),
}

/// A client of the replica alone that may pause it.
async fn control(local: &LocalContext, options: &Options) -> Result<LocalClient, String> {
    let Some(replica) = options.replica_endpoints.first() else {
        return Err("the reference run needs a replica".into());
    };
    let mut options = alone(options, replica);
    options.allow_admin = true;
    local
        .connect(&options)
        .await
        .map_err(|error| format!("--replica {replica}: {}", one_line(&error)))
}

/// Writes a key and waits until the replica has it.
async fn written(
    local: &LocalContext,
    options: &Options,
    replica: &LocalClient,
) -> Result<String, String> {
    let primary = alone(options, &options.endpoint.clone());
    let primary = local.connect(&primary).await.map_err(|error| one_line(&error))?;
    let set = primary.setex(KEY, KEY_LIVES.as_secs(), vec![b'v'; VALUE_SIZE]).await;
    set.map_err(|error| format!("the key cannot be written: {}", one_line(&error)))?;
    let limit = local.now() + REPLICATED_BY;
    while local.now() < limit {
        let length: u64 = replica.strlen(KEY).await.map_err(|error| one_line(&error))?;
        if length == VALUE_SIZE as u64 {
            return Ok(KEY.to_string());
        }
        local.sleep(LOOK).await;
    }
    Err("the replica does not have the key after 5 s: is it linked to this primary?".into())
}

/// What a pass works with.
struct Pass<'a> {
    local: &'a LocalContext,
    told: &'a Told,
    replica: &'a Pauses,
    key: &'a str,
    name: &'static str,
}

impl Pass<'_> {
    async fn run(&self, options: &Options, hedging: Option<Hedging>) -> Result<Passed, String> {
        let mut options = options.clone();
        options.hedging = hedging;
        let client = self.local.connect(&options).await.map_err(|error| one_line(&error))?;
        if let Pauses::Embedded(faults) = self.replica {
            faults.stall_every_read(0, PAUSE);
        }
        for _ in 0..WARMUP {
            self.read(&client).await?;
        }
        if let Pauses::Embedded(faults) = self.replica {
            // Counts from here on: the 20th, 40th and so on of the reads that count.
            faults.stall_every_read(EVERY, PAUSE);
        }
        let mut samples_us = Vec::with_capacity(SAMPLES as usize);
        for number in 1..=SAMPLES {
            let paused = number % EVERY == 0;
            if let (true, Pauses::Real(control)) = (paused, self.replica) {
                pause(control).await?;
            }
            let began = self.local.now();
            samples_us.push(self.read(&client).await?.as_nanos() as f64 / 1e3);
            if paused {
                self.until_over(began + AFTER).await?;
                let text = format!("{}: {number} of {SAMPLES} reads", self.name);
                let ms = Duration::from_millis;
                self.told.tell(text, ms(number), ms(SAMPLES));
            }
        }
        Ok(Passed { name: self.name, hedging, samples_us, ledger: client.hedges() })
    }

    async fn read(&self, client: &LocalClient) -> Result<Duration, String> {
        let began = self.local.now();
        let found = client.get_with(self.key, |value| value.is_some()).await;
        let took = self.local.now().since(began);
        match found {
            Ok(true) => Ok(took),
            Ok(false) => Err("the key is gone".into()),
            Err(error) => Err(one_line(&error)),
        }
    }

    async fn until_over(&self, at: hedgerow_runtime::time::Instant) -> Result<(), String> {
        if let Pauses::Real(control) = self.replica {
            // Answered when the pause is over, which the server may notice late.
            control.ping().await.map_err(|error| one_line(&error))?;
        }
        self.local.sleep_until(at).await;
        Ok(())
    }
}

async fn pause(control: &LocalClient) -> Result<(), String> {
    let ms = PAUSE.as_millis() as u64;
    let command = raw("CLIENT PAUSE").arg(ms).arg("ALL").build::<()>();
    control.send(command).await.map_err(|error| format!("CLIENT PAUSE: {}", one_line(&error)))
}

impl Reference {
    fn new(options: &Options, passed: Vec<Passed>) -> Reference {
        let nodes = std::iter::once(&options.endpoint).chain(&options.replica_endpoints);
        let passes: Vec<PassFigures> = passed.into_iter().map(PassFigures::new).collect();
        Reference {
            schema: "hedgerow.reference/1",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::new(),
            nodes: nodes.map(ToString::to_string).collect(),
            samples: SAMPLES,
            warmup: WARMUP,
            pause_every: EVERY,
            pause_us: PAUSE.as_nanos() as f64 / 1e3,
            value_bytes: Some(VALUE_SIZE),
            verdict: Verdict::new(&passes),
            passes,
        }
    }

    fn text(&self) -> String {
        let mut out = format!(
            "reference run: {SAMPLES} reads a pass, one after the other; the replica pauses for 50 ms on \
             every {EVERY}th\n\n{:18}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            "nearest rank", "p50", "p95", "p99", "max", "+load"
        );
        for pass in &self.passes {
            let load = pass.ledger.as_ref().map_or(0.0, |ledger| ledger.extra_load_percent);
            let [p50, p95, p99, max] = [pass.p50_us, pass.p95_us, pass.p99_us, pass.max_us].map(us);
            // Writing into a String cannot fail.
            let _ =
                writeln!(out, "{:18}{p50:>10}{p95:>10}{p99:>10}{max:>10}{load:>8.2} %", pass.name);
        }
        let says = |holds: bool| if holds { "holds" } else { "DOES NOT HOLD" };
        let Verdict { baseline_p99_at_least_50_ms: slow, hedged_p99_below_10_ms: fast, .. } =
            self.verdict;
        let cheap = self.verdict.hedges_at_most_5_percent;
        let _ = write!(
            out,
            "\np99 without hedges at least 50 ms: {}\np99 with hedges below 10 ms: {}\nat most 5 % hedges: \
             {}\n",
            says(slow),
            says(fast),
            says(cheap)
        );
        out
    }
}

impl PassFigures {
    fn new(passed: Passed) -> PassFigures {
        let mut sorted = passed.samples_us.clone();
        sorted.sort_by(f64::total_cmp);
        PassFigures {
            name: passed.name,
            hedging: passed.hedging.as_ref().map(HedgingFigures::new),
            p50_us: nearest_rank(&sorted, 50),
            p95_us: nearest_rank(&sorted, 95),
            p99_us: nearest_rank(&sorted, 99),
            max_us: nearest_rank(&sorted, 100),
            ledger: passed.hedging.map(|_| LedgerFigures::new(&passed.ledger)),
            samples_us: passed.samples_us,
        }
    }
}

/// The smallest sample that at least `percent` of them do not exceed; 0 without samples.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

impl Verdict {
    fn new(passes: &[PassFigures]) -> Verdict {
        let (hedged, baselines): (Vec<_>, Vec<_>) =
            passes.iter().partition(|pass| pass.hedging.is_some());
        let slow = baselines.iter().all(|pass| pass.p99_us >= BASELINE_P99_MIN_US);
        let fast = hedged.iter().all(|pass| pass.p99_us < HEDGED_P99_MAX_US);
        // In whole numbers, as the budget is kept.
        let within =
            |ledger: &LedgerFigures| ledger.sent * 100 <= ledger.reads * u64::from(PERCENT);
        let cheap = hedged.iter().all(|pass| pass.ledger.as_ref().is_some_and(within));
        Verdict {
            baseline_p99_at_least_50_ms: slow,
            hedged_p99_below_10_ms: fast,
            hedges_at_most_5_percent: cheap,
            holds: slow && fast && cheap,
        }
    }

    fn failed(self) -> String {
        let parts = [
            (self.baseline_p99_at_least_50_ms, "p99 without hedges is below 50 ms"),
            (self.hedged_p99_below_10_ms, "p99 with hedges is not below 10 ms"),
            (self.hedges_at_most_5_percent, "more than 5 % hedges were sent"),
        ];
        let failed: Vec<&str> =
            parts.iter().filter(|(holds, _)| !holds).map(|(_, words)| *words).collect();
        format!("the reference run failed: {}", failed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(hedged: bool, slow_us: f64, sent: u64) -> Passed {
        let mut samples_us = vec![200.0; 1_000];
        samples_us.iter_mut().step_by(20).for_each(|sample| *sample = slow_us);
        let ledger = Ledger { reads: 1_020, sent, ..Ledger::default() };
        let hedging = hedged.then(Hedging::default);
        Passed { name: "pass", hedging, samples_us, ledger }
    }

    fn verdict(slow_us: f64, hedged_us: f64, sent: u64) -> Verdict {
        let passes =
            [pass(false, slow_us, 0), pass(true, hedged_us, sent), pass(false, slow_us, 0)];
        Verdict::new(&passes.map(PassFigures::new))
    }

    /// Fails if a percentile is not the nearest rank's sample.
    #[test]
    fn percentiles_are_nearest_rank() {
        let sorted: Vec<f64> = (1..=1_000).map(f64::from).collect();
        for (percent, expected) in [(50, 500.0), (95, 950.0), (99, 990.0), (100, 1_000.0)] {
            assert_eq!(nearest_rank(&sorted, percent), expected);
        }
        assert_eq!((nearest_rank(&[7.0], 50), nearest_rank(&[], 99)), (7.0, 0.0));
    }

    /// Fails if a run passes whose baseline has no tail, whose hedges do not cut it, or that sent
    /// one hedge more than 5 %.
    #[test]
    fn each_part_of_the_verdict_counts() {
        assert!(verdict(50_200.0, 5_400.0, 51).holds);
        assert!(verdict(49_999.0, 5_400.0, 51).failed().contains("below 50 ms"));
        assert!(!verdict(50_200.0, 10_000.0, 51).hedged_p99_below_10_ms);
        let dear = verdict(50_200.0, 5_400.0, 52);
        assert!(!dear.holds && !dear.hedges_at_most_5_percent);
        assert_eq!(dear.failed(), "the reference run failed: more than 5 % hedges were sent");
    }
}
