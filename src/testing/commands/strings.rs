//! Strings.

use super::{
    Context, Failure, Keys, NOT_A_FLOAT, Outcome, Row, SYNTAX, Value, WRONG_TYPE, float, integer,
    is, reads, row, wrong_arity,
};
use crate::testing::decimal;
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[
    row("append", 3, append),
    row("decr", 2, |context, args| add(context, args.at(1), -1)),
    row("decrby", 3, decrby),
    reads("get", 2, Keys::First, get),
    row("getdel", 2, getdel),
    row("getex", -2, getex),
    reads("getrange", 4, Keys::First, getrange),
    row("getset", 3, getset),
    row("incr", 2, |context, args| add(context, args.at(1), 1)),
    row("incrby", 3, incrby),
    row("incrbyfloat", 3, incrbyfloat),
    reads("mget", -2, Keys::All, mget),
    row("mset", -3, mset),
    row("msetnx", -3, msetnx),
    row("psetex", 4, |context, args| setex(context, args, "psetex", Unit::Millis)),
    row("set", -3, set),
    row("setex", 4, |context, args| setex(context, args, "setex", Unit::Seconds)),
    row("setnx", 3, setnx),
    row("setrange", 4, setrange),
    reads("strlen", 2, Keys::First, strlen),
    reads("substr", 4, Keys::First, getrange),
];

/// Longest string that APPEND and SETRANGE may make, in bytes.
const TEXT_MAX: usize = 512 * 1024 * 1024;
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The unit of an expiry.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

/// The expiry that an option gives.
#[derive(Clone, Copy)]
enum Expiry {
    At(u64),
    Keep,
    Never,
}

/// An expiry in milliseconds since the epoch, from an argument that must be above zero.
pub(super) fn expiry_ms(
    arg: &[u8],
    unit: Unit,
    from_ms: u64,
    command: &str,
) -> Result<u64, Failure> {
    let invalid = || Failure::Worded(format!("ERR invalid expire time in '{command}' command"));
    let given = u64::try_from(integer(arg)?).ok().filter(|given| *given > 0).ok_or_else(invalid)?;
    let given_ms = match unit {
        Unit::Seconds => given.checked_mul(1000),
        Unit::Millis => Some(given),
    };
    let at_ms = given_ms.and_then(|given_ms| given_ms.checked_add(from_ms));
    at_ms.filter(|at_ms| i64::try_from(*at_ms).is_ok()).ok_or_else(invalid)
}

fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let database = context.state.database(context.guest.database);
    match database.get(args.at(1), context.now_ms).map(|entry| &entry.value) {
        Some(Value::Text(text)) => reply::bulk(context.out, text),
        Some(_) => return Err(WRONG_TYPE.into()),
        None => reply::null(context.out, context.guest.protocol),
    }
    Ok(())
}

/// The text of a key, copied; `None` when there is no such key.
fn text(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    match context.entry(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(None),
    }
}

/// Runs `change` on the text of a key, made empty if there is none.
fn change<T>(
    context: &mut Context<'_>,
    key: &[u8],
    change: impl FnOnce(&mut Vec<u8>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    context.change(
        key,
        || Value::Text(Vec::new()),
        |value| match value {
            Value::Text(text) => change(text),
            _ => Err(WRONG_TYPE.into()),
        },
    )
}

/// What SET was asked beside key and value.
struct SetOptions {
    only_if_absent: bool,
    only_if_present: bool,
    old_value: bool,
    expiry: Expiry,
}

impl SetOptions {
    fn read(args: Args<'_>, now_ms: u64) -> Result<Self, Failure> {
        let mut options = Self {
            only_if_absent: false,
            only_if_present: false,
            old_value: false,
            expiry: Expiry::Never,
        };
        let mut at = 3;
        while at < args.len() {
            let option = args.at(at);
            if is(option, "NX") && !options.only_if_present {
                options.only_if_absent = true;
            } else if is(option, "XX") && !options.only_if_absent {
                options.only_if_present = true;
            } else if is(option, "GET") {
                options.old_value = true;
            } else if matches!(options.expiry, Expiry::Never) {
                options.expiry = expiry_option(args, &mut at, now_ms, "set")?;
                if matches!(options.expiry, Expiry::Never) {
                    return Err(SYNTAX.into());
                }
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Reads EX, PX, EXAT, PXAT, KEEPTTL or PERSIST; leaves `at` at the option's last argument.
fn expiry_option(
    args: Args<'_>,
    at: &mut usize,
    now_ms: u64,
    command: &str,
) -> Result<Expiry, Failure> {
    let option = args.at(*at);
    if command == "set" && is(option, "KEEPTTL") {
        return Ok(Expiry::Keep);
    }
    if command == "getex" && is(option, "PERSIST") {
        return Ok(Expiry::Never);
    }
    let known = [
        ("EX", Unit::Seconds, now_ms),
        ("PX", Unit::Millis, now_ms),
        ("EXAT", Unit::Seconds, 0),
        ("PXAT", Unit::Millis, 0),
    ];
    let found = known.into_iter().find(|(name, _, _)| is(option, name));
    match found.filter(|_| *at + 1 < args.len()) {
        Some((_, unit, from_ms)) => {
            *at += 1;
            Ok(Expiry::At(expiry_ms(args.at(*at), unit, from_ms, command)?))
        }
        None => Err(SYNTAX.into()),
    }
}

fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 3 {
        put_text(context, args.at(1), args.at(2), None);
        reply::ok(context.out);
        return Ok(());
    }
    let options = SetOptions::read(args, context.now_ms)?;
    let key = args.at(1);
    let protocol = context.guest.protocol;
    if options.old_value {
        let old = text(context, key)?;
        reply::bulk_or_null(context.out, protocol, old.as_deref());
    }
    let (present, kept_ms) =
        context.entry(key).map_or((false, None), |entry| (true, entry.expires_ms));
    let refused = (options.only_if_absent && present) || (options.only_if_present && !present);
    if !refused {
        let expires_ms = match options.expiry {
            Expiry::At(at_ms) => Some(at_ms),
            Expiry::Keep => kept_ms,
            Expiry::Never => None,
        };
        put_text(context, key, args.at(2), expires_ms);
    }
    match (options.old_value, refused) {
        (true, _) => {}
        (false, true) => reply::null(context.out, protocol),
        (false, false) => reply::ok(context.out),
    }
    Ok(())
}

/// Stores a text, into the memory of the one before where that fits.
fn put_text(context: &mut Context<'_>, key: &[u8], value: &[u8], expires_ms: Option<u64>) {
    if expires_ms.is_none()
        && let Some(entry) = context.entry(key)
        && let Value::Text(text) = &mut entry.value
        && text.capacity() >= value.len()
        && text.capacity() / 4 <= value.len()
    {
        text.clear();
        text.extend_from_slice(value);
        entry.expires_ms = None;
        context.touch(key);
        return;
    }
    context.put(key, Value::Text(value.to_vec()), expires_ms);
}

fn setnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let absent = context.entry(args.at(1)).is_none();
    if absent {
        put_text(context, args.at(1), args.at(2), None);
    }
    reply::int(context.out, i64::from(absent));
    Ok(())
}

fn setex(context: &mut Context<'_>, args: Args<'_>, name: &str, unit: Unit) -> Outcome {
    let expires_ms = expiry_ms(args.at(2), unit, context.now_ms, name)?;
    put_text(context, args.at(1), args.at(3), Some(expires_ms));
    reply::ok(context.out);
    Ok(())
}

fn getset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = text(context, args.at(1))?;
    reply::bulk_or_null(context.out, context.guest.protocol, old.as_deref());
    put_text(context, args.at(1), args.at(2), None);
    Ok(())
}

fn getdel(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = text(context, args.at(1))?;
    reply::bulk_or_null(context.out, context.guest.protocol, old.as_deref());
    context.take(args.at(1));
    Ok(())
}

fn getex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let change = if args.len() > 2 {
        let mut at = 2;
        let expiry = expiry_option(args, &mut at, context.now_ms, "getex")?;
        if at + 1 != args.len() {
            return Err(SYNTAX.into());
        }
        Some(expiry)
    } else {
        None
    };
    get(context, args)?;
    match change {
        Some(Expiry::At(at_ms)) => context.expire(args.at(1), Some(at_ms)),
        Some(Expiry::Never) => context.expire(args.at(1), None),
        Some(Expiry::Keep) | None => {}
    }
    Ok(())
}

fn mget(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply::array(context.out, args.len() - 1);
    let database = context.state.database(context.guest.database);
    for key in args.from(1) {
        match database.get(key, context.now_ms).map(|entry| &entry.value) {
            Some(Value::Text(text)) => reply::bulk(context.out, text),
            _ => reply::null(context.out, context.guest.protocol),
        }
    }
    Ok(())
}

/// Keys at the odd places with their values behind them.
fn pairs<'a>(
    args: Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a>, Failure> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    Ok((1..args.len()).step_by(2).map(move |at| (args.at(at), args.at(at + 1))))
}

fn mset(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    for (key, value) in pairs(args, "mset")? {
        put_text(context, key, value, None);
    }
    reply::ok(context.out);
    Ok(())
}

fn msetnx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let absent = pairs(args, "msetnx")?.all(|(key, _)| context.entry(key).is_none());
    if absent {
        for (key, value) in pairs(args, "msetnx")? {
            put_text(context, key, value, None);
        }
    }
    reply::int(context.out, i64::from(absent));
    Ok(())
}

fn append(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = length(context, args.at(1))?;
    if old.saturating_add(args.at(2).len()) > TEXT_MAX {
        return Err(TOO_LONG.into());
    }
    let length = change(context, args.at(1), |text| {
        text.extend_from_slice(args.at(2));
        Ok(text.len())
    })?;
    reply::count(context.out, length);
    Ok(())
}

/// The length of the text of a key; 0 when there is no such key.
fn length(context: &mut Context<'_>, key: &[u8]) -> Result<usize, Failure> {
    match context.entry(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => Ok(text.len()),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(0),
    }
}

fn strlen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let length = length(context, args.at(1))?;
    reply::count(context.out, length);
    Ok(())
}

fn incrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = integer(args.at(2))?;
    add(context, args.at(1), by)
}

fn decrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = integer(args.at(2))?;
    let negated = by.checked_neg().ok_or("ERR decrement would overflow")?;
    add(context, args.at(1), negated)
}

fn add(context: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    let old = match context.entry(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => integer(text)?,
        Some(_) => return Err(WRONG_TYPE.into()),
        None => 0,
    };
    let sum = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    change(context, key, |text| {
        text.clear();
        text.extend_from_slice(sum.to_string().as_bytes());
        Ok(())
    })?;
    reply::int(context.out, sum);
    Ok(())
}

fn incrbyfloat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = args.at(2);
    float(by)?;
    let old = text(context, args.at(1))?;
    let old = old.as_deref().unwrap_or(b"0");
    float(old).map_err(|_| NOT_A_FLOAT)?;
    let sum = decimal::sum(old, by).ok_or("ERR increment would produce NaN or Infinity")?;
    change(context, args.at(1), |text| {
        text.clear();
        text.extend_from_slice(sum.as_bytes());
        Ok(())
    })?;
    reply::bulk(context.out, sum.as_bytes());
    Ok(())
}

fn setrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let offset = usize::try_from(integer(args.at(2))?).map_err(|_| "ERR offset is out of range")?;
    let piece = args.at(3);
    if piece.is_empty() {
        return strlen(context, args);
    }
    if offset.saturating_add(piece.len()) > TEXT_MAX {
        return Err(TOO_LONG.into());
    }
    let length = change(context, args.at(1), |text| {
        let end = offset + piece.len();
        if text.len() < end {
            text.resize(end, 0);
        }
        if let Some(place) = text.get_mut(offset..end) {
            place.copy_from_slice(piece);
        }
        Ok(text.len())
    })?;
    reply::count(context.out, length);
    Ok(())
}

fn getrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let text = match context.entry(args.at(1)).map(|entry| &entry.value) {
        Some(Value::Text(text)) => text.as_slice(),
        Some(_) => return Err(WRONG_TYPE.into()),
        None => &[],
    };
    let piece = super::span(start, stop, text.len()).and_then(|span| text.get(span));
    let piece = piece.unwrap_or_default().to_vec();
    reply::bulk(context.out, &piece);
    Ok(())
}
