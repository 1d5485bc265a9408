//! A primary and its replicas, in this process.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::delay::Delay;
use super::server::{Builder, Server};
use super::slow_periods::SlowPeriods;
use super::standing::{Part, Standing};

/// Describes a [`Fleet`] before it starts.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct FleetBuilder {
    each: Builder,
    replicas: usize,
    zones: Vec<String>,
}

impl FleetBuilder {
    /// How many replicas there are, default 2.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Loads this string into database 0 of every server. May be called several times.
    pub fn value(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.each = self.each.value(key, value);
        self
    }

    /// Loads `count` strings of `size` bytes under the keys `key:000000000000` and so on.
    pub fn values(mut self, count: usize, size: usize) -> Self {
        for key in 0..count {
            self = self.value(format!("key:{key:012}"), vec![b'v'; size]);
        }
        self
    }

    /// The availability zones that servers tell, the primary first; those without one tell none.
    pub fn zones<S: Into<String>>(mut self, zones: impl IntoIterator<Item = S>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Asks this password of the default user on every server.
    pub fn password(mut self, password: impl Into<Vec<u8>>) -> Self {
        self.each = self.each.password(password);
        self
    }

    /// Pins all threads to a cpu, numbered as the system does.
    pub fn cpu(mut self, cpu: u32) -> Self {
        self.each = self.each.cpu(cpu);
        self
    }

    /// Starts all servers, each on a thread and a free port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start(self) -> io::Result<Fleet> {
        let mut fleet = Fleet { servers: Vec::new(), standings: Vec::new() };
        for at in 0..=self.replicas {
            let standing = Standing::default();
            let zone = self.zones.get(at).cloned();
            let of = fleet.servers.first().and_then(Server::addr);
            standing.change(|facts| {
                facts.zone = zone;
                if let Some(of) = of {
                    facts.part = Part::Replica { of, linked: true };
                }
            });
            fleet.servers.push(self.each.clone().standing(&standing).start()?);
            fleet.standings.push(standing);
        }
        fleet.appoint(0);
        Ok(fleet)
    }
}

/// A primary and replicas: [`Server`]s in this process that answer ROLE, INFO and HELLO as one
/// deployment. Replicas refuse writes. Stops when dropped.
///
/// Nothing is replicated: every server is loaded alike when it starts, and a later write stays on the
/// server that took it. Offsets are what a test sets.
///
/// ```
/// use hedgerow::testing::{Delay, Fleet};
/// use std::time::Duration;
///
/// let fleet = Fleet::builder().replicas(2).values(100, 256).zones(["a", "a", "b"]).start()?;
/// fleet.delay(Delay::Lognormal { median: Duration::from_micros(200), sigma: 0.3 });
/// // One replica has a tail.
/// fleet.replica(0).faults().stall_every_read(20, Duration::from_millis(50));
/// // The other one loses its primary, and is 4 KiB behind.
/// fleet.set_linked(1, false);
/// fleet.set_offsets(10_000, [10_000, 5_904]);
/// println!("{} with replicas at {:?}", fleet.url(), fleet.replica_addrs());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Fleet {
    /// The first was started as the primary.
    servers: Vec<Server>,
    standings: Vec<Standing>,
}

impl Fleet {
    /// Describes a fleet.
    pub fn builder() -> FleetBuilder {
        FleetBuilder { each: Server::builder(), replicas: 2, zones: Vec::new() }
    }

    /// The server that was started as the primary.
    #[must_use]
    pub fn primary(&self) -> &Server {
        &self.servers[0]
    }

    /// A server that was started as a replica, by its number from 0.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn replica(&self, number: usize) -> &Server {
        &self.servers[1 + number]
    }

    /// The servers that were started as replicas.
    #[must_use]
    pub fn replicas(&self) -> &[Server] {
        &self.servers[1..]
    }

    /// The URL of [`Fleet::primary`], without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.primary().url()
    }

    /// The addresses of [`Fleet::replicas`].
    #[must_use]
    pub fn replica_addrs(&self) -> Vec<SocketAddr> {
        self.replicas().iter().filter_map(Server::addr).collect()
    }

    /// Delays the replies of every server; see [`Faults::delay`](super::Faults::delay).
    pub fn delay(&self, delay: Delay) {
        self.servers.iter().for_each(|server| server.faults().delay(delay));
    }

    /// Makes all replicas slow at the same times, so that no copy of a read helps then. `None` ends it.
    pub fn slow_together(&self, slow: Option<SlowPeriods>) {
        let from = Instant::now();
        self.replicas().iter().for_each(|server| server.faults().slow_periods_from(from, slow));
    }

    /// The tail that `hedgerow probe` shows without a URL: replies of every server log-normal around
    /// 300 us (sigma 0.35), every 50th read of the first replica 20 ms longer, and all replicas three
    /// times as slow in the last tenth of every two seconds.
    ///
    /// A stall also holds up what is behind it on its connection, as it does on real servers: how many reads
    /// it makes late depends on how busy the connection is.
    pub fn misbehave(&self) {
        self.delay(Delay::Lognormal { median: Duration::from_micros(300), sigma: 0.35 });
        if let Some(first) = self.replicas().first() {
            first.faults().stall_every_read(50, Duration::from_millis(20));
        }
        let (every, length) = (Duration::from_secs(2), Duration::from_millis(200));
        self.slow_together(Some(SlowPeriods { every, length, factor: 3.0 }));
    }

    /// Whether the replica's link to its primary is up, which it is at first.
    pub fn set_linked(&self, replica: usize, up: bool) {
        self.standings[1 + replica].change(|facts| {
            if let Part::Replica { linked, .. } = &mut facts.part {
                *linked = up;
            }
        });
    }

    /// The offsets of the primary and of the replicas in the replication stream, in bytes; 0 at first.
    pub fn set_offsets(&self, primary: u64, replicas: impl IntoIterator<Item = u64>) {
        let offsets = std::iter::once(primary).chain(replicas);
        for (standing, offset) in self.standings.iter().zip(offsets) {
            standing.change(|facts| facts.offset = offset);
        }
    }

    /// Makes a replica the primary; the others, the former primary too, become its replicas. Open
    /// connections stay open, as after a failover.
    pub fn promote(&self, replica: usize) {
        self.appoint(1 + replica);
    }

    fn appoint(&self, primary: usize) {
        let address = |at: usize| self.servers.get(at).and_then(Server::addr);
        let Some(of) = address(primary) else { return };
        let others = (0..self.servers.len()).filter(|at| *at != primary);
        let replicas = others.clone().filter_map(address).collect();
        others.for_each(|at| {
            self.standings[at].change(|facts| facts.part = Part::Replica { of, linked: true });
        });
        self.standings[primary].change(|facts| facts.part = Part::Primary(replicas));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// The reply to one inline command, up to what `end` says is its last bytes.
    fn ask(server: &Server, command: &str, end: &str) -> String {
        let mut stream = TcpStream::connect(server.addr().expect("TCP")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
        let (mut text, mut some) = (String::new(), [0; 512]);
        while !text.ends_with(end) {
            let count = stream.read(&mut some).expect("an answer in ten seconds");
            assert!(count > 0, "{command} ended after {text:?}");
            text.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        text
    }

    /// R-225. Fails if a replica does not answer ROLE as one of this primary, runs a write, lacks the
    /// values, or if link, offset and promotion do not show.
    #[test]
    fn roles_are_those_of_one_deployment() {
        let fleet = Fleet::builder().value("k", "v").start().expect("ports");
        let port = fleet.primary().addr().expect("TCP").port();
        let role = |replica: usize, end| ask(fleet.replica(replica), "ROLE", end);
        let connected =
            format!("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$9\r\nconnected\r\n:0\r\n");
        assert_eq!(role(0, ":0\r\n"), connected);
        assert!(
            ask(fleet.primary(), "ROLE", "0\r\n").starts_with("*3\r\n$6\r\nmaster\r\n:0\r\n*2\r\n")
        );
        assert!(ask(fleet.replica(1), "SET k w", "\r\n").starts_with("-READONLY "));
        assert_eq!(ask(fleet.replica(1), "GET k", "v\r\n"), "$1\r\nv\r\n");
        assert_eq!(ask(fleet.primary(), "SET k w", "\r\n"), "+OK\r\n");
        fleet.set_linked(0, false);
        fleet.set_offsets(90, [70, 90]);
        assert!(role(0, ":70\r\n").contains("$7\r\nconnect\r\n"));
        fleet.promote(1);
        assert!(role(1, "90\r\n").starts_with("*3\r\n$6\r\nmaster\r\n:90\r\n*2\r\n"));
        assert_eq!(ask(fleet.replica(1), "SET k w", "\r\n"), "+OK\r\n");
        assert!(ask(fleet.primary(), "SET k w", "\r\n").starts_with("-READONLY "));
    }

    /// R-284. Fails if HELLO or INFO do not tell role and zone, or tell a zone that was not set.
    #[test]
    fn zones_and_roles_are_told() {
        let fleet = Fleet::builder().zones(["a", "b"]).start().expect("ports");
        let hello = ask(fleet.replica(0), "HELLO 3", "$1\r\nb\r\n");
        assert!(hello.contains("$7\r\nreplica\r\n") && hello.contains("availability_zone"));
        assert!(
            ask(fleet.primary(), "INFO server", "\r\n\r\n").contains("availability_zone:a\r\n")
        );
        let replication = ask(fleet.replica(1), "INFO replication", "\r\n\r\n");
        assert!(replication.contains("role:slave\r\n"), "{replication}");
        assert!(!ask(fleet.replica(1), "INFO server", "\r\n\r\n").contains("availability_zone"));
    }

    /// R-279. Fails if commands that read nothing count towards the stall, or if the read that it is for
    /// is answered early.
    #[test]
    fn only_reads_count_towards_a_stall() {
        let fleet = Fleet::builder().value("k", "v").start().expect("ports");
        let stall = Duration::from_millis(60);
        fleet.replica(0).faults().stall_every_read(2, stall);
        let timed = |command, end| {
            let began = Instant::now();
            ask(fleet.replica(0), command, end);
            began.elapsed()
        };
        timed("GET k", "v\r\n");
        (0..3).for_each(|_| assert!(timed("PING", "\r\n") < stall));
        assert!(timed("GET k", "v\r\n") >= stall);
    }
}
