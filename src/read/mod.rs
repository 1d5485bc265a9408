//! Which replica serves a read, and when a second copy is worth its cost: decisions only. Nothing here
//! opens a socket or reads a clock; time and random bits are arguments.
//!
//! - [`ReadFrom`]: which roles serve a read, in which order. [`Reads`]: that, and how stale they may be.
//! - [`Hedging`]: the settings. [`Tail`]: all hedging decisions of one core, made of the parts below.
//! - [`Budget`]: how many hedges may start. [`Adaptive`]: after which delay, from [`Quantiles`].
//!   [`Storm`]: not while they cannot help. [`Ledger`]: what they did and cost.
//! - [`Choice`]: the replica by live latencies. [`nearest()`]: by PING, with [`Estimate`].
//! - [`WhatIf`]: what a delay and a budget would have done to recorded service times.

mod adaptive;
mod budget;
mod choice;
mod hedging;
mod ledger;
mod nearest;
mod policy;
mod quantile;
mod sampler;
mod scale;
mod storm;
mod tail;
mod what_if;

pub use adaptive::Adaptive;
pub use budget::Budget;
pub use choice::Choice;
pub use hedging::{Delay, Hedging};
pub use ledger::{Ledger, Margins, Outcome};
pub(crate) use nearest::FRESH;
pub use nearest::{Estimate, Published, nearest};
pub(crate) use policy::Standing;
pub use policy::{ReadFrom, Reads};
pub use quantile::{Decay, Quantiles, RANKS, Row};
pub use storm::{Climate, Pace, Reason, Storm, Weather};
pub use tail::{Due, Tail};
pub use what_if::{Advice, Gain, Goal, Prediction, Recorded, WhatIf};
