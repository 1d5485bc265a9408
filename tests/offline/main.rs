//! What needs no server and no clock.

mod command;
mod rules;
mod slot;
//! Tests without a network: corpora, simulation, promises about types and sizes.

mod resp;
