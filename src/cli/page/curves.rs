//! The plots of passes: latency by percentile, and the share of reads by latency.

use super::super::probe::figures::PassFigures;
use super::axis::{LogAxis, TailAxis, latency};
use super::text::Escaped;
use hdrhistogram::Histogram;
use std::fmt::{Result, Write};

/// Size of a plot, and the room around it for marks.
const WIDTH: f64 = 580.0;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
/// Points of a curve, at most.
const POINTS: usize = 240;

/// What stands where a plot would be empty.
const NONE: &str = "<p class=\"note\">No read was measured.</p>\n";

/// One pass as a curve.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    /// The pass.
    pub(super) pass: &'a PassFigures,
    /// Its place, which gives its colour.
    pub(super) place: usize,
    /// Quantile and latency in microseconds, both rising.
    points: Vec<(f64, f64)>,
}

/// The curves of all passes that have reads; those whose histogram is damaged are left out.
pub(super) fn curves<'a>(
    passes: impl Iterator<Item = (&'a PassFigures, Histogram<u64>)>,
) -> Vec<Curve<'a>> {
    let passes = passes.enumerate().filter(|(_, (_, times))| !times.is_empty());
    passes.map(|(place, (pass, times))| Curve { pass, place, points: points(&times) }).collect()
}

fn points(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    let axis = TailAxis::new(times.len(), 0.0, 1.0);
    let points: Vec<(f64, f64)> = (0..=POINTS)
        .map(|at| axis.quantile(at as f64 / POINTS as f64))
        .map(|quantile| (quantile, times.value_at_quantile(quantile) as f64 / 1e3))
        .collect();
    // A line needs no points between two that are as high.
    let is_inside = |at: usize| {
        at > 0
            && points.get(at + 1).is_some_and(|next| next.1 == points[at].1)
            && points[at - 1].1 == points[at].1
    };
    let kept = points.iter().enumerate().filter(|(at, _)| !is_inside(*at));
    kept.map(|(_, point)| *point).collect()
}

fn count(curves: &[Curve<'_>]) -> u64 {
    curves.iter().map(|curve| curve.pass.reads).max().unwrap_or(0)
}

/// The axis of latency that holds all curves.
fn latencies(curves: &[Curve<'_>], from: f64, to: f64) -> LogAxis {
    let all = curves.iter().flat_map(|curve| curve.points.iter().map(|(_, us)| *us));
    let (low, high) = all.fold((f64::MAX, 0.0_f64), |(low, high), us| (low.min(us), high.max(us)));
    LogAxis::new(low * 0.8, high * 1.15, from, to)
}

/// Latency by percentile, both on logarithmic scales.
pub(super) fn by_percentile(out: &mut String, curves: &[Curve<'_>]) -> Result {
    if curves.is_empty() {
        return out.write_str(NONE);
    }
    let x = TailAxis::new(count(curves), LEFT, WIDTH - RIGHT);
    let y = latencies(curves, HEIGHT - BOTTOM, TOP);
    open(out, "percentiles", "Latency of each pass by percentile")?;
    for us in y.marks() {
        horizontal(out, y.at(us), &latency(us))?;
    }
    for (quantile, name) in x.marks() {
        vertical(out, x.at(quantile), name)?;
    }
    for curve in curves {
        path(out, curve, |(quantile, us)| (x.at(*quantile), y.at(*us)))?;
    }
    writeln!(out, "<line class=\"cross\" y1=\"{TOP}\" y2=\"{}\" hidden />", HEIGHT - BOTTOM)?;
    out.write_str("</svg>\n")
}

/// The share of reads that took no longer, by latency on a logarithmic scale.
pub(super) fn by_latency(out: &mut String, curves: &[Curve<'_>]) -> Result {
    if curves.is_empty() {
        return out.write_str(NONE);
    }
    let x = latencies(curves, LEFT, WIDTH - RIGHT);
    let y = |share: f64| (HEIGHT - BOTTOM) + (TOP - (HEIGHT - BOTTOM)) * share;
    open(out, "cdf", "Share of reads of each pass that took no longer")?;
    for percent in [0, 25, 50, 75, 90, 100] {
        horizontal(out, y(f64::from(percent) / 100.0), &format!("{percent} %"))?;
    }
    for us in x.marks() {
        vertical(out, x.at(us), &latency(us))?;
    }
    for curve in curves {
        path(out, curve, |(quantile, us)| (x.at(*us), y(*quantile)))?;
    }
    out.write_str("</svg>\n")
}

fn open(out: &mut String, id: &str, title: &str) -> Result {
    writeln!(
        out,
        "<svg id=\"{id}\" class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">"
    )
}

fn horizontal(out: &mut String, y: f64, name: &str) -> Result {
    let (end, at) = (WIDTH - RIGHT, LEFT - 8.0);
    writeln!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"mark end\" x=\"{at}\" y=\"{:.1}\">{name}</text>",
        y + 4.0
    )
}

fn vertical(out: &mut String, x: f64, name: &str) -> Result {
    let (end, at) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 20.0);
    // A name at the very end would be cut off.
    let anchor = if x > WIDTH - RIGHT - 24.0 { "end" } else { "middle" };
    writeln!(
        out,
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{end}\"/>\
         <text class=\"mark {anchor}\" x=\"{x:.1}\" y=\"{at}\">{name}</text>"
    )
}

fn path(out: &mut String, curve: &Curve<'_>, at: impl Fn(&(f64, f64)) -> (f64, f64)) -> Result {
    write!(out, "<path class=\"curve s{}\" d=\"", curve.place)?;
    for (number, point) in curve.points.iter().enumerate() {
        let (x, y) = at(point);
        write!(out, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' })?;
    }
    writeln!(out, "\"><title>{}</title></path>", Escaped(&curve.pass.name))
}

/// What the script needs to show values under the pointer: the plot's frame, and the curves' points.
pub(super) fn for_script(curves: &[Curve<'_>]) -> serde_json::Value {
    let nines = (count(curves).max(100) as f64).log10();
    let curves: Vec<serde_json::Value> = curves
        .iter()
        .map(|curve| {
            let points: Vec<[f64; 2]> = curve
                .points
                .iter()
                .map(|(quantile, us)| [(quantile * 1e7).round() / 1e7, (us * 10.0).round() / 10.0])
                .collect();
            serde_json::json!({ "name": curve.pass.name, "place": curve.place, "points": points })
        })
        .collect();
    serde_json::json!({
        "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH, "nines": nines, "curves": curves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a curve ends before its last read, falls, or keeps points that no line needs.
    #[test]
    fn curves_have_their_ends() {
        let mut times = Histogram::<u64>::new(3).expect("three digits");
        (0..10_000).for_each(|n| {
            times.record(if n < 9_000 { 500_000 } else { 20_000_000 }).expect("room")
        });
        let points = points(&times);
        assert!(points.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{points:?}");
        assert!(points.len() <= 6, "two levels: {points:?}");
        let (first, last) = (points[0], points[points.len() - 1]);
        assert!(
            first.0 == 0.0 && (last.0 - 0.9999).abs() < 1e-9 && last.1 > 19_000.0,
            "{points:?}"
        );
    }
}
