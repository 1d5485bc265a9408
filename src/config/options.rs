//! Every setting of a client, in one place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Cluster, Endpoint, Keepalive, Reconnect};
use crate::Error;
use crate::read::{Hedging, ReadFrom, Reads};
use crate::resp::Limits;

/// The port that a `redis://` address means when it names none (R-021).
const PORT: u16 = 6379;

/// Deepest nesting that may be asked for.
const DEPTH_MAX: u32 = 1024;
/// What the answers of a set-up need.
const REPLY_MIN: u64 = 1024;
const ELEMENTS_MIN: u64 = 64;

/// What most malformed addresses are about.
const ESCAPES: &str = "in a password, # is written %23, / is %2F, ? is %3F and @ is %40";
/// What a URL looks like.
const RIGHT: &str = "write redis://host:port/database or unix:///path";

/// A password. Never printed. Made of a text: `options.password = Some("secret".into())`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Which protocol a connection is to speak (R-054, R-061).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ProtocolChoice {
    /// `HELLO 3`, and RESP2 where the server does not know it. Costs one round trip for each new
    /// connection. Connections of one client may then differ, and so may the shape of raw replies
    /// (R-064); typed commands read both shapes alike.
    #[default]
    Auto,
    /// RESP2 without asking.
    Resp2,
    /// RESP3; a server without it is an error.
    Resp3,
}

impl FromStr for ProtocolChoice {
    type Err = Error;

    /// `auto`, `2`, `resp2`, `3` or `resp3`, in any case (R-026).
    ///
    /// # Errors
    /// Names the words that are right.
    fn from_str(word: &str) -> Result<ProtocolChoice, Error> {
        match word.to_ascii_lowercase().as_str() {
            "auto" => Ok(ProtocolChoice::Auto),
            "2" | "resp2" => Ok(ProtocolChoice::Resp2),
            "3" | "resp3" => Ok(ProtocolChoice::Resp3),
            _ => Err(Error::config("`protocol` must be auto, resp2 (or 2) or resp3 (or 3)")),
        }
    }
}

/// The settings of a client. Plain data; checked as a whole when a client is made.
///
/// ```
/// use std::time::Duration;
/// use hedgerow::Options;
///
/// let mut options = Options::from_url("redis://app:secret@localhost:6380/2")?;
/// options.command_timeout = Some(Duration::from_millis(250));
/// options.client_name = Some("checkout".into());
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The server.
    pub endpoint: Endpoint,
    /// ACL user; `None` is the server's default user.
    pub username: Option<String>,
    /// Password; `None` does not authenticate.
    pub password: Option<Secret>,
    /// Logical database, default 0 (R-015).
    pub database: u32,
    /// Name given to each connection (`CLIENT SETNAME`).
    pub client_name: Option<String>,
    /// Protocol, default Auto.
    pub protocol: ProtocolChoice,
    /// Longest time for a connection to be made, name resolution and TCP connect, default 5 s.
    pub connect_timeout: Duration,
    /// Longest time for a command, from its first poll: queueing, connecting, waiting. Default 2 s;
    /// `None` switches it off; at least 1 ms (C-18). It also bounds each reply of a connection's
    /// set-up (R-073; `connect_timeout` does where this is off).
    pub command_timeout: Option<Duration>,
    /// Multiplexed connections, at least 1, default 1 (R-006).
    pub connections: usize,
    /// Commands in flight or queued on one connection before producers wait, default 16,384
    /// (R-116).
    pub in_flight_max: usize,
    /// Commands that may wait while not connected, default 10,000; more fail at once.
    pub queue_commands_max: usize,
    /// Bytes of commands that may wait while not connected, default 16 MiB; more fail at once.
    pub queue_bytes_max: usize,
    /// Longest wait of a command while not connected; `None` (the default) leaves it to the
    /// command's own deadline.
    pub queue_timeout: Option<Duration>,
    /// Delays between connection attempts.
    pub reconnect: Reconnect,
    /// Kernel TCP keepalive, default off (R-018).
    pub keepalive: Option<Keepalive>,
    /// Lets administrative commands through (FLUSHALL, CONFIG SET ..), default false (R-008).
    pub allow_admin: bool,
    /// Bounds on one reply (R-096).
    pub limits: Limits,
    /// Replicas of [`endpoint`](Options::endpoint), default none (R-221). They share its credentials,
    /// database and settings, and each of their connections must report the role of a replica before it
    /// serves a read (R-225). Connected when first asked for.
    pub replica_endpoints: Vec<Endpoint>,
    /// Where reads go, default [`ReadFrom::Primary`] (R-220); a view of a client may have another.
    pub read_from: Reads,
    /// How long what a replica said of its role holds, and how long one that failed is left alone, default
    /// 1 s (R-226, R-228). Zero asks before every read and leaves none alone.
    pub replica_refresh_interval: Duration,
    /// The zone that this client is in, as servers name it (`availability-zone`), for the two zone
    /// policies (R-281). Compared byte by byte.
    pub client_availability_zone: Option<String>,
    /// Second copies of slow reads, default none (R-257). Reads that only the primary may serve have none.
    pub hedging: Option<Hedging>,
    /// Makes it the client of a cluster, of which [`endpoint`](Options::endpoint) is a seed; default none
    /// (R-164).
    pub cluster: Option<Cluster>,
}

impl Options {
    /// The defaults, for one server.
    pub fn new(endpoint: Endpoint) -> Options {
        Options {
            endpoint,
            username: None,
            password: None,
            database: 0,
            client_name: None,
            protocol: ProtocolChoice::Auto,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Some(Duration::from_secs(2)),
            connections: 1,
            in_flight_max: 16_384,
            queue_commands_max: 10_000,
            queue_bytes_max: 16 << 20,
            queue_timeout: None,
            reconnect: Reconnect::default(),
            keepalive: None,
            allow_admin: false,
            limits: Limits::default(),
            replica_endpoints: Vec::new(),
            read_from: Reads::default(),
            replica_refresh_interval: Duration::from_secs(1),
            client_availability_zone: None,
            hedging: None,
            cluster: None,
        }
    }

    /// Reads `redis://[[user:]password@]host[:port][/database]` or
    /// `unix://[[user:]password@]/path[?db=N]` (also `redis+unix://`), the port being 6379 where none
    /// is named. Both take `?protocol=auto|resp2|resp3`, the first `?cluster=true`; every other
    /// setting is a field.
    ///
    /// User and password are percent-decoded. A word before `@` without a colon is a password
    /// (R-032).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), naming the part and what would be right,
    /// never the password.
    pub fn from_url(text: &str) -> Result<Options, Error> {
        let hosted = socket_with_host(text);
        let url = url::Url::parse(hosted.as_deref().unwrap_or(text)).map_err(unreadable)?;
        if url.fragment().is_some() {
            return Err(Error::config(format!("the URL: it must not contain `#`; {ESCAPES}")));
        }
        match url.scheme() {
            "redis" => from_redis_url(&url),
            "unix" | "redis+unix" if hosted.is_none() && url.has_host() => {
                Err(Error::config("the URL: a unix socket is written unix:///absolute/path"))
            }
            "unix" | "redis+unix" => from_unix_url(&url),
            "rediss" => {
                Err(Error::config("the URL: TLS (rediss://) is not available in this build"))
            }
            // Not shown: without `redis://` it may be the user or the password.
            _ => Err(Error::config(format!("the URL: its scheme is not known; {RIGHT}"))),
        }
    }

    /// Whether somebody has to look after the deployment: it has more than one node.
    pub(crate) fn is_coordinated(&self) -> bool {
        self.cluster.is_some() || !self.replica_endpoints.is_empty()
    }

    /// Checks all values together.
    ///
    /// # Errors
    /// Names the option that is wrong and its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let ms = Duration::from_millis(1);
        let bad = match () {
            () if self.connections == 0 => "`connections` must be at least 1",
            () if self.connections > 1 << 16 => "`connections` must be at most 65,536",
            () if self.in_flight_max == 0 => "`in_flight_max` must be at least 1",
            () if self.connect_timeout < ms => "`connect_timeout` must be at least 1 ms",
            () if self.command_timeout.is_some_and(|t| t < ms) => {
                "`command_timeout` must be at least 1 ms, or None to switch it off"
            }
            () if self.queue_timeout.is_some_and(|t| t < ms) => {
                "`queue_timeout` must be at least 1 ms, or None to switch it off"
            }
            () if self.username.is_some() && self.password.is_none() => {
                "`username` needs a `password`"
            }
            () if self.client_name.as_ref().is_some_and(|n| !is_plain(n)) => {
                "`client_name` must have no spaces or control characters"
            }
            () => return self.check_places(),
        };
        Err(Error::config(bad))
    }

    fn check_places(&self) -> Result<(), Error> {
        self.endpoint.check("endpoint")?;
        self.check_reads()?;
        if let Some(keepalive) = &self.keepalive {
            let whole = |t: Duration| t >= Duration::from_secs(1) && t.subsec_nanos() == 0;
            if !whole(keepalive.time) || keepalive.interval.is_some_and(|i| !whole(i)) {
                return Err(Error::config("`keepalive` times must be whole seconds, at least 1 s"));
            }
        }
        self.check_limits()?;
        self.reconnect.check()
    }

    fn check_reads(&self) -> Result<(), Error> {
        self.check_replicas(&self.replica_endpoints)?;
        if let Some(cluster) = &self.cluster {
            cluster.check(&self.endpoint)?;
            if !self.replica_endpoints.is_empty() {
                let text =
                    "`replica_endpoints`: a cluster tells its replicas itself: leave it empty";
                return Err(Error::config(text));
            }
        }
        if let Some(hedging) = &self.hedging {
            hedging.check()?;
        }
        if self.replica_refresh_interval > Duration::from_secs(86_400) {
            return Err(Error::config("`replica_refresh_interval` must be at most one day"));
        }
        self.check_view(self.read_from)
    }

    /// Checks addresses of replicas.
    ///
    /// # Errors
    /// One that cannot be dialled, and one that is named twice.
    fn check_replicas(&self, replicas: &[Endpoint]) -> Result<(), Error> {
        for (at, replica) in replicas.iter().enumerate() {
            replica.check("replica_endpoints")?;
            if *replica == self.endpoint || replicas[..at].contains(replica) {
                let text = format!("`replica_endpoints`: {replica} is named twice");
                return Err(Error::config(text));
            }
        }
        Ok(())
    }

    /// The time of a connect and a command, or of two connects where commands have no limit: what a node has
    /// at most to say who serves a slot, and a read to be told of a replica (R-235).
    pub(crate) fn connect_and_command(&self) -> Duration {
        self.connect_timeout + self.command_timeout.unwrap_or(self.connect_timeout)
    }

    /// Checks the replicas that a running client is to have instead of its own.
    ///
    /// # Errors
    /// For invalid addresses, for a client that was made without any replica, and for that of a cluster.
    pub(crate) fn check_new_replicas(&self, replicas: &[Endpoint]) -> Result<(), Error> {
        if self.cluster.is_some() {
            let text = "`replica_endpoints`: a cluster says itself which replicas it has";
            return Err(Error::config(text));
        }
        if !self.is_coordinated() {
            let text = "`replica_endpoints`: the client was made without replicas, so it has no \
                        coordinator that could change them";
            return Err(Error::config(text));
        }
        self.check_replicas(replicas)
    }

    /// Checks what a view of a client asks for.
    ///
    /// # Errors
    /// A policy that needs something that these options do not have.
    pub(crate) fn check_view(&self, reads: Reads) -> Result<(), Error> {
        let has_zone = self.client_availability_zone.as_ref().is_some_and(|zone| !zone.is_empty());
        if reads.from.needs_zone() && !has_zone {
            let text = format!(
                "`read_from`: {} needs `client_availability_zone`, the zone that this client is in",
                reads.from
            );
            return Err(Error::config(text));
        }
        if reads.lag_max.is_some() && self.replica_refresh_interval.is_zero() {
            let text = "`read_from`: a bound on staleness needs a `replica_refresh_interval` above zero, \
                        in which nodes are asked how far they are";
            return Err(Error::config(text));
        }
        let has_replicas = self.cluster.is_some() || !self.replica_endpoints.is_empty();
        if reads.from == ReadFrom::Replica && !has_replicas {
            let text = "`read_from`: replica needs replicas: name them in `replica_endpoints`";
            return Err(Error::config(text));
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Error> {
        let limits = &self.limits;
        let bad = match () {
            // Values are built and dropped by recursion, which a thread's stack must hold.
            () if !(1..=DEPTH_MAX).contains(&limits.depth) => "`limits.depth` must be 1 to 1,024",
            () if limits.bulk < REPLY_MIN => "`limits.bulk` must be at least 1,024 bytes",
            () if limits.reply < REPLY_MIN => "`limits.reply` must be at least 1,024 bytes",
            () if limits.elements < ELEMENTS_MIN => "`limits.elements` must be at least 64",
            () => return Ok(()),
        };
        Err(Error::config(bad))
    }
}

/// What the server accepts as a client name.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| (b'!'..=b'~').contains(&b))
}

fn decoded(part: &str, what: &str) -> Result<String, Error> {
    let bytes = percent_encoding::percent_decode_str(part);
    let text =
        bytes.decode_utf8().map_err(|_| Error::config(format!("the URL: {what} is not UTF-8")));
    text.map(|t| t.into_owned())
}

fn unreadable(error: url::ParseError) -> Error {
    match error {
        url::ParseError::RelativeUrlWithoutBase => {
            Error::config(format!("the URL: it has no scheme; {RIGHT}"))
        }
        error => Error::config(format!("the URL: {error}; {RIGHT}; {ESCAPES}")),
    }
}

fn from_redis_url(url: &url::Url) -> Result<Options, Error> {
    let host = match url.host() {
        Some(url::Host::Ipv6(ip)) => ip.to_string(),
        Some(host) => decoded(&host.to_string(), "the host")?,
        None => {
            return Err(Error::config(
                "the URL: it names no host; a socket's path is written unix:///path",
            ));
        }
    };
    if url.port() == Some(0) {
        return Err(Error::config("the URL: the port must be from 1 to 65535"));
    }
    let mut options = Options::new(Endpoint::tcp(host, url.port().unwrap_or(PORT)));
    read_credentials(url, &mut options)?;
    let path = url.path().trim_start_matches('/');
    if !path.is_empty() {
        options.database = database(path)?;
    }
    read_query(url, &mut options)?;
    Ok(options)
}

fn from_unix_url(url: &url::Url) -> Result<Options, Error> {
    let path = decoded(url.path(), "the path")?;
    if path.is_empty() {
        return Err(Error::config("the URL: a unix socket is written unix:///absolute/path"));
    }
    let mut options = Options::new(Endpoint::unix(path));
    read_credentials(url, &mut options)?;
    read_query(url, &mut options)?;
    Ok(options)
}

/// The address of a socket with credentials, with a host: the URL standard wants one behind `@`.
fn socket_with_host(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_socket = ["unix", "redis+unix"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let (credentials, path) = rest.split_at(rest.find('/')?);
    let is_whole = credentials.ends_with('@') && !credentials.contains(['?', '#']);
    (is_socket && is_whole).then(|| format!("{scheme}://{credentials}socket{path}"))
}

fn read_credentials(url: &url::Url, options: &mut Options) -> Result<(), Error> {
    let user = decoded(url.username(), "the user")?;
    match url.password() {
        Some(password) => {
            options.password = Some(Secret::new(decoded(password, "the password")?));
            options.username = Some(user).filter(|u| !u.is_empty());
        }
        None if !user.is_empty() => options.password = Some(Secret::new(user)),
        None => {}
    }
    Ok(())
}

fn read_query(url: &url::Url, options: &mut Options) -> Result<(), Error> {
    for (name, value) in url.query_pairs() {
        match name.to_ascii_lowercase().as_str() {
            "db" => options.database = database(&value)?,
            "protocol" => options.protocol = value.parse()?,
            "cluster" => options.cluster = is_true(&value)?.then(Cluster::default),
            // A name in plain letters is shown; anything else may be the rest of a password.
            _ if name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {
                let text = format!(
                    "the URL: parameter `{name}` is not known; db, protocol and cluster are"
                );
                return Err(Error::config(text));
            }
            _ => {
                let text =
                    "the URL: only the parameters db, protocol and cluster are known after `?`";
                return Err(Error::config(format!("{text}; {ESCAPES}")));
            }
        }
    }
    Ok(())
}

fn is_true(text: &str) -> Result<bool, Error> {
    let word = text.to_ascii_lowercase();
    word.parse().map_err(|_| Error::config("the URL: `cluster` must be true or false"))
}

fn database(text: &str) -> Result<u32, Error> {
    let number = text.parse::<i32>().ok().and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| Error::config("the URL: the database must be a number of at least 0"))
}
