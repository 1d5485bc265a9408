//! Servers that misbehave, the server that plays them, and clients that meet them.

mod alone;
mod cancel;
mod close;
mod deadlines;
mod descriptors;
mod faults;
mod handshake;
mod hedges;
mod hostile;
mod log;
mod misuse;
mod placement;
mod queue;
mod raw;
mod reconnect;
mod requests;
mod script;
mod server;
mod startup;
mod starve;
