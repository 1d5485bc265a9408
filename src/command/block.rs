//! Commands that wait on the server, and for how long.
use super::table::Spec;
use super::table::row::Waits;
use super::words::Words;
use std::time::Duration;

/// How long a command asks the server to wait.
///
/// A waiting command has a connection of its own while it waits, and no command timeout (R-094,
///
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
