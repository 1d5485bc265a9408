//! Keys of any type.

use super::scan::Scan;
use super::strings::Unit;
use super::{Context, Failure, Keys, NO_SUCH_KEY, Outcome, Row, SYNTAX, integer, is, reads, row};
use crate::testing::keyspace::Bytes;
use crate::testing::pattern;
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[
    row("dbsize", 1, dbsize),
    row("del", -2, del),
    reads("exists", -2, Keys::All, exists),
    row("expire", -3, |context, args| expire(context, args, "expire", Unit::Seconds, true)),
    row("expireat", -3, |context, args| expire(context, args, "expireat", Unit::Seconds, false)),
    reads("expiretime", 2, Keys::First, |context, args| {
        expiry(context, args, Unit::Seconds, false)
    }),
    row("flushall", -1, |context, args| flush(context, args, true)),
    row("flushdb", -1, |context, args| flush(context, args, false)),
    row("keys", 2, keys),
    row("persist", 2, persist),
    row("pexpire", -3, |context, args| expire(context, args, "pexpire", Unit::Millis, true)),
    row("pexpireat", -3, |context, args| expire(context, args, "pexpireat", Unit::Millis, false)),
    reads("pexpiretime", 2, Keys::First, |context, args| {
        expiry(context, args, Unit::Millis, false)
    }),
    reads("pttl", 2, Keys::First, |context, args| expiry(context, args, Unit::Millis, true)),
    row("randomkey", 1, randomkey),
    row("rename", 3, rename),
    row("renamenx", 3, renamenx),
    row("scan", -2, scan),
    reads("touch", -2, Keys::All, exists),
    reads("ttl", 2, Keys::First, |context, args| expiry(context, args, Unit::Seconds, true)),
    reads("type", 2, Keys::First, type_of),
    row("unlink", -2, del),
];

fn del(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = args.from(1).filter(|key| context.take(key).is_some()).count();
    reply::count(context.out, count);
    Ok(())
}

fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = args.from(1).filter(|key| context.entry(key).is_some()).count();
    reply::count(context.out, count);
    Ok(())
}

fn type_of(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = context.entry(args.at(1)).map_or("none", |entry| entry.value.type_name());
    reply::simple(context.out, name);
    Ok(())
}

/// The condition that EXPIRE may carry.
fn allows(args: Args<'_>, before_ms: Option<u64>, at_ms: u64) -> Result<bool, Failure> {
    let [mut nx, mut xx, mut gt, mut lt] = [false; 4];
    for option in args.from(3) {
        match option {
            _ if is(option, "NX") => nx = true,
            _ if is(option, "XX") => xx = true,
            _ if is(option, "GT") => gt = true,
            _ if is(option, "LT") => lt = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unsupported option {option}").into());
            }
        }
    }
    if nx && (xx || gt || lt) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    // A key without expiry counts as one that lives for ever.
    let before = before_ms.unwrap_or(u64::MAX);
    Ok(!(nx && before_ms.is_some()
        || xx && before_ms.is_none()
        || gt && at_ms <= before
        || lt && at_ms >= before))
}

fn expire(
    context: &mut Context<'_>,
    args: Args<'_>,
    name: &str,
    unit: Unit,
    relative: bool,
) -> Outcome {
    let factor = match unit {
        Unit::Seconds => 1000,
        Unit::Millis => 1,
    };
    let from_ms = if relative { i64::try_from(context.now_ms).unwrap_or(i64::MAX) } else { 0 };
    let given_ms = integer(args.at(2))?.checked_mul(factor);
    let at_ms = given_ms.and_then(|given_ms| given_ms.checked_add(from_ms));
    let at_ms = at_ms.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let at_ms = u64::try_from(at_ms).unwrap_or(0);
    let key = args.at(1);
    let before = context.entry(key).map(|entry| entry.expires_ms);
    let done = match before {
        Some(before_ms) if allows(args, before_ms, at_ms)? => {
            if at_ms <= context.now_ms {
                context.take(key);
            } else {
                context.expire(key, Some(at_ms));
            }
            true
        }
        _ => false,
    };
    reply::int(context.out, i64::from(done));
    Ok(())
}

fn persist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let expiring = context.entry(args.at(1)).is_some_and(|entry| entry.expires_ms.is_some());
    if expiring {
        context.expire(args.at(1), None);
    }
    reply::int(context.out, i64::from(expiring));
    Ok(())
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME: -2 without the key, -1 without an expiry.
fn expiry(context: &mut Context<'_>, args: Args<'_>, unit: Unit, relative: bool) -> Outcome {
    let now_ms = context.now_ms;
    let answer = match context.entry(args.at(1)).map(|entry| entry.expires_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => {
            let ms = if relative { at_ms.saturating_sub(now_ms) } else { at_ms };
            let answer = match unit {
                Unit::Millis => ms,
                // TTL rounds to the nearest second; a point in time is cut.
                Unit::Seconds if relative => ms.saturating_add(500) / 1000,
                Unit::Seconds => ms / 1000,
            };
            i64::try_from(answer).unwrap_or(i64::MAX)
        }
    };
    reply::int(context.out, answer);
    Ok(())
}

fn keys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let database = context.state.database(context.guest.database);
    let all = database.list(context.now_ms);
    let found: Vec<&Bytes> = all.keys().filter(|key| pattern::fits(args.at(1), key)).collect();
    reply::array(context.out, found.len());
    found.into_iter().for_each(|key| reply::bulk(context.out, key));
    Ok(())
}

fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = Scan::read(args, 1)?;
    if scan.no_values {
        return Err(SYNTAX.into());
    }
    let database = context.state.database(context.guest.database);
    let all = database.list(context.now_ms);
    let positions = scan.positions(all.len());
    let next = positions.start.to_string();
    let seen = positions.rev().filter_map(|at| all.get_index(at));
    let found: Vec<&Bytes> = seen
        .filter(|(key, entry)| {
            let name = entry.value.type_name();
            scan.wants(key) && scan.type_name.is_none_or(|wanted| is(wanted, name))
        })
        .map(|(key, _)| key)
        .collect();
    reply::array(context.out, 2);
    reply::bulk(context.out, next.as_bytes());
    reply::array(context.out, found.len());
    found.into_iter().for_each(|key| reply::bulk(context.out, key));
    Ok(())
}

fn dbsize(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let now_ms = context.now_ms;
    let count = context.db().len(now_ms);
    reply::count(context.out, count);
    Ok(())
}

fn flush(context: &mut Context<'_>, args: Args<'_>, all: bool) -> Outcome {
    let known = args.from(1).all(|option| is(option, "ASYNC") || is(option, "SYNC"));
    if !known || args.len() > 2 {
        return Err(SYNTAX.into());
    }
    if all {
        context.state.databases().for_each(|database| database.clear());
    } else {
        context.db().clear();
    }
    context.touch_all();
    reply::ok(context.out);
    Ok(())
}

fn rename(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let entry = context.take(args.at(1)).ok_or(NO_SUCH_KEY)?;
    context.put(args.at(2), entry.value, entry.expires_ms);
    reply::ok(context.out);
    Ok(())
}

fn renamenx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.entry(args.at(1)).is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    let free = context.entry(args.at(2)).is_none();
    if free && let Some(entry) = context.take(args.at(1)) {
        context.put(args.at(2), entry.value, entry.expires_ms);
    }
    reply::int(context.out, i64::from(free));
    Ok(())
}

fn randomkey(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let database = context.state.database(context.guest.database);
    let all = database.list(context.now_ms);
    let at = if all.is_empty() { 0 } else { fastrand::usize(..all.len()) };
    let key = all.get_index(at).map(|(key, _)| key.as_slice());
    reply::bulk_or_null(context.out, context.guest.protocol, key);
    Ok(())
}
