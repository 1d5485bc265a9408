//! Any run of operations on a connection ends and leaves nothing behind.
#![no_main]

#[path = "../operations.rs"]
mod operations;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| operations::run(input));
