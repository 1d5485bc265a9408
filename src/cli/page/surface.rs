//! What other delays and budgets would have done, as a table whose cells are coloured.

use super::super::probe::figures::{AdviceFigures, PredictionFigures, WhatIfFigures};
use super::super::probe::report::us;
use std::fmt::{Result, Write};

/// The grid: a row for each budget, a column for each delay.
pub(super) fn table(out: &mut String, what_if: &WhatIfFigures, advice: &AdviceFigures) -> Result {
    let mut delays: Vec<f64> = what_if.grid.iter().map(|pair| pair.delay_us).collect();
    delays.sort_by(f64::total_cmp);
    delays.dedup();
    let mut budgets: Vec<u32> = what_if.grid.iter().map(|pair| pair.budget_percent).collect();
    budgets.dedup();
    let at = |pair: &PredictionFigures| pair.at(what_if.percentile).filter(|us| *us > 0.0);
    let before = at(&what_if.baseline).unwrap_or(1.0);
    let best = what_if.grid.iter().filter_map(at).fold(before, f64::min);
    out.write_str("<div class=\"wide\"><table id=\"surface\"><thead><tr><th>budget \\ delay</th>")?;
    for delay in &delays {
        write!(out, "<th>{}</th>", us(*delay))?;
    }
    out.write_str("</tr></thead><tbody>\n")?;
    for budget in budgets {
        write!(out, "<tr><th>{budget} %</th>")?;
        for delay in &delays {
            let of = |pair: &&PredictionFigures| {
                pair.budget_percent == budget && pair.delay_us == *delay
            };
            match what_if.grid.iter().find(of) {
                Some(pair) => cell(out, pair, at(pair), (best, before), is_advised(pair, advice))?,
                None => out.write_str("<td class=\"empty\"></td>")?,
            }
        }
        out.write_str("</tr>\n")?;
    }
    out.write_str("</tbody></table></div>\n")
}

fn is_advised(pair: &PredictionFigures, advice: &AdviceFigures) -> bool {
    advice.delay_us == Some(pair.delay_us) && advice.budget_percent == Some(pair.budget_percent)
}

fn cell(
    out: &mut String,
    pair: &PredictionFigures,
    latency: Option<f64>,
    (best, before): (f64, f64),
    is_advised: bool,
) -> Result {
    let class = if is_advised { "cell advised" } else { "cell" };
    let Some(latency) = latency else {
        return write!(out, "<td class=\"{class}\">-</td>");
    };
    // How much of the way from no hedging to the best cell, on a logarithmic scale.
    let way = (before / best).max(1.0 + 1e-9).ln();
    let gain = ((before / latency).ln() / way).clamp(0.0, 1.0);
    write!(
        out,
        "<td class=\"{class}\" style=\"--gain:{:.0}%\" data-us=\"{latency:.3}\" title=\"{:.1} % of the reads \
         wait without credit\">{}<small>+{:.1} %</small></td>",
        gain * 100.0,
        pair.without_credit_percent,
        us(latency),
        pair.extra_load_percent
    )
}
