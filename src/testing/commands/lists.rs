//! Lists.

use std::collections::VecDeque;

use super::{Context, Failure, Keys, Outcome, Row, WRONG_TYPE, integer, reads, row, span};
use crate::testing::keyspace::{Bytes, Value};
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[
    reads("lindex", 3, Keys::First, lindex),
    reads("llen", 2, Keys::First, llen),
    row("lpop", -2, |context, args| pop(context, args, VecDeque::pop_front)),
    row("lpush", -3, |context, args| push(context, args, VecDeque::push_front)),
    reads("lrange", 4, Keys::First, lrange),
    row("rpop", -2, |context, args| pop(context, args, VecDeque::pop_back)),
    row("rpush", -3, |context, args| push(context, args, VecDeque::push_back)),
];

type List = VecDeque<Bytes>;

fn list<'a>(context: &'a mut Context<'_>, key: &[u8]) -> Result<Option<&'a mut List>, Failure> {
    match context.entry(key).map(|entry| &mut entry.value) {
        Some(Value::List(list)) => Ok(Some(list)),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(None),
    }
}

fn push(context: &mut Context<'_>, args: Args<'_>, put: fn(&mut List, Bytes)) -> Outcome {
    let empty = || Value::List(List::new());
    let length = context.change(args.at(1), empty, |value| match value {
        Value::List(list) => {
            args.from(2).for_each(|element| put(list, element.to_vec()));
            Ok(list.len())
        }
        _ => Err(WRONG_TYPE.into()),
    })?;
    reply::count(context.out, length);
    Ok(())
}

fn pop(context: &mut Context<'_>, args: Args<'_>, take: fn(&mut List) -> Option<Bytes>) -> Outcome {
    let protocol = context.guest.protocol;
    let many = args.len() > 2;
    let count = if many {
        let count = usize::try_from(integer(args.at(2))?);
        count.map_err(|_| "ERR value is out of range, must be positive")?
    } else {
        1
    };
    let Some(list) = list(context, args.at(1))? else {
        match many {
            true => reply::null_array(context.out, protocol),
            false => reply::null(context.out, protocol),
        }
        return Ok(());
    };
    let taken: Vec<Bytes> = std::iter::from_fn(|| take(list)).take(count).collect();
    context.changed(args.at(1), !taken.is_empty());
    if many {
        reply::array(context.out, taken.len());
    }
    taken.iter().for_each(|element| reply::bulk(context.out, element));
    Ok(())
}

fn llen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let length = list(context, args.at(1))?.map_or(0, |list| list.len());
    reply::count(context.out, length);
    Ok(())
}

fn lindex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let at = integer(args.at(2))?;
    let element = list(context, args.at(1))?.and_then(|list| {
        let length = i64::try_from(list.len()).ok()?;
        let at = if at < 0 { at.checked_add(length)? } else { at };
        list.get(usize::try_from(at).ok()?).cloned()
    });
    reply::bulk_or_null(context.out, context.guest.protocol, element.as_deref());
    Ok(())
}

fn lrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let found: Vec<Bytes> = match list(context, args.at(1))? {
        Some(list) => {
            let span = span(start, stop, list.len()).unwrap_or(0..0);
            list.range(span).cloned().collect()
        }
        None => Vec::new(),
    };
    reply::array(context.out, found.len());
    found.iter().for_each(|element| reply::bulk(context.out, element));
    Ok(())
}
