//! Commands that wait on the server, and for how long.
use super::table::Spec;
use super::table::row::Waits;
use super::words::Words;
use std::time::Duration;

/// How long a command asks the server to wait.
///
/// A command that waits would hold up all others of a shared connection; clients refuse it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// At most so long; the server then answers nil.
    For(Duration),
    /// Until something comes (a timeout of 0, or one that cannot be read, which the server will
    /// refuse at once).
    Forever,
}

/// What a command of the table asks for; `None` if it does not wait.
pub(super) fn block_of(spec: Spec, bytes: &[u8]) -> Option<Block> {
    let mut words = Words::of(bytes).skip(1);
    let word = |range| bytes.get(range);
    match spec.audit().waits? {
        Waits::LastSeconds => Some(seconds(words.last().and_then(word))),
        Waits::FirstSeconds => Some(seconds(words.next().and_then(word))),
        Waits::LastMillis => Some(millis(words.last().and_then(word))),
        Waits::BlockMillis => block_option(spec, bytes),
    }
}

/// The BLOCK option of XREAD and XREADGROUP, which stands before STREAMS.
fn block_option(spec: Spec, bytes: &[u8]) -> Option<Block> {
    let mut words = Words::of(bytes);
    // The group and the consumer may have any name.
    let before = if spec.name() == "XREADGROUP" { 4 } else { 1 };
    words.nth(before - 1)?;
    while let Some(word) = words.next_word() {
        if word.eq_ignore_ascii_case(b"STREAMS") {
            return None;
        }
        if word.eq_ignore_ascii_case(b"BLOCK") {
            return Some(millis(words.next_word()));
        }
        if word.eq_ignore_ascii_case(b"COUNT") {
            words.next_word()?;
        }
    }
    None
}

fn text(word: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(word?).ok()
}

fn seconds(word: Option<&[u8]>) -> Block {
    let seconds: Option<f64> = text(word).and_then(|text| text.parse().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(wait) if !wait.is_zero() => Block::For(wait),
        _ => Block::Forever,
    }
}

fn millis(word: Option<&[u8]>) -> Block {
    match text(word).and_then(|text| text.parse().ok()) {
        Some(0) | None => Block::Forever,
        Some(wait) => Block::For(Duration::from_millis(wait)),
    }
}

#[cfg(test)]
mod tests {
    use super::Block::{self, For, Forever};
    use crate::command::raw;
    use std::time::Duration;

    fn block(words: &str) -> Option<Block> {
        raw("").args(words.split(' ').collect::<Vec<_>>()).build::<()>().block()
    }

    /// Fails if a wait is missed, seen where there is none, or read in the wrong unit.
    #[test]
    fn the_timeout_is_found_where_each_command_has_it() {
        let ms = |ms| Some(For(Duration::from_millis(ms)));
        assert_eq!(block("BLPOP a b 0"), Some(Forever));
        assert_eq!(block("BLPOP a 1.5"), ms(1_500));
        assert_eq!(block("BLMOVE a b LEFT LEFT 2"), ms(2_000));
        assert_eq!(block("BZPOPMIN a .25"), ms(250));
        assert_eq!(block("BLMPOP 0.01 1 a LEFT COUNT 3"), ms(10));
        assert_eq!(block("BZMPOP 0 1 a MIN"), Some(Forever));
        assert_eq!(block("XREAD STREAMS BLOCK 5"), None);
        assert_eq!(block("XREAD COUNT 2 BLOCK 7 STREAMS a 0"), ms(7));
        assert_eq!(block("xreadgroup group BLOCK 1 block 0 streams a >"), Some(Forever));
        assert_eq!(block("XREADGROUP GROUP BLOCK BLOCK STREAMS a >"), None);
        assert_eq!(block("WAIT 1 30"), ms(30));
        assert_eq!(block("WAITAOF 1 1 40"), ms(40));
        assert_eq!(block("GET BLOCK"), None);
        assert_eq!(block("NONESUCH 1"), None);
    }

    /// Fails if a timeout that the server will refuse panics or counts as no wait.
    #[test]
    fn a_timeout_that_cannot_be_read_is_no_bound() {
        for words in ["BLPOP a x", "BLPOP a -1", "BLPOP a nan", "BLPOP a 1e999", "WAIT 1 -5"] {
            assert_eq!(block(words), Some(Forever), "{words}");
        }
        assert_eq!(block("XREAD BLOCK"), Some(Forever));
        assert_eq!(block("XREADGROUP"), None);
    }
}
