//! The commands of a model server.

use std::ops::Bound;

use super::cluster_map::Demand;
use super::model_connection::Guest;
use super::model_server::Model;
use super::pattern;
use super::reply::{self, Protocol};
use super::request::number;

/// Databases of a server that is in no cluster.
const DATABASES: u32 = 16;

/// What a replica answers to a write.
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Whether a command of this name writes.
fn writes(name: &[u8]) -> bool {
    matches!(name, b"SET" | b"DEL" | b"UNLINK" | b"INCR" | b"MSET" | b"FLUSHALL")
}

/// The keys of a command of this name.
fn keys_of<'a>(name: &[u8], args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let args = args.get(1..).unwrap_or_default();
    let (most, every) = match name {
        b"GET" | b"SET" | b"INCR" => (1, 1),
        b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" | b"MGET" => (args.len(), 1),
        b"MSET" => (args.len(), 2),
        _ => (0, 1),
    };
    args.iter().take(most).step_by(every).copied().collect()
}

impl Model {
    /// Runs a request and writes its answer.
    pub(super) fn run(&mut self, guest: &mut Guest, args: &[&[u8]], out: &mut Vec<u8>) {
        let word = |at: usize| args.get(at).copied().unwrap_or_default();
        let name = word(0).to_ascii_uppercase();
        if !guest.authenticated && !matches!(&name[..], b"HELLO" | b"AUTH") {
            return reply::error(out, "NOAUTH Authentication required.");
        }
        let asking = std::mem::take(&mut guest.asking);
        match (&name[..], args.len()) {
            (b"HELLO", _) if self.resp3 => self.hello(guest, args, out),
            (b"AUTH", 2..) => self.authenticate(guest, word(args.len() - 1), out),
            (b"SELECT", 2) => self.select(guest, word(1), out),
            (b"CLIENT", _) => reply::ok(out),
            (b"ROLE", 1) => self.role(out),
            (b"INFO", _) => reply::bulk(out, self.info().as_bytes()),
            (b"PING", 1) => reply::simple(out, "PONG"),
            (b"PING" | b"ECHO", 2) => reply::bulk(out, word(1)),
            (b"ASKING" | b"READONLY" | b"READWRITE", 1) if self.place.is_some() => {
                (guest.asking, guest.reads_replicas) = match &name[..] {
                    b"ASKING" => (true, guest.reads_replicas),
                    other => (false, other == b"READONLY"),
                };
                reply::ok(out);
            }
            (b"CLUSTER", 2..) if self.place.is_some() => self.cluster(guest, args, out),
            _ => {
                let keys = keys_of(&name, args);
                let demand = Demand {
                    keys: &keys,
                    writes: writes(&name),
                    database: guest.database,
                    reads_replicas: guest.reads_replicas,
                    asking,
                };
                match self.refusal(&demand) {
                    Some(error) => reply::error(out, &error),
                    None => self.run_on_values(guest, &name, args, &keys, out),
                }
            }
        }
    }

    /// Why it does not run a command here, if so.
    fn refusal(&self, demand: &Demand<'_>) -> Option<String> {
        let elsewhere = self.place.as_ref().and_then(|place| place.refusal(demand));
        let refuses = match &self.place {
            Some(place) => place.refuses_writes(),
            None => self.replica,
        };
        elsewhere.or_else(|| (demand.writes && refuses).then(|| READ_ONLY.to_owned()))
    }

    fn run_on_values(
        &mut self,
        guest: &Guest,
        name: &[u8],
        args: &[&[u8]],
        keys: &[&[u8]],
        out: &mut Vec<u8>,
    ) {
        let word = |at: usize| args.get(at).copied().unwrap_or_default();
        let at = |key: &[u8]| (guest.database, key.to_vec());
        let mut values = self.values.borrow_mut();
        match (name, args.len()) {
            (b"GET", 2) => {
                let value = values.get(&at(word(1)));
                reply::bulk_or_null(out, guest.protocol, value.map(Vec::as_slice));
            }
            (b"MGET", 2..) => {
                reply::array(out, keys.len());
                for key in keys {
                    let value = values.get(&at(key));
                    reply::bulk_or_null(out, guest.protocol, value.map(Vec::as_slice));
                }
            }
            (b"EXISTS" | b"TOUCH", 2..) => {
                reply::count(out, keys.iter().filter(|key| values.contains_key(&at(key))).count());
            }
            (b"SET", 3) => {
                values.insert(at(word(1)), word(2).to_vec());
                reply::ok(out);
            }
            (b"MSET", 3..) if args.len() % 2 == 1 => {
                for pair in args[1..].chunks_exact(2) {
                    values.insert(at(pair[0]), pair[1].to_vec());
                }
                reply::ok(out);
            }
            (b"DEL" | b"UNLINK", 2..) => {
                let gone = keys.iter().filter(|key| values.remove(&at(key)).is_some());
                reply::count(out, gone.count());
            }
            (b"INCR", 2) => {
                let value = values.get(&at(word(1))).map_or(Some(0), |v| number(v));
                match value.map(|value| value.wrapping_add(1)) {
                    Some(value) => {
                        values.insert(at(word(1)), value.to_string().into_bytes());
                        reply::int(out, value);
                    }
                    None => reply::error(out, "ERR value is not an integer or out of range"),
                }
            }
            (b"FLUSHALL", 1..) => {
                values.clear();
                reply::ok(out);
            }
            (b"SCAN" | b"KEYS" | b"DBSIZE", _) => {
                drop(values);
                self.list(guest.database, name, args, out);
            }
            _ => unknown(word(0), out),
        }
    }

    /// SCAN, KEYS and DBSIZE.
    fn list(&self, database: u32, name: &[u8], args: &[&[u8]], out: &mut Vec<u8>) {
        let word = |at: usize| args.get(at).copied().unwrap_or_default();
        let values = self.values.borrow();
        let from = Bound::Included((database, Vec::new()));
        let keys = values.range((from, Bound::Unbounded)).map(|((of, key), _)| (*of, key));
        let keys = keys.take_while(|(of, _)| *of == database).map(|(_, key)| key);
        match (name, args.len()) {
            (b"SCAN", 2..) => scan(keys, number(word(1)).unwrap_or(0), out),
            (b"KEYS", 2) => {
                let keys: Vec<_> = keys.filter(|key| pattern::fits(word(1), key)).collect();
                reply::array(out, keys.len());
                keys.iter().for_each(|key| reply::bulk(out, key));
            }
            (b"DBSIZE", 1) => reply::count(out, keys.count()),
            _ => unknown(word(0), out),
        }
    }

    fn select(&self, guest: &mut Guest, database: &[u8], out: &mut Vec<u8>) {
        let most = self.place.as_ref().map_or(DATABASES, |place| place.databases());
        match number(database).and_then(|n| u32::try_from(n).ok()) {
            Some(database) if database < most => {
                guest.database = database;
                reply::ok(out);
            }
            _ => reply::error(out, "ERR DB index is out of range"),
        }
    }

    fn role(&self, out: &mut Vec<u8>) {
        let offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        let follows = match &self.place {
            Some(place) => place.follows().map(|at| (at.ip().to_string(), at.port())),
            None => self.replica.then(|| ("10.0.0.1".to_owned(), 6379)),
        };
        match follows {
            None => {
                let replicas =
                    self.place.as_ref().map(|place| place.replicas()).unwrap_or_default();
                reply::array(out, 3);
                reply::bulk(out, b"master");
                reply::int(out, offset);
                reply::array(out, replicas.len());
                for at in replicas {
                    reply::array(out, 3);
                    reply::bulk(out, at.ip().to_string().as_bytes());
                    reply::bulk(out, at.port().to_string().as_bytes());
                    reply::bulk(out, offset.to_string().as_bytes());
                }
            }
            Some((ip, port)) => {
                reply::array(out, 5);
                reply::bulk(out, b"slave");
                reply::bulk(out, ip.as_bytes());
                reply::int(out, i64::from(port));
                reply::bulk(out, if self.linked { b"connected" } else { b"connect" });
                reply::int(out, offset);
            }
        }
    }

    fn info(&self) -> String {
        let zone = self.zone.iter().map(|zone| format!("availability_zone:{zone}\r\n"));
        let (server, cluster) = match &self.place {
            Some(_) => (
                "server_name:valkey\r\nvalkey_version:9.1.0\r\nredis_mode:cluster\r\n",
                "# Cluster\r\ncluster_enabled:1\r\n",
            ),
            None => ("", ""),
        };
        let zone = zone.collect::<String>();
        format!("# Server\r\nredis_version:7.2.4\r\n{server}{zone}{cluster}")
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
        let mode = self.place.is_some();
        reply::map(out, protocol, 2 + usize::from(self.zone.is_some()) + usize::from(mode));
        if let Some(zone) = &self.zone {
            reply::bulk(out, b"availability_zone");
            reply::bulk(out, zone.as_bytes());
        }
        if mode {
            reply::bulk(out, b"mode");
            reply::bulk(out, b"cluster");
        }
        reply::bulk(out, b"server");
        reply::bulk(out, if mode { b"valkey" } else { b"redis" });
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

fn unknown(name: &[u8], out: &mut Vec<u8>) {
    let name = String::from_utf8_lossy(name);
    reply::error(out, &format!("ERR unknown command '{name}'"));
}

/// One key a page; the cursor is how many came before.
fn scan<'a>(keys: impl Iterator<Item = &'a Vec<u8>>, cursor: i64, out: &mut Vec<u8>) {
    let at = usize::try_from(cursor).unwrap_or(0);
    let mut keys = keys.skip(at);
    let key = keys.next();
    let next = if keys.next().is_some() { at + 1 } else { 0 };
    reply::array(out, 2);
    reply::bulk(out, next.to_string().as_bytes());
    reply::array(out, usize::from(key.is_some()));
    if let Some(key) = key {
        reply::bulk(out, key);
    }
}
