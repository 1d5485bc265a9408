//! The in-process server itself: greeting, login, data.

use std::time::Duration;

use hedgerow::testing::{ManualClock, Server};

use crate::raw::Raw;

/// Runs inline commands with their expected replies, in RESP2.
#[track_caller]
fn conversation(lines: &[(&str, &str)]) {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    for (command, reply) in lines {
        raw.says(command, reply);
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn hello(prefix: &str, version: &str, protocol: u8, id: u8) -> String {
    format!(
        "{prefix}$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n${}\r\n{version}\r\n\
         $5\r\nproto\r\n:{protocol}\r\n\
         $2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
         $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        version.len()
    )
}

/// Design section 4, test server. Fails if the greeting is no map in RESP3, no flat array in RESP2,
/// or does not switch the protocol.
#[test]
fn hello_switches_the_protocol() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("GET none", "$-1\r\n");
    raw.says("HELLO 3", &hello("%7\r\n", "7.2.0", 3, 1));
    raw.says("GET none", "_\r\n");
    raw.says("HELLO", &hello("%7\r\n", "7.2.0", 3, 1));
    raw.says("HELLO 2 SETNAME me", &hello("*14\r\n", "7.2.0", 2, 1));
    raw.says("CLIENT GETNAME", "$2\r\nme\r\n");
}

/// Design section 4, test server. Fails if a refusal of HELLO is worded otherwise than servers word
/// it.
#[test]
fn hello_refuses_in_the_servers_words() {
    conversation(&[
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        (
            "HELLO 3 SETNAME \"a b\"",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
        ("GET none", "$-1\r\n"),
    ]);
}

/// Design section 4, test server. Fails if an old server knows HELLO or quotes it as new ones do,
/// or a RESP2 server takes `HELLO 3`.
#[test]
fn old_servers_know_no_hello_or_no_resp3() {
    let server = Server::builder().no_hello().start().expect("start");
    let mut raw = Raw::connect(&server);
    let text = "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n";
    raw.says("HELLO 3", text);
    raw.says("PING", "+PONG\r\n");

    let server = Server::builder().no_resp3().version("6.0.1").start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("HELLO 3", "-NOPROTO unsupported protocol version\r\n");
    raw.says("HELLO 2", &hello("*14\r\n", "6.0.1", 2, 1));
}

/// Design section 4, test server. Fails if anything but a login is served before it, or a wrong
/// password is worded otherwise.
#[test]
fn a_password_is_asked_in_the_servers_words() {
    let server = Server::builder().password("secret").user("app", "word").start().expect("start");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut raw = Raw::connect(&server);
    raw.says("GET a", "-NOAUTH Authentication required.\r\n");
    raw.says("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n");
    raw.send("HELLO 3\r\n");
    assert!(raw.line().starts_with("-NOAUTH HELLO must be called with the client already"));
    raw.says("AUTH bad", wrong);
    raw.says("HELLO 3 AUTH app secret", wrong);
    raw.says("AUTH nobody secret", wrong);
    raw.says("AUTH secret", "+OK\r\n");
    raw.says("GET a", "$-1\r\n");
    raw.says("RESET", "+RESET\r\n");
    raw.says("GET a", "-NOAUTH Authentication required.\r\n");
    raw.says("HELLO 3 AUTH app word SETNAME n", &hello("%7\r\n", "7.2.0", 3, 1));
    raw.says("GET a", "_\r\n");

    conversation(&[(
        "AUTH x",
        "-ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?\r\n",
    )]);
}

/// Design section 4, test server. Fails if databases share keys, or a bad index is taken or worded
/// otherwise.
#[test]
fn sixteen_databases_are_apart() {
    conversation(&[
        ("SET a 0", "+OK\r\n"),
        ("SELECT 15", "+OK\r\n"),
        ("GET a", "$-1\r\n"),
        ("SET a 15", "+OK\r\n"),
        ("SELECT 16", "-ERR DB index is out of range\r\n"),
        ("SELECT -1", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("FLUSHDB", "+OK\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("GET a", "$1\r\n0\r\n"),
        ("FLUSHALL", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
}

/// Design section 4, test server. Fails if an error's wording differs from the servers', which
/// clients and tests match on.
#[test]
fn errors_are_worded_as_servers_word_them() {
    conversation(&[
        ("FOO a b", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' \r\n"),
        ("get", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("MSET a", "-ERR wrong number of arguments for 'mset' command\r\n"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n"),
        ("HSET h f v", ":1\r\n"),
        ("GET h", WRONG_TYPE),
        ("INCR h", WRONG_TYPE),
        ("LPUSH h a", WRONG_TYPE),
        ("ZADD h 1 a", WRONG_TYPE),
        ("SADD h a", WRONG_TYPE),
        ("APPEND h a", WRONG_TYPE),
        ("SET a b c", "-ERR syntax error\r\n"),
        ("SET a b NX XX", "-ERR syntax error\r\n"),
        ("SET a b EX 1 PX 1", "-ERR syntax error\r\n"),
        ("SET a b EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a b EX x", "-ERR value is not an integer or out of range\r\n"),
        ("SETEX a -1 b", "-ERR invalid expire time in 'setex' command\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("QUIT", "+OK\r\n"),
    ]);
}

/// Design section 4, test server. Fails if one of them answers or stores something else.
#[test]
fn strings() {
    conversation(&[
        ("SET a 1 NX GET", "$-1\r\n"),
        ("SET a 2 NX", "$-1\r\n"),
        ("SET a 3 XX GET", "$1\r\n1\r\n"),
        ("SETNX a 9", ":0\r\n"),
        ("GETSET a 4", "$1\r\n3\r\n"),
        ("INCR a", ":5\r\n"),
        ("INCRBY a 10", ":15\r\n"),
        ("DECR a", ":14\r\n"),
        ("DECRBY a 4", ":10\r\n"),
        ("INCRBYFLOAT a 0.1", "$4\r\n10.1\r\n"),
        ("INCRBYFLOAT f 0.1", "$3\r\n0.1\r\n"),
        ("INCRBYFLOAT f 0.2", "$3\r\n0.3\r\n"),
        ("INCRBYFLOAT f -0.3", "$1\r\n0\r\n"),
        ("INCR a", "-ERR value is not an integer or out of range\r\n"),
        ("MSET x 1 y 2", "+OK\r\n"),
        ("MSETNX z 1 x 2", ":0\r\n"),
        ("MGET x z y", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("GETDEL x", "$1\r\n1\r\n"),
        ("GETDEL x", "$-1\r\n"),
        ("APPEND s Hello", ":5\r\n"),
        ("APPEND s World", ":10\r\n"),
        ("STRLEN s", ":10\r\n"),
        ("GETRANGE s 0 4", "$5\r\nHello\r\n"),
        ("GETRANGE s -5 -1", "$5\r\nWorld\r\n"),
        ("GETRANGE s 7 3", "$0\r\n\r\n"),
        ("SETRANGE s 5 ___", ":10\r\n"),
        ("GET s", "$10\r\nHello___ld\r\n"),
        ("SETRANGE p 2 x", ":3\r\n"),
        ("GET p", "$3\r\n\0\0x\r\n"),
        ("SETRANGE p -1 x", "-ERR offset is out of range\r\n"),
        ("SET m 9223372036854775807", "+OK\r\n"),
        ("INCR m", "-ERR increment or decrement would overflow\r\n"),
        ("DECRBY m -9223372036854775808", "-ERR decrement would overflow\r\n"),
    ]);
}

/// Design section 4, test server. Fails if a key outlives its time, goes early, or SET keeps a time
/// unasked.
#[test]
fn keys_expire_by_the_clock_they_are_given() {
    let clock = ManualClock::new();
    let server = Server::builder().clock(&clock).start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("SET a 1 PX 1500", "+OK\r\n");
    raw.says("TTL a", ":2\r\n");
    clock.advance(Duration::from_millis(1499));
    raw.says("PTTL a", ":1\r\n");
    clock.advance(Duration::from_millis(1));
    raw.says("GET a", "$-1\r\n");
    raw.says("PTTL a", ":-2\r\n");

    raw.says("SET a 1 EX 10", "+OK\r\n");
    raw.says("SET a 2 KEEPTTL", "+OK\r\n");
    raw.says("INCR a", ":3\r\n");
    raw.says("TTL a", ":10\r\n");
    raw.says("GETEX a PX 20", "$1\r\n3\r\n");
    raw.says("PTTL a", ":20\r\n");
    raw.says("EXPIRE a 5 NX", ":0\r\n");
    raw.says("EXPIRE a 5 GT", ":1\r\n");
    raw.says("PERSIST a", ":1\r\n");
    raw.says("PERSIST a", ":0\r\n");
    raw.says("PTTL a", ":-1\r\n");
    raw.says("PEXPIRE a 0", ":1\r\n");
    raw.says("EXISTS a", ":0\r\n");
    raw.says("EXPIRE a 1", ":0\r\n");

    raw.says("SETEX b 1 x", "+OK\r\n");
    raw.says("SET c x", "+OK\r\n");
    raw.says("SET b2 x EX 1", "+OK\r\n");
    raw.says("SET b2 x", "+OK\r\n");
    clock.advance(Duration::from_secs(2));
    raw.says("DBSIZE", ":2\r\n");
    raw.says("KEYS b*", "*1\r\n$2\r\nb2\r\n");
}

/// Design section 4, test server. Fails if one of them answers something else.
#[test]
fn keys() {
    conversation(&[
        ("MSET a 1 b 2 c 3", "+OK\r\n"),
        ("EXISTS a a z", ":2\r\n"),
        ("TYPE a", "+string\r\n"),
        ("TYPE z", "+none\r\n"),
        ("RENAME a z", "+OK\r\n"),
        ("RENAME a z", "-ERR no such key\r\n"),
        ("RENAMENX z b", ":0\r\n"),
        ("KEYS [bc]", "*2\r\n$1\r\nc\r\n$1\r\nb\r\n"),
        ("DEL b c q", ":2\r\n"),
        ("RANDOMKEY", "$1\r\nz\r\n"),
        ("UNLINK z", ":1\r\n"),
        ("RANDOMKEY", "$-1\r\n"),
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ]);
}

/// Design section 4, test server. Fails if a key that is there all the time is missed while others
/// are deleted between the calls.
#[test]
fn scan_sees_every_key_that_stays() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    for key in 0..300 {
        raw.says(&format!("SET k{key} v"), "+OK\r\n");
    }
    let mut seen = std::collections::HashSet::new();
    let mut cursor = "0".to_owned();
    let mut doomed = (0..300).filter(|key| key % 3 != 0);
    loop {
        raw.send(format!("SCAN {cursor} COUNT 7 MATCH k*\r\n"));
        assert_eq!(raw.line(), "*2");
        cursor = raw.bulk();
        let count: usize = raw.line()[1..].parse().expect("a count");
        seen.extend((0..count).map(|_| raw.bulk()));
        if cursor == "0" {
            break;
        }
        for key in doomed.by_ref().take(5) {
            raw.says(&format!("DEL k{key}"), ":1\r\n");
        }
    }
    let stayed = (0..300).filter(|key| key % 3 == 0);
    assert!(stayed.into_iter().all(|key| seen.contains(&format!("k{key}"))));
}

/// Design section 4, test server. Fails if one answers something else, or an empty hash stays.
#[test]
fn hashes() {
    conversation(&[
        ("HSET h a 1 b 2", ":2\r\n"),
        ("HSET h a 3 c 4", ":1\r\n"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command\r\n"),
        ("HGET h a", "$1\r\n3\r\n"),
        ("HMGET h a z b", "*3\r\n$1\r\n3\r\n$-1\r\n$1\r\n2\r\n"),
        ("HMGET none a", "*1\r\n$-1\r\n"),
        ("HGETALL h", "*6\r\n$1\r\na\r\n$1\r\n3\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n4\r\n"),
        ("HKEYS h", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("HVALS h", "*3\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n4\r\n"),
        ("HEXISTS h b", ":1\r\n"),
        ("HLEN h", ":3\r\n"),
        ("HINCRBY h b 5", ":7\r\n"),
        ("HINCRBYFLOAT h b 0.5", "$3\r\n7.5\r\n"),
        ("HINCRBY h b 5", "-ERR hash value is not an integer\r\n"),
        ("HSCAN h 0 MATCH b", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nb\r\n$3\r\n7.5\r\n"),
        ("HDEL h a b c d", ":3\r\n"),
        ("EXISTS h", ":0\r\n"),
        ("HINCRBY h n x", "-ERR value is not an integer or out of range\r\n"),
        ("EXISTS h", ":0\r\n"),
    ]);
}

/// Design section 4, test server. Fails if one answers something else.
#[test]
fn lists_sets_and_sorted_sets() {
    conversation(&[
        ("RPUSH l a b c", ":3\r\n"),
        ("LPUSH l z y", ":5\r\n"),
        ("LRANGE l 0 -1", "*5\r\n$1\r\ny\r\n$1\r\nz\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("LLEN l", ":5\r\n"),
        ("LPOP l", "$1\r\ny\r\n"),
        ("RPOP l 2", "*2\r\n$1\r\nc\r\n$1\r\nb\r\n"),
        ("LPOP none", "$-1\r\n"),
        ("LPOP none 1", "*-1\r\n"),
        ("LPOP l 9", "*2\r\n$1\r\nz\r\n$1\r\na\r\n"),
        ("EXISTS l", ":0\r\n"),
        ("SADD s a b a", ":2\r\n"),
        ("SMEMBERS s", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("SISMEMBER s a", ":1\r\n"),
        ("SREM s a q", ":1\r\n"),
        ("SCARD s", ":1\r\n"),
        ("ZADD z 2 b 1 a 2 aa", ":3\r\n"),
        ("ZADD z CH 3 a", ":1\r\n"),
        ("ZADD z GT CH 1 a", ":0\r\n"),
        ("ZADD z x a", "-ERR value is not a valid float\r\n"),
        ("ZRANGE z 0 -1", "*3\r\n$2\r\naa\r\n$1\r\nb\r\n$1\r\na\r\n"),
        ("ZRANGE z 0 0 REV WITHSCORES", "*2\r\n$1\r\na\r\n$1\r\n3\r\n"),
        ("ZINCRBY z 0.5 a", "$3\r\n3.5\r\n"),
        ("ZSCORE z none", "$-1\r\n"),
        ("ZCARD z", ":3\r\n"),
    ]);
}

/// Design section 4, test server. Fails if RESP3 has no types of its own for maps, sets, doubles
/// and texts.
#[test]
fn resp3_has_its_types() {
    let server = Server::start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("HELLO 3", &hello("%7\r\n", "7.2.0", 3, 1));
    raw.says("HSET h a 1", ":1\r\n");
    raw.says("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\n1\r\n");
    raw.says("SADD s a", ":1\r\n");
    raw.says("SMEMBERS s", "~1\r\n$1\r\na\r\n");
    raw.says("ZADD z 1.5 a 1e300 b", ":2\r\n");
    raw.says("ZSCORE z a", ",1.5\r\n");
    raw.says("ZSCORE z b", ",1e300\r\n");
    raw.says("ZRANGE z 0 0 WITHSCORES", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
    raw.says("LPOP none 1", "_\r\n");
    raw.send("INFO clients\r\n");
    assert!(raw.line().starts_with('='));
}

/// Design section 4, test server. Fails if CLIENT forgets a name or library, lists wrongly, or
/// kills another connection than the one named.
#[test]
fn client_knows_the_connections() {
    let server = Server::start().expect("start");
    let (mut one, mut two) = (Raw::connect(&server), Raw::connect(&server));
    one.says("CLIENT ID", ":1\r\n");
    two.says("CLIENT ID", ":2\r\n");
    two.says("CLIENT SETNAME two", "+OK\r\n");
    two.says("CLIENT SETINFO LIB-NAME lib", "+OK\r\n");
    two.says("CLIENT SETINFO LIB-VER 1.2", "+OK\r\n");
    two.says("CLIENT SETINFO FOO x", "-ERR Unrecognized option 'FOO'\r\n");
    two.says("SELECT 3", "+OK\r\n");
    one.send("CLIENT LIST\r\n");
    let list = one.bulk();
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("id=1 addr=127.0.0.1:") && lines[0].contains(" cmd=client "));
    for part in ["id=2 ", " name=two ", " db=3 ", " lib-name=lib ", " lib-ver=1.2 ", " resp=2"] {
        assert!(lines[1].contains(part), "{part} in {}", lines[1]);
    }
    one.says("CLIENT KILL ID 9", ":0\r\n");
    one.says("CLIENT KILL ID 2", ":1\r\n");
    assert_eq!(two.rest(), (Vec::new(), None));
    one.says("CLIENT KILL ID 1", ":0\r\n");
    one.says("CLIENT KILL ID 1 SKIPME no", ":1\r\n");
    assert_eq!(one.rest(), (Vec::new(), None));
    assert_eq!(server.stats().open, 0);
    assert_eq!(server.stats().accepted, 2);
}

/// Design section 4, test server. Fails if a reader is not told of a change, is told twice for one
/// read, or a broadcast or opt-in connection is told of keys that it does not ask for.
#[test]
fn tracking_tells_of_changes() {
    let told = |key: &str| format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len());
    let server = Server::start().expect("start");
    let mut readers: Vec<Raw> = (0..3).map(|_| Raw::connect(&server)).collect();
    for (reader, id) in readers.iter_mut().zip(1..) {
        reader.says("HELLO 3", &hello("%7\r\n", "7.2.0", 3, id));
    }
    let [plain, broadcast, opt_in] = &mut readers[..] else { panic!("three") };
    plain.says("CLIENT TRACKING on", "+OK\r\n");
    broadcast.says("CLIENT TRACKING on BCAST PREFIX x", "+OK\r\n");
    opt_in.says("CLIENT TRACKING on OPTIN", "+OK\r\n");
    plain.says("MGET a b", "*2\r\n_\r\n_\r\n");
    opt_in.says("GET a", "_\r\n");
    opt_in.says("CLIENT CACHING YES", "+OK\r\n");
    opt_in.says("GET b", "_\r\n");
    opt_in.says("GET x", "_\r\n");

    let mut writer = Raw::connect(&server);
    writer.says("MSET a 1 b 1 x 1 a 2 b 2", "+OK\r\n");
    writer.says("SET a 1 NX", "$-1\r\n");
    plain.expect(told("a") + &told("b"));
    opt_in.expect(told("b"));
    broadcast.expect(told("x"));
    for reader in [&mut *plain, &mut *opt_in, &mut *broadcast] {
        reader.says("PING", "+PONG\r\n");
    }
    // The own change too, behind its reply.
    plain.says("GET h", "_\r\n");
    plain.says("HSET h f v", &(":1\r\n".to_owned() + &told("h")));
    writer.says("FLUSHALL", "+OK\r\n");
    plain.expect(">2\r\n$10\r\ninvalidate\r\n_\r\n");
    plain.says("CLIENT TRACKING off", "+OK\r\n");
    plain.says(
        "CLIENT TRACKING on PREFIX a",
        "-ERR PREFIX option requires BCAST mode to be enabled\r\n",
    );
}

/// Design section 4, test server. Fails if the server claims what it does not have.
#[test]
fn it_says_what_it_is() {
    conversation(&[
        ("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"),
        ("COMMAND DOCS get", "*0\r\n"),
        ("COMMAND INFO get foo", "*2\r\n*-1\r\n*-1\r\n"),
        ("INFO cluster", "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"),
        ("MULTI", "-ERR unknown command 'MULTI', with args beginning with: \r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("PING hi", "$2\r\nhi\r\n"),
    ]);
}

/// Design section 4, test server. Fails if a Unix socket is not served, or its file stays behind.
#[test]
fn unix_sockets_are_served_and_removed() {
    use std::io::{Read, Write};
    let path = std::env::temp_dir().join(format!("hedgerow-server-{}.sock", std::process::id()));
    let server = Server::builder().unix(&path).bind("127.0.0.1:0").start().expect("start");
    assert!(server.url().starts_with("redis://127.0.0.1:"));
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("connect");
    stream.write_all(b"SET a 1\r\n").expect("send");
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).expect("reply");
    Raw::connect(&server).says("GET a", "$1\r\n1\r\n");
    server.stop();
    assert!(!path.exists());
}

/// Design section 4, test server. Fails if an address in use is no error, or the error does not
/// name it.
#[test]
fn an_address_in_use_is_named() {
    let server = Server::start().expect("start");
    let address = server.addr().expect("an address").to_string();
    let error = Server::builder().bind(&address).start().expect_err("in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address));
    for cpu in [1023, 100_000] {
        let error = Server::builder().cpu(cpu).start().expect_err("no such cpu");
        assert!(error.to_string().contains(&format!("cpu {cpu}")), "{error}");
    }
}
