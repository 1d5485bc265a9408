//! Servers that answer by a rule, as a cluster: what depends on what came before, which no script can say.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hedgerow::Options;
use hedgerow::command::slot::slot_of;
use hedgerow::config::Cluster;

use crate::placement::options_for;

/// What a node does about a command.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// What servers do: GET answers the node's number.
    Usual,
    Say(String),
    /// Something after a while, in which the connection takes nothing else.
    Late(Duration, Box<Act>),
    /// No answer, ever.
    Nothing,
    /// The connection ends after these bytes.
    End(String),
}

/// Says these bytes.
pub(crate) fn say(bytes: impl Into<String>) -> Act {
    Act::Say(bytes.into())
}

/// Keys of the lower and of the upper half of the slots.
pub(crate) const LOW: &str = "b";
pub(crate) const HIGH: &str = "a";

/// A switch that a rule looks at.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn turn_on(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Keys whose slots are in this range.
pub(crate) fn keys_in(slots: RangeInclusive<u16>) -> impl Iterator<Item = String> {
    (0..).map(|n| format!("k{n}")).filter(move |key| slots.contains(&slot_of(key.as_bytes())))
}

/// Does something after a while.
pub(crate) fn late(time: Duration, act: Act) -> Act {
    Act::Late(time, Box::new(act))
}

/// A command as a node gets it.
pub(crate) struct Call<'a> {
    pub(crate) node: usize,
    /// Its words with blanks between.
    pub(crate) text: &'a str,
    /// ASKING came right before it on its connection.
    pub(crate) is_asking: bool,
    /// READONLY came before it on its connection.
    pub(crate) may_read: bool,
}

impl Call<'_> {
    pub(crate) fn is(&self, words: &str) -> bool {
        self.text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// A command that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) node: usize,
    pub(crate) connection: usize,
    pub(crate) at: Instant,
    pub(crate) text: String,
}

type Rule = Arc<dyn Fn(&Call<'_>) -> Act + Send + Sync>;
/// Slots, and the nodes that serve them: the primary first.
type Map = Vec<(RangeInclusive<u16>, Vec<usize>)>;

struct Shared {
    addresses: Vec<SocketAddr>,
    rule: Mutex<Rule>,
    map: Mutex<Map>,
    host: Mutex<String>,
    password: Mutex<Option<String>>,
    came: Mutex<Vec<Came>>,
    accepted: Mutex<Vec<usize>>,
    streams: Mutex<Vec<(usize, TcpStream)>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_over: Mutex<bool>,
    over: Condvar,
    refuses: Vec<AtomicBool>,
}

impl Shared {
    fn slots(&self, map: &Map) -> String {
        let host = lock(&self.host).clone();
        let mut text = format!("*{}\r\n", map.len());
        for (slots, nodes) in map {
            let _ =
                write!(text, "*{}\r\n:{}\r\n:{}\r\n", 2 + nodes.len(), slots.start(), slots.end());
            for node in nodes {
                let (host, id) = (bulk(&host), bulk(&id(*node)));
                let port = self.addresses[*node].port();
                let metadata = format!("*2\r\n{}{}", bulk("ip"), bulk("127.0.0.1"));
                let _ = write!(text, "*4\r\n{host}:{port}\r\n{id}{metadata}");
            }
        }
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nodes on ports of 127.0.0.1; the first has all slots until told otherwise.
pub(crate) struct Nodes(Arc<Shared>);

impl Nodes {
    pub(crate) fn start(count: usize) -> Nodes {
        let bind = |_| TcpListener::bind("127.0.0.1:0").expect("a port");
        let listeners: Vec<_> = (0..count).map(bind).collect();
        let address = |l: &TcpListener| l.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            addresses: listeners.iter().map(address).collect(),
            rule: Mutex::new(Arc::new(|_| Act::Usual)),
            map: Mutex::new(vec![(0..=16383, vec![0])]),
            host: Mutex::new("127.0.0.1".to_owned()),
            password: Mutex::default(),
            came: Mutex::default(),
            accepted: Mutex::new(vec![0; count]),
            streams: Mutex::default(),
            threads: Mutex::default(),
            is_over: Mutex::default(),
            over: Condvar::new(),
            refuses: (0..count).map(|_| AtomicBool::new(false)).collect(),
        });
        for (node, listener) in listeners.into_iter().enumerate() {
            let of = shared.clone();
            let thread = std::thread::spawn(move || accept_all(&listener, node, &of));
            lock(&shared.threads).push(thread);
        }
        Nodes(shared)
    }

    /// From now on the nodes answer by this.
    pub(crate) fn rule(&self, rule: impl Fn(&Call<'_>) -> Act + Send + Sync + 'static) {
        *lock(&self.0.rule) = Arc::new(rule);
    }

    /// From now on CLUSTER SLOTS says this.
    pub(crate) fn map(&self, map: impl IntoIterator<Item = (RangeInclusive<u16>, Vec<usize>)>) {
        *lock(&self.0.map) = map.into_iter().collect();
    }

    /// From now on CLUSTER SLOTS names this host, with the address in its metadata.
    pub(crate) fn announce(&self, host: &str) {
        host.clone_into(&mut lock(&self.0.host));
    }

    /// Every node asks for this password.
    pub(crate) fn password(&self, password: &str) {
        *lock(&self.0.password) = Some(password.to_owned());
    }

    /// A node ends its connections, and new ones at once.
    pub(crate) fn refuse(&self, node: usize) {
        self.0.refuses[node].store(true, Ordering::SeqCst);
        self.end_connections(node);
    }

    /// It takes connections again.
    pub(crate) fn admit(&self, node: usize) {
        self.0.refuses[node].store(false, Ordering::SeqCst);
    }

    /// A node ends its connections.
    pub(crate) fn end_connections(&self, node: usize) {
        for (_, stream) in lock(&self.0.streams).iter().filter(|(of, _)| *of == node) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What CLUSTER SLOTS says with this map.
    pub(crate) fn slots(
        &self,
        map: impl IntoIterator<Item = (RangeInclusive<u16>, Vec<usize>)>,
    ) -> String {
        self.0.slots(&map.into_iter().collect())
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.0.addresses[node]
    }

    /// Options of a cluster client with the first node as its seed.
    pub(crate) fn options(&self) -> Options {
        let mut options = options_for(self.address(0));
        let mut cluster = Cluster::default();
        cluster.refresh_interval = None;
        options.cluster = Some(cluster);
        options
    }

    /// The error that sends a key to a node.
    pub(crate) fn redirect(&self, word: &str, key: &str, node: usize) -> String {
        format!("-{word} {} {}\r\n", slot_of(key.as_bytes()), self.address(node))
    }

    pub(crate) fn came(&self) -> Vec<Came> {
        lock(&self.0.came).clone()
    }

    /// How often a node got commands that begin with these words.
    pub(crate) fn count(&self, node: usize, words: &str) -> usize {
        let came = lock(&self.0.came);
        let fits = |c: &&Came| c.node == node && begins(&c.text, words);
        came.iter().filter(fits).count()
    }

    /// How often all nodes did.
    pub(crate) fn count_all(&self, words: &str) -> usize {
        (0..self.0.addresses.len()).map(|node| self.count(node, words)).sum()
    }

    /// When each pass of discovery began to ask.
    pub(crate) fn passes(&self) -> Vec<Came> {
        let mut came = self.came();
        came.retain(|c| c.text == "CLUSTER SLOTS");
        came
    }

    /// How many connections a node took.
    pub(crate) fn accepted(&self, node: usize) -> usize {
        lock(&self.0.accepted)[node]
    }
}

fn begins(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl Drop for Nodes {
    fn drop(&mut self) {
        *lock(&self.0.is_over) = true;
        self.0.over.notify_all();
        for address in &self.0.addresses {
            let _ = TcpStream::connect(address);
        }
        (0..self.0.addresses.len()).for_each(|node| self.end_connections(node));
        // A thread that was about to begin is on the list by now, or sees that it is over.
        let threads = std::mem::take(&mut *lock(&self.0.threads));
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

fn accept_all(listener: &TcpListener, node: usize, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        if *lock(&shared.is_over) {
            return;
        }
        if shared.refuses[node].load(Ordering::SeqCst) {
            continue;
        }
        let _ = stream.set_nodelay(true);
        let Ok(copy) = stream.try_clone() else { continue };
        lock(&shared.streams).push((node, copy));
        let number = {
            let mut accepted = lock(&shared.accepted);
            accepted[node] += 1;
            accepted[node] - 1
        };
        let of = shared.clone();
        let serve = move || Served::new(stream, node, number, of).run();
        lock(&shared.threads).push(std::thread::spawn(serve));
    }
}

/// One connection.
struct Served {
    stream: TcpStream,
    node: usize,
    number: usize,
    shared: Arc<Shared>,
    bytes: Vec<u8>,
    is_known: bool,
    may_read: bool,
    was_asking: bool,
}

impl Served {
    fn new(stream: TcpStream, node: usize, number: usize, shared: Arc<Shared>) -> Served {
        let is_known = lock(&shared.password).is_none();
        let (bytes, may_read, was_asking) = (Vec::new(), false, false);
        Served { stream, node, number, shared, bytes, is_known, may_read, was_asking }
    }

    fn run(mut self) {
        let mut some = [0; 65536];
        loop {
            while let Some((words, used)) = parse(&self.bytes) {
                self.bytes.drain(..used);
                if !self.answer(&words.join(" ")) {
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return;
                }
            }
            match self.stream.read(&mut some) {
                Ok(0) | Err(_) => return,
                Ok(count) => self.bytes.extend_from_slice(&some[..count]),
            }
        }
    }

    /// Whether the connection goes on.
    fn answer(&mut self, text: &str) -> bool {
        let (node, connection, at) = (self.node, self.number, Instant::now());
        lock(&self.shared.came).push(Came { node, connection, at, text: text.to_owned() });
        let is_asking = std::mem::replace(&mut self.was_asking, text == "ASKING");
        let rule = lock(&self.shared.rule).clone();
        let act = rule(&Call { node, text, is_asking, may_read: self.may_read });
        self.may_read |= text == "READONLY";
        self.act(text, act)
    }

    fn act(&mut self, text: &str, act: Act) -> bool {
        let (reply, goes_on) = match act {
            Act::Usual => (self.usual(text), true),
            Act::Say(bytes) => (bytes, true),
            Act::Late(time, act) => {
                self.wait(time);
                return self.act(text, *act);
            }
            Act::Nothing => (String::new(), true),
            Act::End(bytes) => (bytes, false),
        };
        self.stream.write_all(reply.as_bytes()).is_ok() && goes_on
    }

    fn wait(&self, time: Duration) {
        let over = lock(&self.shared.is_over);
        drop(self.shared.over.wait_timeout_while(over, time, |is_over| !*is_over));
    }

    fn usual(&mut self, text: &str) -> String {
        let mut words = text.split(' ');
        let name = words.next().unwrap_or_default();
        if let Some(password) = &*lock(&self.shared.password) {
            self.is_known |= matches!(name, "HELLO" | "AUTH") && text.contains(password.as_str());
        }
        if !self.is_known {
            return "-NOAUTH Authentication required.\r\n".to_owned();
        }
        match name {
            "HELLO" => hello(),
            "PING" => "+PONG\r\n".to_owned(),
            "GET" => format!("$1\r\n{}\r\n", self.node),
            "INFO" => bulk("# Server\r\nredis_version:7.2.0\r\nredis_mode:cluster\r\n"),
            "CLUSTER" if text == "CLUSTER SLOTS" => self.shared.slots(&lock(&self.shared.map)),
            "CLUSTER" => bulk(&id(self.node)),
            _ => "+OK\r\n".to_owned(),
        }
    }
}

fn id(node: usize) -> String {
    format!("{node:040}")
}

/// A bulk string.
pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn hello() -> String {
    let map = [("server", "redis"), ("version", "7.2.0")].map(|(k, v)| bulk(k) + &bulk(v)).concat();
    format!("%4\r\n{map}{}:3\r\n{}{}", bulk("proto"), bulk("role"), bulk("master"))
}

/// The first whole command, and its length.
fn parse(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| {
        let line = &bytes[*at..];
        let end = line.windows(2).position(|pair| pair == b"\r\n")?;
        *at += end + 2;
        std::str::from_utf8(&line[1..end]).ok()?.parse::<usize>().ok()
    };
    let count = number(&mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = number(&mut at)?;
        let word = bytes.get(at..at + len + 2)?;
        words.push(String::from_utf8_lossy(&word[..len]).into_owned());
        at += len + 2;
    }
    Some((words, at))
}
