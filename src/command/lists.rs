//! The list group.
use super::args::{Args, ToArg, ToArgs};
use super::macros::commands;
use super::put::{Put, keywords};
use std::time::Duration;

keywords! {
    /// An end of a list.
    pub enum End {
        /// The first element.
        Left = "LEFT",
        /// The last element.
        Right = "RIGHT",
    }

    /// Which side of an element.
    pub enum Side {
        /// Before it.
        Before = "BEFORE",
        /// After it.
        After = "AFTER",
    }
}

/// The options of LPOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LposOptions {
    rank: Option<i64>,
    max_len: Option<u64>,
}

impl LposOptions {
    /// None: from the first match on, however far it is.
    pub fn new() -> LposOptions {
        LposOptions::default()
    }

    /// From the n-th match on, 1 being the first and -1 the last; never 0 (`RANK`).
    pub fn rank(mut self, rank: i64) -> LposOptions {
        self.rank = Some(rank);
        self
    }

    /// Looks at no more than so many elements; 0 means all (`MAXLEN`).
    pub fn maxlen(mut self, elements: u64) -> LposOptions {
        self.max_len = Some(elements);
        self
    }
}

impl Put for LposOptions {
    fn put(&self, args: &mut Args) {
        if let Some(rank) = self.rank {
            args.word("RANK");
            args.int(rank);
        }
        if let Some(elements) = self.max_len {
            args.word("MAXLEN");
            args.uint(elements);
        }
    }
}

/// A time that a command may wait, in seconds as the server wants it.
#[derive(Clone, Copy)]
pub(crate) struct WaitSeconds(pub(crate) Duration);

impl Put for WaitSeconds {
    fn put(&self, args: &mut Args) {
        args.float(self.0.as_secs_f64());
    }
}

commands! {
    /// Commands on lists.
    ///
    /// Each is also a function of [`command::lists`](self) that builds the command unsent. Those
    /// that wait take a timeout, of which [`Duration::ZERO`] means for ever; clients refuse them
    /// on a shared connection, which they would hold up, and have no other kind yet.
    trait ListCommands;

    /// Moves an element from an end of one list to an end of another, waiting for one to come.
    ///
    /// Replies with the element, or nil after the timeout. Since 6.2.0, O(1).
    fn blmove<R>(
        source: impl ToArg,
        destination: impl ToArg,
        from: End,
        to: End,
        timeout: Duration,
    ) -> R = BLMOVE: one(source) one(destination) put(from) put(to) put(WaitSeconds(timeout));

    /// Takes an element off an end of the first list that has any, waiting for one to come.
    ///
    /// Replies with the list's key and an array of one, or nil after the timeout. Since 7.0.0.
    fn blmpop<R>(keys: impl ToArgs, from: End, timeout: Duration) -> R = BLMPOP:
        put(WaitSeconds(timeout)) counted(keys) put(from);

    /// As BLMPOP, for up to `count` elements, at least 1.
    ///
    /// Replies with the list's key and an array, or nil after the timeout. Since 7.0.0.
    fn blmpop_count<R>(keys: impl ToArgs, from: End, count: u64, timeout: Duration) -> R = BLMPOP:
        put(WaitSeconds(timeout)) counted(keys) put(from) word("COUNT") one(count);

    /// Takes the first element off the first list that has any, waiting for one to come.
    ///
    /// Replies with the list's key and the element, or nil after the timeout. Since 2.0.0.
    fn blpop<R>(keys: impl ToArgs, timeout: Duration) -> R = BLPOP:
        many(keys) put(WaitSeconds(timeout));

    /// Takes the last element off the first list that has any, waiting for one to come.
    ///
    /// Replies with the list's key and the element, or nil after the timeout. Since 2.0.0.
    fn brpop<R>(keys: impl ToArgs, timeout: Duration) -> R = BRPOP:
        many(keys) put(WaitSeconds(timeout));

    /// Moves the last element of one list to the front of another, waiting for one to come.
    ///
    /// Replies with the element, or nil after the timeout. Deprecated by the servers for BLMOVE.
    /// Since 2.2.0, O(1).
    fn brpoplpush<R>(
        source: impl ToArg,
        destination: impl ToArg,
        timeout: Duration,
    ) -> R = BRPOPLPUSH: one(source) one(destination) put(WaitSeconds(timeout));

    /// The element at an index counted from 0, or from the end when negative.
    ///
    /// Replies with the element, or nil if there is none. Since 1.0.0, O(n) to the element.
    fn lindex<R>(key: impl ToArg, index: i64) -> R = LINDEX: one(key) one(index);

    /// Inserts an element before or after the first that equals `pivot`.
    ///
    /// Replies with the length after, 0 if the key does not exist, -1 if the pivot does not. Since
    /// 2.2.0, O(n) to the pivot.
    fn linsert(
        key: impl ToArg,
        side: Side,
        pivot: impl ToArg,
        element: impl ToArg,
    ) -> i64 = LINSERT: one(key) put(side) one(pivot) one(element);

    /// The length of a list.
    ///
    /// Replies with an integer, 0 if the key does not exist. Since 1.0.0, O(1).
    fn llen(key: impl ToArg) -> u64 = LLEN: one(key);

    /// Moves an element from an end of one list to an end of another.
    ///
    /// Replies with the element, or nil if the source is empty. Since 6.2.0, O(1).
    fn lmove<R>(source: impl ToArg, destination: impl ToArg, from: End, to: End) -> R = LMOVE:
        one(source) one(destination) put(from) put(to);

    /// Takes an element off an end of the first list that has any.
    ///
    /// Replies with the list's key and an array of one, or nil if all are empty. Since 7.0.0.
    fn lmpop<R>(keys: impl ToArgs, from: End) -> R = LMPOP: counted(keys) put(from);

    /// As LMPOP, for up to `count` elements, at least 1.
    ///
    /// Replies with the list's key and an array, or nil if all are empty. Since 7.0.0.
    fn lmpop_count<R>(keys: impl ToArgs, from: End, count: u64) -> R = LMPOP:
        counted(keys) put(from) word("COUNT") one(count);

    /// Takes the first element off a list.
    ///
    /// Replies with the element, or nil if the key does not exist. Since 1.0.0, O(1).
    fn lpop<R>(key: impl ToArg) -> R = LPOP: one(key);

    /// Takes up to `count` first elements off a list.
    ///
    /// Replies with an array, or nil if the key does not exist. Since 6.2.0, O(n) of the reply.
    fn lpop_count<R>(key: impl ToArg, count: u64) -> R = LPOP: one(key) one(count);

    /// Where the first element that equals this one is.
    ///
    /// Replies with its index, or nil if there is none. Since 6.0.6, O(n).
    fn lpos(key: impl ToArg, element: impl ToArg) -> Option<u64> = LPOS: one(key) one(element);

    /// As LPOS, from another match on, or looking at a part of the list.
    ///
    /// Replies with an index, or nil if there is none. Since 6.0.6, O(n).
    fn lpos_with(key: impl ToArg, element: impl ToArg, options: LposOptions) -> Option<u64> = LPOS:
        one(key) one(element) put(options);

    /// As LPOS, for up to `count` matches; 0 means all.
    ///
    /// Replies with an array of indices. Since 6.0.6, O(n).
    fn lpos_count(
        key: impl ToArg,
        element: impl ToArg,
        count: u64,
        options: LposOptions,
    ) -> Vec<u64> = LPOS: one(key) one(element) put(options) word("COUNT") one(count);

    /// Puts elements before the first of a list, one after the other: the last given comes first.
    ///
    /// Replies with the length after. Since 1.0.0, O(n).
    fn lpush(key: impl ToArg, elements: impl ToArgs) -> u64 = LPUSH: one(key) many(elements);

    /// As LPUSH, if the list exists.
    ///
    /// Replies with the length after, 0 if it does not exist. Since 2.2.0, O(n).
    fn lpushx(key: impl ToArg, elements: impl ToArgs) -> u64 = LPUSHX: one(key) many(elements);

    /// The elements from `start` to `stop`, both included and counted from 0, or from the end when
    /// negative: 0 to -1 is all.
    ///
    /// Replies with an array, empty if there are none. Since 1.0.0, O(s+n).
    fn lrange<R>(key: impl ToArg, start: i64, stop: i64) -> R = LRANGE:
        one(key) one(start) one(stop);

    /// Removes elements that equal this one: the first `count`, the last ones when negative, all
    /// when 0.
    ///
    /// Replies with how many were removed. Since 1.0.0, O(n).
    fn lrem(key: impl ToArg, count: i64, element: impl ToArg) -> u64 = LREM:
        one(key) one(count) one(element);

    /// Sets the element at an index.
    ///
    /// Replies with OK; an error if there is no such index. Since 1.0.0, O(n) to the element.
    fn lset(key: impl ToArg, index: i64, element: impl ToArg) -> () = LSET:
        one(key) one(index) one(element);

    /// Keeps only the elements from `start` to `stop`, as LRANGE counts them.
    ///
    /// Replies with OK. Since 1.0.0, O(n) of what goes.
    fn ltrim(key: impl ToArg, start: i64, stop: i64) -> () = LTRIM: one(key) one(start) one(stop);

    /// Takes the last element off a list.
    ///
    /// Replies with the element, or nil if the key does not exist. Since 1.0.0, O(1).
    fn rpop<R>(key: impl ToArg) -> R = RPOP: one(key);

    /// Takes up to `count` last elements off a list.
    ///
    /// Replies with an array, the last first, or nil if the key does not exist. Since 6.2.0, O(n)
    /// of the reply.
    fn rpop_count<R>(key: impl ToArg, count: u64) -> R = RPOP: one(key) one(count);

    /// Moves the last element of one list to the front of another.
    ///
    /// Replies with the element, or nil if the source is empty. Deprecated by the servers for
    /// LMOVE. Since 1.2.0, O(1).
    fn rpoplpush<R>(source: impl ToArg, destination: impl ToArg) -> R = RPOPLPUSH:
        one(source) one(destination);

    /// Puts elements after the last of a list.
    ///
    /// Replies with the length after. Since 1.0.0, O(n).
    fn rpush(key: impl ToArg, elements: impl ToArgs) -> u64 = RPUSH: one(key) many(elements);

    /// As RPUSH, if the list exists.
    ///
    /// Replies with the length after, 0 if it does not exist. Since 2.2.0, O(n).
    fn rpushx(key: impl ToArg, elements: impl ToArgs) -> u64 = RPUSHX: one(key) many(elements);
}
