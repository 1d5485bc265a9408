//! `hedgerow replay`: the prediction again, from a saved report and with other parameters.

use super::super::output::{Output, is_same_file};
use super::super::reads::{budget, burst};
use super::super::{Failure, page, say};
use super::args::ReplayArgs;
use super::predict::Wish;
use super::report::{Report, SCHEMA};
use super::table;
use std::path::Path;

/// Largest file that is read: a report has a few megabytes.
const FILE_MAX: u64 = 256 << 20;

/// Predicts anew and prints what came out.
pub(crate) fn run(args: ReplayArgs) -> Result<(), Failure> {
    let rank = rank(args.percentile).map_err(Failure::Usage)?;
    let percent_max = args.hedge_budget.map(|_| budget(args.hedge_budget)).transpose();
    let percent_max = percent_max.map_err(Failure::Usage)?;
    let hedges = args.hedge_burst.map(|_| burst(args.hedge_burst)).transpose();
    let hedges = hedges.map_err(Failure::Usage)?;
    if let Some(html) = args.html.as_deref().filter(|html| is_same_file(html, &args.file)) {
        let line = format!("--html {}: is the report that is replayed", html.display());
        return Err(Failure::Usage(format!("{line}, name another file")));
    }
    let mut report = read(&args.file).map_err(Failure::Failed)?;
    let html = Output::open("--html", args.html.as_deref()).map_err(Failure::Failed)?;
    let wish = Wish {
        rank: rank.unwrap_or(report.advice.percentile / 100.0),
        percent_max: percent_max.unwrap_or(report.configuration.hedge_budget_percent),
        burst: hedges.unwrap_or(report.configuration.hedge_burst),
        delay: args.hedge_delay,
        seed: report.configuration.seed,
    };
    let named = |error| Failure::Failed(format!("{}: {error}", args.file.display()));
    report.predict_again(&wish).map_err(named)?;
    let said = say(&table::prediction(&report));
    let html = html.map_or(Ok(()), |out| out.write(|out| page::write(out, &report)));
    said.and(html.map_err(Failure::Failed))
}

/// The percentile as a quantile.
fn rank(percentile: Option<f64>) -> Result<Option<f64>, String> {
    match percentile {
        None => Ok(None),
        Some(percentile) if (50.0..=99.99).contains(&percentile) => Ok(Some(percentile / 100.0)),
        Some(percentile) => Err(format!("--percentile {percentile}: from 50 to 99.99")),
    }
}

/// Reads a report, or says what is wrong with the file and where.
fn read(path: &Path) -> Result<Report, String> {
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

/// Checks what its form does not: that the parts fit each other.
fn check(report: &Report) -> Result<(), String> {
    let nodes = report.nodes.len();
    if let Some(at) = report.passes.iter().position(|pass| pass.by_node.len() != nodes) {
        return Err(format!("passes[{at}].by_node does not have one entry for each of `nodes`"));
    }
    let configuration = &report.configuration;
    budget(Some(configuration.hedge_budget_percent))
        .and(burst(Some(configuration.hedge_burst)))
        .map_err(|_| "configuration: hedge_budget_percent or hedge_burst is out of range")?;
    if !(50.0..=99.99).contains(&report.advice.percentile) {
        return Err("advice.percentile is out of range: from 50 to 99.99".into());
    }
    let rows = report.heat.bounds_us.len();
    let is_out =
        |(column, row, _): &(usize, usize, u32)| *column >= report.heat.columns || row + 1 >= rows;
    if report.heat.by_node.iter().flatten().any(is_out) {
        return Err("heat.by_node has a cell outside of its columns and rows".into());
    }
    Ok(())
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

    /// Fails if a percentile that nothing can be said of is taken.
    #[test]
    fn percentiles() {
        assert_eq!(rank(Some(99.9)).unwrap().map(|rank| (rank * 1e4).round()), Some(9_990.0));
        assert_eq!(rank(None), Ok(None));
        for wrong in [49.9, 100.0, 0.99, f64::NAN] {
            assert!(rank(Some(wrong)).unwrap_err().starts_with("--percentile"));
        }
    }
}
