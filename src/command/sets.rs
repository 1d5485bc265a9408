//! The set group.
use super::args::{ToArg, ToArgs};
use super::cursors::ScanOptions;
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
    fn sadd(key: impl ToArg, members: impl ToArgs) = SADD: one(key) many(members);

    /// How many members a set has.
    ///
    /// Replies with an integer. Since 1.0.0, O(1).
    fn scard(key: impl ToArg) = SCARD: one(key);

    /// What the first set has and none of the others.
    ///
    /// Replies with a set. Since 1.0.0, O(n) of all sets.
    fn sdiff(keys: impl ToArgs) = SDIFF: many(keys);

    /// As SDIFF, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n) of all sets.
    fn sdiffstore(destination: impl ToArg, keys: impl ToArgs) = SDIFFSTORE:
        one(destination) many(keys);

    /// What all the sets have.
    ///
    /// Replies with a set. Since 1.0.0, O(n·m) with the smallest set's n.
    fn sinter(keys: impl ToArgs) = SINTER: many(keys);

    /// How many members all the sets have.
    ///
    /// Replies with an integer. Since 7.0.0, O(n·m) with the smallest set's n.
    fn sintercard(keys: impl ToArgs) = SINTERCARD: counted(keys);

    /// As SINTERCARD, counting no further than `limit`; 0 means no limit.
    ///
    /// Replies with an integer. Since 7.0.0.
    fn sintercard_limit(keys: impl ToArgs, limit: u64) = SINTERCARD:
        counted(keys) word("LIMIT") one(limit);

    /// As SINTER, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n·m) with the smallest set's n.
    fn sinterstore(destination: impl ToArg, keys: impl ToArgs) = SINTERSTORE:
        one(destination) many(keys);

    /// Whether a set has a member.
    ///
    /// Replies with 1 or 0. Since 1.0.0, O(1).
    fn sismember(key: impl ToArg, member: impl ToArg) = SISMEMBER: one(key) one(member);

    /// All members.
    ///
    /// Replies with a set. Since 1.0.0, O(n).
    fn smembers(key: impl ToArg) = SMEMBERS: one(key);

    /// Which of the members a set has.
    ///
    /// Replies with an array: 1 or 0 for each. Since 6.2.0, O(n).
    fn smismember(key: impl ToArg, members: impl ToArgs) = SMISMEMBER: one(key) many(members);

    /// Moves a member from one set to another.
    ///
    /// Replies with 1 if it was moved, 0 if the source does not have it. Since 1.0.0, O(1).
    fn smove(source: impl ToArg, destination: impl ToArg, member: impl ToArg) = SMOVE:
        one(source) one(destination) one(member);

    /// Takes some member out.
    ///
    /// Replies with the member, or nil if the set is empty. Since 1.0.0, O(1).
    fn spop(key: impl ToArg) = SPOP: one(key);

    /// Takes up to `count` members out.
    ///
    /// Replies with a set. Since 3.2.0, O(n) of the reply.
    fn spop_count(key: impl ToArg, count: u64) = SPOP: one(key) one(count);

    /// Some member.
    ///
    /// Replies with the member, or nil if the set is empty. Since 1.0.0, O(1).
    fn srandmember(key: impl ToArg) = SRANDMEMBER: one(key);

    /// Some members: `count` different ones, or with a negative count exactly so many with repeats.
    ///
    /// Replies with an array. Since 2.6.0, O(n) of the reply.
    fn srandmember_count(key: impl ToArg, count: i64) = SRANDMEMBER: one(key) one(count);

    /// Removes members.
    ///
    /// Replies with how many were there. Since 1.0.0, O(n).
    fn srem(key: impl ToArg, members: impl ToArgs) = SREM: one(key) many(members);

    /// One step through the members: begin with cursor 0, go on with the cursor of the reply until
    /// it is 0.
    ///
    /// Replies with the next cursor and an array of members, of which some may come twice. Since
    /// 2.8.0, O(1) a step.
    fn sscan(key: impl ToArg, cursor: u64) = SSCAN: one(key) one(cursor);

    /// As SSCAN, with a pattern or a size.
    ///
    /// Replies with the next cursor and an array of members. Since 2.8.0, O(1) a step.
    fn sscan_with(key: impl ToArg, cursor: u64, options: ScanOptions) = SSCAN:
        one(key) one(cursor) put(options);

    /// What any of the sets has.
    ///
    /// Replies with a set. Since 1.0.0, O(n) of all sets.
    fn sunion(keys: impl ToArgs) = SUNION: many(keys);

    /// As SUNION, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 1.0.0, O(n) of all sets.
    fn sunionstore(destination: impl ToArg, keys: impl ToArgs) = SUNIONSTORE:
        one(destination) many(keys);
}
