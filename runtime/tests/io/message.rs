//! The messages that peers write: parts of one known text.

use std::sync::LazyLock;

use crate::rig::{KIB, MIB};

/// Says that another part of the message follows.
pub(crate) const FOLLOWED: u32 = 1 << 31;

/// The bytes of a part: another piece of one random text for each number.
pub(crate) fn text(number: usize, len: usize) -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut text = vec![0; 64 * MIB + 4 * KIB];
        fastrand::Rng::with_seed(7).fill(&mut text);
        text
    });
    &TEXT[number % (4 * KIB)..][..len]
}

/// Message `number`, whose parts have these lengths.
pub(crate) fn message(number: usize, parts: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|len| len + 4).sum());
    for (at, len) in parts.iter().enumerate() {
        let followed = if at + 1 < parts.len() { FOLLOWED } else { 0 };
        bytes.extend((*len as u32 | followed).to_le_bytes());
        bytes.extend_from_slice(text(number + at, *len));
    }
    bytes
}

/// Length of the message at the start of `bytes`, or how many more bytes are needed to tell.
pub(crate) fn measure(bytes: &[u8], number: usize) -> Result<usize, usize> {
    let (mut at, mut part) = (0, 0);
    loop {
        let rest = &bytes[at..];
        let Some(head) = rest.first_chunk::<4>() else { return Err(4 - rest.len()) };
        let head = u32::from_le_bytes(*head);
        let len = (head & !FOLLOWED) as usize;
        let Some(body) = rest.get(4..4 + len) else { return Err(4 + len - rest.len()) };
        assert!(body == text(number + part, len), "message {number}, part {part} of {len} bytes");
        (at, part) = (at + 4 + len, part + 1);
        if head & FOLLOWED == 0 {
            return Ok(at);
        }
    }
}
