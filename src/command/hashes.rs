//! The hash group.
use super::args::{Args, ToArg, ToArgs, ToPairs};
use super::cursors::{ScanOptions, ScanPage};
use super::expiry::{
    ExpireCondition, ReadExpiry, WriteCondition, WriteExpiry, write_expiry_setters,
};
use super::macros::commands;
use super::put::Put;

/// The options of HSETEX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HsetexOptions {
    key: Option<WriteCondition>,
    fields: Option<WriteCondition>,
    expiry: Option<WriteExpiry>,
}

impl HsetexOptions {
    /// None: the fields are set whatever they hold, without an expiration time.
    pub fn new() -> HsetexOptions {
        HsetexOptions::default()
    }

    /// Only if the key does not exist (`NX`).
    pub fn nx(mut self) -> HsetexOptions {
        self.key = Some(WriteCondition::Nx);
        self
    }

    /// Only if the key exists (`XX`).
    pub fn xx(mut self) -> HsetexOptions {
        self.key = Some(WriteCondition::Xx);
        self
    }

    /// Only if none of the fields exists (`FNX`).
    pub fn fnx(mut self) -> HsetexOptions {
        self.fields = Some(WriteCondition::Nx);
        self
    }

    /// Only if all of the fields exist (`FXX`).
    pub fn fxx(mut self) -> HsetexOptions {
        self.fields = Some(WriteCondition::Xx);
        self
    }

    write_expiry_setters!();
}

impl Put for HsetexOptions {
    fn put(&self, args: &mut Args) {
        self.key.put(args);
        match self.fields {
            Some(WriteCondition::Nx) => args.word("FNX"),
            Some(WriteCondition::Xx) => args.word("FXX"),
            None => {}
        }
        self.expiry.put(args);
    }
}

commands! {
    /// Commands on hashes: fields and their values under one key.
    ///
    /// Each is also a function of [`command::hashes`](self) that builds the command unsent. Those
    /// that take fields with expiration times reply with one number for each field, in their order.
    trait HashCommands;

    /// Deletes fields; the key too, when none is left.
    ///
    /// Replies with how many existed. Since 2.0.0, O(n).
    fn hdel(key: impl ToArg, fields: impl ToArgs) -> u64 = HDEL: one(key) many(fields);

    /// Whether a field exists.
    ///
    /// Replies with true or false. Since 2.0.0, O(1).
    fn hexists(key: impl ToArg, field: impl ToArg) -> bool = HEXISTS: one(key) one(field);

    /// Lets fields expire in so many seconds; 0 deletes them.
    ///
    /// Replies with an array: 1 set, 2 deleted, -2 no such field. Since Valkey 9.0.0, O(n).
    fn hexpire(key: impl ToArg, seconds: i64, fields: impl ToArgs) -> Vec<i64> = HEXPIRE:
        one(key) one(seconds) word("FIELDS") counted(fields);

    /// As HEXPIRE, on a condition.
    ///
    /// Replies with an array: 1 set, 2 deleted, 0 condition not met, -2 no such field. Since
    /// Valkey 9.0.0, O(n).
    fn hexpire_with(
        key: impl ToArg,
        seconds: i64,
        condition: ExpireCondition,
        fields: impl ToArgs,
    ) -> Vec<i64> = HEXPIRE: one(key) one(seconds) put(condition) word("FIELDS") counted(fields);

    /// Lets fields expire at a Unix time in seconds; a time past deletes them.
    ///
    /// Replies with an array: 1 set, 2 deleted, -2 no such field. Since Valkey 9.0.0, O(n).
    fn hexpireat(key: impl ToArg, unix_seconds: i64, fields: impl ToArgs) -> Vec<i64> = HEXPIREAT:
        one(key) one(unix_seconds) word("FIELDS") counted(fields);

    /// As HEXPIREAT, on a condition.
    ///
    /// Replies with an array: 1 set, 2 deleted, 0 condition not met, -2 no such field. Since
    /// Valkey 9.0.0, O(n).
    fn hexpireat_with(
        key: impl ToArg,
        unix_seconds: i64,
        condition: ExpireCondition,
        fields: impl ToArgs,
    ) -> Vec<i64> = HEXPIREAT:
        one(key) one(unix_seconds) put(condition) word("FIELDS") counted(fields);

    /// When fields expire.
    ///
    /// Replies with an array: Unix time in seconds, -1 never, -2 no such field. Since Valkey
    /// 9.0.0, O(n).
    fn hexpiretime(key: impl ToArg, fields: impl ToArgs) -> Vec<i64> = HEXPIRETIME:
        one(key) word("FIELDS") counted(fields);

    /// The value of a field.
    ///
    /// Replies with the value, or nil if there is no such field. Since 2.0.0, O(1).
    fn hget<R>(key: impl ToArg, field: impl ToArg) -> R = HGET: one(key) one(field);

    /// All fields and their values.
    ///
    /// Replies with a map, empty if the key does not exist. Since 2.0.0, O(n).
    fn hgetall<R>(key: impl ToArg) -> R = HGETALL: one(key);

    /// The values of fields, which are deleted.
    ///
    /// Replies with an array: a value or nil for each. Since Valkey 9.1.0, O(n).
    fn hgetdel<R>(key: impl ToArg, fields: impl ToArgs) -> R = HGETDEL:
        one(key) word("FIELDS") counted(fields);

    /// The values of fields, whose expiration time is set or removed.
    ///
    /// Replies with an array: a value or nil for each. Takes a `Duration`, a `SystemTime`, an
    /// [`Expiry`](super::expiry::Expiry) or a [`ReadExpiry`]. Since Valkey 9.0.0, O(n).
    fn hgetex<R>(key: impl ToArg, expiry: impl Into<ReadExpiry>, fields: impl ToArgs) -> R = HGETEX:
        one(key) put(Into::<ReadExpiry>::into(expiry)) word("FIELDS") counted(fields);

    /// Adds `increment` to the integer value of a field; a missing one counts as 0.
    ///
    /// Replies with the value after. Since 2.0.0, O(1).
    fn hincrby(key: impl ToArg, field: impl ToArg, increment: i64) -> i64 = HINCRBY:
        one(key) one(field) one(increment);

    /// Adds `increment` to the number that a field holds; a missing one counts as 0.
    ///
    /// Replies with the value after, as text in either protocol. Since 2.6.0, O(1).
    fn hincrbyfloat(key: impl ToArg, field: impl ToArg, increment: f64) -> f64 = HINCRBYFLOAT:
        one(key) one(field) one(increment);

    /// All fields.
    ///
    /// Replies with an array, empty if the key does not exist. Since 2.0.0, O(n).
    fn hkeys<R>(key: impl ToArg) -> R = HKEYS: one(key);

    /// How many fields there are.
    ///
    /// Replies with an integer, 0 if the key does not exist. Since 2.0.0, O(1).
    fn hlen(key: impl ToArg) -> u64 = HLEN: one(key);

    /// The values of fields.
    ///
    /// Replies with an array: a value or nil for each. Since 2.0.0, O(n).
    fn hmget<R>(key: impl ToArg, fields: impl ToArgs) -> R = HMGET: one(key) many(fields);

    /// Sets fields.
    ///
    /// Takes (field, value) pairs. Replies with OK. Deprecated by the servers for HSET. Since
    /// 2.0.0, O(n).
    fn hmset(key: impl ToArg, pairs: impl ToPairs) -> () = HMSET: one(key) pairs(pairs);

    /// Removes the expiration time of fields.
    ///
    /// Replies with an array: 1 removed, -1 had none, -2 no such field. Since Valkey 9.0.0, O(n).
    fn hpersist(key: impl ToArg, fields: impl ToArgs) -> Vec<i64> = HPERSIST:
        one(key) word("FIELDS") counted(fields);

    /// Lets fields expire in so many milliseconds; 0 deletes them.
    ///
    /// Replies with an array: 1 set, 2 deleted, -2 no such field. Since Valkey 9.0.0, O(n).
    fn hpexpire(key: impl ToArg, millis: i64, fields: impl ToArgs) -> Vec<i64> = HPEXPIRE:
        one(key) one(millis) word("FIELDS") counted(fields);

    /// As HPEXPIRE, on a condition.
    ///
    /// Replies with an array: 1 set, 2 deleted, 0 condition not met, -2 no such field. Since
    /// Valkey 9.0.0, O(n).
    fn hpexpire_with(
        key: impl ToArg,
        millis: i64,
        condition: ExpireCondition,
        fields: impl ToArgs,
    ) -> Vec<i64> = HPEXPIRE: one(key) one(millis) put(condition) word("FIELDS") counted(fields);

    /// Lets fields expire at a Unix time in milliseconds; a time past deletes them.
    ///
    /// Replies with an array: 1 set, 2 deleted, -2 no such field. Since Valkey 9.0.0, O(n).
    fn hpexpireat(key: impl ToArg, unix_millis: i64, fields: impl ToArgs) -> Vec<i64> = HPEXPIREAT:
        one(key) one(unix_millis) word("FIELDS") counted(fields);

    /// As HPEXPIREAT, on a condition.
    ///
    /// Replies with an array: 1 set, 2 deleted, 0 condition not met, -2 no such field. Since
    /// Valkey 9.0.0, O(n).
    fn hpexpireat_with(
        key: impl ToArg,
        unix_millis: i64,
        condition: ExpireCondition,
        fields: impl ToArgs,
    ) -> Vec<i64> = HPEXPIREAT:
        one(key) one(unix_millis) put(condition) word("FIELDS") counted(fields);

    /// When fields expire.
    ///
    /// Replies with an array: Unix time in milliseconds, -1 never, -2 no such field. Since Valkey
    /// 9.0.0, O(n).
    fn hpexpiretime(key: impl ToArg, fields: impl ToArgs) -> Vec<i64> = HPEXPIRETIME:
        one(key) word("FIELDS") counted(fields);

    /// How long fields have to live.
    ///
    /// Replies with an array: milliseconds, -1 for ever, -2 no such field. Since Valkey 9.0.0,
    /// O(n).
    fn hpttl(key: impl ToArg, fields: impl ToArgs) -> Vec<i64> = HPTTL:
        one(key) word("FIELDS") counted(fields);

    /// Some field.
    ///
    /// Replies with its name, or nil if the key does not exist. Since 6.2.0, O(1).
    fn hrandfield<R>(key: impl ToArg) -> R = HRANDFIELD: one(key);

    /// Some fields: `count` different ones, or with a negative count exactly so many with repeats.
    ///
    /// Replies with an array. Since 6.2.0, O(n) of the reply.
    fn hrandfield_count<R>(key: impl ToArg, count: i64) -> R = HRANDFIELD: one(key) one(count);

    /// Some fields with their values, as HRANDFIELD with a count.
    ///
    /// Replies with pairs. Since 6.2.0, O(n) of the reply.
    fn hrandfield_withvalues<R>(key: impl ToArg, count: i64) -> R = HRANDFIELD:
        one(key) one(count) word("WITHVALUES");

    /// One step through the fields and values: begin with cursor 0, go on with the cursor of the
    /// page until it is 0.
    ///
    /// Replies with a page of pairs: `T` is (field, value). Since 2.8.0, O(1) a step.
    fn hscan<T>(key: impl ToArg, cursor: u64) -> ScanPage<T> = HSCAN: one(key) one(cursor);

    /// As HSCAN, with a pattern or a size.
    ///
    /// Replies with a page of pairs: `T` is (field, value). Since 2.8.0, O(1) a step.
    fn hscan_with<T>(key: impl ToArg, cursor: u64, options: ScanOptions) -> ScanPage<T> = HSCAN:
        one(key) one(cursor) put(options);

    /// As HSCAN, for the fields alone.
    ///
    /// Replies with a page of fields. Since Valkey 8.0, O(1) a step.
    fn hscan_novalues<T>(key: impl ToArg, cursor: u64, options: ScanOptions) -> ScanPage<T> = HSCAN:
        one(key) one(cursor) put(options) word("NOVALUES");

    /// Sets fields.
    ///
    /// Takes (field, value) pairs. Replies with how many fields are new. Since 2.0.0 (more than
    /// one pair: 4.0.0), O(n).
    fn hset(key: impl ToArg, pairs: impl ToPairs) -> u64 = HSET: one(key) pairs(pairs);

    /// Sets fields with conditions and one expiration time for all.
    ///
    /// Takes (field, value) pairs. Replies with true if they were set, else false. Since Valkey
    /// 9.0.0, O(n).
    fn hsetex(key: impl ToArg, options: HsetexOptions, pairs: impl ToPairs) -> bool = HSETEX:
        one(key) put(options) word("FIELDS") counted_pairs(pairs);

    /// Sets a field if it does not exist.
    ///
    /// Replies with true if it was set, else false. Since 2.0.0, O(1).
    fn hsetnx(key: impl ToArg, field: impl ToArg, value: impl ToArg) -> bool = HSETNX:
        one(key) one(field) one(value);

    /// The length of a field's value.
    ///
    /// Replies with an integer, in bytes; 0 if there is no such field. Since 3.2.0, O(1).
    fn hstrlen(key: impl ToArg, field: impl ToArg) -> u64 = HSTRLEN: one(key) one(field);

    /// How long fields have to live.
    ///
    /// Replies with an array: seconds, -1 for ever, -2 no such field. Since Valkey 9.0.0, O(n).
    fn httl(key: impl ToArg, fields: impl ToArgs) -> Vec<i64> = HTTL:
        one(key) word("FIELDS") counted(fields);

    /// All values.
    ///
    /// Replies with an array, empty if the key does not exist. Since 2.0.0, O(n).
    fn hvals<R>(key: impl ToArg) -> R = HVALS: one(key);
}
