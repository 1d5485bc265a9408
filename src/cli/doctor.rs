//! `hedgerow doctor`: what this machine offers, and what to change.

use super::{Failure, say};
use hedgerow_runtime::caps::{Advice, Caps, Rung, caps};

/// What forces a rung upon pinned cores.
const RUNG_VARIABLE: &str = "HEDGEROW_RUNG";

/// Prints the facts and the advice.
pub(crate) fn run() -> Result<(), Failure> {
    let caps = caps();
    let word = std::env::var(RUNG_VARIABLE).unwrap_or_default();
    say(&(forced(&word) + &text(&caps, &caps.advice())))
}

/// A line about the variable, if it is set: the facts are about what the machine would give.
fn forced(word: &str) -> String {
    match word.parse::<Rung>() {
        _ if word.is_empty() => String::new(),
        Ok(rung) => format!("{RUNG_VARIABLE}: rung {rung} is forced, whatever is chosen below\n"),
        Err(error) => format!("{RUNG_VARIABLE}: {error}; no core starts while it is set\n"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The variable is told, since it overrules what the machine offers. Fails if a forced rung or a
    /// wrong word is passed over, or anything is said without it.
    #[test]
    fn a_forced_rung_is_told() {
        assert_eq!(forced(""), "");
        assert!(forced("epoll").contains("rung epoll is forced"));
        assert!(forced("fast").contains("no core starts"));
    }
}
