//! Servers that misbehave, the server that plays them, and clients that meet them.

mod cancel;
mod close;
mod deadlines;
mod faults;
mod handshake;
mod hostile;
mod placement;
mod raw;
mod reconnect;
mod requests;
mod script;
mod server;
