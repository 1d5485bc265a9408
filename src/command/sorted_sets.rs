//! The sorted-set group.
use super::args::{Args, ToArg, ToArgs, ToPairs};
use super::cursors::{ScanOptions, ScanPage};
use super::expiry::WriteCondition;
use super::lists::WaitSeconds;
use super::macros::commands;
use super::put::{Put, keywords};
use super::ranges::Limit;
pub use super::ranges::{LexBound, ScoreBound, ZRange};
use std::time::Duration;

keywords! {
    /// Which scores go first.
    pub enum Extreme {
        /// The lowest.
        Min = "MIN",
        /// The highest.
        Max = "MAX",
    }

    /// How the scores of a member in several sets become one.
    pub enum Aggregate {
        /// Their sum: the server's default.
        Sum = "SUM",
        /// The lowest.
        Min = "MIN",
        /// The highest.
        Max = "MAX",
    }

    /// Which way ZADD may move a score.
    enum ScoreMove {
        /// Only up.
        Gt = "GT",
        /// Only down.
        Lt = "LT",
    }
}

/// The options of ZADD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZaddOptions {
    condition: Option<WriteCondition>,
    moves: Option<ScoreMove>,
    changed: bool,
}

impl ZaddOptions {
    /// None: members are added or their scores set; the reply counts the new ones.
    pub fn new() -> ZaddOptions {
        ZaddOptions::default()
    }

    /// Only adds members, moves no score (`NX`).
    pub fn nx(mut self) -> ZaddOptions {
        self.condition = Some(WriteCondition::Nx);
        self
    }

    /// Only moves scores, adds no member (`XX`).
    pub fn xx(mut self) -> ZaddOptions {
        self.condition = Some(WriteCondition::Xx);
        self
    }

    /// Moves scores only up (`GT`, servers from 6.2); not together with `NX`.
    pub fn gt(mut self) -> ZaddOptions {
        self.moves = Some(ScoreMove::Gt);
        self
    }

    /// Moves scores only down (`LT`, servers from 6.2); not together with `NX`.
    pub fn lt(mut self) -> ZaddOptions {
        self.moves = Some(ScoreMove::Lt);
        self
    }

    /// The reply counts the members whose score moved, too (`CH`).
    pub fn ch(mut self) -> ZaddOptions {
        self.changed = true;
        self
    }
}

impl Put for ZaddOptions {
    fn put(&self, args: &mut Args) {
        self.condition.put(args);
        self.moves.put(args);
        if self.changed {
            args.word("CH");
        }
    }
}

/// How sorted sets are joined: weights and aggregate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZCombine {
    weights: Vec<f64>,
    aggregate: Option<Aggregate>,
}

impl ZCombine {
    /// Each set with weight 1, scores summed.
    pub fn new() -> ZCombine {
        ZCombine::default()
    }

    /// What the scores of each set are multiplied by: one number for each key (`WEIGHTS`).
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> ZCombine {
        self.weights = weights.into_iter().collect();
        self
    }

    /// How the scores of a member become one (`AGGREGATE`).
    pub fn aggregate(mut self, aggregate: Aggregate) -> ZCombine {
        self.aggregate = Some(aggregate);
        self
    }
}

impl Put for ZCombine {
    fn put(&self, args: &mut Args) {
        if !self.weights.is_empty() {
            args.word("WEIGHTS");
            args.many(&self.weights);
        }
        if let Some(aggregate) = self.aggregate {
            args.word("AGGREGATE");
            aggregate.put(args);
        }
    }
}

commands! {
    /// Commands on sorted sets: members with a score each.
    ///
    /// Each is also a function of [`command::sorted_sets`](self) that builds the command unsent. A
    /// key that does not exist is an empty set. Ends of score ranges are numbers, [`ScoreBound`]s
    /// or the server's own text (`"(1.5"`); ends of member ranges are [`LexBound`]s or text
    /// (`"[a"`). Commands that wait take a timeout, of which [`Duration::ZERO`] means for ever.
    trait SortedSetCommands;

    /// Takes a member off the first set that has any, waiting for one to come.
    ///
    /// Replies with the set's key and an array of one (member, score), or nil after the timeout.
    /// Since 7.0.0.
    fn bzmpop<R>(keys: impl ToArgs, which: Extreme, timeout: Duration) -> R = BZMPOP:
        put(WaitSeconds(timeout)) counted(keys) put(which);

    /// As BZMPOP, for up to `count` members, at least 1.
    ///
    /// Replies with the set's key and an array of (member, score), or nil after the timeout. Since
    /// 7.0.0.
    fn bzmpop_count<R>(
        keys: impl ToArgs,
        which: Extreme,
        count: u64,
        timeout: Duration,
    ) -> R = BZMPOP: put(WaitSeconds(timeout)) counted(keys) put(which) word("COUNT") one(count);

    /// Takes the highest member off the first set that has any, waiting for one to come.
    ///
    /// Replies with the set's key, the member and its score, or nil after the timeout. Since 5.0.0.
    fn bzpopmax<R>(keys: impl ToArgs, timeout: Duration) -> R = BZPOPMAX:
        many(keys) put(WaitSeconds(timeout));

    /// Takes the lowest member off the first set that has any, waiting for one to come.
    ///
    /// Replies with the set's key, the member and its score, or nil after the timeout. Since 5.0.0.
    fn bzpopmin<R>(keys: impl ToArgs, timeout: Duration) -> R = BZPOPMIN:
        many(keys) put(WaitSeconds(timeout));

    /// Adds members or sets their scores.
    ///
    /// Takes (score, member) pairs. Replies with how many members are new. Since 1.2.0, O(log n)
    /// each.
    fn zadd(key: impl ToArg, members: impl ToPairs) -> u64 = ZADD: one(key) pairs(members);

    /// As ZADD, on conditions.
    ///
    /// Takes (score, member) pairs. Replies with how many members are new, or with
    /// [`ZaddOptions::ch`] new or moved. Since 3.0.2, O(log n) each.
    fn zadd_with(key: impl ToArg, options: ZaddOptions, members: impl ToPairs) -> u64 = ZADD:
        one(key) put(options) pairs(members);

    /// Adds to the score of a member on conditions (`INCR`).
    ///
    /// Replies with the score after, or nil if a condition did not hold. Since 3.0.2, O(log n).
    fn zadd_incr(
        key: impl ToArg,
        options: ZaddOptions,
        increment: f64,
        member: impl ToArg,
    ) -> Option<f64> = ZADD: one(key) put(options) word("INCR") one(increment) one(member);

    /// How many members a set has.
    ///
    /// Replies with an integer. Since 1.2.0, O(1).
    fn zcard(key: impl ToArg) -> u64 = ZCARD: one(key);

    /// How many members have a score from `min` to `max`.
    ///
    /// Replies with an integer. Since 2.0.0, O(log n).
    fn zcount(key: impl ToArg, min: impl ToArg, max: impl ToArg) -> u64 = ZCOUNT:
        one(key) one(min) one(max);

    /// What the first set has and none of the others.
    ///
    /// Replies with an array of members. Since 6.2.0.
    fn zdiff<R>(keys: impl ToArgs) -> R = ZDIFF: counted(keys);

    /// As ZDIFF, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 6.2.0.
    fn zdiff_withscores<R>(keys: impl ToArgs) -> R = ZDIFF: counted(keys) word("WITHSCORES");

    /// As ZDIFF, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 6.2.0.
    fn zdiffstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = ZDIFFSTORE:
        one(destination) counted(keys);

    /// Adds to the score of a member, which begins at 0.
    ///
    /// Replies with the score after. Since 1.2.0, O(log n).
    fn zincrby(key: impl ToArg, increment: f64, member: impl ToArg) -> f64 = ZINCRBY:
        one(key) one(increment) one(member);

    /// What all the sets have.
    ///
    /// Replies with an array of members. Since 6.2.0.
    fn zinter<R>(keys: impl ToArgs) -> R = ZINTER: counted(keys);

    /// As ZINTER, with weights or another aggregate.
    ///
    /// Replies with an array of members. Since 6.2.0.
    fn zinter_with<R>(keys: impl ToArgs, combine: ZCombine) -> R = ZINTER:
        counted(keys) put(combine);

    /// As ZINTER, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 6.2.0.
    fn zinter_withscores<R>(keys: impl ToArgs, combine: ZCombine) -> R = ZINTER:
        counted(keys) put(combine) word("WITHSCORES");

    /// How many members all the sets have.
    ///
    /// Replies with an integer. Since 7.0.0.
    fn zintercard(keys: impl ToArgs) -> u64 = ZINTERCARD: counted(keys);

    /// As ZINTERCARD, counting no further than `limit`; 0 means no limit.
    ///
    /// Replies with an integer. Since 7.0.0.
    fn zintercard_limit(keys: impl ToArgs, limit: u64) -> u64 = ZINTERCARD:
        counted(keys) word("LIMIT") one(limit);

    /// As ZINTER, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 2.0.0.
    fn zinterstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = ZINTERSTORE:
        one(destination) counted(keys);

    /// As ZINTERSTORE, with weights or another aggregate.
    ///
    /// Replies with how many members it has. Since 2.0.0.
    fn zinterstore_with(
        destination: impl ToArg,
        keys: impl ToArgs,
        combine: ZCombine,
    ) -> u64 = ZINTERSTORE: one(destination) counted(keys) put(combine);

    /// How many members lie from `min` to `max` in byte order, all scores being the same.
    ///
    /// Replies with an integer. Since 2.8.9, O(log n).
    fn zlexcount(key: impl ToArg, min: impl ToArg, max: impl ToArg) -> u64 = ZLEXCOUNT:
        one(key) one(min) one(max);

    /// Takes a member off the first set that has any.
    ///
    /// Replies with the set's key and an array of one (member, score), or nil if all are empty.
    /// Since 7.0.0.
    fn zmpop<R>(keys: impl ToArgs, which: Extreme) -> R = ZMPOP: counted(keys) put(which);

    /// As ZMPOP, for up to `count` members, at least 1.
    ///
    /// Replies with the set's key and an array of (member, score), or nil if all are empty. Since
    /// 7.0.0.
    fn zmpop_count<R>(keys: impl ToArgs, which: Extreme, count: u64) -> R = ZMPOP:
        counted(keys) put(which) word("COUNT") one(count);

    /// The scores of members.
    ///
    /// Replies with an array: a score or nil for each. Since 6.2.0, O(n).
    fn zmscore(key: impl ToArg, members: impl ToArgs) -> Vec<Option<f64>> = ZMSCORE:
        one(key) many(members);

    /// Takes the highest member off a set.
    ///
    /// Replies with the member and its score, or an empty array. Since 5.0.0, O(log n).
    fn zpopmax<R>(key: impl ToArg) -> R = ZPOPMAX: one(key);

    /// Takes up to `count` members off a set, the highest first.
    ///
    /// Replies with (member, score) pairs. Since 5.0.0, O(log n) each.
    fn zpopmax_count<R>(key: impl ToArg, count: u64) -> R = ZPOPMAX: one(key) one(count);

    /// Takes the lowest member off a set.
    ///
    /// Replies with the member and its score, or an empty array. Since 5.0.0, O(log n).
    fn zpopmin<R>(key: impl ToArg) -> R = ZPOPMIN: one(key);

    /// Takes up to `count` members off a set, the lowest first.
    ///
    /// Replies with (member, score) pairs. Since 5.0.0, O(log n) each.
    fn zpopmin_count<R>(key: impl ToArg, count: u64) -> R = ZPOPMIN: one(key) one(count);

    /// Some member.
    ///
    /// Replies with the member, or nil if the set is empty. Since 6.2.0, O(1).
    fn zrandmember<R>(key: impl ToArg) -> R = ZRANDMEMBER: one(key);

    /// Some members: `count` different ones, or with a negative count exactly so many with repeats.
    ///
    /// Replies with an array. Since 6.2.0, O(n) of the reply.
    fn zrandmember_count<R>(key: impl ToArg, count: i64) -> R = ZRANDMEMBER: one(key) one(count);

    /// As ZRANDMEMBER with a count, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 6.2.0, O(n) of the reply.
    fn zrandmember_withscores<R>(key: impl ToArg, count: i64) -> R = ZRANDMEMBER:
        one(key) one(count) word("WITHSCORES");

    /// The members from position `start` to `stop`, both included and counted from 0, or from the
    /// end when negative: 0 to -1 is all.
    ///
    /// Replies with an array, the lowest score first. Since 1.2.0, O(log n + m).
    fn zrange<R>(key: impl ToArg, start: i64, stop: i64) -> R = ZRANGE:
        one(key) one(start) one(stop);

    /// As ZRANGE, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 1.2.0, O(log n + m).
    fn zrange_withscores<R>(key: impl ToArg, start: i64, stop: i64) -> R = ZRANGE:
        one(key) one(start) one(stop) word("WITHSCORES");

    /// The members in a range by position, score or member, either way around.
    ///
    /// Replies with an array. Since 6.2.0, O(log n + m).
    fn zrange_with<R>(key: impl ToArg, range: ZRange) -> R = ZRANGE: one(key) put(range);

    /// As ZRANGE over any range, with the scores; servers refuse it by member.
    ///
    /// Replies with (member, score) pairs. Since 6.2.0, O(log n + m).
    fn zrange_with_withscores<R>(key: impl ToArg, range: ZRange) -> R = ZRANGE:
        one(key) put(range) word("WITHSCORES");

    /// The members from `min` to `max` in byte order, all scores being the same.
    ///
    /// Replies with an array. Deprecated by the servers for ZRANGE. Since 2.8.9, O(log n + m).
    fn zrangebylex<R>(key: impl ToArg, min: impl ToArg, max: impl ToArg) -> R = ZRANGEBYLEX:
        one(key) one(min) one(max);

    /// As ZRANGEBYLEX, for `count` members from `offset` on; a negative count means all.
    ///
    /// Replies with an array. Since 2.8.9, O(log n + m).
    fn zrangebylex_limit<R>(
        key: impl ToArg,
        min: impl ToArg,
        max: impl ToArg,
        offset: i64,
        count: i64,
    ) -> R = ZRANGEBYLEX: one(key) one(min) one(max) put(Limit(offset, count));

    /// The members with a score from `min` to `max`.
    ///
    /// Replies with an array. Deprecated by the servers for ZRANGE. Since 1.0.5, O(log n + m).
    fn zrangebyscore<R>(key: impl ToArg, min: impl ToArg, max: impl ToArg) -> R = ZRANGEBYSCORE:
        one(key) one(min) one(max);

    /// As ZRANGEBYSCORE, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 2.0.0, O(log n + m).
    fn zrangebyscore_withscores<R>(
        key: impl ToArg,
        min: impl ToArg,
        max: impl ToArg,
    ) -> R = ZRANGEBYSCORE: one(key) one(min) one(max) word("WITHSCORES");

    /// As ZRANGEBYSCORE, for `count` members from `offset` on; a negative count means all.
    ///
    /// Replies with an array. Since 1.0.5, O(log n + m).
    fn zrangebyscore_limit<R>(
        key: impl ToArg,
        min: impl ToArg,
        max: impl ToArg,
        offset: i64,
        count: i64,
    ) -> R = ZRANGEBYSCORE: one(key) one(min) one(max) put(Limit(offset, count));

    /// As ZRANGE over any range, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 6.2.0, O(log n + m).
    fn zrangestore(destination: impl ToArg, source: impl ToArg, range: ZRange) -> u64 = ZRANGESTORE:
        one(destination) one(source) put(range);

    /// The position of a member, the lowest score being 0.
    ///
    /// Replies with an integer, or nil if there is no such member. Since 2.0.0, O(log n).
    fn zrank(key: impl ToArg, member: impl ToArg) -> Option<u64> = ZRANK: one(key) one(member);

    /// As ZRANK, with the score.
    ///
    /// Replies with the position and the score, or nil. Since 7.2.0, O(log n).
    fn zrank_withscore(key: impl ToArg, member: impl ToArg) -> Option<(u64, f64)> = ZRANK:
        one(key) one(member) word("WITHSCORE");

    /// Removes members.
    ///
    /// Replies with how many were there. Since 1.2.0, O(log n) each.
    fn zrem(key: impl ToArg, members: impl ToArgs) -> u64 = ZREM: one(key) many(members);

    /// Removes the members from `min` to `max` in byte order, all scores being the same.
    ///
    /// Replies with how many were removed. Since 2.8.9, O(log n + m).
    fn zremrangebylex(key: impl ToArg, min: impl ToArg, max: impl ToArg) -> u64 = ZREMRANGEBYLEX:
        one(key) one(min) one(max);

    /// Removes the members from position `start` to `stop`, as ZRANGE counts them.
    ///
    /// Replies with how many were removed. Since 2.0.0, O(log n + m).
    fn zremrangebyrank(key: impl ToArg, start: i64, stop: i64) -> u64 = ZREMRANGEBYRANK:
        one(key) one(start) one(stop);

    /// Removes the members with a score from `min` to `max`.
    ///
    /// Replies with how many were removed. Since 1.2.0, O(log n + m).
    fn zremrangebyscore(
        key: impl ToArg,
        min: impl ToArg,
        max: impl ToArg,
    ) -> u64 = ZREMRANGEBYSCORE: one(key) one(min) one(max);

    /// The members from position `start` to `stop`, counted from the highest score.
    ///
    /// Replies with an array. Deprecated by the servers for ZRANGE. Since 1.2.0, O(log n + m).
    fn zrevrange<R>(key: impl ToArg, start: i64, stop: i64) -> R = ZREVRANGE:
        one(key) one(start) one(stop);

    /// As ZREVRANGE, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 1.2.0, O(log n + m).
    fn zrevrange_withscores<R>(key: impl ToArg, start: i64, stop: i64) -> R = ZREVRANGE:
        one(key) one(start) one(stop) word("WITHSCORES");

    /// The members from `max` down to `min` in byte order, all scores being the same.
    ///
    /// Replies with an array. Deprecated by the servers for ZRANGE. Since 2.8.9, O(log n + m).
    fn zrevrangebylex<R>(key: impl ToArg, max: impl ToArg, min: impl ToArg) -> R = ZREVRANGEBYLEX:
        one(key) one(max) one(min);

    /// As ZREVRANGEBYLEX, for `count` members from `offset` on; a negative count means all.
    ///
    /// Replies with an array. Since 2.8.9, O(log n + m).
    fn zrevrangebylex_limit<R>(
        key: impl ToArg,
        max: impl ToArg,
        min: impl ToArg,
        offset: i64,
        count: i64,
    ) -> R = ZREVRANGEBYLEX: one(key) one(max) one(min) put(Limit(offset, count));

    /// The members with a score from `max` down to `min`.
    ///
    /// Replies with an array. Deprecated by the servers for ZRANGE. Since 2.2.0, O(log n + m).
    fn zrevrangebyscore<R>(
        key: impl ToArg,
        max: impl ToArg,
        min: impl ToArg,
    ) -> R = ZREVRANGEBYSCORE: one(key) one(max) one(min);

    /// As ZREVRANGEBYSCORE, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 2.2.0, O(log n + m).
    fn zrevrangebyscore_withscores<R>(
        key: impl ToArg,
        max: impl ToArg,
        min: impl ToArg,
    ) -> R = ZREVRANGEBYSCORE: one(key) one(max) one(min) word("WITHSCORES");

    /// As ZREVRANGEBYSCORE, for `count` members from `offset` on; a negative count means all.
    ///
    /// Replies with an array. Since 2.2.0, O(log n + m).
    fn zrevrangebyscore_limit<R>(
        key: impl ToArg,
        max: impl ToArg,
        min: impl ToArg,
        offset: i64,
        count: i64,
    ) -> R = ZREVRANGEBYSCORE: one(key) one(max) one(min) put(Limit(offset, count));

    /// The position of a member, the highest score being 0.
    ///
    /// Replies with an integer, or nil if there is no such member. Since 2.0.0, O(log n).
    fn zrevrank(key: impl ToArg, member: impl ToArg) -> Option<u64> = ZREVRANK:
        one(key) one(member);

    /// As ZREVRANK, with the score.
    ///
    /// Replies with the position and the score, or nil. Since 7.2.0, O(log n).
    fn zrevrank_withscore(key: impl ToArg, member: impl ToArg) -> Option<(u64, f64)> = ZREVRANK:
        one(key) one(member) word("WITHSCORE");

    /// One step through the members and scores: begin with cursor 0, go on with the cursor of the
    /// page until it is 0.
    ///
    /// Replies with a page of pairs: `T` is (member, score). Since 2.8.0, O(1) a step.
    fn zscan<T>(key: impl ToArg, cursor: u64) -> ScanPage<T> = ZSCAN: one(key) one(cursor);

    /// As ZSCAN, with a pattern or a size.
    ///
    /// Replies with a page of pairs: `T` is (member, score). Since 2.8.0, O(1) a step.
    fn zscan_with<T>(key: impl ToArg, cursor: u64, options: ScanOptions) -> ScanPage<T> = ZSCAN:
        one(key) one(cursor) put(options);

    /// As ZSCAN, for the members alone.
    ///
    /// Replies with a page of members. Since Valkey 8.1, O(1) a step.
    fn zscan_noscores<T>(key: impl ToArg, cursor: u64, options: ScanOptions) -> ScanPage<T> = ZSCAN:
        one(key) one(cursor) put(options) word("NOSCORES");

    /// The score of a member.
    ///
    /// Replies with the score, or nil if there is no such member. Since 1.2.0, O(1).
    fn zscore(key: impl ToArg, member: impl ToArg) -> Option<f64> = ZSCORE: one(key) one(member);

    /// What any of the sets has.
    ///
    /// Replies with an array of members. Since 6.2.0.
    fn zunion<R>(keys: impl ToArgs) -> R = ZUNION: counted(keys);

    /// As ZUNION, with weights or another aggregate.
    ///
    /// Replies with an array of members. Since 6.2.0.
    fn zunion_with<R>(keys: impl ToArgs, combine: ZCombine) -> R = ZUNION:
        counted(keys) put(combine);

    /// As ZUNION, with the scores.
    ///
    /// Replies with (member, score) pairs. Since 6.2.0.
    fn zunion_withscores<R>(keys: impl ToArgs, combine: ZCombine) -> R = ZUNION:
        counted(keys) put(combine) word("WITHSCORES");

    /// As ZUNION, into a key, which is overwritten.
    ///
    /// Replies with how many members it has. Since 2.0.0.
    fn zunionstore(destination: impl ToArg, keys: impl ToArgs) -> u64 = ZUNIONSTORE:
        one(destination) counted(keys);

    /// As ZUNIONSTORE, with weights or another aggregate.
    ///
    /// Replies with how many members it has. Since 2.0.0.
    fn zunionstore_with(
        destination: impl ToArg,
        keys: impl ToArgs,
        combine: ZCombine,
    ) -> u64 = ZUNIONSTORE: one(destination) counted(keys) put(combine);
}
