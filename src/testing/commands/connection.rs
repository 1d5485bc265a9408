//! The connection itself: greeting, login, database.

use super::{Context, Failure, NOT_AN_INTEGER, Outcome, Row, integer, is, row, wrong_arity};
use crate::testing::keyspace::DATABASES;
use crate::testing::reply::{self, Protocol};
use crate::testing::request::Args;
use crate::testing::standing::Part;

pub(super) const ROWS: &[Row] = &[
    row("auth", -2, auth),
    row("echo", 2, echo),
    row("hello", -1, hello),
    row("ping", -1, ping),
    row("quit", -1, quit),
    row("reset", 1, reset),
    row("select", 2, select),
];

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured \
     for the default user. Are you sure your configuration is correct?";
const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already \
     authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
     authenticate the client and select the RESP protocol version at the same time";
pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

fn ping(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => reply::simple(context.out, "PONG"),
        2 => reply::bulk(context.out, args.at(1)),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

fn echo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply::bulk(context.out, args.at(1));
    Ok(())
}

fn quit(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.guest.closing = true;
    reply::ok(context.out);
    Ok(())
}

fn reset(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.guest.reset(context.state.profile.is_open());
    context.state.tracking.stop(context.guest.id);
    reply::simple(context.out, "RESET");
    Ok(())
}

fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let index = integer(args.at(1)).map_err(|_| NOT_AN_INTEGER)?;
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    context.guest.database = index.ok_or("ERR DB index is out of range")?;
    reply::ok(context.out);
    Ok(())
}

fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if context.state.profile.is_open() => return Err(NO_PASSWORD_SET.into()),
        2 => log_in(context, b"default", args.at(1))?,
        3 => log_in(context, args.at(1), args.at(2))?,
        _ => return Err(super::SYNTAX.into()),
    }
    reply::ok(context.out);
    Ok(())
}

fn log_in(context: &mut Context<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let user = std::str::from_utf8(user).map_err(|_| WRONG_PASSWORD)?;
    if !context.state.profile.admits(user, password) {
        return Err(WRONG_PASSWORD.into());
    }
    user.clone_into(&mut context.guest.user);
    context.guest.authenticated = true;
    Ok(())
}

/// True when a client name or library attribute has only printable characters without blanks.
pub(super) fn is_printable(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

/// What HELLO was asked for.
#[derive(Default)]
struct Greeting<'a> {
    protocol: Option<Protocol>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Greeting<'a> {
    fn read(args: Args<'a>, speaks_resp3: bool) -> Result<Self, Failure> {
        let mut greeting = Self::default();
        if args.len() == 1 {
            return Ok(greeting);
        }
        let version = integer(args.at(1))
            .map_err(|_| "ERR Protocol version is not an integer or out of range")?;
        greeting.protocol = Some(match version {
            2 => Protocol::Resp2,
            3 if speaks_resp3 => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        });
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if is(args.at(at), "AUTH") && left >= 2 {
                greeting.login = Some((args.at(at + 1), args.at(at + 2)));
                at += 3;
            } else if is(args.at(at), "SETNAME") && left >= 1 {
                greeting.name = Some(args.at(at + 1));
                at += 2;
            } else {
                let option = String::from_utf8_lossy(args.at(at));
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
        Ok(greeting)
    }
}

fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let greeting = Greeting::read(args, context.state.profile.speaks_resp3)?;
    if let Some((user, password)) = greeting.login {
        log_in(context, user, password)?;
    }
    if !context.guest.authenticated {
        return Err(HELLO_NEEDS_AUTH.into());
    }
    if let Some(name) = greeting.name {
        if !is_printable(name) {
            return Err(BAD_NAME.into());
        }
        context.guest.name = name.to_vec();
    }
    if let Some(protocol) = greeting.protocol {
        context.guest.protocol = protocol;
    }
    greet(context);
    Ok(())
}

fn greet(context: &mut Context<'_>) {
    let protocol = context.guest.protocol;
    let facts = context.state.profile.standing.facts();
    let out = &mut *context.out;
    reply::map(out, protocol, 7 + usize::from(facts.zone.is_some()));
    reply::bulk(out, b"server");
    reply::bulk(out, b"redis");
    reply::bulk(out, b"version");
    reply::bulk(out, context.state.profile.version.as_bytes());
    reply::bulk(out, b"proto");
    reply::int(out, reply::protocol_number(protocol));
    reply::bulk(out, b"id");
    reply::int(out, i64::try_from(context.guest.id).unwrap_or(i64::MAX));
    reply::bulk(out, b"mode");
    reply::bulk(out, b"standalone");
    reply::bulk(out, b"role");
    let is_primary = matches!(facts.part, Part::Primary(_));
    reply::bulk(out, if is_primary { b"master" } else { b"replica" });
    reply::bulk(out, b"modules");
    reply::array(out, 0);
    if let Some(zone) = facts.zone {
        reply::bulk(out, b"availability_zone");
        reply::bulk(out, zone.as_bytes());
    }
}
