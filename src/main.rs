//! The `hedgerow` program.
#![forbid(unsafe_code)]

fn main() {}
