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
        let (len, start) = number(self.bytes, self.at.checked_add(1)?)?;
        let end = start.checked_add(len)?;
        if end > self.bytes.len() {
            return None;
        }
        self.at = end.checked_add(2)?;
        Some(start..end)
    }
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
