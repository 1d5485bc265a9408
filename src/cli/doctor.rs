//! `hedgerow doctor`: what this machine offers, and what to change.

use super::machine::Machine;
use super::{Failure, say};

/// Prints the machine and the advice.
pub(crate) fn run() -> Result<(), Failure> {
    say(&format!("{}\n", Machine::new()))
}
