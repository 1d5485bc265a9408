//! Tests without a network: corpora, simulation, promises about types and sizes.

mod command;
mod hedging;
mod operations;
mod promises;
mod resp;
mod retention;
mod rules;
mod simulation;
mod slot;
mod uri;
