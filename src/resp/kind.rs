//! What a connection speaks and what a frame is.

use std::fmt;

/// The protocol version that a connection negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2: `+ - : $ *` only. Any other type byte is a protocol violation.
    Resp2,
    /// RESP3: every type.
    Resp3,
}

/// The type of a frame. The three wire forms of null are one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `+text`: a status such as OK.
    Simple,
    /// `-text`: an error of one line.
    Error,
    /// `:digits`: a signed 64-bit integer.
    Int,
    /// `$n` or `$?`: a binary-safe string.
    Bulk,
    /// `_`, `$-1` or `*-1`: no value.
    Null,
    /// `#t` or `#f`.
    Bool,
    /// `,number`: a double, with inf and nan.
    Double,
    /// `(digits`: an integer of any size.
    BigNumber,
    /// `!n`: an error that may hold any byte.
    BulkError,
    /// `=n`: a string with a three-letter format in front.
    Verbatim,
    /// `*n` or `*?`: an ordered list.
    Array,
    /// `%n` or `%?`: keys with values, in wire order, repeats kept.
    Map,
    /// `~n` or `~?`: a set, in wire order, repeats kept.
    Set,
    /// `>n`: out-of-band data, not the answer to a command when at the top level.
    Push,
}

impl Kind {
    /// The kind in words with its article, for messages: `"a bulk string"`.
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Simple => "a simple string",
            Kind::Error => "an error",
            Kind::Int => "an integer",
            Kind::Bulk => "a bulk string",
            Kind::Null => "a null",
            Kind::Bool => "a boolean",
            Kind::Double => "a double",
            Kind::BigNumber => "a big number",
            Kind::BulkError => "a bulk error",
            Kind::Verbatim => "a verbatim string",
            Kind::Array => "an array",
            Kind::Map => "a map",
            Kind::Set => "a set",
            Kind::Push => "a push",
        }
    }

    /// Whether frames of this kind hold other frames.
    pub const fn is_aggregate(self) -> bool {
        matches!(self, Kind::Array | Kind::Map | Kind::Set | Kind::Push)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
