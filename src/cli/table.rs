//! The report for people.

use super::plan::Plan;
use super::report::{Figures, Spread};
use std::fmt::Write;

/// The table: units stand beside every number. `target` is the server's address without
/// credentials; `runs` is how many were merged.
pub(crate) fn text(target: &str, plan: &Plan, figures: &Figures, runs: u32) -> String {
    let mut out = format!("{target}; {plan}\n");
    // Writing into a String cannot fail.
    let _ = write_all(&mut out, figures, runs);
    out
}

fn write_all(out: &mut String, figures: &Figures, runs: u32) -> std::fmt::Result {
    write_loop(out, figures, runs)?;
    write_counts(out, figures)?;
    write_times(out, figures)?;
    write_nodes(out, figures)?;
    write_errors(out, figures)?;
    write_hedges(out, figures)?;
    write_cost(out, figures)
}

fn write_loop(out: &mut String, figures: &Figures, runs: u32) -> std::fmt::Result {
    match figures.asked_per_s {
        None => writeln!(
            out,
            "closed loop: the next request waits for a reply, so a stall hides the requests that \
             would have waited in it (--rate gives an open loop)"
        )?,
        Some(asked) => writeln!(
            out,
            "open loop: asked {}/s, got {}/s; latency counts from the planned send",
            number(asked),
            number(figures.throughput_per_s)
        )?,
    }
    if runs > 1 {
        writeln!(out, "{runs} runs: counts add up, percentiles come from merged histograms")?;
    }
    if figures.interrupted {
        writeln!(out, "interrupted: the figures so far")?;
    }
    if figures.stalled {
        writeln!(out, "gave up: no reply came for 15 s")?;
    }
    Ok(())
}

fn write_counts(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(
        out,
        "\nthroughput    {}/s ({} requests in {:.3} s)",
        number(figures.throughput_per_s),
        whole(figures.requests),
        figures.elapsed_s
    )?;
    if figures.misses > 0 {
        writeln!(out, "misses        {}", whole(figures.misses))?;
    }
    if figures.unsent > 0 {
        writeln!(
            out,
            "unsent        {} (due, but not sent before the end; in no percentile)",
            whole(figures.unsent)
        )?;
    }
    if figures.unanswered > 0 {
        let count = whole(figures.unanswered);
        writeln!(out, "unanswered    {count} (sent, no reply before the end; in no percentile)")?;
    }
    Ok(())
}

fn write_times(out: &mut String, figures: &Figures) -> std::fmt::Result {
    write!(out, "\n{:22}", "times in us")?;
    for name in ["count", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"] {
        write!(out, "{name:>12}")?;
    }
    out.push('\n');
    let open = figures.asked_per_s.is_some();
    write_row(out, "latency", &figures.latency_us)?;
    if open {
        write_row(out, "service time", &figures.service_us)?;
    }
    if figures.by_command.len() > 1 {
        for (name, part) in &figures.by_command {
            write_row(out, &format!("  {name}"), &part.latency_us)?;
            if open {
                write_row(out, &format!("  {name} service time"), &part.service_us)?;
            }
        }
    }
    Ok(())
}

fn write_row(out: &mut String, name: &str, times: &Spread) -> std::fmt::Result {
    write!(out, "{name:22}{:>12}", whole(times.count))?;
    let columns =
        [times.mean, times.p50, times.p90, times.p99, times.p99_9, times.p99_99, times.max];
    write_columns(out, columns)
}

fn write_columns<const N: usize>(out: &mut String, times: [Option<f64>; N]) -> std::fmt::Result {
    for time in times {
        match time {
            Some(time) => write!(out, "{time:>12.1}")?,
            None => write!(out, "{:>12}", "-")?,
        }
    }
    out.push('\n');
    Ok(())
}

fn write_nodes(out: &mut String, figures: &Figures) -> std::fmt::Result {
    let Some(cluster) = &figures.cluster else { return Ok(()) };
    write!(
        out,
        "\n{:22}{:>8}{:>8}{:>12}{:>9}",
        "nodes, times in us", "role", "slots", "requests", "share"
    )?;
    for name in ["p50", "p99", "p99.9", "max"] {
        write!(out, "{name:>12}")?;
    }
    out.push('\n');
    for node in &cluster.nodes {
        let (slots, requests) = (whole(node.slots.into()), whole(node.requests));
        let share = format!("{:.2} %", node.share_percent);
        write!(out, "{:22}{:>8}{slots:>8}{requests:>12}{share:>9}", node.endpoint, node.role)?;
        let times = &node.service_us;
        write_columns(out, [times.p50, times.p99, times.p99_9, times.max])?;
    }
    if let Some(slot) = cluster.only_slot {
        writeln!(
            out,
            "one slot      all keys are in slot {slot}: a single node serves them, however many there are"
        )?;
    }
    let (moved, again) = (whole(cluster.slots_moved), whole(cluster.sent_again));
    writeln!(
        out,
        "redirects     {again} commands sent again, {moved} slots moved (loading and warm-up included)"
    )?;
    if cluster.untold > 0 {
        let count = whole(cluster.untold);
        writeln!(out, "untold        {count} answers (in no line of a node)")?;
    }
    Ok(())
}

fn write_errors(out: &mut String, figures: &Figures) -> std::fmt::Result {
    out.push_str("\nerrors        ");
    if figures.errors == 0 {
        return writeln!(out, "none");
    }
    write!(out, "{} (in no percentile)", whole(figures.errors))?;
    for (kind, count) in &figures.errors_by_kind {
        write!(out, ", {kind} {}", whole(*count))?;
    }
    out.push('\n');
    Ok(())
}

fn write_hedges(out: &mut String, figures: &Figures) -> std::fmt::Result {
    let Some(hedges) = &figures.hedges else { return Ok(()) };
    writeln!(
        out,
        "hedges        {} for {} eligible reads ({:.2} %, warm-up included), {} won, {} without credit",
        whole(hedges.sent),
        whole(hedges.reads),
        hedges.extra_load_percent,
        whole(hedges.won),
        whole(hedges.without_credit)
    )
}

fn write_cost(out: &mut String, figures: &Figures) -> std::fmt::Result {
    if let Some(cpu) = figures.cpu_us_per_request {
        writeln!(
            out,
            "CPU           {cpu:.3} us per request (user and system, load threads only)"
        )?;
    }
    if let Some(enters) = figures.enters_per_request {
        writeln!(
            out,
            "enters        {enters:.3} per request (system calls that send and collect)"
        )?;
    }
    Ok(())
}

/// A whole number with commas: `1,234,567`.
pub(crate) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: whole from 100 on, else with a fraction.
fn number(number: f64) -> String {
    if number >= 100.0 { whole(number.round() as u64) } else { format!("{number:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as printed. Fails if a comma moves or a small rate becomes 0.
    #[test]
    fn numbers() {
        assert_eq!(whole(0), "0");
        assert_eq!(whole(999), "999");
        assert_eq!(whole(1_234_567), "1,234,567");
        assert_eq!(number(0.4), "0.40");
        assert_eq!(number(300_000.4), "300,000");
    }
}
