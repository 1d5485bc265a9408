//! The shape of a table row, and the constructors that the two table files are written with.
use crate::command::flags::Flags;
use crate::command::retry::Category;

/// The server's command groups, as `COMMAND DOCS` names them.
#[allow(missing_docs, reason = "the variants are the server's own names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    HyperLogLog,
    List,
    PubSub,
    Scripting,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

/// The `request_policy` tip: which nodes of a cluster must be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ask {
    /// One node: the owner of the keys, or any when there are none.
    Default,
    /// Every node, replicas too.
    AllNodes,
    /// Every primary.
    AllShards,
    /// The owners of the keys, each with its own share of them.
    MultiShard,
    /// None of these rules: the command needs code of its own.
    Special,
}

/// The `response_policy` tip: how the replies of several nodes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// Joined in the order of the keys, or as an unordered collection when there are none.
    Default,
    /// The first success.
    OneSucceeded,
    /// Success only if all succeeded.
    AllSucceeded,
    /// Logical and of integers.
    AggLogicalAnd,
    /// Logical or of integers.
    AggLogicalOr,
    /// The smallest.
    AggMin,
    /// The largest.
    AggMax,
    /// The sum.
    AggSum,
    /// None of these rules: the command needs code of its own.
    Special,
}

/// Where the search for keys begins; positions count from the command's name, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At this argument.
    Index(u16),
    /// After this keyword, searched forward from a position, or backward from one counted from the
    /// end (-1 is the last argument).
    Keyword(&'static str, i16),
    /// The server does not say.
    Unknown,
}

/// Which arguments from the beginning on are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find {
    /// Up to `last` (relative to the beginning, or counted from the end when negative), each
    /// `step`; with `last` -1 and `limit` n > 1 only the first n-th part of what is left.
    Range { last: i16, step: u16, limit: u16 },
    /// As many as the argument `count` after the beginning says, the first of them `first` after
    /// the beginning.
    Counted { count: u16, first: u16, step: u16 },
}

/// One key specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySpec {
    pub(crate) begin: Begin,
    pub(crate) find: Find,
    /// Not a key but a sharded channel, which has a slot all the same.
    pub(crate) channel: bool,
}

/// A specification that the server leaves open (patterns of SORT).
pub(super) const UNKNOWN: KeySpec = KeySpec {
    begin: Begin::Unknown,
    find: Find::Range { last: 0, step: 1, limit: 0 },
    channel: false,
};

/// A search that begins at argument `index`.
pub(super) const fn at(index: u16) -> KeySpec {
    KeySpec { begin: Begin::Index(index), ..UNKNOWN }
}

/// A search that begins after a keyword.
pub(super) const fn after(keyword: &'static str, from: i16) -> KeySpec {
    KeySpec { begin: Begin::Keyword(keyword, from), ..UNKNOWN }
}

impl KeySpec {
    /// Sets how the keys are found: a range.
    pub(super) const fn range(self, last: i16, step: u16, limit: u16) -> KeySpec {
        KeySpec { find: Find::Range { last, step, limit }, ..self }
    }

    /// Sets how the keys are found: counted by an argument.
    pub(super) const fn counted(self, count: u16, first: u16, step: u16) -> KeySpec {
        KeySpec { find: Find::Counted { count, first, step }, ..self }
    }

    /// Says that it finds channels.
    pub(super) const fn channel(self) -> KeySpec {
        KeySpec { channel: true, ..self }
    }
}

/// The server's metadata of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Number of words with the name; negative: at least so many.
    pub(crate) arity: i16,
    pub(crate) since: &'static str,
    pub(crate) group: Group,
    pub(crate) bits: u32,
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
    pub(crate) keys: &'static [KeySpec],
}

/// The server's flags under the short names that `generated.rs` uses.
pub(super) mod bits {
    use crate::command::flags::Flags;
    pub(in super::super) const WRITE: u32 = Flags::WRITE.bits();
    pub(in super::super) const READONLY: u32 = Flags::READONLY.bits();
    pub(in super::super) const DENYOOM: u32 = Flags::DENYOOM.bits();
    pub(in super::super) const SERVER_ADMIN: u32 = Flags::SERVER_ADMIN.bits();
    pub(in super::super) const PUBSUB: u32 = Flags::PUBSUB.bits();
    pub(in super::super) const NOSCRIPT: u32 = Flags::NOSCRIPT.bits();
    pub(in super::super) const BLOCKING: u32 = Flags::BLOCKING.bits();
    pub(in super::super) const LOADING: u32 = Flags::LOADING.bits();
    pub(in super::super) const STALE: u32 = Flags::STALE.bits();
    pub(in super::super) const NO_AUTH: u32 = Flags::NO_AUTH.bits();
    pub(in super::super) const FAST: u32 = Flags::FAST.bits();
    pub(in super::super) const NO_MULTI: u32 = Flags::NO_MULTI.bits();
    pub(in super::super) const MOVABLE_KEYS: u32 = Flags::MOVABLE_KEYS.bits();
    pub(in super::super) const RANDOM: u32 = Flags::RANDOM.bits();
    pub(in super::super) const UNORDERED: u32 = Flags::UNORDERED.bits();
    pub(in super::super) const CONTAINER: u32 = Flags::CONTAINER.bits();
}

/// A row of `generated.rs`.
#[allow(clippy::too_many_arguments, reason = "one argument for each column of a generated table")]
pub(super) const fn row(
    name: &'static str,
    arity: i16,
    since: &'static str,
    group: Group,
    bits: u32,
    ask: Ask,
    answer: Answer,
    keys: &'static [KeySpec],
) -> Row {
    Row { name, arity, since, group, bits, ask, answer, keys }
}

/// Where a command may be sent for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Only to the primary: it writes, or what it tells is the node's own.
    Primary,
    /// To a replica if the policy allows, but never twice: cursors, random picks, waits, scripts.
    Replica,
    /// To a replica, and a second copy may race the first: an idempotent read.
    Hedge,
}

/// How a command that waits on the server says for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The last argument, in seconds.
    LastSeconds,
    /// The first argument, in seconds.
    FirstSeconds,
    /// The last argument, in milliseconds.
    LastMillis,
    /// The argument after the keyword BLOCK, in milliseconds; without it nothing waits.
    BlockMillis,
}

pub(super) const LAST_SECONDS: Waits = Waits::LastSeconds;
pub(super) const FIRST_SECONDS: Waits = Waits::FirstSeconds;
pub(super) const LAST_MS: Waits = Waits::LastMillis;
pub(super) const BLOCK_MS: Waits = Waits::BlockMillis;

/// The hand-made columns of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audit {
    pub(crate) name: &'static str,
    pub(crate) category: Category,
    pub(crate) read: Read,
    pub(crate) waits: Option<Waits>,
    pub(crate) state: bool,
    pub(crate) admin: bool,
    pub(crate) cursor: bool,
}

/// A row of `audited.rs`.
pub(super) const fn audit(name: &'static str, category: Category, read: Read) -> Audit {
    Audit { name, category, read, waits: None, state: false, admin: false, cursor: false }
}

impl Audit {
    /// It can wait on the server.
    pub(super) const fn waits(self, waits: Waits) -> Audit {
        Audit { waits: Some(waits), ..self }
    }

    /// It alters the connection that it is sent on.
    pub(super) const fn state(self) -> Audit {
        Audit { state: true, ..self }
    }

    /// It needs `allow_admin`.
    pub(super) const fn admin(self) -> Audit {
        Audit { admin: true, ..self }
    }

    /// It goes on where an earlier call stopped.
    pub(super) const fn cursor(self) -> Audit {
        Audit { cursor: true, ..self }
    }

    /// These columns as flags.
    pub(super) const fn flags(&self) -> Flags {
        let mut bits = match self.read {
            Read::Primary => 0,
            Read::Replica => Flags::REPLICA_READ.bits(),
            Read::Hedge => Flags::REPLICA_READ.bits() | Flags::HEDGEABLE.bits(),
        };
        if self.state {
            bits |= Flags::CONNECTION_STATE.bits();
        }
        if self.admin {
            bits |= Flags::ADMIN.bits();
        }
        if self.cursor {
            bits |= Flags::CURSOR.bits();
        }
        Flags::from_bits(bits)
    }
}
