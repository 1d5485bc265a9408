//! The set group.
use super::args::{ToArg, ToArgs};
use super::cursors::{ScanOptions, ScanPage};
use super::macros::commands;

commands! {
    /// Commands on sets.
    ///
    /// Each is also a function of [`command::sets`](self) that builds the command unsent. Members
    /// come in no order. A key that does not exist is an empty set.
    trait SetCommands;

    /// Adds members.
    ///
    /// Replies with how many are new. Since 1.0.0, O(n).
    fn sadd(key: impl ToArg, members: impl ToArgs) -> u64 = SADD: one(key) many(members);

    /// How many members a set has.
    ///
    /// Replies with an integer. Since 1.0.0, O(1).
    fn scard(key: impl ToArg) -> u64 = SCARD: one(key);

    /// What the first set has and none of the others.
    ///
    /// Replies with a set. Since 1.0.0, O(n) of all sets.
    fn sdiff<R>(keys: impl ToArgs) -> R = SDIFF: many(keys);

    /// As SDIFF, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n) of all sets.
    fn sdiffstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = SDIFFSTORE:
        one(destination) many(keys);

    /// What all the sets have.
    ///
    /// Replies with a set. Since 1.0.0, O(n·m) with the smallest set's n.
    fn sinter<R>(keys: impl ToArgs) -> R = SINTER: many(keys);

    /// How many members all the sets have.
    ///
    /// Replies with an integer. Since 7.0.0, O(n·m) with the smallest set's n.
    fn sintercard(keys: impl ToArgs) -> u64 = SINTERCARD: counted(keys);

    /// As SINTERCARD, counting no further than `limit`; 0 means no limit.
    ///
    /// Replies with an integer. Since 7.0.0.
    fn sintercard_limit(keys: impl ToArgs, limit: u64) -> u64 = SINTERCARD:
        counted(keys) word("LIMIT") one(limit);

    /// As SINTER, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n·m) with the smallest set's n.
    fn sinterstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = SINTERSTORE:
        one(destination) many(keys);

    /// Whether a set has a member.
    ///
    /// Replies with true or false. Since 1.0.0, O(1).
    fn sismember(key: impl ToArg, member: impl ToArg) -> bool = SISMEMBER: one(key) one(member);

    /// All members.
    ///
    /// Replies with a set. Since 1.0.0, O(n).
    fn smembers<R>(key: impl ToArg) -> R = SMEMBERS: one(key);

    /// Which of the members a set has.
    ///
    /// Replies with an array: true or false for each. Since 6.2.0, O(n).
    fn smismember(key: impl ToArg, members: impl ToArgs) -> Vec<bool> = SMISMEMBER:
        one(key) many(members);

    /// Moves a member from one set to another.
    ///
    /// Replies with true if it was moved, false if the source does not have it. Since 1.0.0, O(1).
    fn smove(source: impl ToArg, destination: impl ToArg, member: impl ToArg) -> bool = SMOVE:
        one(source) one(destination) one(member);

    /// Takes some member out.
    ///
    /// Replies with the member, or nil if the set is empty. Since 1.0.0, O(1).
    fn spop<R>(key: impl ToArg) -> R = SPOP: one(key);

    /// Takes up to `count` members out.
    ///
    /// Replies with a set. Since 3.2.0, O(n) of the reply.
    fn spop_count<R>(key: impl ToArg, count: u64) -> R = SPOP: one(key) one(count);

    /// Some member.
    ///
    /// Replies with the member, or nil if the set is empty. Since 1.0.0, O(1).
    fn srandmember<R>(key: impl ToArg) -> R = SRANDMEMBER: one(key);

    /// Some members: `count` different ones, or with a negative count exactly so many with repeats.
    ///
    /// Replies with an array. Since 2.6.0, O(n) of the reply.
    fn srandmember_count<R>(key: impl ToArg, count: i64) -> R = SRANDMEMBER: one(key) one(count);

    /// Removes members.
    ///
    /// Replies with how many were there. Since 1.0.0, O(n).
    fn srem(key: impl ToArg, members: impl ToArgs) -> u64 = SREM: one(key) many(members);

    /// One step through the members: begin with cursor 0, go on with the cursor of the reply until
    /// it is 0.
    ///
    /// Replies with a page of members, of which some may come twice. Since
    /// 2.8.0, O(1) a step.
    fn sscan<T>(key: impl ToArg, cursor: u64) -> ScanPage<T> = SSCAN: one(key) one(cursor);

    /// As SSCAN, with a pattern or a size.
    ///
    /// Replies with a page of members. Since 2.8.0, O(1) a step.
    fn sscan_with<T>(key: impl ToArg, cursor: u64, options: ScanOptions) -> ScanPage<T> = SSCAN:
        one(key) one(cursor) put(options);

    /// What any of the sets has.
    ///
    /// Replies with a set. Since 1.0.0, O(n) of all sets.
    fn sunion<R>(keys: impl ToArgs) -> R = SUNION: many(keys);

    /// As SUNION, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n) of all sets.
    fn sunionstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = SUNIONSTORE:
        one(destination) many(keys);
}
