//! `hedgerow replay`: the prediction again, from a saved report and with other parameters.

use super::super::output::{Output, is_same_file};
use super::super::reads::{budget, burst};
use super::super::{Failure, page, say};
use super::args::ReplayArgs;
use super::predict::Wish;
use super::saved;
use super::table;

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
    let mut report = saved::read(&args.file).map_err(Failure::Failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
