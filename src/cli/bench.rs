//! `hedgerow bench`: plan, files, server, runs, report.

use super::args::BenchArgs;
use super::drive::Measured;
use super::fill::Fill;
use super::gate::Gate;
use super::output::Output;
use super::plan::Plan;
use super::progress::{Progress, Told};
use super::report::{Figures, Report};
use super::target::Target;
use super::{Failure, hdr, json, remark, say, stop, table};
use std::sync::Arc;
use std::time::SystemTime;

/// What the lanes of one run share.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its number, from 0.
    pub(crate) number: u32,
    /// Where the lanes meet after loading.
    pub(crate) loaded: Gate,
    /// Keys to load; none from the second run on.
    pub(crate) fill: Arc<Fill>,
    /// Progress.
    pub(crate) told: Arc<Told>,
    /// The bytes that values are cut from.
    pub(crate) payload: Arc<[u8]>,
}

/// Runs the benchmark.
pub(crate) fn run(args: BenchArgs) -> Result<(), Failure> {
    let plan = Arc::new(Plan::new(args).map_err(Failure::Usage)?);
    let json = Output::open("--json", plan.json.as_deref()).map_err(Failure::Failed)?;
    let hdr = Output::open("--hdr", plan.hdr.as_deref()).map_err(Failure::Failed)?;
    let target = Target::open(&plan)?;
    stop::listen().map_err(Failure::Failed)?;
    let began = SystemTime::now();
    let (runs, failed) = measure(&plan, &target);
    if let (Some(failed), true) = (&failed, runs.is_empty()) {
        return Err(Failure::Failed(failed.clone()));
    }
    let report = Report::new(&plan, target.address(), target.rung(), &runs);
    // Every report is tried, so that one full disk does not cost the others.
    let said = say(&table::text(target.address(), &plan, &report.result, runs.len() as u32));
    let json = json.map_or(Ok(()), |out| out.write(|out| json::write(out, &report)));
    let hdr = hdr.map_or(Ok(()), |out| out.write(|out| hdr::write(out, began, &runs)));
    let ended = failed.map_or_else(|| verdict(&report.result), Err);
    said.and(json.and(hdr).and(ended).map_err(Failure::Failed))
}

/// All runs, or those before the user's Ctrl-C or a failure, and the failure.
fn measure(plan: &Arc<Plan>, target: &Target) -> (Vec<Measured>, Option<String>) {
    let mut runs = Vec::new();
    for number in 0..plan.runs {
        let run = Arc::new(shared(plan, number));
        let progress = Progress::start(plan, number, run.told.clone(), run.fill.clone());
        let lanes = target.run(plan, &run);
        drop(progress);
        let measured = match lanes {
            Ok(lanes) => Measured::of_lanes(lanes),
            Err(failed) => return (runs, Some(failed)),
        };
        let over = measured.interrupted || measured.load.stalled;
        runs.push(measured);
        if over {
            break;
        }
    }
    (runs, None)
}

/// What the lanes of run `number` share; the first run loads the keys.
pub(crate) fn shared(plan: &Plan, number: u32) -> Run {
    let loads = if number == 0 { plan.loads.clone() } else { Vec::new() };
    Run {
        number,
        loaded: Gate::new(plan.lanes()),
        fill: Arc::new(Fill::new(&Plan { loads, ..plan.clone() })),
        told: Arc::new(Told::new(plan.lanes())),
        payload: payload(plan),
    }
}

/// Bytes of the largest value, drawn from the seed: they do not compress.
fn payload(plan: &Plan) -> Arc<[u8]> {
    let mut bytes = vec![0; plan.value_size.max];
    fastrand::Rng::with_seed(plan.seed).fill(&mut bytes);
    bytes.into()
}

/// Whether the figures are those of a benchmark at all.
fn verdict(result: &Figures) -> Result<(), String> {
    if result.stalled {
        return Err("gave up: no reply came for 15 s".into());
    }
    if result.requests > 0 {
        return Ok(());
    }
    match result.errors_by_kind.iter().max_by_key(|(_, count)| **count) {
        Some((kind, _)) => {
            Err(format!("no request succeeded: {} errors, mostly {kind}", result.errors))
        }
        None if result.interrupted => {
            remark("interrupted before a request was measured");
            Ok(())
        }
        None if result.unanswered > 0 => Err("no reply came".into()),
        None => Err("no request was due: the time is too short for the rate".into()),
    }
}
