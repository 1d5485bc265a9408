//! A model of a server inside a [`Simulation`](super::Simulation).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hedgerow_runtime::sim::{ConnId, SimNet};
use hedgerow_runtime::time::Instant;

use super::cluster_map::Place;
use super::model_connection::{Guest, Visitor};
use super::simulation::Log;
use crate::config::{Endpoint, Options};

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
pub(super) type Values = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

type Rule = Box<dyn FnMut(&Asked<'_>) -> Reaction>;

/// A server of strings in memory: GET, SET, DEL, UNLINK, INCR, MGET, MSET, EXISTS, TOUCH, SCAN, KEYS,
/// DBSIZE, FLUSHALL, ECHO, PING, and what a connection's set-up asks (HELLO, AUTH, SELECT, CLIENT, ROLE,
/// INFO). It is a primary, or a replica that [`Simulation::replica`](super::Simulation::replica) made, or a
/// node of a [`ModelCluster`](super::ModelCluster). It records what it read, and misbehaves by a rule of
/// the test. Clones are the same server.
///
/// It runs on the simulation's clock, and belongs to its [`Simulation`](super::Simulation).
#[derive(Clone)]
pub struct ModelServer {
    net: SimNet,
    at: SocketAddr,
    model: Rc<RefCell<Model>>,
}

/// The server itself, as its network sees it.
pub(super) struct Model {
    pub(super) at: SocketAddr,
    pub(super) log: Log,
    pub(super) guests: BTreeMap<ConnId, Guest>,
    pub(super) connections: u64,
    /// A replica's are those of its primary.
    pub(super) values: Rc<RefCell<Values>>,
    /// Outside of a cluster: it follows a primary.
    pub(super) replica: bool,
    /// A replica's link to its primary is up.
    pub(super) linked: bool,
    /// Its place in a cluster.
    pub(super) place: Option<Place>,
    /// Bytes of the replication stream.
    pub(super) offset: u64,
    pub(super) zone: Option<String>,
    pub(super) password: Option<String>,
    pub(super) resp3: bool,
    /// How long a request takes.
    pub(super) takes: Duration,
    pub(super) rule: Option<Rule>,
    pub(super) records: bool,
    pub(super) seen: Vec<Seen>,
    /// What was left of connections that ended in the middle of a request.
    pub(super) partial: Vec<Vec<u8>>,
}

impl ModelServer {
    pub(super) fn start(net: &SimNet, at: SocketAddr, log: Log) -> ModelServer {
        let model = Rc::new(RefCell::new(Model {
            at,
            log,
            guests: BTreeMap::new(),
            connections: 0,
            values: Rc::default(),
            replica: false,
            linked: true,
            place: None,
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
        (model.values, model.replica, model.linked) = (values, true, true);
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.at
    }

    /// Makes it a node of a cluster.
    pub(super) fn join(&self, place: Place) {
        let mut model = self.model.borrow_mut();
        model.values = place.values();
        model.place = Some(place);
    }

    /// Makes a replica a primary, as a failover does: ROLE says so from now on. In a cluster
    /// [`ModelCluster::fail_over`](super::ModelCluster::fail_over) does that, and this does nothing.
    pub fn promote(&self) {
        self.model.borrow_mut().replica = false;
    }

    /// Whether a replica's link to its primary is up, default `true`.
    pub fn set_linked(&self, linked: bool) {
        self.model.borrow_mut().linked = linked;
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

    /// A connection of the test's own, without network and time.
    pub fn visit(&self) -> Visitor {
        Visitor::new(self.model.clone())
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
