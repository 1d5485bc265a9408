//! The string group.
use super::args::{Args, ToArg, ToArgs, ToPairs};
use super::expiry::{ReadExpiry, WriteCondition, WriteExpiry, write_expiry_setters};
use super::macros::commands;
use super::put::Put;

/// Condition of SET.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SetCondition {
    Exists(WriteCondition),
    Equals(Box<[u8]>),
}

/// The options of SET, for [`set_with`] and [`set_get`].
///
/// ```
/// use hedgerow::command::strings::{SetOptions, set_with};
/// let lock = set_with("lock", "me", SetOptions::new().nx().px(30_000));
/// assert_eq!(lock.arg_count(), 6);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    condition: Option<SetCondition>,
    expiry: Option<WriteExpiry>,
}

impl SetOptions {
    /// None: the key is set whatever it holds, without an expiration time.
    pub fn new() -> SetOptions {
        SetOptions::default()
    }

    /// Only if the key does not exist (`NX`).
    pub fn nx(mut self) -> SetOptions {
        self.condition = Some(SetCondition::Exists(WriteCondition::Nx));
        self
    }

    /// Only if the key exists (`XX`).
    pub fn xx(mut self) -> SetOptions {
        self.condition = Some(SetCondition::Exists(WriteCondition::Xx));
        self
    }

    /// Only if the key holds this value (`IFEQ`, Valkey 8.1).
    pub fn ifeq(mut self, value: impl AsRef<[u8]>) -> SetOptions {
        self.condition = Some(SetCondition::Equals(value.as_ref().into()));
        self
    }

    write_expiry_setters!();
}

impl Put for SetOptions {
    fn put(&self, args: &mut Args) {
        match &self.condition {
            Some(SetCondition::Exists(condition)) => condition.put(args),
            Some(SetCondition::Equals(value)) => {
                args.word("IFEQ");
                args.bulk(value);
            }
            None => {}
        }
        self.expiry.put(args);
    }
}

/// The options of MSETEX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsetexOptions {
    condition: Option<WriteCondition>,
    expiry: Option<WriteExpiry>,
}

impl MsetexOptions {
    /// None: the keys are set whatever they hold, without an expiration time.
    pub fn new() -> MsetexOptions {
        MsetexOptions::default()
    }

    /// Only if none of the keys exists (`NX`).
    pub fn nx(mut self) -> MsetexOptions {
        self.condition = Some(WriteCondition::Nx);
        self
    }

    /// Only if all of the keys exist (`XX`).
    pub fn xx(mut self) -> MsetexOptions {
        self.condition = Some(WriteCondition::Xx);
        self
    }

    write_expiry_setters!();
}

impl Put for MsetexOptions {
    fn put(&self, args: &mut Args) {
        self.condition.put(args);
        self.expiry.put(args);
    }
}

/// The options of LCS with IDX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LcsOptions {
    min_match_len: Option<u64>,
    with_match_len: bool,
}

impl LcsOptions {
    /// None: every match, without its length.
    pub fn new() -> LcsOptions {
        LcsOptions::default()
    }

    /// Only matches of at least so many bytes (`MINMATCHLEN`).
    pub fn min_match_len(mut self, bytes: u64) -> LcsOptions {
        self.min_match_len = Some(bytes);
        self
    }

    /// Adds the length of each match (`WITHMATCHLEN`).
    pub fn with_match_len(mut self) -> LcsOptions {
        self.with_match_len = true;
        self
    }
}

impl Put for LcsOptions {
    fn put(&self, args: &mut Args) {
        if let Some(bytes) = self.min_match_len {
            args.word("MINMATCHLEN");
            args.uint(bytes);
        }
        if self.with_match_len {
            args.word("WITHMATCHLEN");
        }
    }
}

commands! {
    /// Commands on strings: text, bytes and numbers.
    ///
    /// Each is also a function of [`command::strings`](self) that builds the command unsent.
    trait StringCommands;

    /// Appends to the value of a key, which is created if it does not exist.
    ///
    /// Replies with the length after, in bytes. Since 2.0.0, O(1).
    fn append(key: impl ToArg, value: impl ToArg) -> u64 = APPEND: one(key) one(value);

    /// Takes one from the integer value of a key; a missing key counts as 0.
    ///
    /// Replies with the value after; an error if the value is no integer or would leave 64 bits.
    /// Since 1.0.0, O(1).
    fn decr(key: impl ToArg) -> i64 = DECR: one(key);

    /// Takes `decrement` from the integer value of a key; a missing key counts as 0.
    ///
    /// Replies with the value after. Since 1.0.0, O(1).
    fn decrby(key: impl ToArg, decrement: i64) -> i64 = DECRBY: one(key) one(decrement);

    /// Deletes a key if it holds this string.
    ///
    /// Replies with true if it was deleted, else false; an error if it holds another type. Since
    /// Valkey 9.0.0, O(1).
    fn delifeq(key: impl ToArg, value: impl ToArg) -> bool = DELIFEQ: one(key) one(value);

    /// The string value of a key.
    ///
    /// Replies with the value, or nil if the key does not exist; an error if it holds another
    /// type. Since 1.0.0, O(1).
    fn get<R>(key: impl ToArg) -> R = GET: one(key);

    /// The string value of a key, which is deleted.
    ///
    /// Replies with the value, or nil if the key does not exist. Since 6.2.0, O(1).
    fn getdel<R>(key: impl ToArg) -> R = GETDEL: one(key);

    /// The string value of a key, whose expiration time is set or removed.
    ///
    /// Replies with the value, or nil if the key does not exist. Takes a `Duration`, a
    /// `SystemTime`, an [`Expiry`](super::expiry::Expiry) or a [`ReadExpiry`]. Since 6.2.0, O(1).
    fn getex<R>(key: impl ToArg, expiry: impl Into<ReadExpiry>) -> R = GETEX:
        one(key) put(Into::<ReadExpiry>::into(expiry));

    /// The bytes of a value from `start` to `end`, both included and counted from 0; negative
    /// positions count from the end (-1 is the last).
    ///
    /// Replies with the bytes, none if the range or the key is empty. Since 2.4.0, O(n) of the
    /// reply.
    fn getrange<R>(key: impl ToArg, start: i64, end: i64) -> R = GETRANGE:
        one(key) one(start) one(end);

    /// Sets a key and hands out the value before.
    ///
    /// Replies with that value, or nil. Deprecated by the servers for SET with GET
    /// ([`set_get`]). Since 1.0.0, O(1).
    fn getset<R>(key: impl ToArg, value: impl ToArg) -> R = GETSET: one(key) one(value);

    /// Adds one to the integer value of a key; a missing key counts as 0.
    ///
    /// Replies with the value after; an error if the value is no integer or would leave 64 bits.
    /// Since 1.0.0, O(1).
    fn incr(key: impl ToArg) -> i64 = INCR: one(key);

    /// Adds `increment` to the integer value of a key; a missing key counts as 0.
    ///
    /// Replies with the value after. Since 1.0.0, O(1).
    fn incrby(key: impl ToArg, increment: i64) -> i64 = INCRBY: one(key) one(increment);

    /// Adds `increment` to the number that a key holds; a missing key counts as 0.
    ///
    /// Replies with the value after, as text in either protocol. Since 2.6.0, O(1).
    fn incrbyfloat(key: impl ToArg, increment: f64) -> f64 = INCRBYFLOAT: one(key) one(increment);

    /// The longest common subsequence of two values.
    ///
    /// Replies with the bytes. Since 7.0.0, O(n·m).
    fn lcs<R>(first: impl ToArg, second: impl ToArg) -> R = LCS: one(first) one(second);

    /// The length of the longest common subsequence of two values.
    ///
    /// Replies with an integer, in bytes. Since 7.0.0, O(n·m).
    fn lcs_len(first: impl ToArg, second: impl ToArg) -> u64 = LCS:
        one(first) one(second) word("LEN");

    /// Where the longest common subsequence of two values lies in each.
    ///
    /// Replies with a map of `matches` (ranges in both values, the last first) and `len`. Since
    /// 7.0.0, O(n·m).
    fn lcs_idx<R>(first: impl ToArg, second: impl ToArg, options: LcsOptions) -> R = LCS:
        one(first) one(second) word("IDX") put(options);

    /// The string values of keys.
    ///
    /// Replies with a value or nil for each, in their order; nil also where a key holds another
    /// type. Since 1.0.0, O(n).
    fn mget<R>(keys: impl ToArgs) -> R = MGET: many(keys);

    /// Sets keys, all at once; expiration times are removed.
    ///
    /// Takes (key, value) pairs. Replies with OK. Since 1.0.1, O(n).
    fn mset(pairs: impl ToPairs) -> () = MSET: pairs(pairs);

    /// Sets keys, all at once, with a condition and one expiration time for all.
    ///
    /// Takes (key, value) pairs. Replies with true if the keys were set, else false. Since Valkey
    /// 9.1.0, O(n).
    fn msetex(pairs: impl ToPairs, options: MsetexOptions) -> bool = MSETEX:
        counted_pairs(pairs) put(options);

    /// Sets keys, all or none: none if any exists.
    ///
    /// Takes (key, value) pairs. Replies with true if the keys were set, else false. Since 1.0.1,
    /// O(n).
    fn msetnx(pairs: impl ToPairs) -> bool = MSETNX: pairs(pairs);

    /// Sets a key that expires in so many milliseconds, more than 0.
    ///
    /// Replies with OK. Deprecated by the servers for SET with PX. Since 2.6.0, O(1).
    fn psetex(key: impl ToArg, millis: u64, value: impl ToArg) -> () = PSETEX:
        one(key) one(millis) one(value);

    /// Sets a key, whatever it holds; an expiration time is removed.
    ///
    /// Replies with OK. Since 1.0.0, O(1).
    fn set(key: impl ToArg, value: impl ToArg) -> () = SET: one(key) one(value);

    /// Sets a key and hands out the value before, on a condition or with an expiration time.
    ///
    /// Replies with the value before, or nil if there was none; so it does where the condition did
    /// not hold. Since 6.2.0 (with NX: 7.0.0), O(1).
    fn set_get<R>(key: impl ToArg, value: impl ToArg, options: SetOptions) -> R = SET:
        one(key) one(value) word("GET") put(options);

    /// Sets a key on a condition or with an expiration time.
    ///
    /// Replies with true, or false if the condition did not hold. Since 1.0.0, O(1).
    fn set_with(key: impl ToArg, value: impl ToArg, options: SetOptions) -> bool = SET:
        one(key) one(value) put(options);

    /// Sets a key that expires in so many seconds, more than 0.
    ///
    /// Replies with OK. Deprecated by the servers for SET with EX. Since 2.0.0, O(1).
    fn setex(key: impl ToArg, seconds: u64, value: impl ToArg) -> () = SETEX:
        one(key) one(seconds) one(value);

    /// Sets a key if it does not exist.
    ///
    /// Replies with true if it was set, else false. Deprecated by the servers for SET with NX.
    /// Since 1.0.0, O(1).
    fn setnx(key: impl ToArg, value: impl ToArg) -> bool = SETNX: one(key) one(value);

    /// Overwrites the bytes of a value from `offset` on; what is missing before is filled with
    /// zero bytes.
    ///
    /// Replies with the length after, in bytes. Since 2.2.0, O(1) but for the copy.
    fn setrange(key: impl ToArg, offset: u64, value: impl ToArg) -> u64 = SETRANGE:
        one(key) one(offset) one(value);

    /// The length of a value.
    ///
    /// Replies with an integer, in bytes; 0 if the key does not exist. Since 2.2.0, O(1).
    fn strlen(key: impl ToArg) -> u64 = STRLEN: one(key);

    /// The bytes of a value from `start` to `end`, as GETRANGE has them.
    ///
    /// Deprecated by the servers for GETRANGE. Since 1.0.0, O(n) of the reply.
    fn substr<R>(key: impl ToArg, start: i64, end: i64) -> R = SUBSTR: one(key) one(start) one(end);
}
