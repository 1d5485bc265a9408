//! What is known of each command: the server's metadata beside our own audited columns.
//!
//! `generated.rs` comes from a real server, `audited.rs` from people. Both are sorted by name and
//! joined at compile time.
mod audited;
pub(crate) mod generated;
pub(crate) mod row;

use crate::command::flags::Flags;
use audited::AUDITS;
use generated::ROWS;
pub use row::{Answer, Ask, Group};
use row::{Audit, Begin, Find, KeySpec, Row};

/// Number of commands and subcommands in the table.
const COUNT: usize = ROWS.len();

/// Longest name in the table, in bytes.
const NAME_MAX: usize = {
    let mut longest = 0;
    let mut index = 0;
    while index < COUNT {
        if ROWS[index].name.len() > longest {
            longest = ROWS[index].name.len();
        }
        index += 1;
    }
    longest
};

// The two files name the same commands in the same order, strictly rising: what the binary search
// and the shared index rest on.
const _: () = {
    let mut index = 0;
    while index < COUNT {
        assert!(
            order(ROWS[index].name.as_bytes(), AUDITS[index].name.as_bytes()) == 0,
            "audited.rs has a missing, surplus or displaced row"
        );
        assert!(
            index == 0 || order(ROWS[index - 1].name.as_bytes(), ROWS[index].name.as_bytes()) < 0,
            "generated.rs is not sorted"
        );
        index += 1;
    }
};

/// The flags of each row, both files joined.
const FLAG_SETS: [Flags; COUNT] = {
    let mut all = [Flags::NONE; COUNT];
    let mut index = 0;
    while index < COUNT {
        all[index] = Flags::from_bits(ROWS[index].bits | AUDITS[index].flags().bits());
        index += 1;
    }
    all
};

static FLAGS: [Flags; COUNT] = FLAG_SETS;

/// How many words make a command complete that any client may send and that no server waits for:
/// nothing else has to be looked at before it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainWords {
    least: u8,
    /// So many more at most. (More than that is no error, but looked at closely.)
    more: u8,
}

impl PlainWords {
    /// Of the row with this index. No number of words will do for a command that always needs a
    /// closer look, nor past the end.
    pub(crate) const fn of(index: u16) -> PlainWords {
        if (index as usize) < COUNT { PLAIN_WORDS[index as usize] } else { PlainWords::NEVER }
    }

    /// Only no word at all would do, and that never does.
    const NEVER: PlainWords = PlainWords { least: 0, more: 0 };

    #[inline(always)]
    pub(crate) fn fit(self, words: u32) -> bool {
        words.wrapping_sub(u32::from(self.least)) <= u32::from(self.more) && words != 0
    }
}

const PLAIN_WORDS: [PlainWords; COUNT] = {
    let risky =
        Flags::ADMIN.union(Flags::CONNECTION_STATE).union(Flags::CONTAINER).union(Flags::BLOCKING);
    let mut all = [PlainWords::NEVER; COUNT];
    let mut index = 0;
    while index < COUNT {
        let arity = ROWS[index].arity;
        if !FLAG_SETS[index].intersects(risky) {
            let least = arity.unsigned_abs();
            assert!(0 < least && least < 255);
            let more = if arity < 0 { 255 } else { 0 };
            all[index] = PlainWords { least: least as u8, more };
        }
        index += 1;
    }
    all
};

/// The position of the only key of the row with this index; 0 where there may be several, or none.
pub(crate) const fn only_key(index: u16) -> u8 {
    let index = index as usize;
    if index >= COUNT {
        return 0;
    }
    match ROWS[index].keys {
        [KeySpec { find: Find::Range { last: 0, .. }, .. }] => FIRST_KEYS[index],
        _ => 0,
    }
}

/// The fixed position of each row's first key; 0 where there is none. MIGRATE has none: where its
/// key would be it may say that the keys come later.
const FIRST_KEYS: [u8; COUNT] = {
    let mut all = [0; COUNT];
    let mut index = 0;
    while index < COUNT {
        if let [KeySpec { begin: Begin::Index(at), find: Find::Range { .. }, .. }, ..] =
            ROWS[index].keys
            && order(ROWS[index].name.as_bytes(), b"MIGRATE") != 0
        {
            all[index] = *at as u8;
        }
        index += 1;
    }
    all
};

/// Byte order of two names: negative, zero or positive. (`Ord` is not const.)
const fn order(a: &[u8], b: &[u8]) -> i32 {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return a[at] as i32 - b[at] as i32;
        }
        at += 1;
    }
    a.len() as i32 - b.len() as i32
}

/// One command of the table.
///
/// Found by name with [`Spec::find`], or through a built command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Spec(u16);

impl Spec {
    /// The row with this index of `generated.rs`; `None` past the end.
    pub(crate) fn from_index(index: u16) -> Option<Spec> {
        (usize::from(index) < COUNT).then_some(Spec(index))
    }

    /// Looks a name up, in any letter case: `get`, `CLIENT INFO`.
    ///
    /// ```
    /// use hedgerow::command::table::Spec;
    /// assert_eq!(Spec::find("client info").map(|spec| spec.name()), Some("CLIENT INFO"));
    /// assert!(Spec::find("nonesuch").is_none());
    /// ```
    pub fn find(name: &str) -> Option<Spec> {
        let (first, second) = match name.split_once(' ') {
            Some((first, second)) => (first, Some(second.as_bytes())),
            None => (name, None),
        };
        Spec::find_words(first.as_bytes(), second)
    }

    /// Looks up a command word, or a command word and its subcommand, in any letter case.
    pub(crate) fn find_words(first: &[u8], second: Option<&[u8]>) -> Option<Spec> {
        let mut name = [0u8; NAME_MAX];
        let second_len = second.map_or(0, |word| word.len().saturating_add(1));
        let len = first.len().checked_add(second_len)?;
        let name = name.get_mut(..len)?;
        let (head, tail) = name.split_at_mut(first.len());
        head.copy_from_slice(first);
        if let (Some(word), Some((space, rest))) = (second, tail.split_first_mut()) {
            *space = b' ';
            rest.copy_from_slice(word);
        }
        name.make_ascii_uppercase();
        let index = ROWS.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok()?;
        u16::try_from(index).ok().map(Spec)
    }

    /// The row's index in both files.
    pub(crate) fn index(self) -> u16 {
        self.0
    }

    /// Every row, sorted by name.
    pub fn all() -> impl Iterator<Item = Spec> {
        (0..COUNT as u16).map(Spec)
    }

    /// The name in upper case; a subcommand's with its container's: `CLIENT INFO`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// How many words the command has, its name included (a subcommand's name is two); negative:
    /// at least so many.
    pub fn arity(self) -> i16 {
        self.row().arity
    }

    /// The server version that brought it.
    pub fn since(self) -> &'static str {
        self.row().since
    }

    /// Its group.
    pub fn group(self) -> Group {
        self.row().group
    }

    /// Its flags, the server's and our own.
    #[inline]
    pub fn flags(self) -> Flags {
        FLAGS.get(usize::from(self.0)).copied().unwrap_or(Flags::NONE)
    }

    /// Which nodes of a cluster must be asked.
    pub fn ask(self) -> Ask {
        self.row().ask
    }

    /// How the replies of several nodes become one.
    pub fn answer(self) -> Answer {
        self.row().answer
    }

    /// The server's columns. A `Spec` is only made of a valid index, so the last row is never
    /// meant when it is not asked for.
    pub(crate) fn row(self) -> &'static Row {
        &ROWS[usize::from(self.0).min(COUNT - 1)]
    }

    /// The position of the first key or channel, the name being at 0, where it does not depend on
    /// the arguments.
    #[inline]
    pub(crate) fn first_key_index(self) -> Option<usize> {
        FIRST_KEYS.get(usize::from(self.0)).copied().filter(|index| *index != 0).map(usize::from)
    }

    /// Whether it has one key (or channel) at most, at [`Spec::first_key_index`].
    pub(crate) fn has_one_key(self) -> bool {
        only_key(self.0) != 0
    }

    /// The audited columns.
    pub(crate) fn audit(self) -> &'static Audit {
        &AUDITS[usize::from(self.0).min(COUNT - 1)]
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::retry::Category;

    /// Fails if a row has no audited entry, or an entry no row. (The build fails before.)
    #[test]
    fn every_row_is_audited_and_no_audit_is_stale() {
        let rows: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let audits: Vec<&str> = AUDITS.iter().map(|audit| audit.name).collect();
        assert_eq!(rows, audits);
    }

    /// R-222, R-272. Fails if a write, a wait, a random pick, a cursor or a script becomes hedgeable,
    /// or anything that writes readable from a replica.
    #[test]
    fn only_audited_idempotent_reads_are_hedgeable() {
        for spec in Spec::all() {
            let (flags, name) = (spec.flags(), spec.name());
            if flags.contains(Flags::HEDGEABLE) {
                assert_eq!(spec.audit().read, row::Read::Hedge, "{name}");
                assert_eq!(spec.audit().category, Category::ReadOnly, "{name}");
                assert!(flags.contains(Flags::READONLY.union(Flags::REPLICA_READ)), "{name}");
                let never = Flags::BLOCKING.union(Flags::CONTAINER).union(Flags::CURSOR);
                assert!(!flags.intersects(never) && !name.ends_with("SCAN"), "{name}");
                // A time to live differs from call to call, a dump from server to server: neither is a pick.
                let differs = name.ends_with("TTL") || name == "DUMP";
                assert!(!flags.contains(Flags::RANDOM) || differs, "{name}");
                assert!(!spec.row().keys.is_empty(), "{name} has no key");
            }
            if flags.contains(Flags::WRITE) {
                assert!(!flags.intersects(Flags::REPLICA_READ.union(Flags::HEDGEABLE)), "{name}");
                assert!(spec.audit().category > Category::ReadOnly, "{name}");
            }
        }
    }

    /// R-271, R-273. Fails if one of the reads that the document and our audit name is not hedgeable.
    #[test]
    fn the_audited_reads_are_hedgeable() {
        let names = "GET MGET STRLEN GETRANGE GETBIT BITCOUNT BITPOS TTL PTTL EXPIRETIME PEXPIRETIME EXISTS \
                     TYPE DUMP LCS HGET HMGET HGETALL HLEN LINDEX LRANGE LLEN SISMEMBER SMEMBERS SINTER \
                     SUNION SDIFF ZSCORE ZRANGE ZRANK ZINTER ZUNION ZDIFF GEOPOS GEODIST GEOSEARCH \
                     GEORADIUS_RO GEORADIUSBYMEMBER_RO XRANGE XREVRANGE XLEN";
        for name in names.split_whitespace() {
            let spec = Spec::find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
            assert!(spec.flags().contains(Flags::HEDGEABLE), "{name}");
        }
    }

    /// Fails if a command that the server lets wait has no place for its timeout, or the reverse.
    #[test]
    fn what_blocks_says_for_how_long() {
        for spec in Spec::all() {
            let blocks = spec.flags().contains(Flags::BLOCKING);
            assert_eq!(spec.audit().waits.is_some(), blocks, "{}", spec.name());
        }
    }

    /// R-008, R-016. Fails if one of these commands loses its mark, or a plain one gets it.
    #[test]
    fn risky_commands_are_marked() {
        let marked = |name: &str, flag| Spec::find(name).is_some_and(|s| s.flags().contains(flag));
        for name in ["FLUSHDB", "flushall", "CONFIG SET", "SHUTDOWN", "CLUSTER RESET", "REPLICAOF"]
        {
            assert!(marked(name, Flags::ADMIN), "{name}");
        }
        for name in ["HELLO", "RESET", "SELECT", "CLIENT TRACKING", "AUTH", "MULTI", "SUBSCRIBE"] {
            assert!(marked(name, Flags::CONNECTION_STATE), "{name}");
        }
        for name in ["GET", "SET", "CONFIG GET", "CLIENT ID", "PING", "INFO"] {
            assert!(!marked(name, Flags::ADMIN.union(Flags::CONNECTION_STATE)), "{name}");
        }
    }

    /// Fails if names are not found in any case, or text that is no name is.
    #[test]
    fn names_are_found_in_any_case() {
        for spec in Spec::all() {
            assert_eq!(Spec::find(spec.name()), Some(spec));
            assert_eq!(Spec::find(&spec.name().to_lowercase()), Some(spec));
            assert_eq!(Spec::from_index(spec.index()), Some(spec));
        }
        for name in ["", " ", "GETT", "CLIENT  INFO", "CLIENT NOPE", "\0", &"X".repeat(5_000)] {
            assert_eq!(Spec::find(name), None, "{name:?}");
        }
        assert_eq!(Spec::from_index(u16::MAX), None);
    }
}
