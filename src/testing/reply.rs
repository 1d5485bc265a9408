//! Replies: the writers of [`crate::resp::encode`], and what only a server writes.

pub(super) use crate::resp::Protocol;
pub(super) use crate::resp::encode::{
    array_header as array, bulk, double, error, int, map_header as map, null, null_array,
    push_header as push, set_header as set, simple,
};

/// The number of a protocol, as HELLO and CLIENT LIST give it.
pub(super) fn protocol_number(protocol: Protocol) -> i64 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

pub(super) fn count(out: &mut Vec<u8>, number: usize) {
    int(out, i64::try_from(number).unwrap_or(i64::MAX));
}

pub(super) fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

pub(super) fn bulk_or_null(out: &mut Vec<u8>, protocol: Protocol, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => bulk(out, bytes),
        None => null(out, protocol),
    }
}

/// A text for people: verbatim in RESP3.
pub(super) fn text(out: &mut Vec<u8>, protocol: Protocol, text: &str) {
    crate::resp::encode::verbatim(out, protocol, *b"txt", text.as_bytes());
}
