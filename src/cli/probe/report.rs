//! A probe's report: what `--json` writes, `replay` reads, and the table and the page show.

use super::super::machine::Machine;
use super::check::{CheckFigures, Checked};
use super::coded;
use super::deployment::Probed;
use super::drift::Drift;
use super::figures::{AdviceFigures, HeatFigures, NodeFigures, PassFigures, WhatIfFigures};
use super::measure::{Kind, Measured};
use super::plan::{GOAL_RANK, Plan};
use super::predict::{self, NodeTimes, Wish};
use hdrhistogram::Histogram;
use hedgerow_runtime::caps::Rung;
use serde::{Deserialize, Serialize};

/// The form of the JSON report; scripts look at it first.
pub(crate) const SCHEMA: &str = "hedgerow.probe/1";

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) version: String,
    /// When it was made, in seconds since 1970.
    pub(crate) made_at_s: u64,
    pub(crate) machine: Machine,
    pub(crate) configuration: Configuration,
    /// Ended by Ctrl-C: the figures so far.
    pub(crate) interrupted: bool,
    /// The primary first.
    pub(crate) nodes: Vec<NodeFigures>,
    pub(crate) passes: Vec<PassFigures>,
    pub(crate) drift: Option<Drift>,
    /// How the baseline in turns with the check compares with the first one.
    pub(crate) check_drift: Option<Drift>,
    pub(crate) what_if: Option<WhatIfFigures>,
    pub(crate) advice: AdviceFigures,
    /// What the live check says of the advice; `null` where these settings were not checked.
    #[serde(default)]
    pub(crate) check: Option<CheckFigures>,
    pub(crate) heat: HeatFigures,
    /// What a reader should know.
    pub(crate) remarks: Vec<String>,
}

/// What was asked, in the words of the flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    /// `embedded` or `url`.
    pub(crate) target: String,
    pub(crate) read_from: String,
    pub(crate) zone: Option<String>,
    /// The target is a cluster; files of before there were any say nothing.
    #[serde(default)]
    pub(crate) cluster: bool,
    pub(crate) rate_per_s: f64,
    pub(crate) clients: u32,
    pub(crate) duration_s: f64,
    pub(crate) blocks: u32,
    pub(crate) block_s: f64,
    pub(crate) warmup_s: f64,
    pub(crate) hedge_delay_us: f64,
    pub(crate) hedge_budget_percent: u32,
    pub(crate) hedge_burst: u32,
    pub(crate) keys: usize,
    pub(crate) seed: u64,
    /// The way into the kernel.
    pub(crate) rung: Option<String>,
    pub(crate) park: String,
    /// The cpu that the load ran on.
    pub(crate) cpu: u32,
}

/// Where and on what a probe ran.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// The way into the kernel.
    pub(crate) rung: Option<Rung>,
    /// The cpu of the load.
    pub(crate) cpu: u32,
    /// When it began, in seconds since 1970.
    pub(crate) at_s: u64,
}

impl Report {
    /// The report of what was measured.
    pub(crate) fn new(plan: &Plan, ran: &Ran, measured: &Measured) -> Report {
        let nodes = nodes(&measured.nodes);
        let baselines = || measured.passes.iter().filter(|p| p.kind.is_baseline()).map(|p| &p.book);
        let times = baselines().map(predict::node_times);
        let wish = Wish {
            rank: GOAL_RANK,
            percent_max: plan.fixed.max_extra_load_percent,
            burst: plan.fixed.burst,
            delay: None,
            seed: plan.seed,
        };
        let (what_if, advice) = predict::predict(times, &wish);
        let mut report = Report {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            made_at_s: ran.at_s,
            machine: Machine::new(),
            configuration: Configuration::new(plan, ran, measured.keys),
            interrupted: measured.interrupted,
            heat: HeatFigures::new(&measured.heat, nodes.len()),
            nodes,
            passes: measured.passes.iter().map(PassFigures::new).collect(),
            drift: None,
            check_drift: None,
            what_if,
            advice,
            check: None,
            remarks: measured.remarks.clone(),
        };
        report.conclude();
        report
    }

    /// Predicts anew from the report's own histograms.
    pub(crate) fn predict_again(&mut self, wish: &Wish) -> Result<(), String> {
        let mut passes: Vec<Vec<(Histogram<u64>, bool)>> = Vec::new();
        for (at, pass) in self.passes.iter().enumerate().filter(|(_, pass)| pass.is_baseline()) {
            let mut nodes = Vec::new();
            for (node, answers) in pass.by_node.iter().enumerate() {
                let times = coded::decode(&answers.hdr);
                let named = |error| format!("passes[{at}].by_node[{node}].hdr {error}");
                nodes.push((times.map_err(named)?, answers.is_spare));
            }
            passes.push(nodes);
        }
        let histograms = passes.iter().map(|nodes| {
            let nodes = nodes.iter();
            nodes.map(|(times, is_spare)| NodeTimes { times, is_spare: *is_spare }).collect()
        });
        (self.what_if, self.advice) = predict::predict(histograms, wish);
        self.conclude();
        Ok(())
    }

    /// Judges the prediction by what else was measured: advice that the baselines or the check speak
    /// against is withheld.
    fn conclude(&mut self) {
        self.drift = self.drift_between(Kind::Baseline, Kind::BaselineAgain);
        self.check_drift = self.drift_between(Kind::Baseline, Kind::CheckBaseline);
        if self.drift.as_ref().is_some_and(Drift::disagrees) {
            self.advice.withhold_unsteady();
        }
        self.check = self.checked();
        if self.check.as_ref().is_some_and(CheckFigures::refutes) {
            self.advice.withhold_unconfirmed();
        }
    }

    fn pass(&self, kind: Kind) -> Option<&PassFigures> {
        self.passes.iter().find(|pass| pass.name == kind.name())
    }

    fn drift_between(&self, first: Kind, second: Kind) -> Option<Drift> {
        let times = |kind| coded::decode(&self.pass(kind)?.service_hdr).ok();
        Some(Drift::new(&times(first)?, &times(second)?))
    }

    fn checked(&self) -> Option<CheckFigures> {
        let checked = Checked {
            pass: self.pass(Kind::Check)?,
            without: self.pass(Kind::CheckBaseline)?,
            disturbed: self.check_drift.as_ref().is_some_and(Drift::disagrees),
        };
        CheckFigures::new(&self.advice, &checked)
    }
}

/// Microseconds for people.
pub(crate) fn us(us: f64) -> String {
    predict::time(std::time::Duration::from_nanos((us * 1e3) as u64))
}

fn nodes(probed: &[Probed]) -> Vec<NodeFigures> {
    let node = |at: &Probed| NodeFigures { address: at.endpoint.to_string(), role: at.role.into() };
    probed.iter().map(node).collect()
}

impl Configuration {
    fn new(plan: &Plan, ran: &Ran, keys: usize) -> Configuration {
        let hedge_delay_us = match plan.fixed.delay {
            hedgerow::read::Delay::Fixed(delay) => delay.as_secs_f64() * 1e6,
            _ => 0.0,
        };
        Configuration {
            target: if plan.url.is_some() { "url" } else { "embedded" }.into(),
            read_from: plan.read_from.to_string(),
            zone: plan.zone.clone(),
            cluster: plan.reads.cluster,
            rate_per_s: plan.rate_per_s,
            clients: plan.clients,
            duration_s: plan.duration.as_secs_f64(),
            blocks: plan.blocks,
            block_s: plan.block().as_secs_f64(),
            warmup_s: plan.warmup.as_secs_f64(),
            hedge_delay_us,
            hedge_budget_percent: plan.fixed.max_extra_load_percent,
            hedge_burst: plan.fixed.burst,
            keys,
            seed: plan.seed,
            rung: ran.rung.map(|rung| rung.to_string()),
            park: plan.park.name().into(),
            cpu: ran.cpu,
        }
    }
}
