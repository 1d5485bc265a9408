//! Wall time of what a command passes through; `instructions` counts the same work.

mod inputs;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn parts(c: &mut Criterion) {
    c.bench_function("encode_get", |b| b.iter(inputs::get));
    c.bench_function("encode_set_64", |b| b.iter(inputs::set));
    let get = inputs::get();
    c.bench_function("slot", |b| b.iter(|| inputs::slot(&get)));
    let (bulks, array) = (inputs::bulks(), inputs::array());
    c.bench_function("decode_100_bulks", |b| b.iter(|| inputs::decode(black_box(&bulks), 16_384)));
    c.bench_function("decode_in_pieces", |b| b.iter(|| inputs::decode(black_box(&bulks), 50)));
    c.bench_function("decode_array_100", |b| b.iter(|| inputs::decode(black_box(&array), 16_384)));
}

fn road(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulated_get");
    group.throughput(Throughput::Elements(inputs::GETS)).sample_size(10);
    for tasks in [1, 64] {
        group.bench_function(format!("{tasks}_tasks"), |b| b.iter(|| inputs::simulated(tasks)));
        group.bench_function(format!("{tasks}_tasks_armed"), |b| b.iter(|| inputs::armed(tasks)));
    }
    group.finish();
}

criterion_group!(benches, parts, road);
criterion_main!(benches);
