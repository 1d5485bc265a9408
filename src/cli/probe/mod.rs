//! `hedgerow probe`: what hedging does to the tail of reads, on a deployment or on servers in this process.
//! `hedgerow replay`: the prediction again, from a saved report.
//!
//! A `plan` says what is done to a `deployment`; `measure` runs the passes on one core (`desk` sends,
//! `book` and `heat` count); `predict` tells what other settings would do; `report` is all of it, which
//! `table` and `page` show.

pub(crate) mod args;
mod book;
mod check;
pub(crate) mod coded;
mod deployment;
mod desk;
mod drift;
pub(crate) mod figures;
mod heat;
mod measure;
mod plan;
mod predict;
mod reference;
mod replay;
pub(crate) mod report;
mod saved;
mod table;
mod told;

pub(crate) use replay::run as replay;

use super::output::Output;
use super::progress::Progress;
use super::target::one_line;
use super::{Failure, page, remark, say, stop};
use args::ProbeArgs;
use deployment::Deployment;
use hedgerow::{Cores, LocalContext};
use hedgerow_runtime::caps::Rung;
use hedgerow_runtime::cpu;
use measure::Measured;
use plan::Plan;
use report::{Ran, Report};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use told::Told;

/// What a run comes to that the user ended too early.
const NOTHING_MEASURED: &str = "interrupted before a read was measured";

/// Runs the probe.
pub(crate) fn run(args: ProbeArgs) -> Result<(), Failure> {
    let plan = Arc::new(Plan::new(args).map_err(Failure::Usage)?);
    let json = Output::open("--json", plan.json.as_deref()).map_err(Failure::Failed)?;
    let html = Output::open("--html", plan.html.as_deref()).map_err(Failure::Failed)?;
    let cpu = load_cpu().map_err(Failure::Failed)?;
    let deployment = Deployment::open(&plan, cpu)?;
    stop::listen().map_err(Failure::Failed)?;
    let cores = cores(&plan, cpu)?;
    if plan.reference {
        return reference::run(&plan, &deployment, &cores, json);
    }
    let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let measured = measured(&plan, &deployment, &cores).map_err(Failure::Failed)?;
    let Some(measured) = measured else {
        return Err(Failure::Failed(NOTHING_MEASURED.into()));
    };
    let ran = Ran { rung: Some(cores.rung()), cpu, at_s };
    let report = Report::new(&plan, &ran, &measured);
    let said = say(&table::text(&report));
    if let Err(line) = verdict(&report) {
        // A report without a read is not worth the one that may be there.
        return said.and(Err(Failure::Failed(line)));
    }
    let json = json.map_or(Ok(()), |out| out.write(|out| write_json(out, &report)));
    let html = html.map_or(Ok(()), |out| out.write(|out| page::write(out, &report)));
    said.and(json.and(html).map_err(Failure::Failed))
}

fn measured(
    plan: &Arc<Plan>,
    deployment: &Deployment,
    cores: &Cores,
) -> Result<Option<Measured>, String> {
    let told = Arc::new(Told::default());
    let _progress = Progress::draw({
        let told = told.clone();
        move || told.state()
    });
    let (plan, options) = (plan.clone(), deployment.options.clone());
    let ended = cores.run(move |local: LocalContext| {
        measure::run(local, plan.clone(), options.clone(), told.clone())
    });
    let ended = ended.map_err(|error| one_line(&error))?;
    let ended = ended.into_iter().next().unwrap_or(Ok(None));
    ended.map_err(|error| match deployment.fleet() {
        Some(_) => format!("the servers in this process: {error}"),
        None => with_address(&deployment.address(), error),
    })
}

/// The error with the primary's address, unless it names a replica or the address already.
fn with_address(address: &str, error: String) -> String {
    if error.contains(address) || error.starts_with("--") {
        error
    } else {
        format!("{address}: {error}")
    }
}

/// The last allowed cpu.
fn load_cpu() -> Result<u32, String> {
    let allowed = cpu::allowed().map_err(|error| format!("no cpus can be told: {error}"))?;
    allowed.iter().last().ok_or_else(|| "no cpu may be used".to_string())
}

fn cores(plan: &Plan, cpu: u32) -> Result<Cores, Failure> {
    let rung = plan.rung.map(super::args::RungName::rung);
    let builder = Cores::builder().cpus([cpu]).rung(rung).park(plan.park.policy());
    let cores = builder.build().map_err(|error| Failure::Failed(one_line(&error)))?;
    if rung.is_none() && cores.rung() == Rung::Epoll {
        remark("io_uring is not used here, epoll serves: hedgerow doctor says why");
    }
    Ok(cores)
}

fn write_json(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")
}

/// Whether the figures are those of a probe at all.
fn verdict(report: &Report) -> Result<(), String> {
    if report.passes.iter().any(|pass| pass.reads > 0) {
        return Ok(());
    }
    if report.interrupted {
        return Err(NOTHING_MEASURED.into());
    }
    let kinds = report.passes.iter().flat_map(|pass| &pass.errors_by_kind);
    match kinds.max_by_key(|(_, count)| **count) {
        Some((kind, _)) => Err(format!("no read succeeded, mostly {kind}")),
        None => {
            Err("no read was answered: the time is too short, or the servers are silent".into())
        }
    }
}
