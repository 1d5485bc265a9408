//! Tests without a network: corpora, simulation, promises about types and sizes.

mod resp;
