//! The checked-in command table against what a server says of itself.
//!
//! The comparisons take any way of asking: a closure from the words of a command to its reply.
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use hedgerow::command::raw;
use hedgerow::command::table::{Answer, Ask, Spec};
use hedgerow::command::{Command, Flags};
use hedgerow::resp::{Decoder, FromReply, Limits, Protocol, Reply, Step, Value, encode};

use crate::server::{Flavor, Server};

/// The flags and tips of the table, by the server's names.
const FLAGS: &[(&str, Flags)] = &[
    ("write", Flags::WRITE),
    ("readonly", Flags::READONLY),
    ("denyoom", Flags::DENYOOM),
    ("admin", Flags::SERVER_ADMIN),
    ("pubsub", Flags::PUBSUB),
    ("noscript", Flags::NOSCRIPT),
    ("blocking", Flags::BLOCKING),
    ("loading", Flags::LOADING),
    ("stale", Flags::STALE),
    ("no_auth", Flags::NO_AUTH),
    ("fast", Flags::FAST),
    ("no_multi", Flags::NO_MULTI),
    ("movablekeys", Flags::MOVABLE_KEYS),
    ("nondeterministic_output", Flags::RANDOM),
    ("nondeterministic_output_order", Flags::UNORDERED),
];

/// What a server says of one command.
struct Said {
    arity: i64,
    words: Vec<String>,
    container: bool,
}

fn text(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::Error(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => panic!("text was expected, not {other:?}"),
    }
}

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("a list was expected, not {other:?}"),
    }
}

/// The entries of a COMMAND reply and, after each, those of its subcommands.
fn collect(entry: &Value, said: &mut BTreeMap<String, Said>) {
    let [name, arity, flags, _, _, _, _, tips, _, inner, ..] = list(entry) else {
        panic!("an entry of ten parts was expected");
    };
    let Value::Int(arity) = *arity else { panic!("an arity was expected") };
    let words = list(flags).iter().chain(list(tips)).map(text).collect();
    let container = !list(inner).is_empty();
    said.insert(text(name).to_uppercase().replace('|', " "), Said { arity, words, container });
    for entry in list(inner) {
        collect(entry, said);
    }
}

/// Asks a server for all its commands.
fn commands(ask: &mut impl FnMut(&[&[u8]]) -> Value) -> BTreeMap<String, Said> {
    let mut said = BTreeMap::new();
    for entry in list(&ask(&[b"COMMAND"])) {
        collect(entry, &mut said);
    }
    said
}

/// The value of a policy tip, as the table has it: `all_shards` is `AllShards`.
fn policy(said: &Said, prefix: &str) -> String {
    let Some(tip) = said.words.iter().find_map(|word| word.strip_prefix(prefix)) else {
        return "Default".to_owned();
    };
    let parts = tip.split('_').map(|part| part[..1].to_uppercase() + &part[1..]);
    parts.collect()
}

fn same_row(name: &str, spec: Spec, said: &Said) {
    assert_eq!(i64::from(spec.arity()), said.arity, "arity of {name}");
    for (word, flag) in FLAGS {
        let has = said.words.iter().any(|known| known == word);
        assert_eq!(spec.flags().contains(*flag), has, "{word} of {name}");
    }
    assert_eq!(spec.flags().contains(Flags::CONTAINER), said.container, "subcommands of {name}");
    let (ask, answer): (Ask, Answer) = (spec.ask(), spec.answer());
    assert_eq!(format!("{ask:?}"), policy(said, "request_policy:"), "{name}");
    assert_eq!(format!("{answer:?}"), policy(said, "response_policy:"), "{name}");
}

/// Compares every row with a server of the version that the table was generated from, both ways.
fn table_is_the_servers(ask: &mut impl FnMut(&[&[u8]]) -> Value) {
    let said = commands(ask);
    for spec in Spec::all() {
        assert!(said.contains_key(spec.name()), "{} is gone", spec.name());
    }
    for (name, said) in &said {
        let spec = Spec::find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        same_row(name, spec, said);
    }
}

/// Commands whose keys stand where only their own words tell.
const IRREGULAR: &[&str] = &[
    "SORT k BY w_* LIMIT 0 5 GET o_* STORE d",
    "SORT k GET STORE ALPHA",
    "SORT k STORE a STORE b",
    "SORT_RO k BY nosort GET o_*",
    "MIGRATE h 1 k 0 10",
    "MIGRATE h 1 k 0 10 COPY REPLACE AUTH2 u p",
    "XREAD COUNT 2 BLOCK 0 STREAMS a b 0 0",
    "XREAD STREAMS a 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS a b c > > >",
    "GEORADIUS k 0 0 1 m STORE d",
    "GEORADIUS k 0 0 1 m COUNT 5 STOREDIST d",
    "GEORADIUSBYMEMBER k m 1 m STORE d",
    "EVAL s 2 a b c",
    "EVAL s 0 a",
    "FCALL f 1 a b",
    "ZUNIONSTORE d 2 a b WEIGHTS 1 2",
    "BLMPOP 0 2 a b LEFT",
    "LMPOP 3 a b c LEFT",
    "MSETEX 2 a 1 b 2 NX",
    "MSET a 1 b 2",
    "BITOP AND d a b",
    "BLPOP a b c 0",
    "OBJECT ENCODING k",
    "MEMORY USAGE k",
    "XGROUP CREATE k g $",
    "PFDEBUG GETREG k",
    "SINTERCARD 2 a b LIMIT 1",
    "SPUBLISH c m",
    "SORT k GET # STORE d",
    "SORT k BY STORE STORE d",
    "SORT k LIMIT STORE STORE STORE d",
    "GEORADIUS k 0 0 1 m ASC COUNT 5 ANY STORE d",
    "GEORADIUS_RO k 0 0 1 m ASC",
    "GEORADIUSBYMEMBER k STORE 1 m STOREDIST d",
    "GEOSEARCHSTORE d k FROMMEMBER STORE BYRADIUS 1 m",
    "LCS a b LEN",
    "COPY a b REPLACE",
    "SMOVE a b m",
    "BLMOVE a b LEFT RIGHT 0",
    "XREADGROUP GROUP STREAMS c COUNT 1 STREAMS a >",
];

/// Commands with any number of keys: `{n}` is their number and they, `{k}` they alone, `{ki}` they and as
/// many ids, `{nkv}` their number and each with a value. Two blanks have an empty word between them.
const FORMS: &[&str] = &[
    "ZUNIONSTORE d {n} WEIGHTS 1 2",
    "ZINTERSTORE d {n} AGGREGATE MIN",
    "ZDIFFSTORE d {n}",
    "ZUNION {n} WITHSCORES",
    "ZINTER {n} AGGREGATE MAX",
    "ZDIFF {n} WITHSCORES",
    "ZINTERCARD {n} LIMIT 1",
    "SINTERCARD {n} LIMIT 1",
    "LMPOP {n} LEFT COUNT 2",
    "BLMPOP 0 {n} RIGHT",
    "ZMPOP {n} MIN",
    "BZMPOP 0 {n} MAX COUNT 3",
    "EVAL s {n} x y",
    "EVAL_RO s {n}",
    "EVALSHA s {n} x",
    "EVALSHA_RO s {n} 2",
    "FCALL f {n} x",
    "FCALL_RO f {n}",
    "MSETEX {nkv} EX 9",
    "XREAD STREAMS {ki}",
    "XREAD COUNT 1 BLOCK 5 STREAMS {ki}",
    "XREADGROUP GROUP g c NOACK STREAMS {ki}",
    "XREADGROUP GROUP STREAMS c BLOCK 5 STREAMS {ki}",
    "MIGRATE h 1  0 10 KEYS {k}",
    "MIGRATE h 1  0 10 COPY REPLACE AUTH keys KEYS {k}",
    "MIGRATE h 1  0 10 AUTH2 u keys KEYS {k} KEYS x",
    "BITOP OR d {k}",
    "PFMERGE d {k}",
    "SUNIONSTORE d {k}",
    "BZPOPMIN {k} 0",
    "MGET {k}",
    "DEL {k}",
    "WATCH {k}",
    "SSUBSCRIBE {k}",
];

/// Each form with one to four keys, in capitals and small letters.
fn formed_commands() -> impl Iterator<Item = Vec<String>> {
    let forms = FORMS.iter().flat_map(|form| (1..=4).map(move |count| (*form, count)));
    let lines = forms.map(|(form, count)| {
        let keys: Vec<String> = (0..count).map(|n| format!("key:{n}")).collect();
        let ids = vec!["0"; count].join(" ");
        let (keys, pairs) = (keys.join(" "), keys.join(" v ") + " v");
        form.replace("{nkv}", &format!("{count} {pairs}"))
            .replace("{n}", &format!("{count} {keys}"))
            .replace("{ki}", &format!("{keys} {ids}"))
            .replace("{k}", &keys)
    });
    let lines = lines.flat_map(|line| [line.to_lowercase(), line]);
    lines.map(|line| line.split(' ').map(str::to_owned).collect())
}

/// Plain words for each command of the table: as many as it needs, and a few more where it may.
fn plain_commands() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for spec in Spec::all() {
        let name: Vec<String> = spec.name().split(' ').map(str::to_owned).collect();
        let least = usize::from(spec.arity().unsigned_abs()).max(name.len());
        let more: &[usize] = if spec.arity() < 0 { &[0, 1, 2, 5] } else { &[0] };
        for more in more {
            let mut words = name.clone();
            // A number, so that where it counts keys it counts one.
            words.resize(least + more, "1".to_owned());
            all.push(words);
        }
    }
    all
}

/// Compares the keys of one command with the server's. A server refuses to name none, and names none
/// at all where one of several key specifications finds too few words, which is no answer.
fn same_keys(words: &[String], ask: &mut impl FnMut(&[&[u8]]) -> Value) {
    let (name, args) = words.split_first().expect("a name");
    let command: Command<()> = raw(name).args(args).build();
    let ours: Vec<String> = command
        .keys()
        .map(|range| String::from_utf8_lossy(&command.bytes()[range]).into_owned())
        .collect();
    let mut asked: Vec<&[u8]> = vec![b"COMMAND", b"GETKEYS"];
    asked.extend(words.iter().map(String::as_bytes));
    let theirs = match ask(&asked) {
        Value::Error(line) if line.ends_with(b"no key arguments") => Vec::new(),
        // Older servers do not look at a command of one word.
        Value::Error(line) if line.starts_with(b"ERR wrong number") => Vec::new(),
        Value::Error(line) if line.starts_with(b"ERR Invalid ") => return,
        keys => list(&keys).iter().map(text).collect(),
    };
    assert_eq!(ours, theirs, "keys of {words:?}");
}

/// Compares the keys that the table finds with `COMMAND GETKEYS`, for each command that the server
/// has.
fn keys_are_the_servers(ask: &mut impl FnMut(&[&[u8]]) -> Value) {
    let said = commands(ask);
    let irregular = IRREGULAR.iter().map(|line| line.split(' ').map(str::to_owned).collect());
    let mut compared = 0;
    for words in irregular.chain(formed_commands()).chain(plain_commands()) {
        let command: Command<()> = raw(&words[0]).args(&words[1..]).build();
        if command.name().is_some_and(|name| said.contains_key(name)) {
            same_keys(&words, ask);
            compared += 1;
        }
    }
    assert!(compared > 500, "only {compared} commands were compared");
}

/// A connection that asks and waits.
struct Link {
    stream: TcpStream,
    decoder: Decoder,
}

impl Link {
    fn open(server: &Server) -> Link {
        let stream = TcpStream::connect(server.address()).expect("a connection");
        Link { stream, decoder: Decoder::new(Protocol::Resp2, Limits::default()) }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Value {
        let mut request = Vec::new();
        encode::command(&mut request, words);
        self.stream.write_all(&request).expect("the request is sent");
        let mut received = Vec::new();
        loop {
            let need = match self.decoder.decode(&received).expect("a reply") {
                Step::Frame(frame) => {
                    return Value::from_reply(Reply::<Bytes>::new(frame, None)).expect("a value");
                }
                Step::More { need } => need,
            };
            let start = received.len();
            received.resize(start + need, 0);
            self.stream.read_exact(&mut received[start..]).expect("the rest of the reply");
        }
    }
}

fn keys_agree_on(flavor: Flavor) {
    let server = Server::start(flavor);
    let mut link = Link::open(&server);
    keys_are_the_servers(&mut |words| link.ask(words));
}

/// Proves each row against the server that the table is generated from. Fails if an arity, a flag,
/// a policy or a name is another one there.
#[test]
fn the_table_is_what_valkey_91_says() {
    let server = Server::start(Flavor::Valkey91);
    let mut link = Link::open(&server);
    table_is_the_servers(&mut |words| link.ask(words));
}

/// Proves the key positions of every command against `COMMAND GETKEYS`. Fails if one key of one
/// command is missing, surplus or out of order.
#[test]
fn keys_are_found_where_valkey_91_finds_them() {
    keys_agree_on(Flavor::Valkey91);
}

/// As above. Fails if an older server's commands have their keys elsewhere.
#[test]
fn keys_are_found_where_valkey_90_finds_them() {
    keys_agree_on(Flavor::Valkey90);
}

/// As above. Fails if an older server's commands have their keys elsewhere.
#[test]
fn keys_are_found_where_redis_70_finds_them() {
    keys_agree_on(Flavor::Redis70);
}

/// As above. Fails if the other make's commands have their keys elsewhere.
#[test]
fn keys_are_found_where_redis_82_finds_them() {
    keys_agree_on(Flavor::Redis82);
}
