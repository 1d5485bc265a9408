//! What needs no server and no clock.

mod command;
mod rules;
mod slot;
