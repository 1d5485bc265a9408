//! Servers that misbehave, and the server that plays them.

mod faults;
mod raw;
mod requests;
mod script;
mod server;
