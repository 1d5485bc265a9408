//! The generic group: commands on keys of any type.
use super::args::{Args, ToArg, ToArgs};
use super::cursors::{ScanOptions, ScanPage};
use super::expiry::ExpireCondition;
use super::macros::commands;
use super::put::Put;

/// The options of COPY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    database: Option<u32>,
    replace: bool,
}

impl CopyOptions {
    /// None: into the same database, and only if the destination does not exist.
    pub fn new() -> CopyOptions {
        CopyOptions::default()
    }

    /// Into another database (`DB`).
    pub fn database(mut self, database: u32) -> CopyOptions {
        self.database = Some(database);
        self
    }

    /// Over a destination that exists (`REPLACE`).
    pub fn replace(mut self) -> CopyOptions {
        self.replace = true;
        self
    }
}

impl Put for CopyOptions {
    fn put(&self, args: &mut Args) {
        if let Some(database) = self.database {
            args.word("DB");
            args.uint(u64::from(database));
        }
        if self.replace {
            args.word("REPLACE");
        }
    }
}

/// The options of RESTORE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    replace: bool,
    absolute: bool,
    history: Option<History>,
}

/// What the server's eviction policy is told of a restored key: it takes one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    IdleSeconds(u64),
    Frequency(u8),
}

impl RestoreOptions {
    /// None: only if the key does not exist, the time to live counted from now.
    pub fn new() -> RestoreOptions {
        RestoreOptions::default()
    }

    /// Over a key that exists (`REPLACE`, servers from 3.0).
    pub fn replace(mut self) -> RestoreOptions {
        self.replace = true;
        self
    }

    /// The time to live is a Unix time in milliseconds (`ABSTTL`, servers from 5.0).
    pub fn absttl(mut self) -> RestoreOptions {
        self.absolute = true;
        self
    }

    /// How long the key counts as unused, in seconds (`IDLETIME`, servers from 5.0). Takes the
    /// place of [`RestoreOptions::freq`].
    pub fn idletime(mut self, seconds: u64) -> RestoreOptions {
        self.history = Some(History::IdleSeconds(seconds));
        self
    }

    /// The key's access frequency counter, 0 to 255 (`FREQ`, servers from 5.0). Takes the
    /// place of [`RestoreOptions::idletime`].
    pub fn freq(mut self, frequency: u8) -> RestoreOptions {
        self.history = Some(History::Frequency(frequency));
        self
    }
}

impl Put for RestoreOptions {
    fn put(&self, args: &mut Args) {
        if self.replace {
            args.word("REPLACE");
        }
        if self.absolute {
            args.word("ABSTTL");
        }
        match self.history {
            Some(History::IdleSeconds(seconds)) => {
                args.word("IDLETIME");
                args.uint(seconds);
            }
            Some(History::Frequency(frequency)) => {
                args.word("FREQ");
                args.uint(u64::from(frequency));
            }
            None => {}
        }
    }
}

/// The options of SORT and SORT_RO.
///
/// In a cluster patterns other than `#` must have the key's hash tag, or the server refuses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortOptions {
    by: Option<Box<[u8]>>,
    limit: Option<(i64, i64)>,
    get: Vec<Box<[u8]>>,
    descending: bool,
    alpha: bool,
}

impl SortOptions {
    /// None: by the elements themselves as numbers, ascending, all of them.
    pub fn new() -> SortOptions {
        SortOptions::default()
    }

    /// By the values of the keys that this pattern gives with an element for its `*` (`BY`); a
    /// pattern without one leaves the order as it is.
    pub fn by(mut self, pattern: impl AsRef<[u8]>) -> SortOptions {
        self.by = Some(pattern.as_ref().into());
        self
    }

    /// Only `count` elements from `offset` on; a negative count means all (`LIMIT`).
    pub fn limit(mut self, offset: i64, count: i64) -> SortOptions {
        self.limit = Some((offset, count));
        self
    }

    /// Gives the values of the keys of this pattern and not the elements (`GET`); may be said more
    /// than once, `#` means the element.
    pub fn get(mut self, pattern: impl AsRef<[u8]>) -> SortOptions {
        self.get.push(pattern.as_ref().into());
        self
    }

    /// From the largest to the smallest (`DESC`).
    pub fn desc(mut self) -> SortOptions {
        self.descending = true;
        self
    }

    /// As text and not as numbers (`ALPHA`).
    pub fn alpha(mut self) -> SortOptions {
        self.alpha = true;
        self
    }
}

impl Put for SortOptions {
    fn put(&self, args: &mut Args) {
        if let Some(pattern) = &self.by {
            args.word("BY");
            args.bulk(pattern);
        }
        if let Some((offset, count)) = self.limit {
            args.word("LIMIT");
            args.int(offset);
            args.int(count);
        }
        for pattern in &self.get {
            args.word("GET");
            args.bulk(pattern);
        }
        if self.descending {
            args.word("DESC");
        }
        if self.alpha {
            args.word("ALPHA");
        }
    }
}

commands! {
    /// Commands on keys of any type.
    ///
    /// Each is also a function of [`command::keys`](self) that builds the command unsent.
    trait KeyCommands;

    /// Copies a key, with its expiration time, if the destination does not exist.
    ///
    /// Replies with true if it was copied, else false. Since 6.2.0, O(n) for collections.
    fn copy(source: impl ToArg, destination: impl ToArg) -> bool = COPY:
        one(source) one(destination);

    /// As COPY, into another database or over an existing key.
    ///
    /// Replies with true if it was copied, else false. Since 6.2.0, O(n) for collections.
    fn copy_with(source: impl ToArg, destination: impl ToArg, options: CopyOptions) -> bool = COPY:
        one(source) one(destination) put(options);

    /// Deletes keys.
    ///
    /// Replies with how many existed. Since 1.0.0, O(n), for collections with their elements.
    fn del(keys: impl ToArgs) -> u64 = DEL: many(keys);

    /// The serialised form of a key, without its expiration time, for RESTORE.
    ///
    /// Replies with bytes, or nil if the key does not exist. Since 2.6.0.
    fn dump<R>(key: impl ToArg) -> R = DUMP: one(key);

    /// How many of the keys exist; a key given twice counts twice.
    ///
    /// Replies with an integer. Since 1.0.0, O(n).
    fn exists(keys: impl ToArgs) -> u64 = EXISTS: many(keys);

    /// Lets a key expire in so many seconds; not above 0 deletes it.
    ///
    /// Replies with true, or false if the key does not exist. Since 1.0.0, O(1).
    fn expire(key: impl ToArg, seconds: i64) -> bool = EXPIRE: one(key) one(seconds);

    /// As EXPIRE, on a condition.
    ///
    /// Replies with true, or false if the key does not exist or the condition does not hold. Since
    /// 7.0.0.
    fn expire_with(key: impl ToArg, seconds: i64, condition: ExpireCondition) -> bool = EXPIRE:
        one(key) one(seconds) put(condition);

    /// Lets a key expire at a Unix time in seconds; a time past deletes it.
    ///
    /// Replies with true, or false if the key does not exist. Since 1.2.0, O(1).
    fn expireat(key: impl ToArg, unix_seconds: i64) -> bool = EXPIREAT: one(key) one(unix_seconds);

    /// As EXPIREAT, on a condition.
    ///
    /// Replies with true, or false if the key does not exist or the condition does not hold. Since
    /// 7.0.0.
    fn expireat_with(
        key: impl ToArg,
        unix_seconds: i64,
        condition: ExpireCondition,
    ) -> bool = EXPIREAT: one(key) one(unix_seconds) put(condition);

    /// When a key expires.
    ///
    /// Replies with Unix time in seconds, -1 if it does not expire, -2 if it does not exist. Since
    /// 7.0.0, O(1).
    fn expiretime(key: impl ToArg) -> i64 = EXPIRETIME: one(key);

    /// All keys that match a glob pattern. Stops the server for as long as it takes: prefer SCAN.
    ///
    /// Replies with an array, in no order. Since 1.0.0, O(n) of the database.
    fn keys<R>(pattern: impl ToArg) -> R = KEYS: one(pattern);

    /// Moves a key to another database, if it does not exist there.
    ///
    /// Replies with true if it was moved, else false. Since 1.0.0, O(1).
    fn move_key(key: impl ToArg, database: u32) -> bool = MOVE: one(key) one(database);

    /// How the server stores a value: `listpack`, `hashtable` and so on.
    ///
    /// Replies with text, or nil if the key does not exist. Since 2.2.3, O(1).
    fn object_encoding(key: impl ToArg) -> Option<String> = OBJECT_ENCODING: one(key);

    /// The logarithmic access frequency of a key; needs an LFU `maxmemory-policy`.
    ///
    /// Replies with an integer, or nil if the key does not exist. Since 4.0.0, O(1).
    fn object_freq(key: impl ToArg) -> Option<u64> = OBJECT_FREQ: one(key);

    /// For how many seconds a key was not touched; not with an LFU `maxmemory-policy`.
    ///
    /// Replies with an integer, or nil if the key does not exist. Since 2.2.3, O(1).
    fn object_idletime(key: impl ToArg) -> Option<u64> = OBJECT_IDLETIME: one(key);

    /// The reference count of a value inside the server.
    ///
    /// Replies with an integer, or nil if the key does not exist. Since 2.2.3, O(1).
    fn object_refcount(key: impl ToArg) -> Option<u64> = OBJECT_REFCOUNT: one(key);

    /// Removes the expiration time of a key.
    ///
    /// Replies with true, or false if the key does not exist or has none. Since 2.2.0, O(1).
    fn persist(key: impl ToArg) -> bool = PERSIST: one(key);

    /// Lets a key expire in so many milliseconds; not above 0 deletes it.
    ///
    /// Replies with true, or false if the key does not exist. Since 2.6.0, O(1).
    fn pexpire(key: impl ToArg, millis: i64) -> bool = PEXPIRE: one(key) one(millis);

    /// As PEXPIRE, on a condition.
    ///
    /// Replies with true, or false if the key does not exist or the condition does not hold. Since
    /// 7.0.0.
    fn pexpire_with(key: impl ToArg, millis: i64, condition: ExpireCondition) -> bool = PEXPIRE:
        one(key) one(millis) put(condition);

    /// Lets a key expire at a Unix time in milliseconds; a time past deletes it.
    ///
    /// Replies with true, or false if the key does not exist. Since 2.6.0, O(1).
    fn pexpireat(key: impl ToArg, unix_millis: i64) -> bool = PEXPIREAT: one(key) one(unix_millis);

    /// As PEXPIREAT, on a condition.
    ///
    /// Replies with true, or false if the key does not exist or the condition does not hold. Since
    /// 7.0.0.
    fn pexpireat_with(
        key: impl ToArg,
        unix_millis: i64,
        condition: ExpireCondition,
    ) -> bool = PEXPIREAT: one(key) one(unix_millis) put(condition);

    /// When a key expires.
    ///
    /// Replies with Unix time in milliseconds, -1 if it does not expire, -2 if it does not exist.
    /// Since 7.0.0, O(1).
    fn pexpiretime(key: impl ToArg) -> i64 = PEXPIRETIME: one(key);

    /// How long a key has to live.
    ///
    /// Replies with milliseconds, -1 if it does not expire, -2 if it does not exist. Since 2.6.0,
    /// O(1).
    fn pttl(key: impl ToArg) -> i64 = PTTL: one(key);

    /// Some key of the database.
    ///
    /// Replies with its name, or nil if there is none. Since 1.0.0, O(1).
    fn randomkey<R>() -> R = RANDOMKEY;

    /// Renames a key, over one that has the new name.
    ///
    /// Replies with OK; an error if the key does not exist. Since 1.0.0, O(1).
    fn rename(key: impl ToArg, new_key: impl ToArg) -> () = RENAME: one(key) one(new_key);

    /// Renames a key if none has the new name.
    ///
    /// Replies with true if it was renamed, else false; an error if the key does not exist. Since
    /// 1.0.0, O(1).
    fn renamenx(key: impl ToArg, new_key: impl ToArg) -> bool = RENAMENX: one(key) one(new_key);

    /// Makes a key from what DUMP gave; a time to live of 0 ms means that it does not expire.
    ///
    /// Replies with OK; an error (`BUSYKEY`) if the key exists. Since 2.6.0.
    fn restore(key: impl ToArg, ttl_millis: u64, serialized: impl ToArg) -> () = RESTORE:
        one(key) one(ttl_millis) one(serialized);

    /// As RESTORE, over an existing key or with the key's history.
    ///
    /// Replies with OK; an error (`BUSYKEY`) if the key exists and may not be replaced. Since
    /// 3.0.0.
    fn restore_with(
        key: impl ToArg,
        ttl_millis: u64,
        serialized: impl ToArg,
        options: RestoreOptions,
    ) -> () = RESTORE: one(key) one(ttl_millis) one(serialized) put(options);

    /// One step through the keys of a node's database: begin with cursor 0, go on with the cursor
    /// of the page until it is 0.
    ///
    /// Replies with a page of keys, of which some may come twice. Since
    /// 2.8.0, O(1) a step.
    fn scan<T>(cursor: u64) -> ScanPage<T> = SCAN: one(cursor);

    /// As SCAN, with a pattern or a size.
    ///
    /// Replies with a page of keys. Since 2.8.0, O(1) a step.
    fn scan_with<T>(cursor: u64, options: ScanOptions) -> ScanPage<T> = SCAN:
        one(cursor) put(options);

    /// As SCAN, for the keys of one type only: the word that TYPE gives, such as `zset`.
    ///
    /// Replies with a page of keys. Since 6.0.0, O(1) a step.
    fn scan_type<T>(cursor: u64, type_name: impl ToArg, options: ScanOptions) -> ScanPage<T> = SCAN:
        one(cursor) put(options) word("TYPE") one(type_name);

    /// The elements of a list, set or sorted set in order, as numbers.
    ///
    /// Replies with an array. Since 1.0.0, O(n + m·log m).
    fn sort<R>(key: impl ToArg) -> R = SORT: one(key);

    /// As SORT, by other keys, in part, or as text.
    ///
    /// Replies with an array; nil where a pattern's key does not exist. Since 1.0.0, O(n + m·log
    /// m).
    fn sort_with<R>(key: impl ToArg, options: SortOptions) -> R = SORT: one(key) put(options);

    /// As SORT, into a list.
    ///
    /// Replies with how many elements it has. Since 1.0.0, O(n + m·log m).
    fn sort_store(key: impl ToArg, options: SortOptions, destination: impl ToArg) -> u64 = SORT:
        one(key) put(options) word("STORE") one(destination);

    /// As SORT, on a replica too.
    ///
    /// Replies with an array. Since 7.0.0, O(n + m·log m).
    fn sort_ro<R>(key: impl ToArg) -> R = SORT_RO: one(key);

    /// As SORT with options, on a replica too.
    ///
    /// Replies with an array. Since 7.0.0, O(n + m·log m).
    fn sort_ro_with<R>(key: impl ToArg, options: SortOptions) -> R = SORT_RO: one(key) put(options);

    /// Marks keys as used now.
    ///
    /// Replies with how many exist. Since 3.2.1, O(n).
    fn touch(keys: impl ToArgs) -> u64 = TOUCH: many(keys);

    /// How long a key has to live.
    ///
    /// Replies with seconds, -1 if it does not expire, -2 if it does not exist. Since 1.0.0, O(1).
    fn ttl(key: impl ToArg) -> i64 = TTL: one(key);

    /// The type of a key's value.
    ///
    /// Replies with `string`, `list`, `set`, `zset`, `hash`, `stream`, a module's name, or `none`
    /// if the key does not exist. Since 1.0.0, O(1).
    fn key_type(key: impl ToArg) -> String = TYPE: one(key);

    /// Deletes keys, and frees their memory later.
    ///
    /// Replies with how many existed. Since 4.0.0, O(n).
    fn unlink(keys: impl ToArgs) -> u64 = UNLINK: many(keys);
}
