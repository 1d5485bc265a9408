//! Servers that misbehave, the server that plays them, and clients that meet them.

mod cancel;
mod faults;
mod handshake;
mod placement;
mod raw;
mod requests;
mod script;
mod server;
