//! Servers that misbehave, the server that plays them, and clients that meet them.

mod alone;
mod cancel;
mod close;
mod cluster;
mod databases;
mod deadlines;
mod descriptors;
mod faults;
mod handshake;
mod hedges;
mod hostile;
mod log;
mod misuse;
mod nodes;
mod placement;
mod queue;
mod raw;
mod reconnect;
mod redirects;
mod refreshes;
mod requests;
mod script;
mod server;
mod startup;
mod starve;
mod waits;
