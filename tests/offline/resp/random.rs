//! Random trees, written, cut at random and read again.

use bytes::Bytes;
use hedgerow::resp::{Attributed, Protocol::Resp3, Value, encode};

use super::{canon, feed::outcome};

const SEEDS: u64 = 2_000;

/// Fails if a reply that is cut anywhere reads as something else than what was written.
#[test]
fn random_trees_survive_random_splits() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let trees: Vec<_> = (0..random.usize(1..4)).map(|_| tree(&mut random, 4)).collect();
        let mut bytes = Vec::new();
        trees.iter().for_each(|tree| write(&mut bytes, tree, &mut random));
        let got = outcome(Resp3, &pieces(&bytes, &mut random));
        let wanted: Vec<_> = trees.iter().map(canon::value).collect();
        assert_eq!((got.frames, got.state), (wanted, "end"), "seed {seed}");
    }
}

/// Fails if one changed byte makes the decoder panic, or read differently in pieces.
#[test]
fn random_damage_reads_the_same_at_every_split() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        write(&mut bytes, &tree(&mut random, 3), &mut random);
        let at = random.usize(..bytes.len());
        bytes[at] = *random.choice(b"+-:$*_#,(!=%~>|;.?\r\n019a").expect("not empty");
        let whole = outcome(Resp3, &[&bytes]);
        assert_eq!(outcome(Resp3, &pieces(&bytes, &mut random)), whole, "seed {seed}");
    }
}

fn pieces<'a>(mut bytes: &'a [u8], random: &mut fastrand::Rng) -> Vec<&'a [u8]> {
    let longest = random.choice([1, 3, 17, 200]).expect("not empty");
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(random.usize(1..=longest).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn tree(random: &mut fastrand::Rng, depth: usize) -> Value {
    if depth > 0 && random.u8(..8) == 0 {
        let attributes = (0..random.usize(1..3)).map(|_| entries(random, depth - 1)).collect();
        let value = plain(random, depth);
        return Value::Attributed(Box::new(Attributed { attributes, value }));
    }
    plain(random, depth)
}

fn plain(random: &mut fastrand::Rng, depth: usize) -> Value {
    match random.u8(..if depth > 0 { 15 } else { 11 }) {
        0 => Value::Simple(line(random)),
        1 => Value::Error(line(random)),
        2 => Value::Int(random.i64(..) >> random.u32(..64)),
        3 | 4 => Value::Bulk(bytes(random)),
        5 => Value::Null,
        6 => Value::Bool(random.bool()),
        7 => Value::Double(random.choice([0.5, -0.0, 1e300, 5e-324, f64::INFINITY, 3.0]).unwrap()),
        8 => Value::BigNumber(Bytes::from(format!("-{}{}", random.u64(..), random.u64(..)))),
        9 => Value::BulkError(bytes(random)),
        10 => Value::Verbatim { format: *b"txt", text: bytes(random) },
        11 => Value::Array(items(random, depth - 1)),
        12 => Value::Map(entries(random, depth - 1)),
        13 => Value::Set(items(random, depth - 1)),
        _ => Value::Push(items(random, depth - 1)),
    }
}

fn items(random: &mut fastrand::Rng, depth: usize) -> Vec<Value> {
    (0..random.usize(..5)).map(|_| tree(random, depth)).collect()
}

fn entries(random: &mut fastrand::Rng, depth: usize) -> Vec<(Value, Value)> {
    (0..random.usize(..4)).map(|_| (tree(random, depth), tree(random, depth))).collect()
}

fn bytes(random: &mut fastrand::Rng) -> Bytes {
    let longest = random.choice([3, 40, 700]).expect("not empty");
    (0..random.usize(..longest)).map(|_| *random.choice(b"ab\r\n$*:\x00\xff").unwrap()).collect()
}

fn line(random: &mut fastrand::Rng) -> Bytes {
    let longest = random.choice([3, 40, 200]).expect("not empty");
    (0..random.usize(..longest)).map(|_| random.u8(b' '..b'~')).collect()
}

/// Writes a tree; strings and aggregates are streamed now and then.
fn write(out: &mut Vec<u8>, value: &Value, random: &mut fastrand::Rng) {
    match value {
        Value::Simple(text) => encode::simple(out, std::str::from_utf8(text).expect("ASCII")),
        Value::Error(text) => encode::error(out, std::str::from_utf8(text).expect("ASCII")),
        Value::Int(number) => encode::int(out, *number),
        Value::Bulk(text) if random.u8(..4) == 0 => write_chunks(out, text, random),
        Value::Bulk(text) => encode::bulk(out, text),
        Value::Bool(truth) => encode::boolean(out, Resp3, *truth),
        Value::Double(number) => encode::double(out, Resp3, *number),
        Value::BigNumber(digits) => {
            encode::big_number(out, Resp3, std::str::from_utf8(digits).expect("ASCII"));
        }
        Value::BulkError(text) => encode::bulk_error(out, Resp3, text),
        Value::Verbatim { format, text } => encode::verbatim(out, Resp3, *format, text),
        Value::Array(items) => write_list(out, '*', items, random),
        Value::Set(items) => write_list(out, '~', items, random),
        Value::Push(items) => {
            encode::push_header(out, Resp3, items.len());
            items.iter().for_each(|item| write(out, item, random));
        }
        Value::Map(pairs) if random.u8(..4) == 0 => {
            out.extend_from_slice(b"%?\r\n");
            write_pairs(out, pairs, random);
            out.extend_from_slice(b".\r\n");
        }
        Value::Map(pairs) => {
            encode::map_header(out, Resp3, pairs.len());
            write_pairs(out, pairs, random);
        }
        Value::Attributed(inner) => {
            for group in &inner.attributes {
                encode::attribute_header(out, group.len());
                write_pairs(out, group, random);
            }
            write(out, &inner.value, random);
        }
        _ => out.extend_from_slice(random.choice([&b"_\r\n"[..], b"$-1\r\n", b"*-1\r\n"]).unwrap()),
    }
}

fn write_chunks(out: &mut Vec<u8>, text: &[u8], random: &mut fastrand::Rng) {
    out.extend_from_slice(b"$?\r\n");
    for chunk in pieces(text, random) {
        out.extend_from_slice(format!(";{}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b";0\r\n");
}

fn write_list(out: &mut Vec<u8>, tag: char, items: &[Value], random: &mut fastrand::Rng) {
    let streamed = random.u8(..4) == 0;
    match streamed {
        true => out.extend_from_slice(format!("{tag}?\r\n").as_bytes()),
        false => out.extend_from_slice(format!("{tag}{}\r\n", items.len()).as_bytes()),
    }
    items.iter().for_each(|item| write(out, item, random));
    if streamed {
        out.extend_from_slice(b".\r\n");
    }
}

fn write_pairs(out: &mut Vec<u8>, pairs: &[(Value, Value)], random: &mut fastrand::Rng) {
    for (key, value) in pairs {
        write(out, key, random);
        write(out, value, random);
    }
}
