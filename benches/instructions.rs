//! Instruction counts of what a command passes through, under valgrind: no noise touches them.
//! `road` measures the wall time of the same work.
//!
//! A bench that takes more than its budget fails the run. After a change that pays, write what the
//! run prints into [`MEASURED`].

#![allow(missing_docs)] // The attribute below makes public modules without documentation.

mod inputs;

use std::hint::black_box;

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use hedgerow::command::Command;

/// Instructions of each bench when they were last counted (rustc 1.95, x86-64). That of armed reads is that
/// of unarmed ones: the headroom is all that arming may cost.
const MEASURED: [(&str, u64); 9] = [
    ("encode_get", 154),
    ("encode_set_64", 260),
    ("slot", 406),
    ("decode_bulks_whole", 7_288),
    ("decode_bulks_in_pieces", 58_812),
    ("decode_array", 5_864),
    ("simulated_gets_one_task", 31_297_800),
    ("simulated_gets_tasks_64", 18_763_440),
    ("armed_gets_tasks_64", 18_763_440),
];

/// A budget is so much more than what was measured, in percent.
const HEADROOM: u64 = 15;

/// Fails the bench of this name if it takes more than its budget.
fn budget(name: &str) -> LibraryBenchmarkConfig {
    let measured = MEASURED.iter().find(|(known, _)| *known == name);
    let (_, measured) = measured.unwrap_or_else(|| panic!("{name} has no budget"));
    let limit = (EventKind::Ir, measured + measured * HEADROOM / 100);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([limit]));
    config
}

/// A thread's first command makes what later ones use again; that must not be counted.
fn warm<T>(make: fn() -> T) -> fn() -> T {
    drop(make());
    make
}

#[library_benchmark(config = budget("encode_get"))]
#[bench::warm(warm(inputs::get))]
fn encode_get(make: fn() -> Command<()>) -> Command<()> {
    make()
}

#[library_benchmark(config = budget("encode_set_64"))]
#[bench::warm(warm(inputs::set))]
fn encode_set_64(make: fn() -> Command<()>) -> Command<()> {
    make()
}

#[library_benchmark(config = budget("slot"))]
#[bench::of_a_get(warm(inputs::get)())]
fn slot(command: Command<()>) -> Option<u16> {
    inputs::slot(&command)
}

#[library_benchmark]
#[bench::bulks_whole(args = (inputs::bulks(), 16_384), config = budget("decode_bulks_whole"))]
#[bench::bulks_in_pieces(args = (inputs::bulks(), 50), config = budget("decode_bulks_in_pieces"))]
#[bench::array(args = (inputs::array(), 16_384), config = budget("decode_array"))]
fn decode(bytes: Vec<u8>, piece: usize) -> usize {
    inputs::decode(black_box(&bytes), piece)
}

#[library_benchmark]
#[bench::one_task(args = (1), config = budget("simulated_gets_one_task"))]
#[bench::tasks_64(args = (64), config = budget("simulated_gets_tasks_64"))]
fn simulated_gets_2000(tasks: u64) -> u64 {
    inputs::simulated(tasks)
}

#[library_benchmark]
#[bench::tasks_64(args = (64), config = budget("armed_gets_tasks_64"))]
fn armed_gets_2000(tasks: u64) -> u64 {
    inputs::armed(tasks)
}

library_benchmark_group!(
    name = road,
    benchmarks = [encode_get, encode_set_64, slot, decode, simulated_gets_2000, armed_gets_2000]
);
main!(library_benchmark_groups = road);
