//! The commands that the server knows: one table, one file per group.

mod client;
mod connection;
mod hashes;
mod introspection;
mod keys;
mod lists;
mod scan;
mod sets;
mod sorted_sets;
mod strings;
mod track;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::guest::Guest;
use super::keyspace::{Bytes, DATABASES, Database, Entry, Value};
use super::reply;
use super::request::Args;
use super::standing::Standing;
use super::stats::Counters;
use super::tracking::Tracking;

/// The error of a command on a value of another type.
pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(super) const NO_SUCH_KEY: &str = "ERR no such key";

/// How a command ended: its reply is written, or this error is the reply.
pub(super) type Outcome = Result<(), Failure>;

/// An error reply, code word first.
#[derive(Debug)]
pub(super) enum Failure {
    Fixed(&'static str),
    Worded(String),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Fixed(text) => text,
            Self::Worded(text) => text,
        }
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Worded(text)
    }
}

/// What a server is, apart from its connections and data.
#[derive(Debug)]
pub(super) struct Profile {
    /// Password of each user; `default` is there only when it needs one.
    pub(super) users: HashMap<String, Bytes>,
    /// A server from before HELLO.
    pub(super) knows_hello: bool,
    /// Refuses `HELLO 3` as a server without RESP3 does.
    pub(super) speaks_resp3: bool,
    pub(super) version: String,
    pub(super) port: u16,
    pub(super) started_ms: u64,
    pub(super) standing: Standing,
}

impl Profile {
    /// True when a fresh connection may do everything.
    pub(super) fn is_open(&self) -> bool {
        !self.users.contains_key("default")
    }

    /// Checks a login.
    pub(super) fn admits(&self, user: &str, password: &[u8]) -> bool {
        match self.users.get(user) {
            Some(expected) => expected == password,
            // Without a password, the default user takes any.
            None => user == "default",
        }
    }
}

/// The other connections, as CLIENT LIST and CLIENT KILL need them.
pub(super) trait Roster {
    /// Calls `row` for each connection but the one that asks, in the order of their ids.
    fn each(&self, row: &mut dyn FnMut(&Guest));
}

/// One row of the command table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    arity: i32,
    keys: Keys,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
}

impl Row {
    /// Whether it reads the keys that it names.
    pub(super) fn reads_keys(&self) -> bool {
        self.keys != Keys::None
    }
}

/// Where the keys of a reading command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    None,
    First,
    All,
}

/// A command that reads keys, for tracking.
const fn reads(
    name: &'static str,
    arity: i32,
    keys: Keys,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Row {
    Row { name, arity, keys, run }
}

/// Any other command.
const fn row(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Row {
    Row { name, arity, keys: Keys::None, run }
}

/// The command table of a server.
#[derive(Debug)]
pub(super) struct Table {
    rows: HashMap<&'static [u8], &'static Row, RandomState>,
}

impl Table {
    pub(super) fn new() -> Self {
        let rows = GROUPS.iter().flat_map(|rows| rows.iter());
        Self { rows: rows.map(|row| (row.name.as_bytes(), row)).collect() }
    }

    /// Finds a command, whatever the case of its letters.
    pub(super) fn find(&self, name: &[u8]) -> Option<&'static Row> {
        let mut folded = [0u8; NAME_MAX];
        let folded = folded.get_mut(..name.len())?;
        for (lower, byte) in folded.iter_mut().zip(name) {
            *lower = byte.to_ascii_lowercase();
        }
        self.rows.get(&*folded).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// No command of the table has a longer name.
const NAME_MAX: usize = 32;

const GROUPS: &[&[Row]] = &[
    client::ROWS,
    connection::ROWS,
    hashes::ROWS,
    introspection::ROWS,
    keys::ROWS,
    lists::ROWS,
    sets::ROWS,
    sorted_sets::ROWS,
    strings::ROWS,
];

/// Data and description of one server.
#[derive(Debug)]
pub(super) struct State {
    databases: [Database; DATABASES],
    pub(super) profile: Profile,
    pub(super) table: Table,
    pub(super) tracking: Tracking,
}

impl State {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            databases: Default::default(),
            profile,
            table: Table::new(),
            tracking: Tracking::default(),
        }
    }

    pub(super) fn database(&mut self, index: usize) -> &mut Database {
        &mut self.databases[index % DATABASES]
    }

    pub(super) fn databases(&mut self) -> impl Iterator<Item = &mut Database> {
        self.databases.iter_mut()
    }
}

/// What a command works on.
pub(super) struct Context<'a> {
    pub(super) guest: &'a mut Guest,
    pub(super) state: &'a mut State,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) roster: &'a dyn Roster,
    pub(super) counters: &'a Counters,
    /// Connections to be closed after this command.
    pub(super) kills: &'a mut Vec<u64>,
    pub(super) now_ms: u64,
}

impl Context<'_> {
    /// The selected database.
    pub(super) fn db(&mut self) -> &mut Database {
        self.state.database(self.guest.database)
    }

    /// The live entry of a key.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now_ms = self.now_ms;
        self.db().get_mut(key, now_ms)
    }

    /// Puts a value, in the place of whatever was there.
    pub(super) fn put(&mut self, key: &[u8], value: Value, expires_ms: Option<u64>) {
        self.db().put(key, value, expires_ms);
        self.touch(key);
    }

    /// Takes a key out.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let now_ms = self.now_ms;
        let entry = self.db().remove(key, now_ms);
        if entry.is_some() {
            self.touch(key);
        }
        entry
    }

    /// Sets or clears the expiry of a key.
    pub(super) fn expire(&mut self, key: &[u8], at_ms: Option<u64>) {
        let now_ms = self.now_ms;
        if self.db().expire(key, at_ms, now_ms) {
            self.touch(key);
        }
    }

    /// Runs `change` on the value of a key, made by `empty` if there is none. Leaves no hollow
    /// container behind.
    fn change<T>(
        &mut self,
        key: &[u8],
        empty: impl FnOnce() -> Value,
        change: impl FnOnce(&mut Value) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let now_ms = self.now_ms;
        let value = self.db().value_or_insert(key, now_ms, empty);
        let outcome = change(value);
        self.changed(key, outcome.is_ok());
        outcome
    }

    /// Marks a key as changed, and removes it when its last member has gone.
    fn changed(&mut self, key: &[u8], changed: bool) {
        if changed {
            self.touch(key);
        }
        let now_ms = self.now_ms;
        if self.entry(key).is_some_and(|entry| entry.value.is_hollow()) {
            self.db().remove(key, now_ms);
        }
    }

    /// Tells those who track the key.
    fn touch(&mut self, key: &[u8]) {
        if !self.state.tracking.is_off() {
            self.state.tracking.changed(self.guest.id, key);
        }
    }

    /// Tells all who track anything.
    fn touch_all(&mut self) {
        self.state.tracking.emptied();
    }

    /// Runs one request and writes its reply.
    pub(super) fn run(&mut self, args: Args<'_>) {
        let before = self.out.len();
        if let Err(failure) = self.attempt(args) {
            // A command that fails half way takes back what it wrote: one request, one reply.
            self.out.truncate(before);
            reply::error(self.out, failure.text());
        }
    }

    fn attempt(&mut self, args: Args<'_>) -> Outcome {
        let row = self.state.table.find(args.at(0));
        let row = row.filter(|row| row.name != "hello" || self.state.profile.knows_hello);
        let Some(row) = row else { return Err(unknown(args, self.state.profile.knows_hello)) };
        let wanted = row.arity.unsigned_abs() as usize;
        if (row.arity > 0 && args.len() != wanted) || args.len() < wanted {
            return Err(wrong_arity(row.name));
        }
        if !self.guest.authenticated && !matches!(row.name, "auth" | "hello" | "quit" | "reset") {
            return Err("NOAUTH Authentication required.".into());
        }
        if self.state.profile.standing.refuses(row.name) {
            return Err("READONLY You can't write against a read only replica.".into());
        }
        self.guest.last_command = row.name;
        if self.state.tracking.is_off() {
            return (row.run)(self, args);
        }
        self.run_tracked(row, args)
    }
}

impl Context<'_> {
    /// Runs a command while somebody tracks keys.
    fn run_tracked(&mut self, row: &Row, args: Args<'_>) -> Outcome {
        let id = self.guest.id;
        let outcome = (row.run)(self, args);
        let keys = match row.keys {
            Keys::None => 0,
            Keys::First => 1,
            Keys::All => usize::MAX,
        };
        if outcome.is_ok() {
            self.state.tracking.read(id, args.from(1).take(keys));
        }
        // CLIENT CACHING speaks of the one command behind it.
        if row.name != "client"
            && let Some(mode) = self.state.tracking.mode(id)
        {
            mode.next = None;
        }
        outcome
    }
}

pub(super) fn wrong_arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The wording for a command that is not in the table; servers before HELLO quoted otherwise.
fn unknown(args: Args<'_>, modern: bool) -> Failure {
    let (open, close) = if modern { ("'", "' ") } else { ("`", "`, ") };
    let shown = |bytes: &[u8], room: usize| {
        String::from_utf8_lossy(bytes.get(..room).unwrap_or(bytes)).into_owned()
    };
    let mut listed = String::new();
    for arg in args.from(1) {
        let Some(room) = 128usize.checked_sub(listed.len()).filter(|room| *room > 0) else { break };
        listed.push_str(&format!("{open}{}{close}", shown(arg, room)));
    }
    let name = shown(args.at(0), 128);
    let end = open;
    format!("ERR unknown command {open}{name}{end}, with args beginning with: {listed}").into()
}

/// The wording for a subcommand that is not known.
pub(super) fn unknown_subcommand(parent: &str, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name.get(..128).unwrap_or(name));
    format!("ERR unknown subcommand '{name}'. Try {parent} HELP.").into()
}

/// A whole number argument.
pub(super) fn integer(arg: &[u8]) -> Result<i64, Failure> {
    super::request::number(arg).ok_or(Failure::Fixed(NOT_AN_INTEGER))
}

/// A finite or infinite number argument.
pub(super) fn float(arg: &[u8]) -> Result<f64, Failure> {
    let text = std::str::from_utf8(arg).map_err(|_| NOT_A_FLOAT)?;
    match text.parse::<f64>() {
        Ok(number) if !number.is_nan() => Ok(number),
        _ => Err(NOT_A_FLOAT.into()),
    }
}

/// True when the argument is this option, whatever its case.
pub(super) fn is(arg: &[u8], option: &str) -> bool {
    arg.eq_ignore_ascii_case(option.as_bytes())
}

/// The span of `start..=stop`, where negative places count from the end; `None` when it is empty.
pub(super) fn span(start: i64, stop: i64, length: usize) -> Option<std::ops::Range<usize>> {
    let length_signed = i64::try_from(length).ok()?;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length_signed) } else { at };
    let start = usize::try_from(from_end(start).max(0)).ok()?;
    let stop = usize::try_from(from_end(stop)).ok()?;
    (start <= stop && start < length).then(|| start..stop.saturating_add(1).min(length))
}

/// The reply of the SCAN family: the next cursor and what was found.
fn scanned(context: &mut Context<'_>, next: usize, found: &[Bytes]) {
    reply::array(context.out, 2);
    reply::bulk(context.out, next.to_string().as_bytes());
    reply::array(context.out, found.len());
    found.iter().for_each(|element| reply::bulk(context.out, element));
}
