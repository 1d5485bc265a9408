//! Sorted sets.

use super::{
    Context, Failure, Keys, Outcome, Row, SYNTAX, WRONG_TYPE, float, integer, is, reads, row, span,
};
use crate::testing::keyspace::{Bytes, Value};
use crate::testing::reply::{self, Protocol};
use crate::testing::request::Args;
use crate::testing::sorted_set::SortedSet;

pub(super) const ROWS: &[Row] = &[
    row("zadd", -4, zadd),
    reads("zcard", 2, Keys::First, zcard),
    row("zincrby", 4, zincrby),
    reads("zrange", -4, Keys::First, zrange),
    reads("zrank", 3, Keys::First, zrank),
    row("zrem", -3, zrem),
    reads("zscore", 3, Keys::First, zscore),
];

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

fn sorted<'a>(
    context: &'a mut Context<'_>,
    key: &[u8],
) -> Result<Option<&'a mut SortedSet>, Failure> {
    match context.entry(key).map(|entry| &mut entry.value) {
        Some(Value::Sorted(sorted)) => Ok(Some(sorted)),
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(None),
    }
}

fn change<T>(
    context: &mut Context<'_>,
    key: &[u8],
    change: impl FnOnce(&mut SortedSet) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let empty = || Value::Sorted(SortedSet::default());
    context.change(key, empty, |value| match value {
        Value::Sorted(sorted) => change(sorted),
        _ => Err(WRONG_TYPE.into()),
    })
}

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
struct Add {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    changed: bool,
    increment: bool,
}

impl Add {
    /// Reads the options and says where the scores begin.
    fn read(args: Args<'_>) -> Result<(Self, usize), Failure> {
        let mut add = Self::default();
        let mut at = 2;
        loop {
            let option = args.at(at);
            match option {
                _ if is(option, "NX") => add.nx = true,
                _ if is(option, "XX") => add.xx = true,
                _ if is(option, "GT") => add.gt = true,
                _ if is(option, "LT") => add.lt = true,
                _ if is(option, "CH") => add.changed = true,
                _ if is(option, "INCR") => add.increment = true,
                _ => break,
            }
            at += 1;
        }
        let rest = args.len().saturating_sub(at);
        if rest == 0 || !rest.is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        if add.nx && add.xx {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if (add.gt && add.lt) || (add.nx && (add.gt || add.lt)) {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(text.into());
        }
        if add.increment && rest > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok((add, at))
    }

    /// The score to be stored; `None` when the options forbid a change.
    fn score(self, before: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let score = if self.increment { before.unwrap_or(0.0) + given } else { given };
        if score.is_nan() {
            return Err(NOT_A_NUMBER.into());
        }
        let refused = match before {
            Some(before) => self.nx || (self.gt && score <= before) || (self.lt && score >= before),
            None => self.xx,
        };
        Ok((!refused).then_some(score))
    }
}

fn zadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (add, from) = Add::read(args)?;
    let pairs = (from..args.len()).step_by(2);
    let pairs: Result<Vec<_>, Failure> =
        pairs.map(|at| Ok((float(args.at(at))?, args.at(at + 1)))).collect();
    let pairs = pairs?;
    let (added, updated, last) = change(context, args.at(1), |sorted| {
        let (mut added, mut updated, mut last) = (0, 0, None);
        for (given, member) in pairs {
            let before = sorted.score(member);
            last = add.score(before, given)?;
            if let Some(score) = last {
                sorted.insert(member, score);
                added += usize::from(before.is_none());
                updated += usize::from(before.is_some_and(|before| before != score));
            }
        }
        Ok((added, updated, last))
    })?;
    match (add.increment, last) {
        (true, Some(score)) => reply::double(context.out, context.guest.protocol, score),
        (true, None) => reply::null(context.out, context.guest.protocol),
        (false, _) if add.changed => reply::count(context.out, added + updated),
        (false, _) => reply::count(context.out, added),
    }
    Ok(())
}

fn zincrby(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = float(args.at(2))?;
    let score = change(context, args.at(1), |sorted| {
        let score = sorted.score(args.at(3)).unwrap_or(0.0) + by;
        if score.is_nan() {
            return Err(NOT_A_NUMBER.into());
        }
        sorted.insert(args.at(3), score);
        Ok(score)
    })?;
    reply::double(context.out, context.guest.protocol, score);
    Ok(())
}

fn zrem(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = match sorted(context, args.at(1))? {
        Some(sorted) => args.from(2).filter(|member| sorted.remove(member)).count(),
        None => 0,
    };
    context.changed(args.at(1), removed > 0);
    reply::count(context.out, removed);
    Ok(())
}

fn zcard(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let length = sorted(context, args.at(1))?.map_or(0, |sorted| sorted.len());
    reply::count(context.out, length);
    Ok(())
}

fn zscore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let score = sorted(context, args.at(1))?.and_then(|sorted| sorted.score(args.at(2)));
    match score {
        Some(score) => reply::double(context.out, context.guest.protocol, score),
        None => reply::null(context.out, context.guest.protocol),
    }
    Ok(())
}

fn zrank(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let rank = sorted(context, args.at(1))?
        .and_then(|sorted| sorted.iter().position(|(member, _)| member == args.at(2)));
    match rank {
        Some(rank) => reply::count(context.out, rank),
        None => reply::null(context.out, context.guest.protocol),
    }
    Ok(())
}

/// By rank, with REV and WITHSCORES. By score or by text is refused: this server does not do it.
fn zrange(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let [mut reversed, mut scores] = [false; 2];
    for option in args.from(4) {
        match option {
            _ if is(option, "REV") => reversed = true,
            _ if is(option, "WITHSCORES") => scores = true,
            _ if is(option, "BYSCORE") || is(option, "BYLEX") || is(option, "LIMIT") => {
                return Err("ERR the test server knows ZRANGE by rank only".into());
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let found: Vec<(Bytes, f64)> = match sorted(context, args.at(1))? {
        Some(sorted) => {
            let span = span(start, stop, sorted.len()).unwrap_or(0..0);
            let owned = |(member, score): (&[u8], f64)| (member.to_vec(), score);
            if reversed {
                sorted.iter().rev().skip(span.start).take(span.len()).map(owned).collect()
            } else {
                sorted.iter().skip(span.start).take(span.len()).map(owned).collect()
            }
        }
        None => Vec::new(),
    };
    write_members(context.out, context.guest.protocol, &found, scores);
    Ok(())
}

/// With scores, RESP3 nests a pair for each member and RESP2 is flat.
fn write_members(out: &mut Vec<u8>, protocol: Protocol, found: &[(Bytes, f64)], scores: bool) {
    let nested = scores && protocol == Protocol::Resp3;
    let flat_parts = if scores && !nested { 2 } else { 1 };
    reply::array(out, found.len() * flat_parts);
    for (member, score) in found {
        if nested {
            reply::array(out, 2);
        }
        reply::bulk(out, member);
        if scores {
            reply::double(out, protocol, *score);
        }
    }
}
