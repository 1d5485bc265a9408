//! Inside monoio.
