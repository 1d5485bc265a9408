//! The short road: scalars that lie whole in the bytes at hand.
//!
//! Most replies are one of `$n`, `+OK`, `:n` and null, and arrive whole. They are recognised here
//! without touching any decoder state; whatever is not recognised (incomplete, rare or wrong) takes
//! the long road, which also words the error.

use super::Kind;

/// Where a whole scalar lies.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) kind: Kind,
    /// Bytes before the payload.
    pub(super) header: u8,
    /// Bytes of the whole frame.
    pub(super) len: usize,
}

/// Longest line looked at here, so that an unfinished one costs next to nothing.
const LINE_MAX: usize = 64;

/// Digits of a bulk length taken here: below a billion, no overflow on any machine.
const DIGITS_MAX: usize = 9;

/// Recognises a whole scalar at the start of `bytes`. `bulk_max` bounds a string's length.
/// With `resp3` false, `_` is left to the long road.
#[inline(always)]
pub(super) fn whole(bytes: &[u8], bulk_max: usize, resp3: bool) -> Option<Extent> {
    match bytes.first()? {
        b'$' => bulk(bytes, bulk_max),
        b'+' => simple(bytes, bulk_max),
        b':' => int(bytes),
        b'_' if resp3 && bytes.get(1..3)? == b"\r\n" => {
            Some(Extent { kind: Kind::Null, header: 1, len: 3 })
        }
        _ => None,
    }
}

#[inline(always)]
fn bulk(bytes: &[u8], bulk_max: usize) -> Option<Extent> {
    // Two digits, as most values have: one look at the header.
    if let [b'$', tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', rest @ ..] = bytes {
        let len = usize::from(tens - b'0') * 10 + usize::from(ones - b'0');
        if len <= bulk_max && rest.get(len..len + 2)? == b"\r\n" {
            return Some(Extent { kind: Kind::Bulk, header: 5, len: 5 + len + 2 });
        }
        return None;
    }
    bulk_of_any_length(bytes, bulk_max)
}

#[inline(never)]
fn bulk_of_any_length(bytes: &[u8], bulk_max: usize) -> Option<Extent> {
    let mut at = 1;
    let mut len = 0;
    loop {
        let digit = bytes.get(at)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        len = len * 10 + usize::from(digit);
        at += 1;
        if at > 1 + DIGITS_MAX {
            return None;
        }
    }
    if at == 1 {
        return null(bytes);
    }
    let start = at + 2;
    let end = start + len;
    // The end is read first: one bounds check then covers the header's CR LF too.
    if bytes.get(end..end + 2)? != b"\r\n" || bytes.get(at..start)? != b"\r\n" || len > bulk_max {
        return None;
    }
    Some(Extent { kind: Kind::Bulk, header: start as u8, len: end + 2 })
}

#[inline(always)]
fn null(bytes: &[u8]) -> Option<Extent> {
    bytes.starts_with(b"$-1\r\n").then_some(Extent { kind: Kind::Null, header: 3, len: 5 })
}

#[inline(always)]
fn simple(bytes: &[u8], text_max: usize) -> Option<Extent> {
    if bytes.starts_with(b"+OK\r\n") && text_max >= 2 {
        return Some(Extent { kind: Kind::Simple, header: 1, len: 5 });
    }
    let at = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\r')?;
    (*bytes.get(at + 1)? == b'\n' && at <= text_max).then_some(Extent {
        kind: Kind::Simple,
        header: 1,
        len: at + 2,
    })
}

#[inline(always)]
fn int(bytes: &[u8]) -> Option<Extent> {
    let first = 1 + usize::from(*bytes.get(1)? == b'-');
    let mut at = first;
    while bytes.get(at)?.is_ascii_digit() {
        at += 1;
    }
    // Up to 18 digits fit whatever they are.
    if at == first || at > first + 18 || bytes.get(at..at + 2)? != b"\r\n" {
        return None;
    }
    Some(Extent { kind: Kind::Int, header: 1, len: at + 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the short look at a header of two digits takes what the long one does not, or takes it
    /// otherwise: other digits, a CR or LF in an odd place, a cut at any byte, a limit on either side.
    #[test]
    fn two_digits_are_read_as_any_length_is() {
        let parts = |found: Option<Extent>| found.map(|e| (e.header, e.len, e.kind == Kind::Bulk));
        let mut taken = 0;
        for number in (0..8_usize.pow(5)).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let header: Vec<u8> = (0..5).map(|at| b"0129-\r\nx"[number >> (3 * at) & 7]).collect();
            for body in [0, 1, 2, 9, 10, 11, 12, 19, 20, 21, 22, 29] {
                let mut bytes = [b"$", &header[..], b"\r\n"].concat();
                bytes.resize(bytes.len() + body, b'x');
                bytes.extend_from_slice(b"\r\n");
                for bulk_max in [9, 10, 12, 512] {
                    let expected = parts(bulk_of_any_length(&bytes, bulk_max));
                    assert_eq!(
                        parts(bulk(&bytes, bulk_max)),
                        expected,
                        "{:?}",
                        bytes.escape_ascii()
                    );
                    taken += usize::from(expected.is_some());
                }
            }
        }
        assert!(taken > 0, "none of them is whole");
        let whole = b"$12\r\nabcdefghijkl\r\n";
        for end in 0..whole.len() {
            assert!(bulk(&whole[..end], 512).is_none());
        }
        assert_eq!(bulk(whole, 512).map(|e| e.len), Some(whole.len()));
    }
}
