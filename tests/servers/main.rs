//! What only real servers can prove. `tests/run` (or `tests/servers/fetch`) puts them in place.

mod command_table;
mod server;
mod start;
