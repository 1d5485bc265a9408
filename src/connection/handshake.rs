//! A connection's set-up: protocol, authentication, name, database.
//!
//! Auto and RESP3 begin with `HELLO 3` (with AUTH and SETNAME inside) and wait for its answer: the
//! one extra round trip. Only an answer that says that HELLO itself is not known, or
//! NOPROTO, leads to RESP2 on the same socket. RESP2 sends AUTH, the name and the database
//! in one go. Errors of the name and of the library's own name are never fatal.

use std::collections::VecDeque;

use crate::config::{Options, ProtocolChoice};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{Frame, Protocol, ServerError, encode};

use super::{Connection, Owner, RoleReply, field_of_info};
use crate::command::Encoded;
use crate::topology::Role;

/// What the set-up has come to.
pub(crate) enum Progress {
    /// More answers are due.
    Waiting,
    /// Commands may follow.
    Ready,
    /// It failed. `permanent`: trying again cannot help.
    Failed { error: Error, permanent: bool },
}

/// Which protocol a set-up settled on, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Resp3,
    /// The server took HELLO 3 and answers in RESP2.
    AnswersInResp2,
    /// The server does not know HELLO.
    KnowsNoHello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Hello,
    Auth,
    Name,
    Select,
    Zone,
    Role,
    /// Of a cluster's replica: reads are welcome.
    ReadOnly,
    /// Of a cluster with databases: the server says what it is.
    Server,
}

/// What a set-up learnt of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    /// Its zone, where it names one.
    pub(crate) zone: Option<String>,
    /// Of a replica: its answer to ROLE.
    pub(crate) role: Option<RoleReply>,
}

/// One set-up under way.
pub(crate) struct Handshake {
    due: VecDeque<Step>,
    protocol: Protocol,
    spoken: Option<Spoken>,
    /// What the node is to be.
    role: Role,
    learnt: Learnt,
}

impl Handshake {
    /// What the node was to be when it began.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Queues the first commands.
    pub(crate) fn start(
        options: &Options,
        role: Role,
        to: &mut Connection,
    ) -> (Handshake, Progress) {
        let mut handshake = Handshake {
            due: VecDeque::new(),
            protocol: Protocol::Resp3,
            spoken: None,
            role,
            learnt: Learnt::default(),
        };
        let progress = match options.protocol {
            ProtocolChoice::Resp2 => handshake.speak_resp2(options, to),
            ProtocolChoice::Auto | ProtocolChoice::Resp3 => {
                // Until the answer is known both protocols are read: RESP3 contains RESP2.
                to.decoder.set_protocol(Protocol::Resp3);
                handshake.hello(options, to);
                Progress::Waiting
            }
        };
        (handshake, progress)
    }

    fn say(&mut self, to: &mut Connection, step: Step, words: &[&[u8]]) {
        enqueue(to, Owner::Setup, words);
        self.due.push_back(step);
    }

    fn hello(&mut self, options: &Options, to: &mut Connection) {
        let mut words: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &options.password {
            let user = options.username.as_deref().unwrap_or("default");
            words.extend([&b"AUTH"[..], user.as_bytes(), password.expose().as_bytes()]);
        }
        if let Some(name) = &options.client_name {
            words.extend([&b"SETNAME"[..], name.as_bytes()]);
        }
        self.say(to, Step::Hello, &words);
    }

    fn speak_resp2(&mut self, options: &Options, to: &mut Connection) -> Progress {
        self.protocol = Protocol::Resp2;
        to.decoder.set_protocol(Protocol::Resp2);
        if let Some(password) = &options.password {
            let password = password.expose().as_bytes();
            match options.username.as_deref() {
                // Servers before 6 know no users: the default one is meant by its password alone.
                None | Some("default") => self.say(to, Step::Auth, &[b"AUTH", password]),
                Some(user) => self.say(to, Step::Auth, &[b"AUTH", user.as_bytes(), password]),
            }
        }
        if let Some(name) = &options.client_name {
            self.say(to, Step::Name, &[b"CLIENT", b"SETNAME", name.as_bytes()]);
        }
        if options.client_availability_zone.is_some() {
            self.say(to, Step::Zone, &[b"INFO", b"SERVER"]);
        }
        self.select(options, to);
        self.finish(to)
    }

    /// Selects the database, and asks a replica what it is: no read may come before its answer.
    ///
    /// In a cluster the topology says what it is, so that it is only told that reads will come. A
    /// database other than 0 has to wait until the server has said that it can have one.
    fn select(&mut self, options: &Options, to: &mut Connection) {
        let in_cluster = options.cluster.is_some();
        if options.database != 0 && in_cluster {
            self.say(to, Step::Server, &[b"INFO", b"SERVER"]);
        } else if options.database != 0 {
            self.say_select(options, to);
        }
        match (self.role, in_cluster) {
            (Role::Replica, true) => self.say(to, Step::ReadOnly, &[b"READONLY"]),
            (Role::Replica, false) => self.say(to, Step::Role, &[b"ROLE"]),
            (Role::Primary, _) => {}
        }
    }

    fn say_select(&mut self, options: &Options, to: &mut Connection) {
        let number = options.database.to_string();
        self.say(to, Step::Select, &[b"SELECT", number.as_bytes()]);
    }

    fn on_server(&mut self, said: &[u8], options: &Options, to: &mut Connection) -> Progress {
        match databases_missing(said) {
            None => {
                self.say_select(options, to);
                self.finish(to)
            }
            Some(what) => {
                let text = format!(
                    "`database`: a cluster has others than 0 from Valkey 9 on, with \
                     `cluster-databases` above 1; this server is {what}"
                );
                Progress::Failed { error: Error::config(text), permanent: true }
            }
        }
    }

    /// Ready, once nothing is due any more; the library's name follows for its effect only.
    fn finish(&self, to: &mut Connection) -> Progress {
        if !self.due.is_empty() {
            return Progress::Waiting;
        }
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        enqueue(to, Owner::Nobody, &[b"CLIENT", b"SETINFO", b"LIB-NAME", b"hedgerow"]);
        enqueue(to, Owner::Nobody, &[b"CLIENT", b"SETINFO", b"LIB-VER", version]);
        Progress::Ready
    }

    /// Which protocol was just settled on, once, for the log.
    pub(crate) fn take_spoken(&mut self) -> Option<Spoken> {
        self.spoken.take()
    }

    /// What it has learnt.
    pub(crate) fn into_learnt(self) -> Learnt {
        self.learnt
    }

    /// Takes the next answer.
    pub(crate) fn on_reply(
        &mut self,
        frame: Frame<'_>,
        options: &Options,
        to: &mut Connection,
    ) -> Progress {
        let Some(step) = self.due.pop_front() else { return Progress::Waiting };
        let error = ServerError::from_frame(&frame);
        match (step, error) {
            (Step::Hello, Some(error)) => self.on_hello_refused(error, options, to),
            (Step::Hello, None) => self.on_hello(frame, options, to),
            // A name is a convenience: some proxies refuse it.
            (Step::Zone, None) => {
                self.learnt.zone = field_of_info(frame.payload(), "availability_zone");
                self.finish(to)
            }
            (Step::Role, None) => self.on_role(frame, to),
            (Step::Server, None) => self.on_server(frame.payload(), options, to),
            (Step::Server, Some(error)) => failed("asking what the server is", error, options),
            (Step::ReadOnly, None) => self.finish(to),
            (Step::ReadOnly, Some(error)) => match failed("READONLY", error, options) {
                // It may be a replica a moment later.
                Progress::Failed { error, .. } => Progress::Failed { error, permanent: false },
                other => other,
            },
            // What the server does not tell is not known.
            (Step::Name | Step::Zone, _) | (Step::Auth | Step::Select, None) => self.finish(to),
            (Step::Role, Some(error)) => match failed("asking for the role", error, options) {
                // It is left alone for an interval, as any replica that cannot be had.
                Progress::Failed { error, .. } => Progress::Failed { error, permanent: false },
                other => other,
            },
            (Step::Auth, Some(error)) => failed("authentication", error, options),
            (Step::Select, Some(error)) if error.is("ERR") && options.cluster.is_some() => {
                let text = format!(
                    "`database`: the cluster has no database {}: {error}; raise `cluster-databases` on \
                     every node",
                    options.database
                );
                let error = Error::config(text).with_server(error);
                Progress::Failed { error, permanent: true }
            }
            (Step::Select, Some(error)) => failed("selecting the database", error, options),
        }
    }

    fn on_role(&mut self, frame: Frame<'_>, to: &mut Connection) -> Progress {
        self.learnt.role = RoleReply::of(&frame);
        match self.learnt.role {
            Some(RoleReply { role: Some(Role::Replica), .. }) => self.finish(to),
            reply => {
                let error = not_a_replica(reply.and_then(|reply| reply.role));
                Progress::Failed { error, permanent: false }
            }
        }
    }

    fn on_hello(&mut self, frame: Frame<'_>, options: &Options, to: &mut Connection) -> Progress {
        self.learnt.zone = zone_of_hello(&frame);
        match protocol_of(&frame) {
            Some(3) => {
                self.protocol = Protocol::Resp3;
                self.spoken = Some(Spoken::Resp3);
            }
            // It took HELLO and answers in RESP2: go on in that, unless RESP3 was demanded.
            Some(2) if options.protocol != ProtocolChoice::Resp3 => {
                self.protocol = Protocol::Resp2;
                to.decoder.set_protocol(Protocol::Resp2);
                self.spoken = Some(Spoken::AnswersInResp2);
            }
            Some(_) => return unusable("the server does not speak RESP3, which was asked for"),
            None => return unusable("the answer to HELLO names no protocol"),
        }
        self.select(options, to);
        self.finish(to)
    }

    fn on_hello_refused(
        &mut self,
        error: ServerError,
        options: &Options,
        to: &mut Connection,
    ) -> Progress {
        let unknown = is_unknown_hello(&error);
        if (unknown || error.is("NOPROTO")) && options.protocol == ProtocolChoice::Auto {
            self.spoken = Some(Spoken::KnowsNoHello);
            return self.speak_resp2(options, to);
        }
        // Another wording is no proof, but may well mean the same.
        let text = error.text().to_ascii_lowercase();
        let about_access = ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|c| error.is(c))
            || text.contains("auth")
            || text.contains("acl")
            || text.contains("permission");
        let looks_unknown = text.contains("unknown") || text.contains("command") || unknown;
        if looks_unknown && !about_access {
            let error = without_password(error, options);
            let text = format!(
                "set-up: HELLO 3: {error}; if the server does not know HELLO, set the protocol to \
                 resp2"
            );
            return Progress::Failed { error: refusal(text, error), permanent: true };
        }
        failed("HELLO 3", error, options)
    }
}

fn enqueue(to: &mut Connection, owner: Owner, words: &[&[u8]]) {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, words);
    to.enqueue(&Encoded::Short(&bytes), owner, 1);
}

/// What an answer to HELLO has under `name`; a RESP3 map or a RESP2 list of pairs.
fn field_of<'a>(frame: &Frame<'a>, name: &[u8]) -> Option<Frame<'a>> {
    let mut elements = frame.elements();
    while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
        if key.payload() == name {
            return Some(value);
        }
    }
    None
}

fn protocol_of(frame: &Frame<'_>) -> Option<i64> {
    field_of(frame, b"proto")?.int()
}

fn zone_of_hello(frame: &Frame<'_>) -> Option<String> {
    let zone = field_of(frame, b"availability_zone")?;
    let zone = std::str::from_utf8(zone.payload()).ok()?;
    Some(zone.to_owned()).filter(|zone| !zone.is_empty())
}

/// Why a server with this answer to `INFO SERVER` has no databases but 0 in a cluster; `None` if it can
/// have them.
fn databases_missing(said: &[u8]) -> Option<String> {
    let field = |name| field_of_info(said, name);
    let name = field("server_name").unwrap_or_else(|| "redis".to_owned());
    let version = field("valkey_version").or_else(|| field("redis_version")).unwrap_or_default();
    let mode = field("server_mode").or_else(|| field("redis_mode")).unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let can = field("valkey_version").is_some() && major >= 9 && mode == "cluster";
    (!can).then(|| format!("{name} {version} in mode {mode}"))
}

/// Why a connection to a replica may serve no reads.
pub(crate) fn not_a_replica(role: Option<Role>) -> Error {
    let what = match role {
        Some(Role::Primary) => "it reports the role of a primary",
        Some(Role::Replica) | None => "its answer to ROLE names no role that serves reads",
    };
    let text = format!("set-up: not a replica: {what}");
    Error::new(ErrorKind::Handshake, Fate::NotSent, text)
}

/// The wording of servers that do not know HELLO at all: `unknown command 'HELLO'`, with any of the
/// quotes that servers have used, the arguments after it or not.
fn is_unknown_hello(error: &ServerError) -> bool {
    let text = error.text().to_ascii_lowercase();
    let rest = text.strip_prefix("unknown command").filter(|_| error.is("ERR"));
    let Some(rest) = rest else { return false };
    let name = rest.trim_start_matches([' ', ':', '\'', '`', '"']);
    name.strip_prefix("hello")
        .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric()))
}

/// The error without the password: servers and proxies quote what they do not understand, and HELLO
/// holds it. The text goes as a whole: cutting a short password out of it would show what it is.
fn without_password(error: ServerError, options: &Options) -> ServerError {
    match options.password.as_ref().map(|p| p.expose()) {
        Some(password) if !password.is_empty() && error.text().contains(password) => {
            let text = "(its text is left out, since it may quote the password)";
            ServerError::new(format!("{} {text}", error.code()).as_bytes())
        }
        _ => error,
    }
}

fn failed(what: &str, error: ServerError, options: &Options) -> Progress {
    if is_full(&error) {
        return Progress::Failed { error: full(error), permanent: false };
    }
    let permanent = !error.is_transient();
    let error = without_password(error, options);
    let text = format!("set-up: {what}: {error}");
    Progress::Failed { error: refusal(text, error), permanent }
}

/// Whether this is the greeting of a server that has no room for another connection. It comes
/// whatever was asked, and before the server closes.
pub(crate) fn is_full(error: &ServerError) -> bool {
    error.is("ERR") && error.text().starts_with("max number of clients")
}

/// Names the limit. It is no verdict on the set-up: others may leave.
pub(crate) fn full(error: ServerError) -> Error {
    let limit = "its limit is `maxclients`: raise it there, or make fewer connections";
    let text = format!("connecting: {error}; {limit}");
    Error::new(ErrorKind::Connect, Fate::NotSent, text).with_server(error)
}

fn refusal(text: String, error: ServerError) -> Error {
    Error::new(ErrorKind::Handshake, Fate::NotSent, text).with_server(error)
}

fn unusable(text: &str) -> Progress {
    let error = Error::new(ErrorKind::Handshake, Fate::NotSent, format!("set-up: {text}"));
    Progress::Failed { error, permanent: true }
}
