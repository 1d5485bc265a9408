//! A real primary and its replicas for one test.

use hedgerow::config::ProtocolChoice;
use hedgerow::read::{ReadFrom, Reads};
use hedgerow::{Endpoint, Options};
use std::time::Duration;

use crate::placement::{Client, Placement, options_for, until};
use crate::server::{Builder, Flavor, Server};

/// How long what a replica says of its role holds in these tests.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than a node that is none any more may serve: two intervals, and a busy machine.
pub(crate) const SETTLED: Duration = Duration::from_millis(400);

/// A primary and its replicas.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) primary: Server,
    pub(crate) replicas: Vec<Server>,
}

impl Fleet {
    /// A primary with replicas that have all it has.
    pub(crate) async fn start<P: Placement>(place: &P, flavor: Flavor, replicas: usize) -> Fleet {
        Fleet::of(place, flavor, &vec![""; replicas + 1]).await
    }

    /// As [`Fleet::start`], each server with a line of configuration of its own, the primary first.
    pub(crate) async fn of<P: Placement>(place: &P, flavor: Flavor, lines: &[&str]) -> Fleet {
        let server = |line: &&str| quick(flavor).line(line).start();
        Fleet::formed(place, lines.iter().map(server).collect()).await
    }

    /// A fleet of these servers, the primary first.
    pub(crate) async fn formed<P: Placement>(place: &P, mut servers: Vec<Server>) -> Fleet {
        let fleet = Fleet { primary: servers.remove(0), replicas: servers };
        for replica in &fleet.replicas {
            fleet.follow(replica);
        }
        for replica in &fleet.replicas {
            until(place, "its link to the primary", || is_linked(replica)).await;
        }
        fleet
    }

    /// Makes a server a replica of the primary.
    pub(crate) fn follow(&self, replica: &Server) {
        let at = self.primary.address();
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        assert_eq!(replica.tell(&["REPLICAOF", &host, &port]), "+OK\r\n");
    }

    /// Waits until all replicas have what was written so far.
    pub(crate) async fn in_step<P: Placement>(&self, place: &P) {
        let is_so = || self.replicas.iter().all(|r| offset(r) >= offset(&self.primary));
        until(place, "the replicas' offset", is_so).await;
    }

    /// Options for it; `from` decides where reads go.
    pub(crate) fn options(&self, from: impl Into<Reads>) -> Options {
        let mut options = options_for(self.primary.address());
        let endpoint = |s: &Server| Endpoint::tcp(s.address().ip().to_string(), s.address().port());
        options.replica_endpoints = self.replicas.iter().map(endpoint).collect();
        options.replica_refresh_interval = INTERVAL;
        options.read_from = from.into();
        options
    }

    /// A client whose replicas all serve.
    pub(crate) async fn client<P: Placement>(&self, place: &P, options: &Options) -> P::Client {
        let client = place.connect(options).await.expect("up");
        let all = client.view(ReadFrom::Replica);
        let before = self.gets();
        loop {
            let _ = all.get_within("k", SETTLED).await;
            let now = self.gets();
            if now.iter().zip(&before).skip(1).all(|(now, before)| now > before) {
                return client;
            }
        }
    }

    /// How many GETs each server has run, the primary's first.
    pub(crate) fn gets(&self) -> Vec<u64> {
        let all = std::iter::once(&self.primary).chain(&self.replicas);
        all.map(gets).collect()
    }

    /// What `client` reads with `count` GETs, as their number on each server.
    pub(crate) async fn reads_of<C: Client>(&self, client: &C, count: usize) -> Vec<u64> {
        let before = self.gets();
        for _ in 0..count {
            client.get_within("k", Duration::from_secs(5)).await.expect("a read");
        }
        let now = self.gets();
        now.iter().zip(before).map(|(now, before)| now - before).collect()
    }
}

/// A server whose replication begins at once.
pub(crate) fn quick(flavor: Flavor) -> Builder {
    Server::builder(flavor).line("repl-diskless-sync-delay 0").line("repl-timeout 3600")
}

/// How many GETs a server has run.
pub(crate) fn gets(server: &Server) -> u64 {
    commands(server, "get")
}

/// How many of a command, in small letters, a server has run.
pub(crate) fn commands(server: &Server, name: &str) -> u64 {
    let seen = server.tell(&["INFO", "commandstats"]);
    let head = format!("cmdstat_{name}:calls=");
    let line = seen.lines().find_map(|line| line.strip_prefix(&head));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
}

/// The connections of a client under test that a server has, by their numbers.
pub(crate) fn connections(server: &Server, name: &str) -> Vec<String> {
    let list = server.tell(&["CLIENT", "LIST"]);
    let mine = list.lines().filter(|line| line.contains(&format!(" name={name} ")));
    let number =
        |line: &str| line.split_whitespace().find(|w| w.starts_with("id=")).map(str::to_owned);
    mine.filter_map(number).collect()
}

/// Whether a replica's link to its primary is up.
pub(crate) fn is_linked(replica: &Server) -> bool {
    replica.tell(&["ROLE"]).contains("\r\nconnected\r\n")
}

/// The replication offset in a server's answer to ROLE: the second of a primary, the last of a replica.
pub(crate) fn offset(server: &Server) -> i64 {
    let role = server.tell(&["ROLE"]);
    let is_primary = role.contains("\r\nmaster\r\n");
    let mut numbers = role.lines().filter_map(|line| line.strip_prefix(':'));
    let found = if is_primary { numbers.next() } else { numbers.next_back() };
    found.and_then(|number| number.parse().ok()).expect("an offset")
}

/// Both protocols.
pub(crate) const PROTOCOLS: [ProtocolChoice; 2] = [ProtocolChoice::Resp2, ProtocolChoice::Resp3];
