//! The report as one page: no network, light and dark, and legible without its script.

mod axis;
mod curves;
mod heat;
mod surface;
mod text;

use super::probe::figures::{HedgingFigures, PassFigures, Spread};
use super::probe::report::{Report, us};
use super::probe::{coded, figures::AnswerFigures};
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use text::{Escaped, date};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Writes the page.
pub(crate) fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut page = String::new();
    // Writing into a String cannot fail.
    let _ = page_of(&mut page, report);
    out.write_all(page.as_bytes())
}

fn page_of(out: &mut String, report: &Report) -> fmt::Result {
    let passes = report.passes.iter();
    let decoded = passes.filter_map(|pass| Some((pass, coded::decode(&pass.latency_hdr).ok()?)));
    let curves = curves::curves(decoded);
    head(out, report)?;
    verdict(out, report)?;
    passes_table(out, report)?;
    service_table(out, report)?;
    out.write_str("<h2>Latency of the passes</h2>\n<p class=\"note\">From the planned send to the reply, so \
                   that a stall is seen by every read that was due in it. Left: each further nine takes as \
                   much room as the one before.</p>\n")?;
    legend(out, report)?;
    out.write_str(
        "<div class=\"plots\">\n<figure class=\"card\">\
                   <figcaption>Latency by percentile</figcaption>\n",
    )?;
    curves::by_percentile(out, &curves)?;
    out.write_str(
        "<div id=\"readout\" hidden></div></figure>\n<figure class=\"card\"><figcaption>Share of \
                   reads that took no longer</figcaption>\n",
    )?;
    curves::by_latency(out, &curves)?;
    out.write_str("</figure>\n</div>\n")?;
    maps(out, report)?;
    what_if(out, report)?;
    hedges(out, report)?;
    by_node(out, report)?;
    facts(out, report)?;
    // `<` would end the script where a name holds a tag.
    let for_script = curves::for_script(&curves).to_string().replace('<', "\\u003c");
    write!(
        out,
        "</main>\n<script type=\"application/json\" id=\"curves\">{for_script}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn head(out: &mut String, report: &Report) -> fmt::Result {
    let target = match report.configuration.target.as_str() {
        "embedded" => "a primary and two replicas in the probe's own process",
        _ => report.nodes.first().map_or("", |node| node.address.as_str()),
    };
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Hedgerow probe</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n<h1>What hedged reads do here</h1>\n<p class=\"note\">{} &middot; {} \
         reads/s for {} s &middot; {} &middot; hedgerow {}</p>\n",
        Escaped(target),
        report.configuration.rate_per_s,
        report.configuration.duration_s,
        date(report.made_at_s),
        Escaped(&report.version)
    )
}

/// The advice and what stands against it.
fn verdict(out: &mut String, report: &Report) -> fmt::Result {
    let advice = &report.advice;
    writeln!(out, "<section class=\"card verdict {}\" id=\"advice\">", Escaped(&advice.kind))?;
    writeln!(out, "<p>{}</p>", Escaped(&sentence(&advice.text)))?;
    if let Some(check) = &report.check {
        let class = if check.refutes() { " class=\"warn\"" } else { "" };
        writeln!(out, "<p{class}>{}</p>", Escaped(&sentence(&check.text)))?;
    }
    if let Some(drift) = &report.drift {
        let class = if drift.agrees == Some(true) { "" } else { " class=\"warn\"" };
        writeln!(out, "<p{class}>{}</p>", Escaped(&sentence(&drift.text())))?;
    }
    if report.interrupted {
        out.write_str("<p class=\"warn\">Interrupted: the figures so far.</p>\n")?;
    }
    for remark in &report.remarks {
        writeln!(out, "<p class=\"warn\">{}</p>", Escaped(&sentence(remark)))?;
    }
    if let (Some(before), Some(after)) = (advice.before_us, advice.after_us) {
        let percentile = advice.percentile;
        out.write_str("<div class=\"figures\">")?;
        let name = format!("p{percentile} service time");
        figure(out, &us(before), &format!("{name} without hedges"), Some(before))?;
        figure(out, &us(after), &format!("{name} predicted"), Some(after))?;
        if let Some(check) = &report.check {
            figure(
                out,
                &us(check.measured_us),
                "p99 service time measured",
                Some(check.measured_us),
            )?;
        }
        if let Some(extra) = advice.extra_load_percent {
            figure(out, &format!("+{extra:.1} %"), "reads predicted", None)?;
        }
        out.write_str("</div>\n")?;
    }
    out.write_str("</section>\n")
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

fn figure(out: &mut String, number: &str, name: &str, exact_us: Option<f64>) -> fmt::Result {
    let exact = exact_us.map_or(String::new(), |us| format!(" data-us=\"{us}\""));
    write!(out, "<div><b{exact}>{}</b><span>{}</span></div>", Escaped(number), Escaped(name))
}

fn passes_table(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str(
        "<h2>Passes</h2>\n<p class=\"note\">Latency, from the planned send to the reply.</p>\n\
         <div class=\"card wide\"><table id=\"passes\"><thead><tr><th>pass</th>\
         <th>hedge after</th><th>reads</th>",
    )?;
    columns(out)?;
    out.write_str("<th>extra load</th></tr></thead><tbody>\n")?;
    for (place, pass) in report.passes.iter().enumerate() {
        write!(
            out,
            "<tr data-pass=\"{0}\"><td><span class=\"key k{place}\"></span>{0}</td><td>{1}</td>\
             <td data-value=\"{2}\">{3}</td>",
            Escaped(&pass.name),
            delay(pass),
            pass.reads,
            whole(pass.reads)
        )?;
        times(out, &pass.latency_us)?;
        let extra = pass.extra_load_percent();
        writeln!(out, "<td data-value=\"{extra}\">{extra:.1} %</td></tr>")?;
    }
    out.write_str("</tbody></table></div>\n")
}

/// The times that prediction and check are about.
fn service_table(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str(
        "<p class=\"note\">Service time, from the real send to the reply: what a hedge can change, and what \
         prediction and check are about.</p>\n<div class=\"card wide\"><table id=\"times\"><thead><tr>\
         <th>pass</th>",
    )?;
    columns(out)?;
    out.write_str("</tr></thead><tbody>\n")?;
    for (place, pass) in report.passes.iter().enumerate() {
        let name = Escaped(&pass.name);
        write!(out, "<tr><td><span class=\"key k{place}\"></span>{name}</td>")?;
        times(out, &pass.service_us)?;
        out.write_str("</tr>\n")?;
    }
    out.write_str("</tbody></table></div>\n")
}

fn delay(pass: &PassFigures) -> String {
    match &pass.hedging {
        None => "&ndash;".into(),
        Some(HedgingFigures { mode, delay_us: Some(delay), budget_percent, .. })
            if mode != "adaptive" =>
        {
            format!("{}, up to {budget_percent} %", us(*delay))
        }
        Some(hedging) => format!("adaptive, up to {} %", hedging.budget_percent),
    }
}

/// Which colour is which pass.
fn legend(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str("<p class=\"legend\">")?;
    for (place, pass) in report.passes.iter().enumerate() {
        let (name, delay) = (Escaped(&pass.name), delay(pass));
        let delay = delay.trim_start_matches("adaptive, ");
        let delay = if pass.hedging.is_none() { String::new() } else { format!(": {delay}") };
        write!(out, "<span><span class=\"key k{place}\"></span>{name}{delay}</span> ")?;
    }
    out.write_str("</p>\n")
}

fn columns(out: &mut String) -> fmt::Result {
    Spread::default().columns().iter().try_for_each(|(name, _)| write!(out, "<th>{name}</th>"))
}

fn times(out: &mut String, times: &Spread) -> fmt::Result {
    for (name, time) in times.columns() {
        match time {
            Some(time) => {
                write!(out, "<td data-p=\"{name}\" data-us=\"{time}\">{}</td>", us(time))?
            }
            None => out.write_str("<td>&ndash;</td>")?,
        }
    }
    Ok(())
}

fn maps(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str("<h2>When nodes were slow</h2>\n<p class=\"note\">Every answered copy of a read, by \
                   the time at which it was sent and how long its node took. Darker: more of them. Spots \
                   above one node alone are what a hedge can cure; a band across all nodes is what it \
                   cannot.</p>\n\
                   <div class=\"card\" id=\"heat\">\n")?;
    heat::maps(out, &report.heat, &report.nodes)?;
    out.write_str("</div>\n")
}

fn what_if(out: &mut String, report: &Report) -> fmt::Result {
    let Some(what_if) = &report.what_if else { return Ok(()) };
    let before = what_if.baseline.at(what_if.percentile);
    writeln!(
        out,
        "<h2>What other settings would do</h2>\n<p class=\"note\">Predicted p{} service time for each delay \
         and budget, and the extra load, from the times of the baseline passes ({} without hedges), if nodes \
         are slow independently{}. Outlined: recommended.</p>\n<div class=\"card\">",
        what_if.percentile,
        before.map_or("unknown".into(), us),
        what_if
            .grid
            .first()
            .map_or(String::new(), |pair| format!(", with a burst of {}", pair.burst))
    )?;
    surface::table(out, what_if, &report.advice)?;
    out.write_str("</div>\n")
}

fn hedges(out: &mut String, report: &Report) -> fmt::Result {
    if report.passes.iter().all(|pass| pass.ledger.is_none()) {
        return Ok(());
    }
    out.write_str("<h2>What the hedges did</h2>\n<div class=\"card wide\"><table id=\"hedges\"><thead><tr>\
                   <th>pass</th><th>sent</th><th>won</th><th>lost</th><th>no credit</th><th>held back</th>\
                   <th>wasted</th><th>won by, p50</th></tr></thead><tbody>\n")?;
    for (place, pass) in report.passes.iter().enumerate() {
        let Some(ledger) = &pass.ledger else { continue };
        write!(out, "<tr><td><span class=\"key k{place}\"></span>{}</td>", Escaped(&pass.name))?;
        let counts =
            [ledger.sent, ledger.won, ledger.lost, ledger.without_credit, ledger.held_back];
        for count in counts {
            write!(out, "<td data-value=\"{count}\">{}</td>", whole(count))?;
        }
        writeln!(
            out,
            "<td>{} B</td><td>{}</td></tr>",
            whole(ledger.wasted_bytes),
            ledger.margin_p50_us.map_or("&ndash;".into(), us)
        )?;
    }
    out.write_str("</tbody></table></div>\n")
}

fn by_node(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str("<h2>Nodes</h2>\n<p class=\"note\">Copies of reads that each node answered: originals and \
                   hedges, from queueing to the reply.</p>\n<div class=\"card wide\"><table id=\"nodes\">\
                   <thead><tr><th>node</th><th>pass</th><th>copies</th><th>hedges</th>")?;
    columns(out)?;
    out.write_str("</tr></thead><tbody>\n")?;
    for (number, node) in report.nodes.iter().enumerate() {
        let answers =
            report.passes.iter().filter_map(|pass| Some((pass, pass.by_node.get(number)?)));
        for (pass, answers) in answers.filter(|(_, answers)| answers.copies > 0) {
            write!(out, "<tr><td>{}</td><td>{}</td>", Escaped(&node.address), Escaped(&pass.name))?;
            let AnswerFigures { copies, hedges, time_us, .. } = answers;
            write!(out, "<td>{}</td><td>{}</td>", whole(*copies), whole(*hedges))?;
            times(out, time_us)?;
            out.write_str("</tr>\n")?;
        }
    }
    out.write_str("</tbody></table></div>\n")
}

/// Configuration and machine.
fn facts(out: &mut String, report: &Report) -> fmt::Result {
    out.write_str(
        "<h2>How it was measured</h2>\n<div class=\"columns\">\n<section class=\"card\">\
                   <h3>Configuration</h3><dl id=\"configuration\">",
    )?;
    list(out, serde_json::to_value(&report.configuration).unwrap_or_default())?;
    for node in &report.nodes {
        write!(out, "<dt>{}</dt><dd>{}</dd>", Escaped(&node.role), Escaped(&node.address))?;
    }
    out.write_str("</dl></section>\n<section class=\"card\"><h3>Machine</h3><dl id=\"machine\">")?;
    list(out, serde_json::to_value(&report.machine).unwrap_or_default())?;
    out.write_str("</dl></section>\n</div>\n")
}

/// The fields of an object by name.
fn list(out: &mut String, object: serde_json::Value) -> fmt::Result {
    let serde_json::Value::Object(fields) = object else { return Ok(()) };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let name = name.replace('_', " ");
        write!(out, "<dt>{}</dt><dd>{}</dd>", Escaped(&name), Escaped(&text))?;
    }
    Ok(())
}

/// A whole number with thin spaces between thousands.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}
