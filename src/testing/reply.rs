//! Writes replies in both protocols.

use std::io::Write;

/// The protocol of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    /// The number that HELLO and CLIENT LIST give.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Writes a header: a type byte, a number, CRLF.
pub(super) fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    let mut digits = [0u8; 24];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(kind);
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn length(out: &mut Vec<u8>, kind: u8, length: usize) {
    header(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

pub(super) fn int(out: &mut Vec<u8>, number: i64) {
    header(out, b':', number);
}

pub(super) fn count(out: &mut Vec<u8>, number: usize) {
    length(out, b':', number);
}

pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    let _ = write!(out, "+{text}\r\n");
}

pub(super) fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

/// Writes an error line; `text` starts with its code word. Line ends inside become blanks.
pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

pub(super) fn null(out: &mut Vec<u8>, protocol: Protocol) {
    match protocol {
        Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
        Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
    }
}

pub(super) fn null_array(out: &mut Vec<u8>, protocol: Protocol) {
    match protocol {
        Protocol::Resp2 => out.extend_from_slice(b"*-1\r\n"),
        Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
    }
}

pub(super) fn bulk_or_null(out: &mut Vec<u8>, protocol: Protocol, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => bulk(out, bytes),
        None => null(out, protocol),
    }
}

pub(super) fn array(out: &mut Vec<u8>, elements: usize) {
    length(out, b'*', elements);
}

/// A map of `pairs` pairs: a flat array of twice as many elements in RESP2.
pub(super) fn map(out: &mut Vec<u8>, protocol: Protocol, pairs: usize) {
    match protocol {
        Protocol::Resp2 => length(out, b'*', pairs.saturating_mul(2)),
        Protocol::Resp3 => length(out, b'%', pairs),
    }
}

pub(super) fn set(out: &mut Vec<u8>, protocol: Protocol, elements: usize) {
    match protocol {
        Protocol::Resp2 => length(out, b'*', elements),
        Protocol::Resp3 => length(out, b'~', elements),
    }
}

/// A verbatim text in RESP3, a bulk string in RESP2.
pub(super) fn text(out: &mut Vec<u8>, protocol: Protocol, text: &str) {
    match protocol {
        Protocol::Resp2 => bulk(out, text.as_bytes()),
        Protocol::Resp3 => {
            length(out, b'=', text.len() + 4);
            let _ = write!(out, "txt:{text}\r\n");
        }
    }
}

pub(super) fn double(out: &mut Vec<u8>, protocol: Protocol, number: f64) {
    let text = format_double(number);
    match protocol {
        Protocol::Resp2 => bulk(out, text.as_bytes()),
        Protocol::Resp3 => {
            let _ = write!(out, ",{text}\r\n");
        }
    }
}

/// The shortest decimal that reads back as `number`, spelt as the servers spell it.
pub(super) fn format_double(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -6..=16 => format!("{number}"),
        large @ 17.. => format!("{mantissa}e+{large}"),
        small => format!("{mantissa}e{small}"),
    }
}
