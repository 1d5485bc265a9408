//! A model of a server inside a [`Simulation`](super::Simulation).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hedgerow_runtime::sim::{ConnId, Peer, PeerOut, SimNet};
use hedgerow_runtime::time::Instant;

use super::reply::{self, Protocol};
use super::request::{Parser, Step, number};
use super::simulation::Log;
use crate::config::{Endpoint, Options};

/// How much of a key a record keeps, in bytes.
const KEY_KEPT: usize = 64;
/// Between the two parts of a split answer.
const SPLIT_FOR: Duration = Duration::from_micros(300);

/// What a model server does with one request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Reaction {
    /// Runs it and answers.
    #[default]
    Serve,
    /// Runs it now and answers so much later; what follows on the connection waits behind.
    ServeAfter(Duration),
    /// Runs it, sends so many bytes of the answer (at most all but one), and ends the connection.
    HalfAnswer(usize),
    /// Runs it, and ends the connection instead of answering.
    RunAndClose,
    /// Runs it, and resets the connection instead of answering.
    RunAndReset,
    /// Ends the connection without running it.
    Close,
    /// Does not run it, and ends the connection so much later.
    CloseAfter(Duration),
    /// Runs it, sends the answer's first bytes (so many, at most all), and the rest a moment later.
    SplitAt(usize),
    /// Runs it, answers, and ends the connection.
    ServeAndClose,
    /// Runs it and never answers; answers to later requests would take its place, so none come.
    Silence,
    /// Does not run it, and sends these bytes as its answer.
    Answer(Vec<u8>),
    /// As [`Reaction::Answer`], so much later.
    AnswerAfter(Duration, Vec<u8>),
    /// Sends these bytes (a push frame, an attribute), then runs it and answers.
    Before(Vec<u8>),
    /// Runs it and answers; then reads nothing for so long, as a process that was stopped.
    Pause(Duration),
}

/// A request that came to a model server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// When.
    pub at: Instant,
    /// The connection it came on, numbered from 1 in the order of their making.
    pub connection: u64,
    /// Its place on that connection, from 0.
    pub number: u64,
    /// Name and arguments.
    pub args: &'a [&'a [u8]],
}

/// What a model server remembers of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// When it was read.
    pub at: Instant,
    /// The connection it came on, numbered from 1 in the order of their making.
    pub connection: u64,
    /// The command's name in capitals.
    pub name: String,
    /// Its first argument, up to 64 bytes.
    pub key: Vec<u8>,
    /// Whether it was run.
    pub ran: bool,
}

/// Values by database and key.
type Values = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

type Rule = Box<dyn FnMut(&Asked<'_>) -> Reaction>;

/// A server of strings in memory: GET, SET, DEL, INCR, SCAN, ECHO, PING, and what a connection's set-up
/// asks (HELLO, AUTH, SELECT, CLIENT, ROLE, INFO). It is a primary, or a replica that
/// [`Simulation::replica`](super::Simulation::replica) made. It records what it read, and misbehaves by a
/// rule of the test. Clones are the same server.
///
/// It runs on the simulation's clock, and belongs to its [`Simulation`](super::Simulation).
#[derive(Clone)]
pub struct ModelServer {
    net: SimNet,
    at: SocketAddr,
    model: Rc<RefCell<Model>>,
}

struct Model {
    at: SocketAddr,
    log: Log,
    guests: BTreeMap<ConnId, Guest>,
    connections: u64,
    /// A replica's are those of its primary.
    values: Rc<RefCell<Values>>,
    /// Its link to its primary is up; `None` for a primary.
    replica: Option<bool>,
    /// Bytes of the replication stream.
    offset: u64,
    zone: Option<String>,
    password: Option<String>,
    resp3: bool,
    /// How long a request takes.
    takes: Duration,
    rule: Option<Rule>,
    records: bool,
    seen: Vec<Seen>,
    /// What was left of connections that ended in the middle of a request.
    partial: Vec<Vec<u8>>,
}

struct Guest {
    number: u64,
    unread: Vec<u8>,
    parser: Parser,
    protocol: Protocol,
    database: u32,
    authenticated: bool,
    asked: u64,
    /// Ended, or silent for good.
    over: bool,
}

impl ModelServer {
    pub(super) fn start(net: &SimNet, at: SocketAddr, log: Log) -> ModelServer {
        let model = Rc::new(RefCell::new(Model {
            at,
            log,
            guests: BTreeMap::new(),
            connections: 0,
            values: Rc::default(),
            replica: None,
            offset: 0,
            zone: None,
            password: None,
            resp3: true,
            takes: Duration::from_micros(2),
            rule: None,
            records: true,
            seen: Vec::new(),
            partial: Vec::new(),
        }));
        let server = ModelServer { net: net.clone(), at, model };
        server.resume();
        server
    }

    /// Makes it a replica of `primary`, whose values it has at once.
    pub(super) fn follow(&self, primary: &ModelServer) {
        let values = primary.model.borrow().values.clone();
        let mut model = self.model.borrow_mut();
        (model.values, model.replica) = (values, Some(true));
    }

    /// Makes a replica a primary, as a failover does: ROLE says so from now on.
    pub fn promote(&self) {
        self.model.borrow_mut().replica = None;
    }

    /// Whether a replica's link to its primary is up, default `true`.
    pub fn set_linked(&self, linked: bool) {
        let mut model = self.model.borrow_mut();
        model.replica = model.replica.map(|_| linked);
    }

    /// Bytes of the replication stream that it has sent, or taken, as ROLE tells; default 0.
    pub fn set_offset(&self, offset: u64) {
        self.model.borrow_mut().offset = offset;
    }

    /// The zone that HELLO and INFO name, default none.
    pub fn set_zone(&self, zone: impl Into<String>) {
        self.model.borrow_mut().zone = Some(zone.into());
    }

    /// How often a command (in capitals) was read so far, whatever became of it.
    pub fn count(&self, name: &str) -> usize {
        self.model.borrow().seen.iter().filter(|seen| seen.name == name).count()
    }

    /// Where it listens.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::tcp(self.at.ip().to_string(), self.at.port())
    }

    /// Default options for it.
    pub fn options(&self) -> Options {
        Options::new(self.endpoint())
    }

    /// Asks for a password from now on.
    pub fn set_password(&self, password: impl Into<String>) {
        self.model.borrow_mut().password = Some(password.into());
    }

    /// Whether it knows HELLO and RESP3, default `true`.
    pub fn set_resp3(&self, known: bool) {
        self.model.borrow_mut().resp3 = known;
    }

    /// How long it takes over a request, default 2 us.
    pub fn set_duration(&self, takes: Duration) {
        self.model.borrow_mut().takes = takes;
    }

    /// Whether it records what it reads, default `true`. A run of millions of requests is better off
    /// without.
    pub fn set_recording(&self, on: bool) {
        self.model.borrow_mut().records = on;
    }

    /// Decides from now on what becomes of each request, set-up included.
    pub fn on_request(&self, rule: impl FnMut(&Asked<'_>) -> Reaction + 'static) {
        self.model.borrow_mut().rule = Some(Box::new(rule));
    }

    /// Refuses new connections and resets those that exist.
    pub fn stop(&self) {
        self.net.unlisten(self.at);
        self.net.cut(self.at);
    }

    /// Listens again, with its values.
    pub fn resume(&self) {
        self.net.listen_shared(self.at, self.model.clone());
    }

    /// Resets the connections that exist.
    pub fn cut(&self) {
        self.net.cut(self.at);
    }

    /// Sets the value under `key` in database 0, without a client.
    pub fn set_value(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let values = self.model.borrow().values.clone();
        values.borrow_mut().insert((0, key.as_ref().to_vec()), value.as_ref().to_vec());
    }

    /// The value under `key` in database 0.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let values = self.model.borrow().values.clone();
        let values = values.borrow();
        values.get(&(0, key.as_ref().to_vec())).cloned()
    }

    /// All whole requests it has read, in order, set-up included.
    pub fn seen(&self) -> Vec<Seen> {
        self.model.borrow().seen.clone()
    }

    /// Bytes of requests of which only a part came.
    pub fn partial(&self) -> Vec<Vec<u8>> {
        let model = self.model.borrow();
        let open = model.guests.values().map(|g| g.unread.clone());
        model.partial.iter().cloned().chain(open).filter(|p| !p.is_empty()).collect()
    }

    /// Connections that were accepted so far.
    pub fn connections(&self) -> u64 {
        self.model.borrow().connections
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Peer for Model {
    fn on_connect(&mut self, _now: Instant, conn: ConnId, _out: &mut PeerOut) {
        self.connections += 1;
        let number = self.connections;
        self.log.add(format_args!("server {}: connection {number}", self.at.ip()));
        self.guests.insert(conn, Guest::new(number, self.password.is_none()));
    }

    fn on_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8], out: &mut PeerOut) {
        let Some(mut guest) = self.guests.remove(&conn) else { return };
        guest.unread.extend_from_slice(bytes);
        let mut used = 0;
        while !guest.over {
            let unread = &guest.unread[used..];
            match guest.parser.parse(unread, guest.authenticated) {
                Step::More(_) => break,
                Step::Broken(text) => {
                    let mut answer = Vec::new();
                    reply::error(&mut answer, &format!("ERR Protocol error: {text}"));
                    out.send(conn, self.takes, answer);
                    out.end(conn, self.takes);
                    guest.over = true;
                }
                Step::Request => {
                    let args = guest.parser.args(unread);
                    let args: Vec<Vec<u8>> = args.from(0).map(<[u8]>::to_vec).collect();
                    used += guest.parser.finish();
                    self.serve(now, conn, &mut guest, &args, out);
                }
            }
        }
        guest.unread.drain(..used);
        self.guests.insert(conn, guest);
    }

    fn on_close(&mut self, _now: Instant, conn: ConnId) {
        let Some(guest) = self.guests.remove(&conn) else { return };
        self.log.add(format_args!("server {}: end of connection {}", self.at.ip(), guest.number));
        if !guest.unread.is_empty() {
            self.partial.push(guest.unread);
        }
    }
}

impl Guest {
    fn new(number: u64, authenticated: bool) -> Guest {
        Guest {
            number,
            unread: Vec::new(),
            parser: Parser::default(),
            protocol: Protocol::Resp2,
            database: 0,
            authenticated,
            asked: 0,
            over: false,
        }
    }
}

impl Model {
    fn serve(
        &mut self,
        now: Instant,
        conn: ConnId,
        guest: &mut Guest,
        args: &[Vec<u8>],
        out: &mut PeerOut,
    ) {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let asked = Asked { at: now, connection: guest.number, number: guest.asked, args: &args };
        guest.asked += 1;
        let reaction = self.rule.as_mut().map_or(Reaction::Serve, |rule| rule(&asked));
        let runs = !matches!(
            reaction,
            Reaction::Close
                | Reaction::CloseAfter(_)
                | Reaction::Answer(_)
                | Reaction::AnswerAfter(..)
        );
        self.record(&asked, runs);
        let mut answer = Vec::new();
        if runs {
            self.run(guest, &args, &mut answer);
        }
        let takes = self.takes;
        match reaction {
            Reaction::Serve => out.send(conn, takes, answer),
            Reaction::ServeAfter(more) => out.send(conn, takes + more, answer),
            Reaction::Answer(bytes) => out.send(conn, takes, bytes),
            Reaction::AnswerAfter(more, bytes) => out.send(conn, takes + more, bytes),
            Reaction::CloseAfter(more) => {
                out.end(conn, takes + more);
                guest.over = true;
            }
            Reaction::Before(bytes) => {
                out.send(conn, takes, bytes);
                out.send(conn, takes, answer);
            }
            Reaction::Pause(time) => {
                out.send(conn, takes, answer);
                out.pause_reading(conn, time);
            }
            Reaction::HalfAnswer(n) => {
                answer.truncate(n.min(answer.len().saturating_sub(1)));
                out.send(conn, takes, answer);
                out.end(conn, takes);
                guest.over = true;
            }
            Reaction::SplitAt(n) => {
                let rest = answer.split_off(n.min(answer.len()));
                out.send(conn, takes, answer);
                out.send(conn, takes + SPLIT_FOR, rest);
            }
            Reaction::ServeAndClose => {
                out.send(conn, takes, answer);
                out.end(conn, takes);
                guest.over = true;
            }
            Reaction::RunAndClose | Reaction::Close => {
                out.end(conn, takes);
                guest.over = true;
            }
            Reaction::RunAndReset => {
                out.reset(conn, takes);
                guest.over = true;
            }
            Reaction::Silence => guest.over = true,
        }
    }

    fn record(&mut self, asked: &Asked<'_>, ran: bool) {
        if !self.records {
            return;
        }
        let word = |at: usize| asked.args.get(at).copied().unwrap_or_default();
        let name = String::from_utf8_lossy(word(0)).to_ascii_uppercase();
        let key = word(1)[..word(1).len().min(KEY_KEPT)].to_vec();
        let shown = String::from_utf8_lossy(&key);
        self.log.add(format_args!(
            "server {}: {} on connection {}",
            self.at.ip(),
            format!("{name} {shown}").trim_end(),
            asked.connection
        ));
        self.seen.push(Seen { at: asked.at, connection: asked.connection, name, key, ran });
    }

    fn run(&mut self, guest: &mut Guest, args: &[&[u8]], out: &mut Vec<u8>) {
        let word = |at: usize| args.get(at).copied().unwrap_or_default();
        let name = word(0).to_ascii_uppercase();
        if !guest.authenticated && !matches!(&name[..], b"HELLO" | b"AUTH") {
            return reply::error(out, "NOAUTH Authentication required.");
        }
        let at = (guest.database, word(1).to_vec());
        match (&name[..], args.len()) {
            (b"HELLO", _) if self.resp3 => self.hello(guest, args, out),
            (b"AUTH", 2..) => self.authenticate(guest, word(args.len() - 1), out),
            (b"SELECT", 2) => match number(word(1)).and_then(|n| u32::try_from(n).ok()) {
                Some(database @ 0..16) => {
                    guest.database = database;
                    reply::ok(out);
                }
                _ => reply::error(out, "ERR DB index is out of range"),
            },
            (b"CLIENT", _) => reply::ok(out),
            (b"ROLE", 1) => self.role(out),
            (b"INFO", _) => reply::bulk(out, self.info().as_bytes()),
            (b"PING", 1) => reply::simple(out, "PONG"),
            (b"PING" | b"ECHO", 2) => reply::bulk(out, word(1)),
            (b"GET", 2) => {
                let values = self.values.borrow();
                reply::bulk_or_null(out, guest.protocol, values.get(&at).map(Vec::as_slice));
            }
            (b"SCAN", 2..) => self.scan(guest.database, number(word(1)).unwrap_or(0), out),
            (b"SET" | b"DEL" | b"INCR", 2..) if self.replica.is_some() => {
                reply::error(out, "READONLY You can't write against a read only replica.");
            }
            (b"SET", 3) => {
                self.values.borrow_mut().insert(at, word(2).to_vec());
                reply::ok(out);
            }
            (b"DEL", 2) => {
                let gone = self.values.borrow_mut().remove(&at).is_some();
                reply::int(out, i64::from(gone));
            }
            (b"INCR", 2) => {
                let mut values = self.values.borrow_mut();
                let value = values.get(&at).map_or(Some(0), |v| number(v));
                match value.map(|value| value.wrapping_add(1)) {
                    Some(value) => {
                        values.insert(at, value.to_string().into_bytes());
                        reply::int(out, value);
                    }
                    None => reply::error(out, "ERR value is not an integer or out of range"),
                }
            }
            _ => {
                let name = String::from_utf8_lossy(word(0));
                reply::error(out, &format!("ERR unknown command '{name}'"));
            }
        }
    }

    fn role(&self, out: &mut Vec<u8>) {
        let offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        match self.replica {
            None => {
                reply::array(out, 3);
                reply::bulk(out, b"master");
                reply::int(out, offset);
                reply::array(out, 0);
            }
            Some(linked) => {
                reply::array(out, 5);
                reply::bulk(out, b"slave");
                reply::bulk(out, b"10.0.0.1");
                reply::int(out, 6379);
                reply::bulk(out, if linked { b"connected" } else { b"connect" });
                reply::int(out, offset);
            }
        }
    }

    fn info(&self) -> String {
        let zone = self.zone.iter().map(|zone| format!("availability_zone:{zone}\r\n"));
        format!("# Server\r\nredis_version:7.2.4\r\n{}", zone.collect::<String>())
    }

    /// One key a page; the cursor is how many came before.
    fn scan(&self, database: u32, cursor: i64, out: &mut Vec<u8>) {
        let values = self.values.borrow();
        let at = usize::try_from(cursor).unwrap_or(0);
        let mut keys = values.keys().filter(|(of, _)| *of == database).skip(at);
        let key = keys.next();
        let next = if keys.next().is_some() { at + 1 } else { 0 };
        reply::array(out, 2);
        reply::bulk(out, next.to_string().as_bytes());
        reply::array(out, usize::from(key.is_some()));
        if let Some((_, key)) = key {
            reply::bulk(out, key);
        }
    }

    fn hello(&mut self, guest: &mut Guest, args: &[&[u8]], out: &mut Vec<u8>) {
        let protocol = match args.get(1).copied() {
            None => guest.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(_) => return reply::error(out, "NOPROTO unsupported protocol version"),
        };
        if let Some(at) = args.iter().position(|w| w.eq_ignore_ascii_case(b"AUTH")) {
            let mut refused = Vec::new();
            self.authenticate(guest, args.get(at + 2).copied().unwrap_or_default(), &mut refused);
            if !guest.authenticated {
                return out.extend(refused);
            }
        }
        if !guest.authenticated {
            return reply::error(out, "NOAUTH HELLO must be called with the client authenticated");
        }
        guest.protocol = protocol;
        reply::map(out, protocol, 2 + usize::from(self.zone.is_some()));
        if let Some(zone) = &self.zone {
            reply::bulk(out, b"availability_zone");
            reply::bulk(out, zone.as_bytes());
        }
        reply::bulk(out, b"server");
        reply::bulk(out, b"redis");
        reply::bulk(out, b"proto");
        reply::int(out, reply::protocol_number(protocol));
    }

    fn authenticate(&self, guest: &mut Guest, password: &[u8], out: &mut Vec<u8>) {
        match &self.password {
            Some(right) if right.as_bytes() == password => {
                guest.authenticated = true;
                reply::ok(out);
            }
            Some(_) => {
                guest.authenticated = false;
                reply::error(out, "WRONGPASS invalid username-password pair");
            }
            None => reply::error(out, "ERR AUTH called without any password configured"),
        }
    }
}
