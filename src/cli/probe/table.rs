//! A probe's report for people at a terminal.

use super::figures::{PassFigures, PredictionFigures, Spread, WhatIfFigures};
use super::report::{Report, us};
use std::fmt::{Result, Write};

/// Width of a pass's or node's name.
const NAME: usize = 22;

/// The whole table: units stand beside every number.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_all(&mut out, report);
    out
}

/// The part that `replay` prints: the prediction and the advice.
pub(crate) fn prediction(report: &Report) -> String {
    let mut out = String::new();
    let _ = write_prediction(&mut out, report);
    out
}

fn write_all(out: &mut String, report: &Report) -> Result {
    write_head(out, report)?;
    write_passes(out, report)?;
    write_nodes(out, report)?;
    write_ledgers(out, report)?;
    write_prediction(out, report)
}

fn write_head(out: &mut String, report: &Report) -> Result {
    let configuration = &report.configuration;
    let of_role = |role: &str| -> Vec<&str> {
        let nodes = report.nodes.iter().filter(|node| node.role == role);
        nodes.map(|node| node.address.as_str()).collect()
    };
    let (primaries, replicas) = (of_role("primary").join(", "), of_role("replica").join(", "));
    let word = if configuration.cluster { "cluster: primaries" } else { "primary" };
    writeln!(out, "{word} {primaries}, replicas {replicas}")?;
    writeln!(
        out,
        "{}; open loop, {} reads/s over {} clients, {} s in {} blocks a pass; {} keys; cpu {}; seed {}",
        configuration.read_from,
        configuration.rate_per_s,
        configuration.clients,
        configuration.duration_s,
        configuration.blocks,
        configuration.keys,
        configuration.cpu,
        configuration.seed
    )?;
    if report.interrupted {
        writeln!(out, "interrupted: the figures so far")?;
    }
    for remark in &report.remarks {
        writeln!(out, "note: {remark}")?;
    }
    Ok(())
}

fn write_passes(out: &mut String, report: &Report) -> Result {
    write_times(out, report, "latency in ms", |pass| &pass.latency_us)?;
    writeln!(
        out,
        "latency counts from the planned send: a read that had to wait its turn is late"
    )?;
    write_times(out, report, "service time in ms", |pass| &pass.service_us)?;
    writeln!(
        out,
        "service time counts from the real send: that is what a hedge can change, and what prediction and \
         check are about"
    )?;
    for pass in &report.passes {
        write_counts(out, pass)?;
    }
    if let Some(drift) = &report.drift {
        writeln!(out, "{}", drift.text())?;
    }
    Ok(())
}

/// One kind of times of all passes.
fn write_times(
    out: &mut String,
    report: &Report,
    head: &str,
    times: impl Fn(&PassFigures) -> &Spread,
) -> Result {
    write!(out, "\n{head:NAME$}{:>9}", "reads")?;
    for (name, _) in Spread::default().columns() {
        write!(out, "{name:>9}")?;
    }
    writeln!(out, "{:>9}", "+load")?;
    for pass in &report.passes {
        write_row(out, &title(pass), times(pass))?;
        writeln!(out, "{:>8.1}%", pass.extra_load_percent())?;
    }
    Ok(())
}

/// Reads of a pass that are not as they should be, where there are any.
fn write_counts(out: &mut String, pass: &PassFigures) -> Result {
    let kinds = pass.errors_by_kind.iter().map(|(kind, count)| format!("{kind} {count}"));
    let kinds: Vec<String> = kinds.collect();
    let left_out = [
        (pass.errors, format!("{} errors ({})", pass.errors, kinds.join(", "))),
        (pass.unsent, format!("{} unsent", pass.unsent)),
        (pass.unanswered, format!("{} unanswered", pass.unanswered)),
    ];
    let left_out: Vec<String> =
        left_out.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    if !left_out.is_empty() {
        writeln!(out, "{}: {}, in no percentile", pass.name, left_out.join(", "))?;
    }
    if pass.misses > 0 {
        let (name, misses, reads) = (&pass.name, pass.misses, pass.reads);
        writeln!(out, "{name}: {misses} of {reads} reads found no value (their keys were gone)")?;
    }
    Ok(())
}

fn title(pass: &PassFigures) -> String {
    match &pass.hedging {
        Some(hedging) if hedging.mode == "fixed" => {
            format!("{} {}", pass.name, us(hedging.delay_us.unwrap_or_default()))
        }
        _ => pass.name.clone(),
    }
}

fn write_row(out: &mut String, name: &str, times: &Spread) -> Result {
    write!(out, "{name:NAME$}{:>9}", times.count)?;
    for (_, time) in times.columns() {
        write_ms(out, time)?;
    }
    Ok(())
}

fn write_ms(out: &mut String, us: Option<f64>) -> Result {
    match us {
        Some(us) if us < 100_000.0 => write!(out, "{:>9.3}", us / 1e3),
        Some(us) => write!(out, "{:>9.1}", us / 1e3),
        None => write!(out, "{:>9}", "-"),
    }
}

/// What nodes answered without hedges, both baselines apart.
fn write_nodes(out: &mut String, report: &Report) -> Result {
    write!(out, "\n{:NAME$}{:>9}", "time of a node in ms", "copies")?;
    for (name, _) in Spread::default().columns() {
        write!(out, "{name:>9}")?;
    }
    writeln!(out, "{:>9}", "hedges")?;
    for pass in &report.passes {
        writeln!(out, "{}", pass.name)?;
        for (node, answers) in report.nodes.iter().zip(&pass.by_node) {
            if answers.copies > 0 {
                write_row(out, &format!("  {}", node.address), &answers.time_us)?;
                writeln!(out, "{:>9}", answers.hedges)?;
            }
        }
    }
    Ok(())
}

fn write_ledgers(out: &mut String, report: &Report) -> Result {
    writeln!(
        out,
        "\n{:NAME$}{:>9}{:>9}{:>9}{:>12}{:>10}{:>14}{:>12}",
        "hedges", "sent", "won", "lost", "no credit", "held back", "wasted bytes", "won by p50"
    )?;
    for pass in &report.passes {
        let Some(ledger) = &pass.ledger else { continue };
        writeln!(
            out,
            "{:NAME$}{:>9}{:>9}{:>9}{:>12}{:>10}{:>14}{:>12}",
            title(pass),
            ledger.sent,
            ledger.won,
            ledger.lost,
            ledger.without_credit,
            ledger.held_back,
            ledger.wasted_bytes,
            ledger.margin_p50_us.map_or("-".into(), us)
        )?;
    }
    Ok(())
}

fn write_prediction(out: &mut String, report: &Report) -> Result {
    if let Some(what_if) = &report.what_if {
        write_what_if(out, what_if)?;
    }
    writeln!(out, "\nadvice: {}", report.advice.text)?;
    match &report.check {
        Some(check) => writeln!(out, "{}", check.text),
        None => Ok(()),
    }
}

/// The best delay of each budget: the whole grid is in the JSON and on the page.
fn write_what_if(out: &mut String, what_if: &WhatIfFigures) -> Result {
    let percentile = what_if.percentile;
    write!(out, "\npredicted service time in ms")?;
    match what_if.grid.first() {
        Some(pair) => writeln!(out, ", with a burst of {}", pair.burst)?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "{:NAME$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        format!("what if, p{percentile} best"),
        "delay",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "+load"
    )?;
    write_predicted(out, "no hedges", &what_if.baseline)?;
    let mut budgets: Vec<u32> = what_if.grid.iter().map(|pair| pair.budget_percent).collect();
    budgets.dedup();
    for budget in budgets {
        let pairs = what_if.grid.iter().filter(|pair| pair.budget_percent == budget);
        let at = |pair: &PredictionFigures| pair.at(percentile).unwrap_or(f64::INFINITY);
        if let Some(best) = pairs.min_by(|one, other| at(one).total_cmp(&at(other))) {
            write_predicted(out, &format!("at most {budget} %"), best)?;
        }
    }
    for pair in &what_if.bursts {
        write_predicted(out, &format!("advised, burst {}", pair.burst), pair)?;
    }
    match &what_if.asked {
        Some(asked) => write_predicted(out, &format!("asked: {} %", asked.budget_percent), asked),
        None => Ok(()),
    }
}

fn write_predicted(out: &mut String, name: &str, pair: &PredictionFigures) -> Result {
    let delay = if pair.delay_us > 0.0 { us(pair.delay_us) } else { "-".into() };
    write!(out, "{name:NAME$}{delay:>9}")?;
    for time in [pair.p50, pair.p90, pair.p99, pair.p99_9, pair.p99_99] {
        write_ms(out, time)?;
    }
    writeln!(out, "{:>8.1}%", pair.extra_load_percent)
}
