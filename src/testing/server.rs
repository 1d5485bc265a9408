//! The handle of a running server.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::clock::{Clock, ManualClock};
use super::commands::{Profile, State};
use super::delay::Delay;
use super::event_loop::EventLoop;
use super::faults::{Faults, Switchboard};
use super::keyspace::Value;
use super::standing::{Part, Standing};
use super::stats::{Counters, Stats};
use super::stream::{Listener, Place};

/// Describes a [`Server`] before it starts.
///
/// ```
/// use hedgerow::testing::{Delay, Server};
/// use std::time::Duration;
///
/// let server = Server::builder()
///     .password("secret")
///     .delay(Delay::Constant(Duration::from_micros(200)))
///     .start()?;
/// assert!(server.url().starts_with("redis://127.0.0.1:"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    tcp: Vec<String>,
    unix: Vec<PathBuf>,
    users: Vec<(String, Vec<u8>)>,
    no_hello: bool,
    no_resp3: bool,
    version: Option<String>,
    cpu: Option<u32>,
    spin: bool,
    delay: Delay,
    clock: Clock,
    values: Vec<(Vec<u8>, Vec<u8>)>,
    standing: Standing,
}

impl Builder {
    /// Listens at a TCP address, `host:port`; port 0 takes a free one. May be called several times.
    /// Without any address or path the server listens at `127.0.0.1:0`.
    pub fn bind(mut self, address: impl Into<String>) -> Self {
        self.tcp.push(address.into());
        self
    }

    /// Listens at a Unix socket. The path must not exist; it is removed when the server stops. May
    /// be called several times.
    pub fn unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix.push(path.into());
        self
    }

    /// Asks this password of the default user: every command before a login is answered with
    /// `NOAUTH`.
    pub fn password(self, password: impl Into<Vec<u8>>) -> Self {
        self.user("default", password)
    }

    /// Adds a user who may do everything. Does not close the default user; [`Builder::password`]
    /// does.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        self.users.push((name.into(), password.into()));
        self
    }

    /// Answers HELLO as a server before 6.0 does, where it is an unknown command.
    pub fn no_hello(mut self) -> Self {
        self.no_hello = true;
        self
    }

    /// Answers `HELLO 3` with `NOPROTO`; `HELLO 2` works.
    pub fn no_resp3(mut self) -> Self {
        self.no_resp3 = true;
        self
    }

    /// Says in ROLE, HELLO and INFO that it is a replica whose link to its primary is up. It has data of
    /// its own, which it lets clients write, as with `replica-read-only no`.
    pub fn replica(self) -> Self {
        self.standing.change(|facts| {
            let of = SocketAddr::from(([127, 0, 0, 1], 6379));
            (facts.part, facts.writable) = (Part::Replica { of, linked: true }, true);
        });
        self
    }

    /// The version that HELLO and INFO tell. By default 7.2.0, or 5.0.14 with
    /// [`Builder::no_hello`].
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Pins the server's thread to a cpu, numbered as the system does.
    pub fn cpu(mut self, cpu: u32) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Polls without sleeping, for the shortest reply times. Takes a whole cpu; off by default.
    pub fn spin(mut self, spin: bool) -> Self {
        self.spin = spin;
        self
    }

    /// Delays replies from the start; see [`Faults::delay`].
    pub fn delay(mut self, delay: Delay) -> Self {
        self.delay = delay;
        self
    }

    /// Takes the time for expiry from a clock that the test moves. Injected delays are not
    /// affected.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.clone());
        self
    }

    /// Puts a string into database 0 before the server starts. May be called several times.
    pub fn value(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.values.push((key.into(), value.into()));
        self
    }

    /// The availability zone that HELLO and INFO tell; none by default.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        self.standing.change(|facts| facts.zone = Some(zone.into()));
        self
    }

    /// What the server is for its deployment.
    pub(super) fn standing(mut self, standing: &Standing) -> Self {
        self.standing = standing.clone();
        self
    }

    /// Starts the server on a thread of its own and returns once it accepts connections.
    ///
    /// # Errors
    /// An address that does not resolve, or is in use; a cpu that is not there or not allowed; no
    /// descriptor or thread to be had.
    pub fn start(self) -> io::Result<Server> {
        let mut files = SocketFiles::default();
        let listeners = self.listen(&mut files)?;
        let places: Vec<Place> = listeners.iter().map(|(_, place)| place.clone()).collect();
        let board = Arc::new(Switchboard::default());
        let faults = Faults::new(Arc::clone(&board));
        faults.delay(self.delay);
        let counters = Arc::new(Counters::default());
        let mut state = State::new(self.profile(&places));
        for (key, value) in &self.values {
            state.database(0).put(key, Value::Text(value.clone()), None);
        }
        let event_loop = EventLoop::new(
            listeners,
            state,
            Arc::clone(&board),
            Arc::clone(&counters),
            self.clock,
            self.spin,
        )?;
        let (started, start) = channel();
        let cpu = self.cpu;
        let thread = std::thread::Builder::new()
            .name("hedgerow-test-server".to_owned())
            .spawn(move || run(event_loop, cpu, &started))?;
        let server =
            Server { places, board, faults, counters, thread: Some(thread), _files: files };
        match start.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the test server's thread ended before it served")),
        }
    }

    fn listen(&self, files: &mut SocketFiles) -> io::Result<Vec<(Listener, Place)>> {
        let mut listeners = Vec::new();
        let default = ["127.0.0.1:0".to_owned()];
        let tcp =
            if self.tcp.is_empty() && self.unix.is_empty() { &default[..] } else { &self.tcp };
        for address in tcp {
            let resolved =
                address.to_socket_addrs().map_err(|error| named(address, &error))?.next();
            let place = Place::Tcp(resolved.ok_or_else(|| {
                io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{address}: no address"))
            })?);
            listeners.push(Listener::bind(&place).map_err(|error| named(address, &error))?);
        }
        for path in &self.unix {
            let place = Place::Unix(path.clone());
            let bound = Listener::bind(&place);
            listeners.push(bound.map_err(|error| named(&path.display().to_string(), &error))?);
            files.0.push(path.clone());
        }
        Ok(listeners)
    }

    fn profile(&self, places: &[Place]) -> Profile {
        let port = places.iter().find_map(|place| match place {
            Place::Tcp(address) => Some(address.port()),
            Place::Unix(_) => None,
        });
        let usual = if self.no_hello { "5.0.14" } else { "7.2.0" };
        Profile {
            users: self.users.iter().cloned().collect(),
            knows_hello: !self.no_hello,
            speaks_resp3: !self.no_resp3,
            version: self.version.clone().unwrap_or_else(|| usual.to_owned()),
            port: port.unwrap_or(0),
            started_ms: self.clock.now_ms(),
            standing: self.standing.clone(),
        }
    }
}

fn named(place: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen at {place}: {error}"))
}

/// The thread: pins itself, reports, serves.
fn run(event_loop: EventLoop, cpu: Option<u32>, started: &Sender<io::Result<()>>) {
    if let Some(cpu) = cpu
        && let Err(error) = hedgerow_runtime::cpu::pin(cpu)
    {
        let text = format!("cannot pin the test server: {error}");
        let _ = started.send(Err(io::Error::new(io::ErrorKind::InvalidInput, text)));
        return;
    }
    let _ = started.send(Ok(()));
    if let Err(error) = event_loop.run() {
        tracing::error!(%error, "the test server's poller failed; the server has stopped");
    }
}

/// A RESP server in this process, on a thread of its own.
///
/// Speaks RESP2 and RESP3, keeps its data in memory, and misbehaves on request: see [`Faults`].
/// Stops when dropped.
///
/// ```
/// use hedgerow::testing::Server;
/// use std::io::{Read, Write};
///
/// let server = Server::start()?;
/// let mut client = std::net::TcpStream::connect(server.addr().unwrap())?;
/// client.write_all(b"PING\r\n")?;
/// let mut reply = [0; 7];
/// client.read_exact(&mut reply)?;
/// assert_eq!(&reply, b"+PONG\r\n");
/// assert_eq!(server.stats().commands, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    places: Vec<Place>,
    board: Arc<Switchboard>,
    faults: Faults,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    /// Dropped last: the thread has closed its listeners by then.
    _files: SocketFiles,
}

/// Socket files that this server made; removed on drop.
#[derive(Debug, Default)]
struct SocketFiles(Vec<PathBuf>);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Server {
    /// Describes a server that is not a plain one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a plain server at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// The first TCP address; `None` when it listens at Unix sockets only.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addrs().next()
    }

    /// All TCP addresses, in the order of the builder's calls.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.places.iter().filter_map(|place| match place {
            Place::Tcp(address) => Some(*address),
            Place::Unix(_) => None,
        })
    }

    /// The first Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.places.iter().find_map(|place| match place {
            Place::Unix(path) => Some(path.as_path()),
            Place::Tcp(_) => None,
        })
    }

    /// A URL to connect to, without credentials: `redis://127.0.0.1:port`, or `unix:///path` when
    /// it listens at Unix sockets only.
    #[must_use]
    pub fn url(&self) -> String {
        match (self.addr(), self.path()) {
            (Some(address), _) => format!("redis://{address}"),
            (None, Some(path)) => format!("unix://{}", path.display()),
            // The builder always gives a place.
            (None, None) => String::new(),
        }
    }

    /// What the server counted until now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// Switches faults on and off.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Ends all connections and the thread, and waits for it. Dropping the server does the same.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.board.stop();
        let Some(thread) = self.thread.take() else { return };
        // An error is a panic of that thread, which has been printed.
        let _ = thread.join();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}
