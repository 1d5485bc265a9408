//! Servers that misbehave, and the server that plays them.

mod server;
