//! What a peer did wrong on the wire.

use std::fmt;

/// A violation of the protocol. The connection cannot be read any further and must be closed: the
/// bytes after it must never be taken for a fresh reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    fault: Fault,
    offset: u64,
}

impl ProtocolError {
    pub(super) const fn new(fault: Fault, offset: usize) -> Self {
        ProtocolError { fault, offset: offset as u64 }
    }

    /// What was wrong.
    pub const fn fault(&self) -> Fault {
        self.fault
    }

    /// Where: bytes from the start of the top-level frame (its attributes included).
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the server broke the protocol: {} at byte {} of the reply",
            self.fault, self.offset
        )
    }
}

impl std::error::Error for ProtocolError {}

/// The kinds of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The byte starts no RESP type.
    UnknownType,
    /// The first byte is that of an HTTP answer.
    Http,
    /// The first byte is that of a TLS record.
    Tls,
    /// A RESP3 type on a RESP2 connection.
    NotInResp2,
    /// A carriage return that no line feed follows.
    BareCarriageReturn,
    /// A line that must be short is not.
    LongLine,
    /// `:` is not followed by a signed 64-bit integer.
    BadInteger,
    /// `,` is not followed by a double.
    BadDouble,
    /// `(` is not followed by an integer.
    BadBigNumber,
    /// `#` is not followed by `t` or `f`.
    BadBool,
    /// `_` is followed by something.
    BadNull,
    /// A length that is no plain decimal number.
    BadLength,
    /// A string is longer or shorter than it announced: CR LF is not where it should be.
    BadTerminator,
    /// A verbatim string without its `xxx:` prefix.
    BadVerbatim,
    /// A streamed string goes on with something other than a chunk.
    BadChunk,
    /// `.` where no streamed aggregate is open.
    StrayEnd,
    /// `;` where no streamed string is open.
    StrayChunk,
    /// A streamed map ends after a key.
    OddMap,
    /// A streamed aggregate ends after an attribute, which decorates nothing.
    DanglingAttribute,
    /// More than [`Limits::depth`](super::Limits::depth).
    TooDeep,
    /// More than [`Limits::bulk`](super::Limits::bulk).
    StringTooLong,
    /// More than [`Limits::reply`](super::Limits::reply).
    ReplyTooLong,
    /// More than [`Limits::elements`](super::Limits::elements).
    TooManyElements,
}

impl Fault {
    const fn words(self) -> &'static str {
        match self {
            Fault::UnknownType => "a byte that starts no RESP type",
            Fault::Http => "no RESP but something like an HTTP answer (is this the right port?)",
            Fault::Tls => "no RESP but something like a TLS record (does the server want TLS?)",
            Fault::NotInResp2 => "a RESP3 type on a RESP2 connection",
            Fault::BareCarriageReturn => "a carriage return without a line feed",
            Fault::LongLine => "a number or length of too many characters",
            Fault::BadInteger => "no signed 64-bit integer after ':'",
            Fault::BadDouble => "no double after ','",
            Fault::BadBigNumber => "no integer after '('",
            Fault::BadBool => "neither 't' nor 'f' after '#'",
            Fault::BadNull => "something after '_'",
            Fault::BadLength => "a length that is no plain decimal number",
            Fault::BadTerminator => "no CR LF where the announced length ends",
            Fault::BadVerbatim => "a verbatim string without its format",
            Fault::BadChunk => "no chunk where a streamed string must go on",
            Fault::StrayEnd => "the end of a streamed aggregate where none is open",
            Fault::StrayChunk => "a chunk where no streamed string is open",
            Fault::OddMap => "a map that ends after a key",
            Fault::DanglingAttribute => "an attribute that decorates nothing",
            Fault::TooDeep => "nesting deeper than the limit",
            Fault::StringTooLong => "a string longer than the limit",
            Fault::ReplyTooLong => "a reply longer than the limit",
            Fault::TooManyElements => "more elements than the limit",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
