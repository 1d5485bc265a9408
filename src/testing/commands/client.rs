//! CLIENT and its subcommands.

use super::connection::{BAD_NAME, is_printable};
use super::{
    Context, Failure, Outcome, Row, SYNTAX, integer, is, row, track, unknown_subcommand,
    wrong_arity,
};
use crate::testing::guest::Guest;
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[row("client", -2, client)];

/// One subcommand: its name, its arity with both words, and what it does.
type Subcommand = (&'static str, i32, fn(&mut Context<'_>, Args<'_>) -> Outcome);

const SUBCOMMANDS: &[Subcommand] = &[
    ("caching", 3, track::caching),
    ("getname", 2, getname),
    ("id", 2, id),
    ("info", 2, info),
    ("kill", -3, kill),
    ("list", -2, list),
    ("no-evict", 3, |context, args| {
        context.guest.no_evict = on_or_off(args)?;
        reply::ok(context.out);
        Ok(())
    }),
    ("no-touch", 3, |context, args| {
        context.guest.no_touch = on_or_off(args)?;
        reply::ok(context.out);
        Ok(())
    }),
    ("setinfo", 4, setinfo),
    ("setname", 3, setname),
    ("tracking", -3, track::tracking),
];

fn client(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = SUBCOMMANDS.iter().find(|(name, _, _)| is(args.at(1), name));
    let (name, arity, run) = found.ok_or_else(|| unknown_subcommand("CLIENT", args.at(1)))?;
    let wanted = arity.unsigned_abs() as usize;
    if (*arity > 0 && args.len() != wanted) || args.len() < wanted {
        return Err(wrong_arity(&format!("client|{name}")));
    }
    run(context, args)
}

fn on_or_off(args: Args<'_>) -> Result<bool, Failure> {
    match args.at(2) {
        word if is(word, "ON") => Ok(true),
        word if is(word, "OFF") => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

fn id(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    reply::int(context.out, i64::try_from(context.guest.id).unwrap_or(i64::MAX));
    Ok(())
}

fn getname(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let name = Some(context.guest.name.as_slice()).filter(|name| !name.is_empty());
    reply::bulk_or_null(context.out, context.guest.protocol, name);
    Ok(())
}

fn setname(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !is_printable(args.at(2)) {
        return Err(BAD_NAME.into());
    }
    context.guest.name = args.at(2).to_vec();
    reply::ok(context.out);
    Ok(())
}

fn setinfo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (attribute, value) = (args.at(2), args.at(3));
    let (name, place) = if is(attribute, "LIB-NAME") {
        ("lib-name", &mut context.guest.library_name)
    } else if is(attribute, "LIB-VER") {
        ("lib-ver", &mut context.guest.library_version)
    } else {
        let attribute = String::from_utf8_lossy(attribute);
        return Err(format!("ERR Unrecognized option '{attribute}'").into());
    };
    if !is_printable(value) {
        let text = "cannot contain spaces, newlines or special characters.";
        return Err(format!("ERR {name} {text}").into());
    }
    *place = value.to_vec();
    reply::ok(context.out);
    Ok(())
}

/// The line of CLIENT LIST, with the fields that mean something here.
fn line(guest: &Guest, now_ms: u64) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let age_s = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    let flags = if guest.no_evict { "e" } else { "N" };
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} \
         flags={flags} db={} cmd={} user={} lib-name={} lib-ver={} resp={}\n",
        guest.id,
        guest.address,
        guest.local_address,
        text(&guest.name),
        age_s(guest.created_ms),
        age_s(guest.last_used_ms),
        guest.database,
        guest.last_command,
        guest.user,
        text(&guest.library_name),
        text(&guest.library_version),
        reply::protocol_number(guest.protocol),
    )
}

fn info(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let line = line(context.guest, context.now_ms);
    reply::text(context.out, context.guest.protocol, &line);
    Ok(())
}

/// All connections, the asking one in its place.
fn each(context: &Context<'_>, row: &mut dyn FnMut(&Guest)) {
    let mut own = Some(&*context.guest);
    context.roster.each(&mut |other| {
        if let Some(guest) = own.take_if(|guest| guest.id < other.id) {
            row(guest);
        }
        row(other);
    });
    if let Some(guest) = own {
        row(guest);
    }
}

fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let filter = Filter::read(args, 2)?;
    let mut lines = String::new();
    each(context, &mut |guest| {
        if filter.hits(guest) {
            lines.push_str(&line(guest, context.now_ms));
        }
    });
    reply::text(context.out, context.guest.protocol, &lines);
    Ok(())
}

/// Which connections CLIENT LIST and CLIENT KILL mean. Every condition must hold.
#[derive(Default)]
struct Filter<'a> {
    ids: Vec<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// `TYPE` named something other than ordinary connections, of which there are none.
    nobody: bool,
}

impl<'a> Filter<'a> {
    fn read(args: Args<'a>, from: usize) -> Result<Self, Failure> {
        let mut filter = Self::default();
        let mut at = from;
        while at < args.len() {
            if at + 1 == args.len() {
                return Err(SYNTAX.into());
            }
            let (option, value) = (args.at(at), args.at(at + 1));
            at += 2;
            match option {
                _ if is(option, "ID") => {
                    filter.ids.push(client_id(value)?);
                    // CLIENT LIST takes several.
                    while let Some(id) = (at < args.len()).then(|| client_id(args.at(at)).ok()) {
                        let Some(id) = id else { break };
                        filter.ids.push(id);
                        at += 1;
                    }
                }
                _ if is(option, "ADDR") => filter.address = Some(value),
                _ if is(option, "LADDR") => filter.local_address = Some(value),
                _ if is(option, "USER") => filter.user = Some(value),
                _ if is(option, "TYPE") => filter.nobody |= !ordinary(value)?,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    fn hits(&self, guest: &Guest) -> bool {
        let is_same = |asked: Option<&[u8]>, text: &str| asked.is_none_or(|a| a == text.as_bytes());
        !self.nobody
            && (self.ids.is_empty() || self.ids.contains(&guest.id))
            && is_same(self.address, &guest.address)
            && is_same(self.local_address, &guest.local_address)
            && is_same(self.user, &guest.user)
    }
}

fn client_id(arg: &[u8]) -> Result<u64, Failure> {
    let id = integer(arg).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
    id.ok_or_else(|| "ERR client-id should be greater than 0".into())
}

/// True for the type of ordinary connections.
fn ordinary(name: &[u8]) -> Result<bool, Failure> {
    if is(name, "normal") {
        return Ok(true);
    }
    if ["master", "primary", "replica", "slave", "pubsub"].iter().any(|other| is(name, other)) {
        return Ok(false);
    }
    Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)).into())
}

fn kill(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old_form = args.len() == 3;
    let mut skip_me = true;
    let filter = if old_form {
        // `CLIENT KILL address` ends its own connection too.
        skip_me = false;
        Filter { address: Some(args.at(2)), ..Filter::default() }
    } else {
        let last_two = args.len() - 2;
        if args.len() >= 4 && is(args.at(last_two), "SKIPME") {
            skip_me = !is(args.at(last_two + 1), "no");
            Filter::read(args.up_to(last_two), 2)?
        } else {
            Filter::read(args, 2)?
        }
    };
    let own = context.guest.id;
    let mut hit = Vec::new();
    each(context, &mut |guest| {
        if filter.hits(guest) && !(skip_me && guest.id == own) {
            hit.push(guest.id);
        }
    });
    if old_form {
        if hit.is_empty() {
            return Err("ERR No such client".into());
        }
        reply::ok(context.out);
    } else {
        reply::count(context.out, hit.len());
    }
    for id in hit {
        if id == own {
            context.guest.closing = true;
        } else {
            context.kills.push(id);
        }
    }
    Ok(())
}
