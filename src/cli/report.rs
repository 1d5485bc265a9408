//! The figures of a run in their final form: what the table shows and the JSON file holds.

use super::cluster::ClusterFigures;
use super::drive::Measured;
use super::plan::{Pace, Placement, Plan, Until};
use super::probe::figures::{HedgingFigures, LedgerFigures};
use super::record::{Part, Times};
use hedgerow_runtime::caps::Rung;
use serde::Serialize;
use std::collections::BTreeMap;

/// The form of the JSON report; scripts look at it first.
const SCHEMA: &str = "hedgerow.bench/1";

/// A whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    version: &'static str,
    machine: super::machine::Machine,
    plan: PlanFacts,
    /// All runs merged.
    pub(crate) result: Figures,
    /// Each run by itself.
    runs: Vec<Figures>,
}

impl Report {
    /// The report of these runs; `target` is the server's address without credentials.
    pub(crate) fn new(plan: &Plan, target: &str, rung: Option<Rung>, runs: &[Measured]) -> Report {
        let mut all = Measured::of_lanes(None);
        all.cost.enters = Some(0);
        runs.iter().for_each(|run| all.merge_run(run));
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            machine: super::machine::Machine::new(),
            plan: PlanFacts::new(plan, target, rung),
            result: Figures::new(plan, &all),
            runs: runs.iter().map(|run| Figures::new(plan, run)).collect(),
        }
    }
}

/// What was asked, in the words of the flags.
#[derive(Debug, Serialize)]
struct PlanFacts {
    target: String,
    door: &'static str,
    cores: Option<Vec<u32>>,
    workers: Option<u32>,
    /// The rung that was used.
    rung: Option<String>,
    park: Option<&'static str>,
    connections: u32,
    depth: u32,
    in_flight_max: u64,
    rate_per_s: Option<f64>,
    arrivals: Option<&'static str>,
    duration_s: Option<f64>,
    requests: Option<u64>,
    warmup_s: f64,
    mix: String,
    value_size_min_bytes: usize,
    value_size_max_bytes: usize,
    keys: u64,
    key_dist: String,
    key_prefix: String,
    keys_loaded: bool,
    seed: u64,
    runs: u32,
    cluster: bool,
    seed_nodes: Vec<String>,
    replicas: Vec<String>,
    read_from: String,
    zone: Option<String>,
    hedging: Option<HedgingFigures>,
}

impl PlanFacts {
    fn new(plan: &Plan, target: &str, rung: Option<Rung>) -> PlanFacts {
        let (door, cores, workers, park) = match &plan.door {
            Placement::Cores { cpus, park, .. } => {
                ("cores", Some(cpus.iter().collect()), None, Some(park.name()))
            }
            Placement::Hosted { workers } => ("hosted", None, Some(*workers), None),
        };
        let (duration_s, requests) = match plan.until {
            Until::Time(time) => (Some(time.as_secs_f64()), None),
            Until::Requests(requests) => (None, Some(requests)),
        };
        PlanFacts {
            target: target.to_string(),
            door,
            cores,
            workers,
            rung: rung.map(|rung| rung.to_string()),
            park,
            connections: plan.connections,
            depth: plan.depth,
            in_flight_max: plan.in_flight(),
            rate_per_s: plan.asked_per_s(),
            arrivals: match plan.pace {
                Pace::Closed => None,
                Pace::Open { arrivals, .. } => Some(arrivals.name()),
            },
            duration_s,
            requests,
            warmup_s: plan.warmup.as_secs_f64(),
            mix: plan.mix.to_string(),
            value_size_min_bytes: plan.value_size.min,
            value_size_max_bytes: plan.value_size.max,
            keys: plan.keys,
            key_dist: plan.key_dist.to_string(),
            key_prefix: plan.key_prefix.clone(),
            keys_loaded: !plan.loads.is_empty(),
            seed: plan.seed,
            runs: plan.runs,
            cluster: plan.reads.cluster,
            seed_nodes: plan.reads.seed_nodes.iter().map(ToString::to_string).collect(),
            replicas: plan.reads.replicas.iter().map(ToString::to_string).collect(),
            read_from: plan.reads.read_from.unwrap_or_default().to_string(),
            zone: plan.reads.zone.clone(),
            hedging: plan.reads.wanted().as_ref().map(HedgingFigures::new),
        }
    }
}

/// The figures of one run, or of several merged.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub(crate) kind: &'static str,
    /// Ended by Ctrl-C.
    pub(crate) interrupted: bool,
    /// Ended because no reply came.
    pub(crate) stalled: bool,
    /// The rate asked for; `null` in a closed loop.
    pub(crate) asked_per_s: Option<f64>,
    /// Length of the measurement.
    pub(crate) elapsed_s: f64,
    /// Successes.
    pub(crate) requests: u64,
    /// Errors, redirects included.
    pub(crate) errors: u64,
    /// Errors by the server's code word or the client's name.
    pub(crate) errors_by_kind: BTreeMap<String, u64>,
    /// MOVED and ASK among the errors, which were not followed.
    pub(crate) redirects: u64,
    /// Successes that found nothing.
    pub(crate) misses: u64,
    /// Due, but not sent before the end.
    pub(crate) unsent: u64,
    /// Sent, but without a reply at the end.
    pub(crate) unanswered: u64,
    /// Successes per second of the measurement.
    pub(crate) throughput_per_s: f64,
    /// From the planned send to the reply; closed loop: from the send.
    pub(crate) latency_us: Spread,
    /// From the real send to the reply.
    pub(crate) service_us: Spread,
    /// CPU time of the threads that put on load, user and system.
    pub(crate) cpu_us: f64,
    /// The same for each success or error.
    pub(crate) cpu_us_per_request: Option<f64>,
    /// Calls into the kernel that submit or wait.
    pub(crate) enters: Option<u64>,
    /// The same for each success or error.
    pub(crate) enters_per_request: Option<f64>,
    /// What hedges did, warm-up included; `null` without hedging.
    pub(crate) hedges: Option<LedgerFigures>,
    /// What each node of a cluster had of it; `null` for no cluster.
    pub(crate) cluster: Option<ClusterFigures>,
    /// The figures of each command.
    pub(crate) by_command: BTreeMap<&'static str, PartFigures>,
    /// The series of seconds, by the time of replies.
    pub(crate) per_second: Vec<SecondFigures>,
}

impl Figures {
    /// The figures of what was measured.
    pub(crate) fn new(plan: &Plan, measured: &Measured) -> Figures {
        let load = &measured.load;
        let total = load.recorder.total();
        let (requests, errors) = (total.latency.count(), total.error_count());
        let elapsed_s = load.elapsed.as_secs_f64();
        let cpu_us = measured.cost.cpu_ns as f64 / 1e3;
        let each = |cost: f64| ratio(cost, (requests + errors) as f64);
        let redirect = |kind: &str| total.errors.get(kind).copied().unwrap_or(0);
        Figures {
            kind: if plan.is_closed() { "closed" } else { "open" },
            interrupted: measured.interrupted,
            stalled: load.stalled,
            asked_per_s: plan.asked_per_s(),
            elapsed_s,
            requests,
            errors,
            redirects: redirect("MOVED") + redirect("ASK"),
            misses: total.misses,
            unsent: load.unsent,
            unanswered: load.unanswered,
            throughput_per_s: ratio(requests as f64, elapsed_s).unwrap_or(0.0),
            latency_us: Spread::new(&total.latency),
            service_us: Spread::new(&total.service),
            cpu_us,
            cpu_us_per_request: each(cpu_us),
            enters: measured.cost.enters,
            enters_per_request: measured.cost.enters.and_then(|enters| each(enters as f64)),
            hedges: measured.hedges.as_ref().map(LedgerFigures::new),
            cluster: measured
                .nodes
                .as_ref()
                .map(|book| ClusterFigures::new(book, plan.only_slot())),
            by_command: by_command(measured),
            per_second: per_second(measured),
            errors_by_kind: total.errors,
        }
    }
}

fn by_command(measured: &Measured) -> BTreeMap<&'static str, PartFigures> {
    let parts = measured.load.recorder.parts().iter();
    parts.map(|(verb, part)| (verb.name(), PartFigures::new(part))).collect()
}

fn per_second(measured: &Measured) -> Vec<SecondFigures> {
    let seconds = measured.load.recorder.seconds().iter().enumerate();
    let figures = seconds.map(|(second, counts)| SecondFigures {
        second,
        requests: counts.requests,
        errors: counts.errors,
        latency_mean_us: ratio(counts.latency_sum_ns as f64 / 1e3, counts.requests as f64),
        latency_max_us: (counts.requests > 0).then_some(counts.latency_max_ns as f64 / 1e3),
    });
    figures.collect()
}

/// `part` for each of `whole`; `None` for none.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// The figures of one command.
#[derive(Debug, Serialize)]
pub(crate) struct PartFigures {
    /// Successes.
    pub(crate) requests: u64,
    /// Errors.
    pub(crate) errors: u64,
    /// Errors by kind.
    pub(crate) errors_by_kind: BTreeMap<String, u64>,
    /// Successes that found nothing.
    pub(crate) misses: u64,
    /// From the planned send to the reply.
    pub(crate) latency_us: Spread,
    /// From the real send to the reply.
    pub(crate) service_us: Spread,
}

impl PartFigures {
    fn new(part: &Part) -> PartFigures {
        PartFigures {
            requests: part.latency.count(),
            errors: part.error_count(),
            errors_by_kind: part.errors.clone(),
            misses: part.misses,
            latency_us: Spread::new(&part.latency),
            service_us: Spread::new(&part.service),
        }
    }
}

/// One second of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct SecondFigures {
    /// Its number from the start; a reply after the end counts into a second of its own.
    pub(crate) second: usize,
    /// Successes.
    pub(crate) requests: u64,
    errors: u64,
    latency_mean_us: Option<f64>,
    latency_max_us: Option<f64>,
}

/// How times spread, in microseconds; `null` where nothing was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) mean: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) p0: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p75: Option<f64>,
    pub(crate) p85: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) p100: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Spread {
    /// How these times spread.
    pub(crate) fn new(times: &Times) -> Spread {
        let any = times.count() > 0;
        let at = |quantile: f64| any.then(|| times.quantile_ns(quantile) as f64 / 1e3);
        let sum = times.sum_ns() as f64 / 1e3;
        Spread {
            count: times.count(),
            sum,
            mean: ratio(sum, times.count() as f64),
            min: any.then(|| times.min_ns() as f64 / 1e3),
            p0: at(0.0),
            p50: at(0.5),
            p75: at(0.75),
            p85: at(0.85),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            p100: at(1.0),
            max: at(1.0),
        }
    }
}
