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
