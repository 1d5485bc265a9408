//! The heat maps: when each node was slow.

use super::super::probe::figures::{HeatFigures, NodeFigures};
use super::axis::{LogAxis, latency};
use super::text::Escaped;
use std::fmt::{Result, Write};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 24.0;
/// Marks along the time.
const MARKS: usize = 8;
/// How faint the emptiest cell is.
const FAINT: f64 = 0.14;

/// One map for each node that answered anything, all on the same scales.
pub(super) fn maps(out: &mut String, heat: &HeatFigures, nodes: &[NodeFigures]) -> Result {
    let used = heat.by_node.iter().flatten();
    let rows = used.clone().map(|(_, row, _)| *row);
    let (Some(first), Some(last)) = (rows.clone().min(), rows.max()) else {
        return out.write_str("<p class=\"note\">No read was measured.</p>\n");
    };
    let most = used.map(|(_, _, count)| *count).max().unwrap_or(1);
    let scale = Scale { heat, first, last, most };
    for (node, cells) in nodes.iter().zip(&heat.by_node).filter(|(_, cells)| !cells.is_empty()) {
        let (address, role) = (Escaped(&node.address), Escaped(&node.role));
        writeln!(
            out,
            "<figure class=\"map\"><figcaption>{address} <span>{role}</span></figcaption>"
        )?;
        scale.map(out, &node.address, cells)?;
        out.write_str("</figure>\n")?;
    }
    Ok(())
}

/// What all maps have in common.
struct Scale<'a> {
    heat: &'a HeatFigures,
    first: usize,
    last: usize,
    most: u32,
}

impl Scale<'_> {
    fn map(&self, out: &mut String, name: &str, cells: &[(usize, usize, u32)]) -> Result {
        writeln!(
            out,
            "<svg class=\"heat\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Answers of {} \
             over time\">",
            Escaped(name)
        )?;
        self.marks(out)?;
        for cell in cells {
            self.cell(out, cell)?;
        }
        out.write_str("</svg>\n")
    }

    fn marks(&self, out: &mut String) -> Result {
        let bounds = &self.heat.bounds_us;
        let y = LogAxis::new(bounds[self.first], bounds[self.last + 1], HEIGHT - BOTTOM, TOP);
        let decades =
            y.marks().into_iter().filter(|us| (us.log10() - us.log10().round()).abs() < 1e-9);
        for us in decades {
            let (at, end) = (y.at(us), WIDTH - RIGHT);
            writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"mark end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                latency(us)
            )?;
        }
        let step = step(self.heat.span_s);
        for number in 0..=MARKS * 2 {
            let at_s = number as f64 * step;
            if at_s > self.heat.span_s {
                break;
            }
            let x = LEFT + (WIDTH - RIGHT - LEFT) * at_s / self.heat.span_s;
            let text =
                format!("{}{}", (at_s * 1e3).round() / 1e3, if number == 0 { " s" } else { "" });
            let y = HEIGHT - BOTTOM + 16.0;
            writeln!(out, "<text class=\"mark middle\" x=\"{x:.1}\" y=\"{y}\">{text}</text>")?;
        }
        Ok(())
    }

    fn cell(&self, out: &mut String, (column, row, count): &(usize, usize, u32)) -> Result {
        let columns = self.heat.columns.max(1) as f64;
        let width = (WIDTH - RIGHT - LEFT) / columns;
        let height = (HEIGHT - BOTTOM - TOP) / (self.last + 1 - self.first) as f64;
        let x = LEFT + width * *column as f64;
        let y = TOP + height * (self.last - row) as f64;
        let depth = f64::from(*count).ln_1p() / f64::from(self.most).ln_1p();
        let (bounds, each_s) = (&self.heat.bounds_us, self.heat.span_s / columns);
        writeln!(
            out,
            "<rect class=\"cell\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
             fill-opacity=\"{:.2}\"><title>{:.1} s, {} to {}: {count}</title></rect>",
            width + 0.1,
            height + 0.1,
            FAINT + (1.0 - FAINT) * depth,
            each_s * *column as f64,
            latency(bounds[*row].round()),
            latency(bounds[row + 1].round())
        )
    }
}

/// Time between two marks: 1, 2 or 5 of a power of ten.
fn step(span_s: f64) -> f64 {
    let raw = (span_s / MARKS as f64).max(1e-3);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|part| part * power)
        .find(|step| *step >= raw)
        .unwrap_or(raw)
}
