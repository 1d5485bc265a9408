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
    let mut options = Options { words: Words::of(bytes) };
    match spec.name() {
        "SET" => set(options.from(3)),
        "HSETEX" => conditional(options.from(2), &["FNX", "FXX", "NX", "XX"]),
        "MSETEX" => conditional(options.from(2), &["NX", "XX"]),
        "EXPIRE" | "EXPIREAT" | "PEXPIRE" | "PEXPIREAT" => {
            conditional(options.from(3), &["NX", "XX", "GT", "LT"])
        }
        "HEXPIRE" | "HEXPIREAT" | "HPEXPIRE" | "HPEXPIREAT" => {
            conditional_at(options.from(3), &["NX", "XX", "GT", "LT"])
        }
        "ZADD" => zadd(options.from(2)),
        "COPY" | "RESTORE" if options.from(3).any_of(&["REPLACE"]) => Category::WriteLastWins,
        "BITFIELD" if !options.from(2).any_of(&["INCRBY"]) => Category::WriteLastWins,
        _ => category,
    }
}

/// The words of a command from some position on.
struct Options<'a> {
    words: Words<'a>,
}

impl<'a> Options<'a> {
    fn from(&mut self, position: usize) -> Options<'a> {
        let mut words = self.words.clone();
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

/// Last-wins, or checked if one of the keywords is among the options. A value that happens to be
/// such a word only makes a policy more willing by one step between two idempotent classes.
fn conditional(options: Options<'_>, keywords: &[&str]) -> Category {
    if options.any_of(keywords) { Category::WriteChecked } else { Category::WriteLastWins }
}

/// As [`conditional`], where only the first option can be the condition.
fn conditional_at(mut options: Options<'_>, keywords: &[&str]) -> Category {
    match options.words.next_word() {
        Some(word) if is_any(word, keywords) => Category::WriteChecked,
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
