//! Hashes.

use super::scan::Scan;
use super::{
    Context, Failure, Keys, Outcome, Row, WRONG_TYPE, float, integer, reads, row, wrong_arity,
};
use crate::testing::decimal;
use crate::testing::keyspace::{Hash, Value};
use crate::testing::reply;
use crate::testing::request::{Args, number};

pub(super) const ROWS: &[Row] = &[
    row("hdel", -3, hdel),
    reads("hexists", 3, Keys::First, hexists),
    reads("hget", 3, Keys::First, hget),
    reads("hgetall", 2, Keys::First, hgetall),
    row("hincrby", 4, hincrby),
    row("hincrbyfloat", 4, hincrbyfloat),
    reads("hkeys", 2, Keys::First, |context, args| list(context, args, true)),
    reads("hlen", 2, Keys::First, hlen),
    reads("hmget", -3, Keys::First, hmget),
    row("hmset", -4, hmset),
    reads("hscan", -3, Keys::First, hscan),
    row("hset", -4, hset),
    row("hsetnx", 4, hsetnx),
    reads("hstrlen", 3, Keys::First, hstrlen),
    reads("hvals", 2, Keys::First, |context, args| list(context, args, false)),
];

/// The hash of a key; `None` when there is no such key.
fn hash<'a>(context: &'a mut Context<'_>, key: &[u8]) -> Result<Option<&'a mut Hash>, Failure> {
    match context.entry(key).map(|entry| &mut entry.value) {
        Some(Value::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(None),
    }
}

/// Runs `change` on the hash of a key, made if need be, and marks the key as changed.
fn change<T>(
    context: &mut Context<'_>,
    key: &[u8],
    change: impl FnOnce(&mut Hash) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let empty = || Value::Hash(Hash::default());
    context.change(key, empty, |value| match value {
        Value::Hash(hash) => change(hash),
        _ => Err(WRONG_TYPE.into()),
    })
}

fn set_fields(context: &mut Context<'_>, args: Args<'_>, name: &str) -> Result<usize, Failure> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    change(context, args.at(1), |hash| {
        let fields = (2..args.len()).step_by(2);
        let added = fields
            .filter(|&at| hash.insert(args.at(at).to_vec(), args.at(at + 1).to_vec()).is_none());
        Ok(added.count())
    })
}

fn hset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let added = set_fields(context, args, "hset")?;
    reply::count(context.out, added);
    Ok(())
}

fn hmset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_fields(context, args, "hmset")?;
    reply::ok(context.out);
    Ok(())
}

fn hsetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let absent = hash(context, args.at(1))?.is_none_or(|hash| !hash.contains_key(args.at(2)));
    if absent {
        change(context, args.at(1), |hash| {
            hash.insert(args.at(2).to_vec(), args.at(3).to_vec());
            Ok(())
        })?;
    }
    reply::int(context.out, i64::from(absent));
    Ok(())
}

fn hget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = hash(context, args.at(1))?.and_then(|hash| hash.get(args.at(2)).cloned());
    reply::bulk_or_null(context.out, context.guest.protocol, value.as_deref());
    Ok(())
}

fn hmget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = hash(context, args.at(1))?;
    let values: Vec<_> =
        args.from(2).map(|field| hash.as_ref().and_then(|hash| hash.get(field).cloned())).collect();
    reply::array(context.out, values.len());
    for value in values {
        reply::bulk_or_null(context.out, context.guest.protocol, value.as_deref());
    }
    Ok(())
}

fn hgetall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let protocol = context.guest.protocol;
    let mut out = Vec::new();
    let hash = hash(context, args.at(1))?;
    reply::map(&mut out, protocol, hash.as_ref().map_or(0, |hash| hash.len()));
    for (field, value) in hash.iter().flat_map(|hash| hash.iter()) {
        reply::bulk(&mut out, field);
        reply::bulk(&mut out, value);
    }
    context.out.append(&mut out);
    Ok(())
}

fn list(context: &mut Context<'_>, args: Args<'_>, fields: bool) -> Outcome {
    let mut out = Vec::new();
    let hash = hash(context, args.at(1))?;
    reply::array(&mut out, hash.as_ref().map_or(0, |hash| hash.len()));
    for (field, value) in hash.iter().flat_map(|hash| hash.iter()) {
        reply::bulk(&mut out, if fields { field } else { value });
    }
    context.out.append(&mut out);
    Ok(())
}

fn hlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let length = hash(context, args.at(1))?.map_or(0, |hash| hash.len());
    reply::count(context.out, length);
    Ok(())
}

fn hexists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let there = hash(context, args.at(1))?.is_some_and(|hash| hash.contains_key(args.at(2)));
    reply::int(context.out, i64::from(there));
    Ok(())
}

fn hstrlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = hash(context, args.at(1))?.and_then(|hash| hash.get(args.at(2)));
    let length = value.map_or(0, Vec::len);
    reply::count(context.out, length);
    Ok(())
}

fn hdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = match hash(context, args.at(1))? {
        // The last field moves into the hole, as scans need it.
        Some(hash) => args.from(2).filter(|field| hash.swap_remove(*field).is_some()).count(),
        None => 0,
    };
    context.changed(args.at(1), removed > 0);
    reply::count(context.out, removed);
    Ok(())
}

fn hincrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = integer(args.at(3))?;
    let sum = change(context, args.at(1), |hash| {
        let old = hash.get(args.at(2)).map(Vec::as_slice).unwrap_or(b"0");
        let old = number(old).ok_or("ERR hash value is not an integer")?;
        let sum = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        hash.insert(args.at(2).to_vec(), sum.to_string().into_bytes());
        Ok(sum)
    })?;
    reply::int(context.out, sum);
    Ok(())
}

fn hincrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    float(args.at(3))?;
    let sum = change(context, args.at(1), |hash| {
        let old = hash.get(args.at(2)).map(Vec::as_slice).unwrap_or(b"0");
        float(old).map_err(|_| "ERR hash value is not a float")?;
        let sum = decimal::sum(old, args.at(3));
        let sum = sum.ok_or("ERR increment would produce NaN or Infinity")?;
        hash.insert(args.at(2).to_vec(), sum.clone().into_bytes());
        Ok(sum)
    })?;
    reply::bulk(context.out, sum.as_bytes());
    Ok(())
}

fn hscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = Scan::read(args, 2)?;
    if scan.type_name.is_some() {
        return Err(super::SYNTAX.into());
    }
    let mut found = Vec::new();
    let mut next = 0;
    if let Some(hash) = hash(context, args.at(1))? {
        let positions = scan.positions(hash.len());
        next = positions.start;
        let seen = positions.rev().filter_map(|at| hash.get_index(at));
        for (field, value) in seen.filter(|(field, _)| scan.wants(field)) {
            found.push(field.clone());
            if !scan.no_values {
                found.push(value.clone());
            }
        }
    }
    super::scanned(context, next, &found);
    Ok(())
}
