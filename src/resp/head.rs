//! Headers of frames whose bytes were checked before. Lenient on purpose: the decoder has refused
//! what is wrong, so here anything odd is just `None`, and no input can trip it.

use super::{Kind, elements, number};

/// What follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing: the line was all.
    Line,
    /// So many bytes, then CR LF.
    String(usize),
    /// Chunks, up to an empty one.
    Chunks,
    /// So many frames (a pair counts as two).
    Items(u64),
    /// Frames, up to `.`.
    Stream,
}

/// One parsed header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// `None`: an attribute.
    pub(super) kind: Option<Kind>,
    pub(super) body: Body,
    /// Bytes of the header line with its CR LF.
    pub(super) line: usize,
    /// A big number with a plus, which is no part of its payload.
    plus: bool,
}

impl Head {
    /// Parses the header at the start of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Option<Head> {
        let (&tag, rest) = bytes.split_first()?;
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        let text = rest.get(..end)?;
        let kind = match tag {
            b'+' => Kind::Simple,
            b'-' => Kind::Error,
            b':' => Kind::Int,
            b',' => Kind::Double,
            b'(' => Kind::BigNumber,
            b'#' => Kind::Bool,
            b'_' => Kind::Null,
            b'$' | b'*' if text == b"-1" => Kind::Null,
            b'$' => Kind::Bulk,
            b'!' => Kind::BulkError,
            b'=' => Kind::Verbatim,
            b'*' => Kind::Array,
            b'%' => Kind::Map,
            b'~' => Kind::Set,
            b'>' => Kind::Push,
            b'|' => {
                return Some(Head { kind: None, body: pairs(text)?, line: end + 3, plus: false });
            }
            _ => return None,
        };
        let plus = kind == Kind::BigNumber && text.first() == Some(&b'+');
        Some(Head { kind: Some(kind), body: body(kind, text)?, line: end + 3, plus })
    }

    /// Bytes of a frame that holds no others; `None` for aggregates, attributes and cut bytes.
    pub(super) fn scalar_len(&self, bytes: &[u8]) -> Option<usize> {
        match self.body {
            Body::Line => Some(self.line),
            Body::String(len) => self.line.checked_add(len)?.checked_add(2),
            Body::Chunks => elements::chunks_end(bytes, self.line),
            Body::Items(_) | Body::Stream => None,
        }
    }

    /// Bytes before the payload of a scalar, or before the first element.
    pub(super) fn header(&self) -> usize {
        match (self.kind, self.body) {
            (Some(Kind::Null), _) => self.line.saturating_sub(2),
            (_, Body::Line) => 1 + usize::from(self.plus),
            (Some(Kind::Verbatim), _) => self.line.saturating_add(4),
            _ => self.line,
        }
    }
}

fn pairs(text: &[u8]) -> Option<Body> {
    Some(Body::Items(number::length(text)?.checked_mul(2)?))
}

fn body(kind: Kind, text: &[u8]) -> Option<Body> {
    let streamed = text == b"?";
    match kind {
        Kind::Bulk if streamed => Some(Body::Chunks),
        Kind::Bulk | Kind::BulkError | Kind::Verbatim => {
            Some(Body::String(usize::try_from(number::length(text)?).ok()?))
        }
        Kind::Array | Kind::Map | Kind::Set if streamed => Some(Body::Stream),
        Kind::Map => pairs(text),
        Kind::Array | Kind::Set | Kind::Push => Some(Body::Items(number::length(text)?)),
        _ => Some(Body::Line),
    }
}
