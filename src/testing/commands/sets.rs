//! Sets.

use super::scan::Scan;
use super::{Context, Failure, Keys, Outcome, Row, SYNTAX, WRONG_TYPE, reads, row};
use crate::testing::keyspace::{Bytes, Set, Value};
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[
    row("sadd", -3, sadd),
    reads("scard", 2, Keys::First, scard),
    reads("sismember", 3, Keys::First, sismember),
    reads("smembers", 2, Keys::First, smembers),
    reads("smismember", -3, Keys::First, smismember),
    row("srem", -3, srem),
    reads("sscan", -3, Keys::First, sscan),
];

fn set<'a>(context: &'a mut Context<'_>, key: &[u8]) -> Result<Option<&'a mut Set>, Failure> {
    match context.entry(key).map(|entry| &mut entry.value) {
        Some(Value::Set(set)) => Ok(Some(set)),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(None),
    }
}

fn sadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let empty = || Value::Set(Set::default());
    let added = context.change(args.at(1), empty, |value| match value {
        Value::Set(set) => Ok(args.from(2).filter(|member| set.insert(member.to_vec())).count()),
        _ => Err(WRONG_TYPE.into()),
    })?;
    reply::count(context.out, added);
    Ok(())
}

fn srem(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = match set(context, args.at(1))? {
        Some(set) => args.from(2).filter(|member| set.swap_remove(*member)).count(),
        None => 0,
    };
    context.changed(args.at(1), removed > 0);
    reply::count(context.out, removed);
    Ok(())
}

fn scard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let length = set(context, args.at(1))?.map_or(0, |set| set.len());
    reply::count(context.out, length);
    Ok(())
}

fn sismember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let there = set(context, args.at(1))?.is_some_and(|set| set.contains(args.at(2)));
    reply::int(context.out, i64::from(there));
    Ok(())
}

fn smismember(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let set = set(context, args.at(1))?;
    let there: Vec<bool> =
        args.from(2).map(|member| set.as_ref().is_some_and(|set| set.contains(member))).collect();
    reply::array(context.out, there.len());
    there.into_iter().for_each(|there| reply::int(context.out, i64::from(there)));
    Ok(())
}

fn smembers(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let members: Vec<Bytes> =
        set(context, args.at(1))?.map_or_else(Vec::new, |set| set.iter().cloned().collect());
    reply::set(context.out, context.guest.protocol, members.len());
    members.iter().for_each(|member| reply::bulk(context.out, member));
    Ok(())
}

fn sscan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scan = Scan::read(args, 2)?;
    if scan.type_name.is_some() || scan.no_values {
        return Err(SYNTAX.into());
    }
    let mut found = Vec::new();
    let mut next = 0;
    if let Some(set) = set(context, args.at(1))? {
        let positions = scan.positions(set.len());
        next = positions.start;
        let seen = positions.rev().filter_map(|at| set.get_index(at));
        found.extend(seen.filter(|member| scan.wants(member)).cloned());
    }
    super::scanned(context, next, &found);
    Ok(())
}
