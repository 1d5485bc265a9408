//! `hedgerow doctor`: what this machine offers, and what to change.

use super::{Failure, say};
use hedgerow_runtime::caps::{Advice, Caps, caps};

/// Prints the facts and the advice.
pub(crate) fn run() -> Result<(), Failure> {
    let caps = caps();
    say(&text(&caps, &caps.advice()))
}

/// The facts, a line each; then each piece of advice: what is so, what it costs, what to change.
fn text(caps: &Caps, advice: &[Advice]) -> String {
    let mut text = format!("{}\n", caps.to_string().trim_end());
    if advice.is_empty() {
        text.push_str("\nadvice: nothing to change\n");
    }
    for (number, advice) in (1..).zip(advice) {
        text.push_str(&format!("\nadvice {number}: {}\n", advice.finding));
        text.push_str(&format!("  cost:   {}\n  change: {}\n", advice.cost, advice.change));
    }
    text
}
