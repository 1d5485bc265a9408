//! The connections of a model server: requests come in, and the test's rule says what becomes of them.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use hedgerow_runtime::sim::{ConnId, Peer, PeerOut};
use hedgerow_runtime::time::Instant;

use super::model_server::{Asked, Model, Reaction, Seen};
use super::reply::{self, Protocol};
use super::request::{Parser, Step};

/// How much of a key a record keeps, in bytes.
const KEY_KEPT: usize = 64;
/// Between the two parts of a split answer.
const SPLIT_FOR: Duration = Duration::from_micros(300);

/// One connection, as its server sees it.
pub(super) struct Guest {
    pub(super) number: u64,
    pub(super) unread: Vec<u8>,
    parser: Parser,
    pub(super) protocol: Protocol,
    pub(super) database: u32,
    pub(super) authenticated: bool,
    /// It said READONLY.
    pub(super) reads_replicas: bool,
    /// It said ASKING just before.
    pub(super) asking: bool,
    asked: u64,
    /// Ended, or silent for good.
    over: bool,
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
            reads_replicas: false,
            asking: false,
            asked: 0,
            over: false,
        }
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
        } else {
            guest.asking = false;
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
}

/// A connection of the test's own to a [`ModelServer`](super::ModelServer): it gets the bytes of an
/// answer, at once. Rules do not see it, and it is not recorded.
///
/// ```
/// let simulation = hedgerow::testing::Simulation::new(1);
/// let mut visitor = simulation.server().visit();
/// assert_eq!(visitor.ask(&["SET", "k", "v"]), "+OK\r\n");
/// assert_eq!(visitor.ask(&["GET", "k"]), "$1\r\nv\r\n");
/// ```
pub struct Visitor {
    model: Rc<RefCell<Model>>,
    guest: Guest,
}

impl Visitor {
    pub(super) fn new(model: Rc<RefCell<Model>>) -> Visitor {
        let authenticated = model.borrow().password.is_none();
        Visitor { model, guest: Guest::new(0, authenticated) }
    }

    /// What the server answers to these words, as on the wire.
    pub fn ask(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut answer = Vec::new();
        self.model.borrow_mut().run(&mut self.guest, &words, &mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("at", &self.model.borrow().at).finish_non_exhaustive()
    }
}
