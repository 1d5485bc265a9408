//! Decoding replies whole and in pieces, walking them, and writing commands.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hedgerow::resp::{Decoder, Limits, Protocol, Step, encode};

const REPLIES: usize = 1_000;

fn decoder() -> Decoder {
    Decoder::new(Protocol::Resp3, Limits::default())
}

/// Decodes all frames of `bytes`; gives how many and how long their payloads are.
fn drain(decoder: &mut Decoder, mut bytes: &[u8]) -> (usize, usize) {
    let (mut frames, mut payload) = (0, 0);
    while let Ok(Step::Frame(frame)) = decoder.decode(bytes) {
        frames += 1;
        payload += black_box(frame.payload()).len();
        bytes = &bytes[frame.len_raw()..];
    }
    (frames, payload)
}

fn repeat(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    (0..REPLIES).for_each(|_| write(&mut out));
    out
}

fn inputs() -> [(&'static str, Vec<u8>); 6] {
    let array = |out: &mut Vec<u8>| {
        encode::array_header(out, 10);
        (0..10).for_each(|_| encode::bulk(out, &[b'x'; 64]));
    };
    [
        ("bulk_64", repeat(|out| encode::bulk(out, &[b'x'; 64]))),
        ("bulk_4096", repeat(|out| encode::bulk(out, &[b'x'; 4096]))),
        ("ok", repeat(|out| encode::simple(out, "OK"))),
        ("int", repeat(|out| encode::int(out, 123_456))),
        ("null", repeat(|out| encode::null(out, Protocol::Resp3))),
        ("array_10", repeat(array)),
    ]
}

fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode_whole");
    group.throughput(Throughput::Elements(REPLIES as u64));
    for (name, bytes) in inputs() {
        let mut decoder = decoder();
        assert_eq!(drain(&mut decoder, &bytes).0, REPLIES);
        group.bench_function(name, |b| b.iter(|| drain(&mut decoder, black_box(&bytes))));
    }
    group.finish();
}

/// The same bytes as they come in pieces of 1,000: most pieces end inside a reply.
fn pieces(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode_pieces");
    group.throughput(Throughput::Elements(REPLIES as u64));
    for (name, bytes) in inputs() {
        let mut decoder = decoder();
        group.bench_function(name, |b| {
            b.iter(|| {
                let (mut start, mut frames) = (0, 0);
                for end in (1_000..bytes.len()).step_by(1_000).chain([bytes.len()]) {
                    while let Ok(Step::Frame(frame)) = decoder.decode(&bytes[start..end]) {
                        start += frame.len_raw();
                        frames += 1;
                    }
                }
                assert_eq!(frames, REPLIES);
            });
        });
    }
    group.finish();
}

fn walk(c: &mut Criterion) {
    let mut bytes = Vec::new();
    encode::array_header(&mut bytes, REPLIES);
    (0..REPLIES).for_each(|_| encode::bulk(&mut bytes, &[b'x'; 64]));
    let mut group = c.benchmark_group("walk");
    group.throughput(Throughput::Elements(REPLIES as u64));
    group.bench_function("array_1000", |b| {
        let mut decoder = decoder();
        let Ok(Step::Frame(frame)) = decoder.decode(&bytes) else { panic!("a whole frame") };
        b.iter(|| black_box(frame).elements().map(|one| one.payload().len()).sum::<usize>());
    });
    group.finish();
}

fn write(c: &mut Criterion) {
    let set: [&[u8]; 3] = [b"SET", b"key:000000001", &[0; 64]];
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(REPLIES as u64));
    group.bench_function("set_64", |b| {
        b.iter_batched_ref(
            || Vec::with_capacity(1 << 20),
            |out| (0..REPLIES).for_each(|_| encode::command(out, &set)),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, whole, pieces, walk, write);
criterion_main!(benches);
