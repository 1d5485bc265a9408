//! Writing commands and replies.
//!
//! Writers append to a [`Sink`], as a rule a `Vec<u8>`, and allocate nothing themselves.

use super::Protocol;

/// Where bytes go: a `Vec<u8>`, or anything else that takes them in order.
pub trait Sink {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The decimal text of a number, on the stack.
///
/// ```
/// use hedgerow::resp::encode::Decimal;
/// assert_eq!(Decimal::signed(i64::MIN).as_bytes(), b"-9223372036854775808");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; Decimal::LEN_MAX],
    start: u8,
}

impl Decimal {
    /// Longest text: `i64::MIN` and `u64::MAX` have 20 characters.
    pub const LEN_MAX: usize = 20;

    /// The text of `number`.
    #[inline]
    pub fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; Decimal::LEN_MAX];
        let mut start = Decimal::LEN_MAX;
        for cell in digits.iter_mut().rev() {
            *cell = b'0' + (number % 10) as u8;
            number /= 10;
            start -= 1;
            if number == 0 {
                break;
            }
        }
        Decimal { digits, start: start as u8 }
    }

    /// The text of `number`, with its sign if negative.
    #[inline]
    pub fn signed(number: i64) -> Self {
        let mut text = Decimal::new(number.unsigned_abs());
        if number < 0 {
            // 19 digits at most, so a cell is left.
            text.start = text.start.saturating_sub(1);
            if let Some(cell) = text.digits.get_mut(usize::from(text.start)) {
                *cell = b'-';
            }
        }
        text
    }

    /// The text.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(usize::from(self.start)..).unwrap_or_default()
    }
}

/// How many decimal digits `number` has.
#[inline]
pub const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// Bytes that [`bulk`] writes for a payload of `len` bytes.
#[inline]
pub const fn bulk_len(len: usize) -> usize {
    1 + digits(len as u64) + 2 + len + 2
}

/// Bytes that [`array_header`] writes.
#[inline]
pub const fn header_len(count: usize) -> usize {
    1 + digits(count as u64) + 2
}

/// A type byte, a number and CR LF. Most lengths and counts are below 1,000: one append of a known
/// size each.
#[inline]
fn line(out: &mut impl Sink, tag: u8, number: u64) {
    let digit = |place: u64| b'0' + (number / place % 10) as u8;
    match number {
        0..10 => out.put(&[tag, digit(1), b'\r', b'\n']),
        10..100 => out.put(&[tag, digit(10), digit(1), b'\r', b'\n']),
        100..1_000 => out.put(&[tag, digit(100), digit(10), digit(1), b'\r', b'\n']),
        _ => long_line(out, tag, &Decimal::new(number)),
    }
}

fn long_line(out: &mut impl Sink, tag: u8, number: &Decimal) {
    out.put(&[tag]);
    out.put(number.as_bytes());
    out.put(b"\r\n");
}

/// A whole command: an array of bulk strings.
///
/// ```
/// let mut out = Vec::new();
/// hedgerow::resp::encode::command(&mut out, &[b"GET", b"key"]);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
/// ```
pub fn command(out: &mut impl Sink, parts: &[&[u8]]) {
    array_header(out, parts.len());
    for part in parts {
        bulk(out, part);
    }
}

/// `*count`: the elements follow.
#[inline]
pub fn array_header(out: &mut impl Sink, count: usize) {
    line(out, b'*', count as u64);
}

/// A map of so many entries, whose keys and values follow in turn: `%count`, or in RESP2 a flat array
/// of twice as many.
pub fn map_header(out: &mut impl Sink, protocol: Protocol, count: usize) {
    match protocol {
        Protocol::Resp2 => array_header(out, count.saturating_mul(2)),
        Protocol::Resp3 => line(out, b'%', count as u64),
    }
}

/// A set, whose members follow: `~count`, or an array in RESP2.
pub fn set_header(out: &mut impl Sink, protocol: Protocol, count: usize) {
    match protocol {
        Protocol::Resp2 => array_header(out, count),
        Protocol::Resp3 => line(out, b'~', count as u64),
    }
}

/// Out-of-band data, whose elements follow: `>count`, or an array in RESP2 (as pub/sub sends there).
pub fn push_header(out: &mut impl Sink, protocol: Protocol, count: usize) {
    match protocol {
        Protocol::Resp2 => array_header(out, count),
        Protocol::Resp3 => line(out, b'>', count as u64),
    }
}

/// An attribute of so many entries, which follow, and then the value that it decorates. RESP3 only.
pub fn attribute_header(out: &mut impl Sink, count: usize) {
    line(out, b'|', count as u64);
}

/// A bulk string.
#[inline]
pub fn bulk(out: &mut impl Sink, payload: &[u8]) {
    line(out, b'$', payload.len() as u64);
    out.put(payload);
    out.put(b"\r\n");
}

/// A simple string. CR and LF in it become blanks, as servers do.
pub fn simple(out: &mut impl Sink, text: &str) {
    text_line(out, b"+", text);
}

/// An error: code word and text in one, such as `"ERR no such key"`. CR and LF become blanks.
pub fn error(out: &mut impl Sink, text: &str) {
    text_line(out, b"-", text);
}

fn text_line(out: &mut impl Sink, tag: &[u8], text: &str) {
    out.put(tag);
    for (index, part) in text.split(['\r', '\n']).enumerate() {
        if index > 0 {
            out.put(b" ");
        }
        out.put(part.as_bytes());
    }
    out.put(b"\r\n");
}

/// An integer.
#[inline]
pub fn int(out: &mut impl Sink, number: i64) {
    match u64::try_from(number) {
        Ok(number) => line(out, b':', number),
        Err(_) => long_line(out, b':', &Decimal::signed(number)),
    }
}

/// A null: `_`, or the null bulk string in RESP2.
pub fn null(out: &mut impl Sink, protocol: Protocol) {
    out.put(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// A null where an array would be: `_`, or the null array in RESP2.
pub fn null_array(out: &mut impl Sink, protocol: Protocol) {
    out.put(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// A boolean: `#t` or `#f`, or 1 and 0 in RESP2.
pub fn boolean(out: &mut impl Sink, protocol: Protocol, truth: bool) {
    match (protocol, truth) {
        (Protocol::Resp2, _) => int(out, i64::from(truth)),
        (Protocol::Resp3, true) => out.put(b"#t\r\n"),
        (Protocol::Resp3, false) => out.put(b"#f\r\n"),
    }
}

/// A double in its shortest exact text: `,text`, or a bulk string in RESP2.
pub fn double(out: &mut impl Sink, protocol: Protocol, number: f64) {
    let text = Double::new(number);
    match protocol {
        Protocol::Resp2 => bulk(out, text.as_bytes()),
        Protocol::Resp3 => {
            out.put(b",");
            out.put(text.as_bytes());
            out.put(b"\r\n");
        }
    }
}

/// The text of a double, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Double {
    text: [u8; Double::LEN_MAX],
    len: u8,
}

impl Double {
    /// Longest text, such as `-2.2250738585072014e-308`: 24 characters.
    pub const LEN_MAX: usize = 24;

    /// The shortest text that reads back as `number`; `inf`, `-inf` and `nan` for the rest.
    pub fn new(number: f64) -> Self {
        use std::io::Write;
        let mut text = Double { text: [0; Double::LEN_MAX], len: 0 };
        let mut room = &mut text.text[..];
        let plain = number == 0.0 || (1e-5..1e16).contains(&number.abs());
        // The longest text fits, so writing cannot fail.
        let _ = match number {
            _ if number.is_nan() => write!(room, "nan"),
            _ if number.is_infinite() || plain => write!(room, "{number}"),
            _ => write!(room, "{number:e}"),
        };
        let left = room.len();
        text.len = (Double::LEN_MAX - left) as u8;
        text
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// A big number; `digits` with an optional minus. In RESP2 a bulk string.
pub fn big_number(out: &mut impl Sink, protocol: Protocol, digits: &str) {
    match protocol {
        Protocol::Resp2 => bulk(out, digits.as_bytes()),
        Protocol::Resp3 => text_line(out, b"(", digits),
    }
}

/// An error that may hold any byte. In RESP2 a simple error.
pub fn bulk_error(out: &mut impl Sink, protocol: Protocol, text: &[u8]) {
    match protocol {
        Protocol::Resp2 => error(out, &String::from_utf8_lossy(text)),
        Protocol::Resp3 => {
            line(out, b'!', text.len() as u64);
            out.put(text);
            out.put(b"\r\n");
        }
    }
}

/// A string with a format of three letters, such as `*b"txt"`. In RESP2 a bulk string without it.
pub fn verbatim(out: &mut impl Sink, protocol: Protocol, format: [u8; 3], text: &[u8]) {
    if protocol == Protocol::Resp2 {
        return bulk(out, text);
    }
    line(out, b'=', text.len() as u64 + 4);
    out.put(&format);
    out.put(b":");
    out.put(text);
    out.put(b"\r\n");
}
