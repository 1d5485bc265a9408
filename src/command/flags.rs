//! What everything downstream of a command asks instead of its name.

/// A set of properties of a command.
///
/// Those that come from the server have its word for it (`COMMAND INFO`); the rest are audited by
/// hand. An unknown command has none of them: it is never read from a replica, hedged or retried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Flags = Flags(1 << $bit);)*
        }

        const NAMES: &[(Flags, &str)] = &[$((Flags::$name, stringify!($name))),*];
    };
}

flags! {
    /// May alter data (server).
    WRITE = 0;
    /// Never alters data (server).
    READONLY = 1;
    /// Refused when the server is out of memory (server).
    DENYOOM = 2;
    /// An administrative command in the server's own view (server: `admin`). What the client
    /// refuses without `allow_admin` is [`Flags::ADMIN`].
    SERVER_ADMIN = 3;
    /// Belongs to publish and subscribe (server).
    PUBSUB = 4;
    /// Not allowed in scripts (server).
    NOSCRIPT = 5;
    /// Can wait on the server (server); whether it does is in
    /// [`Command::block`](super::Command::block).
    BLOCKING = 6;
    /// Allowed while the server loads its data (server).
    LOADING = 7;
    /// Allowed on a replica with stale data (server).
    STALE = 8;
    /// Allowed before authentication (server).
    NO_AUTH = 9;
    /// Constant or logarithmic time (server).
    FAST = 10;
    /// Not allowed in a transaction (server).
    NO_MULTI = 11;
    /// The positions of its keys depend on the arguments (server).
    MOVABLE_KEYS = 12;
    /// Its answer is random or differs from call to call (server: `nondeterministic_output`).
    RANDOM = 13;
    /// Its answer has no fixed order (server: `nondeterministic_output_order`).
    UNORDERED = 14;
    /// Only its subcommands do anything (server).
    CONTAINER = 15;
    /// May be read from a replica when the policy allows (audited, R-222).
    REPLICA_READ = 16;
    /// An idempotent read of which two copies may race (audited, R-272).
    HEDGEABLE = 17;
    /// Alters the connection that it is sent on: refused as a raw command on a shared connection
    /// (audited, R-016).
    CONNECTION_STATE = 18;
    /// Refused locally unless `allow_admin` is set (audited, R-008).
    ADMIN = 19;
    /// Goes on where an earlier call to the same node stopped: SCAN and its kin (audited, R-272,
    ///
    CURSOR = 20;
}

impl Flags {
    /// No flag: what an unknown command has.
    pub const NONE: Flags = Flags(0);

    /// True if all of `other` are in this set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets joined.
    #[inline]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The set as bits, for the tables.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The set with these bits.
    pub(crate) const fn from_bits(bits: u32) -> Flags {
        Flags(bits)
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name);
        f.debug_set().entries(held).finish()
    }
}
