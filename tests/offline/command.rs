//! The exact bytes of every typed command, and what is known of them.
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Pending, pending};
use std::time::Duration;

use bytes::Bytes;
use hedgerow::Error;
use hedgerow::command::expiry::{ExpireCondition, Expiry, ReadExpiry};
use hedgerow::command::hashes::HsetexOptions;
use hedgerow::command::keys::{CopyOptions, RestoreOptions, SortOptions};
use hedgerow::command::lists::{End, LposOptions, Side};
use hedgerow::command::server::Flush;
use hedgerow::command::sorted_sets::{
    Aggregate, Extreme, LexBound, ScoreBound, ZCombine, ZRange, ZaddOptions,
};
use hedgerow::command::strings::{LcsOptions, MsetexOptions, SetOptions};
use hedgerow::command::table::{Group, Spec};
use hedgerow::command::{Command, cursors::ScanOptions};
use hedgerow::prelude::*;
use hedgerow::resp::FromReply;

/// A door that writes down what goes through it.
#[derive(Default)]
struct Recorder {
    last: RefCell<Vec<u8>>,
    names: RefCell<BTreeSet<&'static str>>,
}

impl Door for Recorder {
    type Kept = Bytes;
    type Request<R: FromReply<Bytes>> = Pending<Result<R, Error>>;

    fn send<R: FromReply<Bytes>>(&self, command: Command<R>) -> Self::Request<R> {
        let name = command.name().expect("a typed command is in the table");
        assert_eq!(command.check(true), Ok(()), "{name}");
        self.names.borrow_mut().insert(name);
        *self.last.borrow_mut() = command.bytes().to_vec();
        pending()
    }
}

impl Recorder {
    /// Checks that the method just called said these words, in RESP.
    fn is<R>(&self, _request: Pending<Result<R, Error>>, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        let mut resp = format!("*{}\r\n", words.len());
        for word in words {
            resp += &format!("${}\r\n{word}\r\n", word.len());
        }
        assert_eq!(String::from_utf8_lossy(&self.last.borrow()), resp);
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn strings(c: &Recorder) {
    c.is(c.append("k", "v"), "APPEND k v");
    c.is(c.decr("k"), "DECR k");
    c.is(c.decrby("k", 3), "DECRBY k 3");
    c.is(c.delifeq("k", "v"), "DELIFEQ k v");
    c.is(c.get::<()>("k"), "GET k");
    c.is(c.getdel::<()>("k"), "GETDEL k");
    c.is(c.getex::<()>("k", ReadExpiry::Keep), "GETEX k");
    c.is(c.getex::<()>("k", ReadExpiry::Persist), "GETEX k PERSIST");
    c.is(c.getex::<()>("k", SECOND), "GETEX k EX 1");
    c.is(c.getex::<()>("k", Duration::from_micros(1_500)), "GETEX k PX 2");
    c.is(c.getex::<()>("k", Expiry::AtSeconds(9)), "GETEX k EXAT 9");
    c.is(c.getrange::<()>("k", 0, -1), "GETRANGE k 0 -1");
    c.is(c.getset::<()>("k", "v"), "GETSET k v");
    c.is(c.incr("k"), "INCR k");
    c.is(c.incrby("k", i64::MIN), "INCRBY k -9223372036854775808");
    c.is(c.incrbyfloat("k", 0.1), "INCRBYFLOAT k 0.1");
    c.is(c.lcs::<()>("a", "b"), "LCS a b");
    c.is(c.lcs_len("a", "b"), "LCS a b LEN");
    let idx = LcsOptions::new().min_match_len(4).with_match_len();
    c.is(c.lcs_idx::<()>("a", "b", idx), "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN");
    c.is(c.mget::<()>(["a", "b"]), "MGET a b");
    c.is(c.mset([("a", 1), ("b", 2)]), "MSET a 1 b 2");
    let ten = MsetexOptions::new().nx().ex(10);
    c.is(c.msetex([("a", 1), ("b", 2)], ten), "MSETEX 2 a 1 b 2 NX EX 10");
    let kept = MsetexOptions::new().xx().keep_ttl();
    c.is(c.msetex(("a", 1), kept), "MSETEX 1 a 1 XX KEEPTTL");
    c.is(c.msetnx(("a", "1")), "MSETNX a 1");
    c.is(c.psetex("k", 5, "v"), "PSETEX k 5 v");
    c.is(c.set("k", "v"), "SET k v");
    c.is(c.setex("k", 5, "v"), "SETEX k 5 v");
    c.is(c.setnx("k", "v"), "SETNX k v");
    c.is(c.setrange("k", 6, "v"), "SETRANGE k 6 v");
    c.is(c.strlen("k"), "STRLEN k");
    c.is(c.substr::<()>("k", 1, 2), "SUBSTR k 1 2");
}

fn set_options(c: &Recorder) {
    let with = |options| c.set_with("k", "v", options);
    c.is(with(SetOptions::new()), "SET k v");
    c.is(with(SetOptions::new().nx().ex(7)), "SET k v NX EX 7");
    c.is(with(SetOptions::new().xx().px(8)), "SET k v XX PX 8");
    c.is(with(SetOptions::new().ifeq("old")), "SET k v IFEQ old");
    c.is(with(SetOptions::new().exat(9)), "SET k v EXAT 9");
    c.is(with(SetOptions::new().pxat(10)), "SET k v PXAT 10");
    c.is(with(SetOptions::new().keep_ttl()), "SET k v KEEPTTL");
    c.is(with(SetOptions::new().expiry(Duration::from_millis(1_250))), "SET k v PX 1250");
    c.is(c.set_get::<()>("k", "v", SetOptions::new()), "SET k v GET");
    c.is(c.set_get::<()>("k", "v", SetOptions::new().xx().ex(7)), "SET k v GET XX EX 7");
}

fn keys(c: &Recorder) {
    c.is(c.copy("a", "b"), "COPY a b");
    let over = CopyOptions::new().database(3).replace();
    c.is(c.copy_with("a", "b", over), "COPY a b DB 3 REPLACE");
    c.is(c.del("a"), "DEL a");
    c.is(c.del(["a", "b"]), "DEL a b");
    c.is(c.dump::<()>("k"), "DUMP k");
    c.is(c.exists(["a", "b"]), "EXISTS a b");
    c.is(c.expire("k", 10), "EXPIRE k 10");
    c.is(c.expire_with("k", 10, ExpireCondition::Nx), "EXPIRE k 10 NX");
    c.is(c.expireat("k", 10), "EXPIREAT k 10");
    c.is(c.expireat_with("k", 10, ExpireCondition::Xx), "EXPIREAT k 10 XX");
    c.is(c.expiretime("k"), "EXPIRETIME k");
    c.is(c.keys::<()>("a*"), "KEYS a*");
    c.is(c.move_key("k", 2), "MOVE k 2");
    c.is(c.object_encoding("k"), "OBJECT ENCODING k");
    c.is(c.object_freq("k"), "OBJECT FREQ k");
    c.is(c.object_idletime("k"), "OBJECT IDLETIME k");
    c.is(c.object_refcount("k"), "OBJECT REFCOUNT k");
    c.is(c.persist("k"), "PERSIST k");
    c.is(c.pexpire("k", -1), "PEXPIRE k -1");
    c.is(c.pexpire_with("k", 10, ExpireCondition::Gt), "PEXPIRE k 10 GT");
    c.is(c.pexpireat("k", 10), "PEXPIREAT k 10");
    c.is(c.pexpireat_with("k", 10, ExpireCondition::Lt), "PEXPIREAT k 10 LT");
    c.is(c.pexpiretime("k"), "PEXPIRETIME k");
    c.is(c.pttl("k"), "PTTL k");
    c.is(c.randomkey::<()>(), "RANDOMKEY");
    c.is(c.rename("a", "b"), "RENAME a b");
    c.is(c.renamenx("a", "b"), "RENAMENX a b");
    c.is(c.restore("k", 0, "x"), "RESTORE k 0 x");
    let how = RestoreOptions::new().replace().absttl().idletime(5);
    c.is(c.restore_with("k", 9, "x", how), "RESTORE k 9 x REPLACE ABSTTL IDLETIME 5");
    c.is(c.restore_with("k", 9, "x", how.freq(255)), "RESTORE k 9 x REPLACE ABSTTL FREQ 255");
    c.is(c.touch(["a"]), "TOUCH a");
    c.is(c.ttl("k"), "TTL k");
    c.is(c.key_type("k"), "TYPE k");
    c.is(c.unlink(vec!["a", "b"]), "UNLINK a b");
}

fn scans_and_sorts(c: &Recorder) {
    let some = ScanOptions::new().pattern("a*").count(100);
    c.is(c.scan::<()>(0), "SCAN 0");
    c.is(c.scan_with::<()>(u64::MAX, some.clone()), "SCAN 18446744073709551615 MATCH a* COUNT 100");
    c.is(c.scan_type::<()>(0, "zset", ScanOptions::new()), "SCAN 0 TYPE zset");
    c.is(c.hscan::<()>("k", 0), "HSCAN k 0");
    c.is(c.hscan_with::<()>("k", 1, some.clone()), "HSCAN k 1 MATCH a* COUNT 100");
    c.is(c.hscan_novalues::<()>("k", 1, ScanOptions::new()), "HSCAN k 1 NOVALUES");
    c.is(c.sscan::<()>("k", 0), "SSCAN k 0");
    c.is(c.sscan_with::<()>("k", 2, some.clone()), "SSCAN k 2 MATCH a* COUNT 100");
    c.is(c.zscan::<()>("k", 0), "ZSCAN k 0");
    c.is(c.zscan_with::<()>("k", 3, some), "ZSCAN k 3 MATCH a* COUNT 100");
    c.is(c.zscan_noscores::<()>("k", 3, ScanOptions::new()), "ZSCAN k 3 NOSCORES");
    let how = SortOptions::new().by("w_*").limit(0, -1).get("#").get("o_*").desc().alpha();
    let words = "k BY w_* LIMIT 0 -1 GET # GET o_* DESC ALPHA";
    c.is(c.sort::<()>("k"), "SORT k");
    c.is(c.sort_with::<()>("k", how.clone()), &format!("SORT {words}"));
    c.is(c.sort_store("k", how.clone(), "d"), &format!("SORT {words} STORE d"));
    c.is(c.sort_ro::<()>("k"), "SORT_RO k");
    c.is(c.sort_ro_with::<()>("k", how), &format!("SORT_RO {words}"));
}

fn hashes(c: &Recorder) {
    c.is(c.hdel("k", ["f", "g"]), "HDEL k f g");
    c.is(c.hexists("k", "f"), "HEXISTS k f");
    c.is(c.hget::<()>("k", "f"), "HGET k f");
    c.is(c.hgetall::<()>("k"), "HGETALL k");
    c.is(c.hgetdel::<()>("k", ["f", "g"]), "HGETDEL k FIELDS 2 f g");
    c.is(c.hgetex::<()>("k", SECOND, "f"), "HGETEX k EX 1 FIELDS 1 f");
    c.is(c.hgetex::<()>("k", ReadExpiry::Persist, ["f", "g"]), "HGETEX k PERSIST FIELDS 2 f g");
    c.is(c.hincrby("k", "f", -2), "HINCRBY k f -2");
    c.is(c.hincrbyfloat("k", "f", 2.0), "HINCRBYFLOAT k f 2");
    c.is(c.hkeys::<()>("k"), "HKEYS k");
    c.is(c.hlen("k"), "HLEN k");
    c.is(c.hmget::<()>("k", ["f", "g"]), "HMGET k f g");
    c.is(c.hmset("k", [("f", "1"), ("g", "2")]), "HMSET k f 1 g 2");
    c.is(c.hrandfield::<()>("k"), "HRANDFIELD k");
    c.is(c.hrandfield_count::<()>("k", -2), "HRANDFIELD k -2");
    c.is(c.hrandfield_withvalues::<()>("k", 2), "HRANDFIELD k 2 WITHVALUES");
    c.is(c.hset("k", ("f", "v")), "HSET k f v");
    let pairs = vec![("f", 1), ("g", 2)];
    c.is(c.hset("k", &pairs), "HSET k f 1 g 2");
    let how = HsetexOptions::new().nx().fnx().px(5);
    c.is(c.hsetex("k", how, [("f", 1)]), "HSETEX k NX FNX PX 5 FIELDS 1 f 1");
    let how = HsetexOptions::new().xx().fxx().keep_ttl();
    c.is(c.hsetex("k", how, ("f", 1)), "HSETEX k XX FXX KEEPTTL FIELDS 1 f 1");
    c.is(c.hsetnx("k", "f", "v"), "HSETNX k f v");
    c.is(c.hstrlen("k", "f"), "HSTRLEN k f");
    c.is(c.hvals::<()>("k"), "HVALS k");
}

fn hash_expiry(c: &Recorder) {
    let nx = ExpireCondition::Nx;
    c.is(c.hexpire("k", 5, ["f", "g"]), "HEXPIRE k 5 FIELDS 2 f g");
    c.is(c.hexpire_with("k", 5, nx, "f"), "HEXPIRE k 5 NX FIELDS 1 f");
    c.is(c.hexpireat("k", 5, "f"), "HEXPIREAT k 5 FIELDS 1 f");
    c.is(c.hexpireat_with("k", 5, nx, "f"), "HEXPIREAT k 5 NX FIELDS 1 f");
    c.is(c.hexpiretime("k", "f"), "HEXPIRETIME k FIELDS 1 f");
    c.is(c.hpersist("k", "f"), "HPERSIST k FIELDS 1 f");
    c.is(c.hpexpire("k", 5, "f"), "HPEXPIRE k 5 FIELDS 1 f");
    c.is(c.hpexpire_with("k", 5, nx, "f"), "HPEXPIRE k 5 NX FIELDS 1 f");
    c.is(c.hpexpireat("k", 5, "f"), "HPEXPIREAT k 5 FIELDS 1 f");
    c.is(c.hpexpireat_with("k", 5, nx, "f"), "HPEXPIREAT k 5 NX FIELDS 1 f");
    c.is(c.hpexpiretime("k", "f"), "HPEXPIRETIME k FIELDS 1 f");
    c.is(c.hpttl("k", "f"), "HPTTL k FIELDS 1 f");
    c.is(c.httl("k", "f"), "HTTL k FIELDS 1 f");
}

fn lists(c: &Recorder) {
    let forever = Duration::ZERO;
    let half = Duration::from_millis(500);
    c.is(c.blmove::<()>("a", "b", End::Left, End::Right, SECOND), "BLMOVE a b LEFT RIGHT 1");
    c.is(c.blmpop::<()>(["a", "b"], End::Left, half), "BLMPOP 0.5 2 a b LEFT");
    c.is(c.blmpop_count::<()>("a", End::Right, 9, half), "BLMPOP 0.5 1 a RIGHT COUNT 9");
    c.is(c.blpop::<()>(["a", "b"], forever), "BLPOP a b 0");
    c.is(c.brpop::<()>("a", half), "BRPOP a 0.5");
    c.is(c.brpoplpush::<()>("a", "b", SECOND), "BRPOPLPUSH a b 1");
    c.is(c.lindex::<()>("k", -1), "LINDEX k -1");
    c.is(c.linsert("k", Side::Before, "p", "v"), "LINSERT k BEFORE p v");
    c.is(c.linsert("k", Side::After, "p", "v"), "LINSERT k AFTER p v");
    c.is(c.llen("k"), "LLEN k");
    c.is(c.lmove::<()>("a", "b", End::Right, End::Left), "LMOVE a b RIGHT LEFT");
    c.is(c.lmpop::<()>("a", End::Left), "LMPOP 1 a LEFT");
    c.is(c.lmpop_count::<()>("a", End::Left, 3), "LMPOP 1 a LEFT COUNT 3");
    c.is(c.lpop::<()>("k"), "LPOP k");
    c.is(c.lpop_count::<()>("k", 2), "LPOP k 2");
    c.is(c.lpos("k", "v"), "LPOS k v");
    let back = LposOptions::new().rank(-1).maxlen(50);
    c.is(c.lpos_with("k", "v", back), "LPOS k v RANK -1 MAXLEN 50");
    c.is(c.lpos_count("k", "v", 0, back), "LPOS k v RANK -1 MAXLEN 50 COUNT 0");
    c.is(c.lpush("k", ["a", "b"]), "LPUSH k a b");
    c.is(c.lpushx("k", "a"), "LPUSHX k a");
    c.is(c.lrange::<()>("k", 0, -1), "LRANGE k 0 -1");
    c.is(c.lrem("k", -2, "v"), "LREM k -2 v");
    c.is(c.lset("k", 0, "v"), "LSET k 0 v");
    c.is(c.ltrim("k", 1, 9), "LTRIM k 1 9");
    c.is(c.rpop::<()>("k"), "RPOP k");
    c.is(c.rpop_count::<()>("k", 2), "RPOP k 2");
    c.is(c.rpoplpush::<()>("a", "b"), "RPOPLPUSH a b");
    c.is(c.rpush("k", [1, 2]), "RPUSH k 1 2");
    c.is(c.rpushx("k", 1), "RPUSHX k 1");
}

fn sets(c: &Recorder) {
    c.is(c.sadd("k", ["a", "b"]), "SADD k a b");
    c.is(c.scard("k"), "SCARD k");
    c.is(c.sdiff::<()>(["a", "b"]), "SDIFF a b");
    c.is(c.sdiffstore("d", ["a", "b"]), "SDIFFSTORE d a b");
    c.is(c.sinter::<()>(["a", "b"]), "SINTER a b");
    c.is(c.sintercard(["a", "b"]), "SINTERCARD 2 a b");
    c.is(c.sintercard_limit(["a", "b"], 5), "SINTERCARD 2 a b LIMIT 5");
    c.is(c.sinterstore("d", "a"), "SINTERSTORE d a");
    c.is(c.sismember("k", "m"), "SISMEMBER k m");
    c.is(c.smembers::<()>("k"), "SMEMBERS k");
    c.is(c.smismember("k", ["m", "n"]), "SMISMEMBER k m n");
    c.is(c.smove("a", "b", "m"), "SMOVE a b m");
    c.is(c.spop::<()>("k"), "SPOP k");
    c.is(c.spop_count::<()>("k", 2), "SPOP k 2");
    c.is(c.srandmember::<()>("k"), "SRANDMEMBER k");
    c.is(c.srandmember_count::<()>("k", -2), "SRANDMEMBER k -2");
    c.is(c.srem("k", "m"), "SREM k m");
    c.is(c.sunion::<()>(["a", "b"]), "SUNION a b");
    c.is(c.sunionstore("d", ["a", "b"]), "SUNIONSTORE d a b");
}

fn sorted_sets(c: &Recorder) {
    c.is(c.bzmpop::<()>("a", Extreme::Min, SECOND), "BZMPOP 1 1 a MIN");
    c.is(c.bzmpop_count::<()>("a", Extreme::Max, 2, SECOND), "BZMPOP 1 1 a MAX COUNT 2");
    c.is(c.bzpopmax::<()>(["a", "b"], SECOND), "BZPOPMAX a b 1");
    c.is(c.bzpopmin::<()>("a", SECOND), "BZPOPMIN a 1");
    c.is(c.zadd("k", (1.5, "m")), "ZADD k 1.5 m");
    c.is(c.zadd("k", [(f64::INFINITY, "m"), (1e300, "n")]), "ZADD k inf m 1e300 n");
    let up = ZaddOptions::new().xx().gt().ch();
    c.is(c.zadd_with("k", up, (1, "m")), "ZADD k XX GT CH 1 m");
    c.is(c.zadd_with("k", ZaddOptions::new().nx(), (1, "m")), "ZADD k NX 1 m");
    let down = ZaddOptions::new().lt();
    c.is(c.zadd_incr("k", down, -1.0, "m"), "ZADD k LT INCR -1 m");
    c.is(c.zcard("k"), "ZCARD k");
    c.is(c.zcount("k", 1, ScoreBound::Exclusive(2.0)), "ZCOUNT k 1 (2");
    c.is(c.zincrby("k", 0.5, "m"), "ZINCRBY k 0.5 m");
    c.is(c.zlexcount("k", LexBound::Min, "[b"), "ZLEXCOUNT k - [b");
    c.is(c.zmpop::<()>(["a", "b"], Extreme::Min), "ZMPOP 2 a b MIN");
    c.is(c.zmpop_count::<()>("a", Extreme::Max, 7), "ZMPOP 1 a MAX COUNT 7");
    c.is(c.zmscore("k", ["m", "n"]), "ZMSCORE k m n");
    c.is(c.zpopmax::<()>("k"), "ZPOPMAX k");
    c.is(c.zpopmax_count::<()>("k", 2), "ZPOPMAX k 2");
    c.is(c.zpopmin::<()>("k"), "ZPOPMIN k");
    c.is(c.zpopmin_count::<()>("k", 2), "ZPOPMIN k 2");
    c.is(c.zrandmember::<()>("k"), "ZRANDMEMBER k");
    c.is(c.zrandmember_count::<()>("k", 2), "ZRANDMEMBER k 2");
    c.is(c.zrandmember_withscores::<()>("k", -2), "ZRANDMEMBER k -2 WITHSCORES");
    c.is(c.zrank("k", "m"), "ZRANK k m");
    c.is(c.zrank_withscore("k", "m"), "ZRANK k m WITHSCORE");
    c.is(c.zrem("k", ["m", "n"]), "ZREM k m n");
    c.is(c.zremrangebylex("k", "-", LexBound::exclusive("b")), "ZREMRANGEBYLEX k - (b");
    c.is(c.zremrangebyrank("k", 0, -2), "ZREMRANGEBYRANK k 0 -2");
    c.is(c.zremrangebyscore("k", "-inf", 5), "ZREMRANGEBYSCORE k -inf 5");
    c.is(c.zrevrank("k", "m"), "ZREVRANK k m");
    c.is(c.zrevrank_withscore("k", "m"), "ZREVRANK k m WITHSCORE");
    c.is(c.zscore("k", "m"), "ZSCORE k m");
}

fn sorted_set_ranges(c: &Recorder) {
    c.is(c.zrange::<()>("k", 0, -1), "ZRANGE k 0 -1");
    c.is(c.zrange_withscores::<()>("k", 0, 9), "ZRANGE k 0 9 WITHSCORES");
    c.is(c.zrange_with::<()>("k", ZRange::by_index(0, 9).rev()), "ZRANGE k 0 9 REV");
    let scores = ZRange::by_score(1.5, ScoreBound::Max).limit(0, 5);
    c.is(c.zrange_with::<()>("k", scores.clone()), "ZRANGE k 1.5 +inf BYSCORE LIMIT 0 5");
    let words = "ZRANGE k +inf 1.5 BYSCORE REV LIMIT 0 5 WITHSCORES";
    c.is(c.zrange_with_withscores::<()>("k", scores.rev()), words);
    let lex = ZRange::by_lex(LexBound::inclusive("a"), LexBound::Max);
    c.is(c.zrange_with::<()>("k", lex.clone().rev()), "ZRANGE k + [a BYLEX REV");
    c.is(c.zrangestore("d", "s", lex), "ZRANGESTORE d s [a + BYLEX");
    c.is(c.zrangebylex::<()>("k", "-", "+"), "ZRANGEBYLEX k - +");
    c.is(c.zrangebylex_limit::<()>("k", "-", "+", 1, 2), "ZRANGEBYLEX k - + LIMIT 1 2");
    c.is(c.zrangebyscore::<()>("k", 1, 2), "ZRANGEBYSCORE k 1 2");
    c.is(c.zrangebyscore_withscores::<()>("k", 1, 2), "ZRANGEBYSCORE k 1 2 WITHSCORES");
    c.is(c.zrangebyscore_limit::<()>("k", 1, 2, 0, -1), "ZRANGEBYSCORE k 1 2 LIMIT 0 -1");
    c.is(c.zrevrange::<()>("k", 0, 1), "ZREVRANGE k 0 1");
    c.is(c.zrevrange_withscores::<()>("k", 0, 1), "ZREVRANGE k 0 1 WITHSCORES");
    c.is(c.zrevrangebylex::<()>("k", "+", "-"), "ZREVRANGEBYLEX k + -");
    c.is(c.zrevrangebylex_limit::<()>("k", "+", "-", 1, 2), "ZREVRANGEBYLEX k + - LIMIT 1 2");
    c.is(c.zrevrangebyscore::<()>("k", 2, 1), "ZREVRANGEBYSCORE k 2 1");
    c.is(c.zrevrangebyscore_withscores::<()>("k", 2, 1), "ZREVRANGEBYSCORE k 2 1 WITHSCORES");
    c.is(c.zrevrangebyscore_limit::<()>("k", 2, 1, 0, 3), "ZREVRANGEBYSCORE k 2 1 LIMIT 0 3");
}

fn sorted_set_joins(c: &Recorder) {
    let how = ZCombine::new().weights([1.0, 2.5]).aggregate(Aggregate::Max);
    let words = "2 a b WEIGHTS 1 2.5 AGGREGATE MAX";
    let keys = ["a", "b"];
    c.is(c.zdiff::<()>(keys), "ZDIFF 2 a b");
    c.is(c.zdiff_withscores::<()>(keys), "ZDIFF 2 a b WITHSCORES");
    c.is(c.zdiffstore("d", keys), "ZDIFFSTORE d 2 a b");
    c.is(c.zinter::<()>(keys), "ZINTER 2 a b");
    c.is(c.zinter_with::<()>(keys, how.clone()), &format!("ZINTER {words}"));
    c.is(c.zinter_withscores::<()>(keys, how.clone()), &format!("ZINTER {words} WITHSCORES"));
    c.is(c.zintercard(keys), "ZINTERCARD 2 a b");
    c.is(c.zintercard_limit(keys, 3), "ZINTERCARD 2 a b LIMIT 3");
    c.is(c.zinterstore("d", keys), "ZINTERSTORE d 2 a b");
    c.is(c.zinterstore_with("d", keys, how.clone()), &format!("ZINTERSTORE d {words}"));
    c.is(c.zunion::<()>(keys), "ZUNION 2 a b");
    c.is(c.zunion_with::<()>(keys, how.clone()), &format!("ZUNION {words}"));
    c.is(c.zunion_withscores::<()>(keys, ZCombine::new()), "ZUNION 2 a b WITHSCORES");
    c.is(c.zunionstore("d", keys), "ZUNIONSTORE d 2 a b");
    c.is(c.zunionstore_with("d", keys, how), &format!("ZUNIONSTORE d {words}"));
}

fn connection_and_server(c: &Recorder) {
    c.is(c.client_id(), "CLIENT ID");
    c.is(c.client_info(), "CLIENT INFO");
    c.is(c.client_list(), "CLIENT LIST");
    c.is(c.echo::<()>("hi"), "ECHO hi");
    c.is(c.ping(), "PING");
    c.is(c.ping_with::<()>("hi"), "PING hi");
    c.is(c.config_get(["max*", "save"]), "CONFIG GET max* save");
    c.is(c.config_set(("maxmemory", 0)), "CONFIG SET maxmemory 0");
    c.is(c.dbsize(), "DBSIZE");
    c.is(c.flushall(Flush::Async), "FLUSHALL ASYNC");
    c.is(c.flushdb(Flush::Sync), "FLUSHDB SYNC");
    c.is(c.info(), "INFO");
    c.is(c.info_of(["server", "replication"]), "INFO server replication");
    c.is(c.lastsave(), "LASTSAVE");
    c.is(c.memory_usage("k"), "MEMORY USAGE k");
    c.is(c.role(), "ROLE");
    c.is(c.time(), "TIME");
}

fn say_everything(c: &Recorder) {
    strings(c);
    set_options(c);
    keys(c);
    scans_and_sorts(c);
    hashes(c);
    hash_expiry(c);
    lists(c);
    sets(c);
    sorted_sets(c);
    sorted_set_ranges(c);
    sorted_set_joins(c);
    connection_and_server(c);
}

/// Proves the bytes of each typed method. Fails if a word, its place or a length is another one.
#[test]
fn each_method_says_exactly_its_words() {
    say_everything(&Recorder::default());
}

/// Commands of the six data groups that have no typed method, and why.
const WITHOUT_METHOD: &[(&str, &str)] = &[
    ("MIGRATE", "server to server, with credentials among its arguments"),
    ("OBJECT", "only its subcommands do anything"),
    ("OBJECT HELP", "text for people at a terminal"),
    ("WAIT", "about the writes of its own connection, which a client shares"),
    ("WAITAOF", "about the writes of its own connection, which a client shares"),
];

/// Fails if a command of the six data groups gets neither a method above nor a reason.
#[test]
fn the_data_groups_are_complete() {
    let c = Recorder::default();
    say_everything(&c);
    let said = c.names.borrow();
    for spec in Spec::all() {
        let data = matches!(
            spec.group(),
            Group::String
                | Group::Generic
                | Group::Hash
                | Group::List
                | Group::Set
                | Group::SortedSet
        );
        let excused = WITHOUT_METHOD.iter().any(|(name, _)| *name == spec.name());
        let name = spec.name();
        assert_eq!(data && !excused, data && said.contains(name), "{name}");
        assert!(!excused || (data && !said.contains(name)), "{name} needs no excuse");
    }
}
