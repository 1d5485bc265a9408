//! A RESP server in this process, for tests: a well-behaved one that can be told to misbehave.

mod clock;
mod commands;
mod decimal;
mod delay;
mod event_loop;
mod faults;
mod guest;
mod inbox;
mod keyspace;
mod pattern;
mod peer;
mod reply;
mod request;
mod script;
mod script_connection;
mod script_server;
mod server;
mod sorted_set;
mod stats;
mod stream;
mod timer;
mod tracking;

pub use clock::ManualClock;
pub use delay::Delay;
pub use faults::{Admission, Close, Cut, Faults};
pub use script::{Gate, Script};
pub use script_server::{Received, ScriptServer, ScriptServerBuilder};
pub use server::{Builder, Server};
pub use stats::Stats;
