//! What this machine offers to a core, why a rung was chosen, and what its owner could change.
//!
//! Everything is found by trying or by reading, never from a version number: kernels are patched, and
//! containers forbid what the kernel under them can do.

mod advice;
mod machine;
mod rung;
mod trial;

use std::fmt;

pub use advice::{Advice, Topic};
pub use machine::{Limit, Machine, Seccomp};
pub use rung::{Cause, Choice, Refusal, Rung, RungError, choose, self_test};
pub use trial::RingCaps;

/// What was found; see [`caps`].
#[derive(Clone, Debug)]
pub struct Caps {
    /// Limits, cpus and settings.
    pub machine: Machine,
    /// What io_uring offers, or why there is none.
    pub ring: Result<RingCaps, Refusal>,
    /// Each rung from best to last, with the reason if it cannot be used.
    pub rungs: Vec<(Rung, Result<(), Refusal>)>,
    /// The rung that [`choose`] takes when none is forced.
    pub choice: Result<Choice, Refusal>,
}

/// Reads and tries everything. Takes some milliseconds and a few descriptors; ask at start-up and not
/// from a pinned thread, which sees only its own cpu.
///
/// ```
/// let caps = hedgerow_runtime::caps::caps();
/// println!("{caps}");
/// for advice in caps.advice() {
///     println!("{advice}");
/// }
/// ```
pub fn caps() -> Caps {
    let machine = Machine::read();
    let ring = trial::ring_caps().map_err(|fault| Refusal::explain(Rung::U1, fault, &machine));
    let rungs = Rung::ALL.map(|rung| (rung, rung::try_on(rung, &machine))).to_vec();
    let choice = rung::pick(None, false, |rung| {
        rungs.iter().find(|(tried, _)| *tried == rung).map_or(Ok(()), |(_, end)| end.clone())
    });
    Caps { machine, ring, rungs, choice }
}

impl Caps {
    /// What the owner of a service could change, the most important first.
    pub fn advice(&self) -> Vec<Advice> {
        let refusal = match &self.ring {
            Err(refusal) => Some(refusal),
            Ok(_) => self
                .rungs
                .iter()
                .find(|(rung, _)| *rung == Rung::U1)
                .and_then(|(_, tried)| tried.as_ref().err()),
        };
        advice::advise(&self.machine, refusal)
    }
}

impl fmt::Display for Caps {
    /// One line for each fact, `name: value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.choice {
            Ok(choice) => writeln!(f, "rung: {} ({})", choice.rung, choice.why)?,
            Err(refusal) => writeln!(f, "rung: none ({refusal})")?,
        }
        for (rung, tried) in &self.rungs {
            match tried {
                Ok(()) => writeln!(f, "rung {rung}: works")?,
                Err(refusal) => writeln!(f, "rung {rung}: {refusal}")?,
            }
        }
        match &self.ring {
            Ok(ring) => write!(f, "{ring}")?,
            Err(refusal) => writeln!(f, "io_uring: {refusal}")?,
        }
        write!(f, "{}", self.machine)
    }
}
