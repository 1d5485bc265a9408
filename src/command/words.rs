//! Walking over the words of a command's own bytes.
use std::ops::Range;

/// The ranges of the words in a command's bytes, the name first.
///
/// Ends early on bytes that are not a RESP array of bulks, which no built command has.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// The words of a whole command.
    pub(crate) fn of(bytes: &'a [u8]) -> Words<'a> {
        let at = number(bytes, 1).map_or(bytes.len(), |(_, next)| next);
        Words { bytes, at }
    }

    /// The next word itself.
    pub(crate) fn next_word(&mut self) -> Option<&'a [u8]> {
        let range = self.next()?;
        self.bytes.get(range)
    }
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let word = word_at(self.bytes, self.at)?;
        self.at = word.end.checked_add(2)?;
        Some(word)
    }
}

/// The word whose length is told at `at`.
#[inline]
pub(super) fn word_at(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let (len, start) = number(bytes, at.checked_add(1)?)?;
    let end = start.checked_add(len)?;
    (end <= bytes.len()).then_some(start..end)
}

/// The decimal number at `at` and the position after its CRLF.
#[inline]
fn number(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut value = 0usize;
    loop {
        match *bytes.get(at)? {
            digit @ b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            }
            b'\r' => return Some((value, at.checked_add(2)?)),
            _ => return None,
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<&[u8]> {
        Words::of(bytes).filter_map(|range| bytes.get(range)).collect()
    }

    /// Fails if a word is cut or missed, also one that holds CRLF or is empty.
    #[test]
    fn each_word_is_found() {
        assert_eq!(words(b"*3\r\n$1\r\na\r\n$0\r\n\r\n$2\r\n\r\n\r\n"), [&b"a"[..], b"", b"\r\n"]);
        assert_eq!(words(b"*0\r\n"), [b""; 0]);
    }

    /// Fails if bytes that are no command panic, or end anywhere but at the fault.
    #[test]
    fn other_bytes_end_the_walk() {
        for bytes in [&b""[..], b"*", b"*1", b"*1\r", b"*x\r\n$1\r\na\r\n", b"*1\r\n$9\r\na\r\n"] {
            assert_eq!(words(bytes), [b""; 0], "{bytes:?}");
        }
        let huge = b"*2\r\n$1\r\na\r\n$99999999999999999999999\r\nb\r\n";
        assert_eq!(words(huge), [b"a"]);
    }
}
