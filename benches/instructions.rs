//! Instruction counts of what a command passes through, under valgrind: no noise touches them.
//! `road` measures the wall time of the same work.

#![allow(missing_docs)] // The attribute below makes public modules without documentation.

mod inputs;

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use hedgerow::command::Command;

#[library_benchmark]
fn encode_get() -> Command<()> {
    inputs::get()
}

#[library_benchmark]
fn encode_set_64() -> Command<()> {
    inputs::set()
}

#[library_benchmark]
#[bench::of_a_get(inputs::get())]
fn slot(command: Command<()>) -> Option<u16> {
    inputs::slot(&command)
}

#[library_benchmark]
#[bench::bulks_whole(inputs::bulks(), 16_384)]
#[bench::bulks_in_pieces(inputs::bulks(), 50)]
#[bench::array(inputs::array(), 16_384)]
fn decode(bytes: Vec<u8>, piece: usize) -> usize {
    inputs::decode(black_box(&bytes), piece)
}

#[library_benchmark]
#[bench::one_task(1)]
#[bench::tasks_64(64)]
fn simulated_gets_2000(tasks: u64) -> u64 {
    inputs::simulated(tasks)
}

library_benchmark_group!(
    name = road,
    benchmarks = [encode_get, encode_set_64, slot, decode, simulated_gets_2000]
);
main!(library_benchmark_groups = road);
