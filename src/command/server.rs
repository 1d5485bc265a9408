//! The server group: state and settings of one server.
use super::args::{ToArg, ToArgs, ToPairs};
use super::macros::commands;
use super::put::keywords;
use crate::resp::Value;
use std::collections::HashMap;

keywords! {
    /// How memory is freed by FLUSHDB and FLUSHALL.
    pub enum Flush {
        /// In the background.
        Async = "ASYNC",
        /// Before the reply.
        Sync = "SYNC",
    }
}

commands! {
    /// Commands on a server as a whole.
    ///
    /// Each is also a function of [`command::server`](self) that builds the command unsent. Those
    /// marked *administrative* are refused locally unless the client was made with `allow_admin`.
    trait ServerCommands;

    /// Settings whose names match the glob patterns.
    ///
    /// Replies with a map of names and values. Since 2.0.0, O(n).
    fn config_get(patterns: impl ToArgs) -> HashMap<String, String> = CONFIG_GET: many(patterns);

    /// Alters settings. *Administrative.*
    ///
    /// Takes (name, value) pairs. Replies with OK. Since 2.0.0 (more than one pair: 7.0.0), O(n).
    fn config_set(pairs: impl ToPairs) -> () = CONFIG_SET: pairs(pairs);

    /// How many keys the database has.
    ///
    /// Replies with an integer. Since 1.0.0, O(1).
    fn dbsize() -> u64 = DBSIZE;

    /// Deletes all keys of all databases. *Administrative.*
    ///
    /// Replies with OK. Since 6.2.0 (with the mode), O(n).
    fn flushall(mode: Flush) -> () = FLUSHALL: put(mode);

    /// Deletes all keys of the database. *Administrative.*
    ///
    /// Replies with OK. Since 6.2.0 (with the mode), O(n).
    fn flushdb(mode: Flush) -> () = FLUSHDB: put(mode);

    /// What the server tells of itself.
    ///
    /// Replies with text: `name:value` lines under `# Section` lines. Since 1.0.0, O(1).
    fn info() -> String = INFO;

    /// What the server tells of itself in some sections, such as `replication`.
    ///
    /// Replies with text. Since 1.0.0 (more than one section: 7.0.0), O(1).
    fn info_of(sections: impl ToArgs) -> String = INFO: many(sections);

    /// When the last snapshot was saved.
    ///
    /// Replies with Unix time in seconds. Since 1.0.0, O(1).
    fn lastsave() -> u64 = LASTSAVE;

    /// How much memory a key takes.
    ///
    /// Replies with bytes, or nil if the key does not exist. Since 4.0.0, O(n) of the samples.
    fn memory_usage(key: impl ToArg) -> Option<u64> = MEMORY_USAGE: one(key);

    /// The server's part in replication.
    ///
    /// Replies with an array that begins with `master`, `slave` or `sentinel`. Since 2.8.12, O(1).
    fn role() -> Value = ROLE;

    /// The server's clock.
    ///
    /// Replies with two texts: Unix time in seconds, and the microseconds of that second. Since
    /// 2.6.0, O(1).
    fn time() -> (u64, u64) = TIME;
}
