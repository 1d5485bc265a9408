//! How much harm it does to run a command twice.
use super::table::Spec;
use super::words::Words;

/// Retry categories from harmless to forbidden; a policy retries at or below its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// No effect and no dependence on state (PING, ECHO).
    Always,
    /// Affects only the connection (SUBSCRIBE, CLIENT SETNAME).
    Connection,
    /// Reads.
    ReadOnly,
    /// Writes only if a condition holds, so that a second run changes nothing or tells (SETNX).
    WriteChecked,
    /// Leaves the same state however often it runs (SET, DEL, HSET, EXPIRE).
    WriteLastWins,
    /// Each run adds to the effect, or takes data that only its own reply tells (INCR, LPUSH, LPOP).
    WriteAccumulating,
    /// Acts on the server as a whole (FLUSHALL, CONFIG SET).
    ServerAdmin,
    /// Never run twice: scripts, transactions, commands that are not in the table.
    Never,
}

/// The category of a command of the table with its arguments looked at.
pub(super) fn category_of(spec: Spec, bytes: &[u8]) -> Category {
    let category = spec.audit().category;
    match spec.name() {
        "SET" => set(Options::from(bytes, 3)),
        "HSETEX" => hsetex(Options::from(bytes, 2)),
        "MSETEX" => msetex(Options::from(bytes, 1)),
        "EXPIRE" | "EXPIREAT" | "PEXPIRE" | "PEXPIREAT" | "HEXPIRE" | "HEXPIREAT" | "HPEXPIRE"
        | "HPEXPIREAT" => expire(Options::from(bytes, 3)),
        "ZADD" => zadd(Options::from(bytes, 2)),
        "COPY" if Options::from(bytes, 3).any_of(&["REPLACE"]) => Category::WriteLastWins,
        "RESTORE" if Options::from(bytes, 4).any_of(&["REPLACE"]) => Category::WriteLastWins,
        "BITFIELD" if !Options::from(bytes, 2).any_of(&["INCRBY"]) => Category::WriteLastWins,
        _ => category,
    }
}

/// The words of a command from some position on; the name is at 0.
struct Options<'a> {
    words: Words<'a>,
}

impl<'a> Options<'a> {
    fn from(bytes: &'a [u8], position: usize) -> Options<'a> {
        let mut words = Words::of(bytes);
        if position > 0 {
            words.nth(position - 1);
        }
        Options { words }
    }

    fn any_of(mut self, keywords: &[&str]) -> bool {
        while let Some(word) = self.words.next_word() {
            if is_any(word, keywords) {
                return true;
            }
        }
        false
    }
}

fn is_any(word: &[u8], keywords: &[&str]) -> bool {
    keywords.iter().any(|keyword| word.eq_ignore_ascii_case(keyword.as_bytes()))
}

/// SET: GET hands out a value that a second run replaces; NX, XX and IFEQ check.
fn set(mut options: Options<'_>) -> Category {
    let mut category = Category::WriteLastWins;
    while let Some(word) = options.words.next_word() {
        if is_any(word, &["GET"]) {
            return Category::WriteAccumulating;
        }
        if is_any(word, &["NX", "XX", "IFEQ"]) {
            category = Category::WriteChecked;
        }
        if is_any(word, &["IFEQ", "EX", "PX", "EXAT", "PXAT"]) {
            options.words.next();
        }
    }
    category
}

/// HSETEX: conditions stand before FIELDS, behind which anything may come.
fn hsetex(mut options: Options<'_>) -> Category {
    while let Some(word) = options.words.next_word() {
        if is_any(word, &["FIELDS"]) {
            break;
        }
        if is_any(word, &["FNX", "FXX", "NX", "XX"]) {
            return Category::WriteChecked;
        }
    }
    Category::WriteLastWins
}

/// MSETEX: conditions stand behind the pairs, which are counted.
fn msetex(mut options: Options<'_>) -> Category {
    let count = options.words.next_word().and_then(|word| std::str::from_utf8(word).ok());
    let pairs: usize = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    if let Some(last) = pairs.saturating_mul(2).checked_sub(1) {
        options.words.nth(last);
    }
    if options.any_of(&["NX", "XX"]) { Category::WriteChecked } else { Category::WriteLastWins }
}

/// EXPIRE and its kin: the condition is the first option, or the second of two.
fn expire(mut options: Options<'_>) -> Category {
    match options.words.next_word() {
        Some(word) if is_any(word, &["NX", "XX", "GT", "LT"]) => Category::WriteChecked,
        _ => Category::WriteLastWins,
    }
}

/// ZADD: INCR accumulates, conditions check; options end at the first score.
fn zadd(mut options: Options<'_>) -> Category {
    let mut category = Category::WriteLastWins;
    while let Some(word) = options.words.next_word() {
        match word {
            word if is_any(word, &["INCR"]) => return Category::WriteAccumulating,
            word if is_any(word, &["NX", "XX", "GT", "LT"]) => category = Category::WriteChecked,
            word if is_any(word, &["CH"]) => {}
            _ => break,
        }
    }
    category
}

#[cfg(test)]
mod tests {
    use super::Category::{self, *};
    use crate::command::raw;

    const CASES: &[(&str, Category)] = &[
        ("PING", Always),
        ("SUBSCRIBE c", Connection),
        ("GET k", ReadOnly),
        ("CONFIG GET a", ReadOnly),
        ("CONFIG SET a b", ServerAdmin),
        ("SET k v", WriteLastWins),
        ("SET k v EX 5", WriteLastWins),
        ("set k v nx", WriteChecked),
        ("SET k v EX 5 XX", WriteChecked),
        ("SET k v IFEQ GET", WriteChecked),
        ("SET k v NX GET", WriteAccumulating),
        ("SET NX NX", WriteLastWins),
        ("SETNX k v", WriteChecked),
        ("DEL k", WriteLastWins),
        ("EXPIRE k 5", WriteLastWins),
        ("EXPIRE k 5 GT", WriteChecked),
        ("HEXPIRE k 5 FIELDS 1 NX", WriteLastWins),
        ("HEXPIRE k 5 NX FIELDS 1 f", WriteChecked),
        ("HSETEX k EX 5 FIELDS 1 NX v", WriteLastWins),
        ("HSETEX k FNX FIELDS 1 f v", WriteChecked),
        ("MSETEX 2 NX XX a b EX 5", WriteLastWins),
        ("MSETEX 1 a b NX", WriteChecked),
        ("MSETEX 99999999999999999999 a b NX", WriteChecked),
        ("ZADD k 1 NX", WriteLastWins),
        ("ZADD k GT CH 1 m", WriteChecked),
        ("ZADD k XX INCR 1 m", WriteAccumulating),
        ("COPY a b", WriteChecked),
        ("COPY a b REPLACE", WriteLastWins),
        ("RESTORE k 0 REPLACE", WriteChecked),
        ("RESTORE k 0 x REPLACE", WriteLastWins),
        ("BITFIELD k SET u8 0 1", WriteLastWins),
        ("BITFIELD k INCRBY u8 0 1", WriteAccumulating),
        ("INCR k", WriteAccumulating),
        ("LPOP k", WriteAccumulating),
        ("EVAL s 0", Never),
        ("EVAL_RO s 0", Never),
        ("MULTI", Never),
        ("NONESUCH k", Never),
        ("CLIENT NONESUCH", Never),
        ("SET", WriteLastWins),
    ];

    /// Fails if a command, or one of its arguments, gets another category.
    #[test]
    fn the_arguments_decide_the_category() {
        for (words, category) in CASES {
            let mut words = words.split(' ');
            let name = words.next().unwrap_or_default();
            let command = raw(name).args(words.collect::<Vec<_>>()).build::<()>();
            assert_eq!(command.category(), *category, "{command:?}");
            assert_eq!(command.with_category(Always).category(), Always);
        }
    }

    /// Fails if the order from harmless to forbidden changes.
    #[test]
    fn categories_have_an_order() {
        let order = [
            Always,
            Connection,
            ReadOnly,
            WriteChecked,
            WriteLastWins,
            WriteAccumulating,
            ServerAdmin,
            Never,
        ];
        assert!(order.is_sorted());
    }
}
