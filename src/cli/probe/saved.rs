//! A saved report: read, and checked as a whole, so that nothing behind it meets a number that no probe
//! writes. Every refusal names the field and says what would be right.

use super::super::duration::LONGEST;
use super::super::rate::HIGHEST;
use super::super::reads::{MOST_BURST, budget, burst};
use super::super::record::LONGEST_NS;
use super::coded;
use super::figures::{
    AnswerFigures, HeatFigures, HedgingFigures, LedgerFigures, PassFigures, Spread,
};
use super::measure::Kind;
use super::plan::{MOST_BLOCKS, MOST_CLIENTS};
use super::report::{Configuration, Report, SCHEMA};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

/// Largest file that is read: a report has a few megabytes.
const FILE_MAX: u64 = 256 << 20;
/// Most nodes; a cluster has a thousand at most.
const MOST_NODES: usize = 10_000;
/// Most passes: one of each kind.
const MOST_PASSES: usize = 6;
/// Most of anything that is counted: more than a year of reads at the highest rate.
const MOST: u64 = 1 << 60;
/// Most columns or rows of a heat map.
const MOST_CELLS: usize = 1_000;
/// The end of the year 9999, in seconds since 1970.
const LAST_S: u64 = 253_402_300_799;

/// Reads a report, or says what is wrong with the file and where.
pub(crate) fn read(path: &Path) -> Result<Report, String> {
    let named = |text: String| format!("{}: {text}", path.display());
    let facts = std::fs::metadata(path).map_err(|error| named(error.to_string()))?;
    if facts.is_file() && facts.len() > FILE_MAX {
        return Err(named(format!("larger than a report may be ({} MiB)", FILE_MAX >> 20)));
    }
    let bytes = std::fs::read(path).map_err(|error| named(error.to_string()))?;
    parse(&bytes).map_err(named)
}

fn parse(bytes: &[u8]) -> Result<Report, String> {
    let what = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Eof => format!("cut off: {error}"),
        _ => format!("no report of hedgerow probe: {error}"),
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(what)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => {
            let other: String = other.chars().take(40).filter(|c| !c.is_control()).collect();
            return Err(format!(
                "its `schema` is {other}, which replay does not read ({SCHEMA} it does)"
            ));
        }
        None => return Err(format!("no report of hedgerow probe: it has no `schema` ({SCHEMA})")),
    }
    let report: Report = serde_json::from_slice(bytes).map_err(what)?;
    check(&report)?;
    Ok(report)
}

/// Checks what its form does not: that every number can be, and that the parts fit each other.
fn check(report: &Report) -> Result<(), String> {
    within("made_at_s", report.made_at_s, 0..=LAST_S)?;
    within("the length of nodes", report.nodes.len(), 1..=MOST_NODES)?;
    within("the length of passes", report.passes.len(), 1..=MOST_PASSES)?;
    configuration(&report.configuration)?;
    let nodes = report.nodes.len();
    for (at, pass) in report.passes.iter().enumerate() {
        pass_figures(pass, nodes).map_err(|error| format!("passes[{at}].{error}"))?;
    }
    for kind in [Kind::Baseline, Kind::BaselineAgain] {
        if !report.passes.iter().any(|pass| pass.name == kind.name() && pass.is_baseline()) {
            let name = kind.name();
            return Err(format!("passes: one named {name:?}, without hedging, is right"));
        }
    }
    within("advice.percentile", report.advice.percentile, 50.0..=99.99)?;
    heat(&report.heat, nodes).map_err(|error| format!("heat.{error}"))
}

fn configuration(of: &Configuration) -> Result<(), String> {
    let longest = LONGEST.as_secs_f64();
    let named = |error| format!("configuration.{error}");
    within("rate_per_s", of.rate_per_s, 1e-9..=HIGHEST)
        .and(within("clients", of.clients, 1..=MOST_CLIENTS))
        .and(within("duration_s", of.duration_s, 0.0..=longest))
        .and(within("blocks", of.blocks, 1..=MOST_BLOCKS))
        .and(within("block_s", of.block_s, 0.0..=longest))
        .and(within("warmup_s", of.warmup_s, 0.0..=longest))
        .and(within("hedge_delay_us", of.hedge_delay_us, 0.0..=60e6))
        .map_err(named)?;
    budget(Some(of.hedge_budget_percent)).map_err(|_| {
        let percent = of.hedge_budget_percent;
        named(format!("hedge_budget_percent is {percent}: from 1 to 100 is right"))
    })?;
    burst(Some(of.hedge_burst)).map_err(|_| {
        named(format!("hedge_burst is {}: from 1 to {MOST_BURST} is right", of.hedge_burst))
    })?;
    Ok(())
}

fn pass_figures(pass: &PassFigures, nodes: usize) -> Result<(), String> {
    let counts = [
        ("reads", pass.reads),
        ("misses", pass.misses),
        ("errors", pass.errors),
        ("unsent", pass.unsent),
        ("unanswered", pass.unanswered),
        ("copies_dropped", pass.copies_dropped),
    ];
    counts.into_iter().try_for_each(|(name, count)| within(name, count, 0..=MOST))?;
    pass.hedging.iter().try_for_each(hedging)?;
    pass.ledger.iter().try_for_each(ledger)?;
    spread("latency_us", &pass.latency_us, pass.reads)?;
    spread("service_us", &pass.service_us, pass.reads)?;
    histogram("latency_hdr", &pass.latency_hdr, pass.reads)?;
    histogram("service_hdr", &pass.service_hdr, pass.reads)?;
    samples(pass)?;
    if pass.by_node.len() != nodes {
        return Err(format!(
            "by_node has {} entries: {nodes}, as `nodes`, is right",
            pass.by_node.len()
        ));
    }
    for (node, answers) in pass.by_node.iter().enumerate() {
        answer(answers).map_err(|error| format!("by_node[{node}].{error}"))?;
    }
    Ok(())
}

fn hedging(of: &HedgingFigures) -> Result<(), String> {
    for (name, delay) in [("delay_us", of.delay_us), ("ceiling_us", of.ceiling_us)] {
        time(&format!("hedging.{name}"), delay)?;
    }
    within("hedging.budget_percent", of.budget_percent, 1..=100)?;
    within("hedging.burst", of.burst, 1..=MOST_BURST)
}

fn ledger(of: &LedgerFigures) -> Result<(), String> {
    let counts = [
        ("ledger.reads", of.reads),
        ("ledger.sent", of.sent),
        ("ledger.won", of.won),
        ("ledger.lost", of.lost),
        ("ledger.both_failed", of.both_failed),
        ("ledger.without_credit", of.without_credit),
        ("ledger.held_back", of.held_back),
    ];
    counts.into_iter().try_for_each(|(name, count)| within(name, count, 0..=MOST))?;
    within("ledger.extra_load_percent", of.extra_load_percent, 0.0..=100.0)?;
    time("ledger.margin_p50_us", of.margin_p50_us)?;
    time("ledger.margin_p99_us", of.margin_p99_us)
}

fn answer(answers: &AnswerFigures) -> Result<(), String> {
    within("copies", answers.copies, 0..=MOST)?;
    within("hedges", answers.hedges, 0..=MOST)?;
    spread("time_us", &answers.time_us, answers.copies)?;
    histogram("hdr", &answers.hdr, answers.copies)
}

/// As many as there are reads, and none less than the one before.
fn spread(name: &str, of: &Spread, count: u64) -> Result<(), String> {
    if of.count != count {
        return Err(format!(
            "{name}.count is {}: {count}, the number of reads, is right",
            of.count
        ));
    }
    time(&format!("{name}.mean"), of.mean)?;
    time(&format!("{name}.min"), of.min)?;
    let mut before = 0.0;
    for (column, at) in of.columns() {
        time(&format!("{name} at {column}"), at)?;
        if at.is_some_and(|at| at < before) {
            return Err(format!("{name} at {column} is below the one before: rising is right"));
        }
        before = at.unwrap_or(before);
    }
    Ok(())
}

fn samples(pass: &PassFigures) -> Result<(), String> {
    let Some(samples) = &pass.samples_us else { return Ok(()) };
    if samples.len() as u64 != pass.reads {
        let (length, reads) = (samples.len(), pass.reads);
        return Err(format!(
            "samples_us has {length} entries: {reads}, as `reads`, or null is right"
        ));
    }
    let each = samples.iter().enumerate();
    each.into_iter().try_for_each(|(at, us)| time(&format!("samples_us[{at}]"), Some(*us)))
}

fn histogram(name: &str, text: &str, count: u64) -> Result<(), String> {
    let times = coded::decode(text)
        .map_err(|error| format!("{name} {error}; HdrHistogram V2 in base64 is right"))?;
    if times.len() != count {
        return Err(format!("{name} holds {} times: {count}, as counted, is right", times.len()));
    }
    // The last bucket reaches a little further than what is put into it.
    within(&format!("the greatest of {name}"), times.max(), 0..=2 * LONGEST_NS)
}

fn heat(of: &HeatFigures, nodes: usize) -> Result<(), String> {
    within("span_s", of.span_s, 1e-3..=LONGEST.as_secs_f64() * 2.0)?;
    within("columns", of.columns, 1..=MOST_CELLS)?;
    within("the length of bounds_us", of.bounds_us.len(), 2..=MOST_CELLS)?;
    let are_bounds = |bounds: &[f64]| bounds.is_sorted_by(|one, next| one < next);
    if !are_bounds(&of.bounds_us) || of.bounds_us[0] <= 0.0 {
        return Err("bounds_us: rising from above 0 is right".into());
    }
    if of.by_node.len() != nodes {
        return Err(format!(
            "by_node has {} entries: {nodes}, as `nodes`, is right",
            of.by_node.len()
        ));
    }
    let rows = of.bounds_us.len() - 1;
    let is_out = |(column, row, count): &(usize, usize, u32)| {
        *column >= of.columns || *row >= rows || *count == 0
    };
    match of.by_node.iter().flatten().find(|cell| is_out(cell)) {
        Some((column, row, count)) => Err(format!(
            "by_node has a cell [{column}, {row}, {count}]: a column below {}, a row below {rows} and a \
             count above 0 are right",
            of.columns
        )),
        None if of.by_node.iter().any(|cells| cells.len() > of.columns * rows) => {
            Err(format!("by_node: at most {} cells of a node are right", of.columns * rows))
        }
        None => Ok(()),
    }
}

/// A time in microseconds that can have been measured.
fn time(name: &str, us: Option<f64>) -> Result<(), String> {
    us.map_or(Ok(()), |us| within(name, us, 0.0..=LONGEST_NS as f64 / 1e3))
}

fn within<N: PartialOrd + Display>(
    name: &str,
    value: N,
    right: RangeInclusive<N>,
) -> Result<(), String> {
    if right.contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}: from {} to {} is right", right.start(), right.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-383. Fails if a file that is cut off, of another program or of another version is taken, or the
    /// line does not say which and where.
    #[test]
    fn wrong_files_are_told() {
        assert!(parse(b"").unwrap_err().starts_with("cut off: EOF"));
        let cut = parse(br#"{"schema":"hedgerow.probe/1","version":"#).unwrap_err();
        assert!(cut.starts_with("cut off: ") && cut.contains("line 1 column"), "{cut}");
        assert!(parse(b"\x7fELF").unwrap_err().contains("line 1 column 1"));
        assert!(parse(b"{}").unwrap_err().contains("it has no `schema`"));
        assert!(
            parse(br#"{"schema":"hedgerow.bench/1"}"#).unwrap_err().contains("hedgerow.bench/1")
        );
        let field = parse(br#"{"schema":"hedgerow.probe/1"}"#).unwrap_err();
        assert!(field.contains("missing field"), "{field}");
    }

    /// R-383. Fails if a number that no time, count or rate can be is taken, or the line does not say what
    /// would be right.
    #[test]
    fn numbers_are_bounded() {
        for wrong in [-5.0, 1e308, f64::NAN, f64::INFINITY] {
            assert!(
                time("samples_us[3]", Some(wrong)).unwrap_err().starts_with("samples_us[3] is ")
            );
        }
        assert!(time("a", Some(0.0)).is_ok() && time("a", None).is_ok());
        let clients = within("clients", 0, 1..=MOST_CLIENTS).unwrap_err();
        assert_eq!(clients, "clients is 0: from 1 to 256 is right");
    }
}
