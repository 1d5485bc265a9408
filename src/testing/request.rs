//! Reads requests: arrays of bulk strings, and inline commands.
//!
//! The parser owns no payload: it keeps offsets into the connection's read buffer and goes on where
//! it stopped, so a value that arrives in many pieces is looked at once. Limits and error texts are
//! those of the servers it stands for.

/// Longest header line or inline command, in bytes.
const LINE_MAX: usize = 64 * 1024;
/// Largest bulk string in a request, in bytes (`proto-max-bulk-len`).
const BULK_MAX: usize = 512 * 1024 * 1024;
/// What a client that has not authenticated may send: arguments, and bytes in one of them.
const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_BULK_MAX: usize = 16 * 1024;

/// What a look at the buffer gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A whole request: see [`Parser::args`], then call [`Parser::finish`].
    Request,
    /// At least this many more bytes are needed.
    More(usize),
    /// The client broke the protocol: answer `-ERR Protocol error: <text>` and close.
    Broken(String),
}

/// The arguments of one request, in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl<'a> Args<'a> {
    /// Number of arguments, the command's name included.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Argument `index`; empty when there is none, which the arity check rules out.
    pub(super) fn at(&self, index: usize) -> &'a [u8] {
        self.ranges
            .get(index)
            .and_then(|&(start, end)| self.bytes.get(start..end))
            .unwrap_or_default()
    }

    /// The first `count` arguments.
    pub(super) fn up_to(&self, count: usize) -> Self {
        Self { bytes: self.bytes, ranges: self.ranges.get(..count).unwrap_or(self.ranges) }
    }

    /// The arguments from `index` on.
    pub(super) fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let rest = self.ranges.get(index..).unwrap_or_default();
        rest.iter().map(move |&(start, end)| bytes.get(start..end).unwrap_or_default())
    }
}

/// A resumable request parser. All offsets count from the first byte of the current request.
#[derive(Debug, Default)]
pub(super) struct Parser {
    ranges: Vec<(usize, usize)>,
    /// Arguments still to come of the current array; 0 when between requests.
    missing: usize,
    /// Length of the bulk whose header was read and whose payload is due.
    bulk: Option<usize>,
    /// Where the next header or payload starts.
    at: usize,
    /// How far the current line was searched for its end.
    searched: usize,
    /// Unescaped bytes of an inline command; the ranges lie in here when `inline_request` is set.
    inline: Vec<u8>,
    inline_request: bool,
}

impl Parser {
    /// Goes on in `bytes`, which starts at the first byte of the current request.
    pub(super) fn parse(&mut self, bytes: &[u8], authenticated: bool) -> Step {
        loop {
            if self.missing == 0 {
                match self.start(bytes, authenticated) {
                    Ok(true) if self.missing == 0 => return Step::Request,
                    Ok(true) => {}
                    // An empty array or line is no request: skip it.
                    Ok(false) => continue,
                    Err(step) => return step,
                }
            }
            while self.missing > 0 {
                if let Err(step) = self.argument(bytes, authenticated) {
                    return step;
                }
            }
            return Step::Request;
        }
    }

    /// The arguments of the request that [`Step::Request`] announced.
    pub(super) fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        let bytes = if self.inline_request { &self.inline } else { bytes };
        Args { bytes, ranges: &self.ranges }
    }

    /// Ends the request and says how many bytes it took.
    pub(super) fn finish(&mut self) -> usize {
        self.ranges.clear();
        self.inline.clear();
        self.inline_request = false;
        self.searched = 0;
        std::mem::take(&mut self.at)
    }

    /// Reads an array header or an inline command. `Ok(false)`: nothing to run there.
    fn start(&mut self, bytes: &[u8], authenticated: bool) -> Result<bool, Step> {
        match bytes.get(self.at) {
            None => Err(Step::More(1)),
            Some(b'*') => self.array_header(bytes, authenticated),
            Some(_) => self.inline_command(bytes),
        }
    }

    fn array_header(&mut self, bytes: &[u8], authenticated: bool) -> Result<bool, Step> {
        let line = self.line(bytes, "too big mbulk count string")?;
        let count = match number(&line[1..]) {
            Some(count) if count <= i64::from(i32::MAX) => usize::try_from(count).unwrap_or(0),
            _ => return Err(broken("invalid multibulk length")),
        };
        if !authenticated && count > UNAUTHENTICATED_ARGS_MAX {
            return Err(broken("unauthenticated multibulk length"));
        }
        self.missing = count;
        Ok(count > 0)
    }

    /// Reads one bulk string of an array.
    fn argument(&mut self, bytes: &[u8], authenticated: bool) -> Result<(), Step> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                let length = self.bulk_header(bytes, authenticated)?;
                self.bulk = Some(length);
                length
            }
        };
        let end = self.at + length;
        // The two bytes after the payload are skipped unread, as the servers do.
        if bytes.len() < end + 2 {
            return Err(Step::More(end + 2 - bytes.len()));
        }
        self.ranges.push((self.at, end));
        self.at = end + 2;
        self.searched = self.at;
        self.bulk = None;
        self.missing -= 1;
        Ok(())
    }

    fn bulk_header(&mut self, bytes: &[u8], authenticated: bool) -> Result<usize, Step> {
        match bytes.get(self.at) {
            None => return Err(Step::More(1)),
            Some(b'$') => {}
            Some(&other) => {
                return Err(broken(&format!("expected '$', got '{}'", char::from(other))));
            }
        }
        let line = self.line(bytes, "too big bulk count string")?;
        let length = number(&line[1..]).and_then(|length| usize::try_from(length).ok());
        match length {
            Some(length) if !authenticated && length > UNAUTHENTICATED_BULK_MAX => {
                Err(broken("unauthenticated bulk length"))
            }
            Some(length) if length <= BULK_MAX => Ok(length),
            _ => Err(broken("invalid bulk length")),
        }
    }

    /// The line at `at` without its CRLF, at least one byte long; moves `at` behind it. The search
    /// goes on where it ended.
    fn line<'a>(&mut self, bytes: &'a [u8], too_long: &str) -> Result<&'a [u8], Step> {
        let start = self.at;
        let from = self.searched.max(start + 1);
        let rest = bytes.get(from..).unwrap_or_default();
        match rest.iter().position(|&byte| byte == b'\r') {
            Some(offset) if from + offset + 2 <= bytes.len() => {
                self.at = from + offset + 2;
                self.searched = self.at;
                Ok(&bytes[start..from + offset])
            }
            Some(offset) => {
                self.searched = from + offset;
                Err(Step::More(1))
            }
            None if bytes.len() - start > LINE_MAX => Err(broken(too_long)),
            None => {
                self.searched = bytes.len();
                Err(Step::More(1))
            }
        }
    }

    fn inline_command(&mut self, bytes: &[u8]) -> Result<bool, Step> {
        let start = self.at;
        let from = self.searched.max(start);
        let rest = bytes.get(from..).unwrap_or_default();
        let Some(offset) = rest.iter().position(|&byte| byte == b'\n') else {
            if bytes.len() - start > LINE_MAX {
                return Err(broken("too big inline request"));
            }
            self.searched = bytes.len();
            return Err(Step::More(1));
        };
        let line = &bytes[start..from + offset];
        self.at = from + offset + 1;
        self.searched = self.at;
        if !split_inline(line, &mut self.inline, &mut self.ranges) {
            return Err(broken("unbalanced quotes in request"));
        }
        self.inline_request = !self.ranges.is_empty();
        Ok(self.inline_request)
    }
}

fn broken(text: &str) -> Step {
    Step::Broken(text.to_owned())
}

/// A whole number in the one spelling that servers take: no plus, no blanks, no leading zeros.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let (negative, magnitude) = match digits.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, digits),
    };
    match magnitude {
        [] | [b'0', _, ..] => return None,
        [b'0'] if negative => return None,
        _ => {}
    }
    let mut value: i64 = 0;
    for &digit in magnitude {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        // Built below zero, where there is room for i64::MIN.
        value = value.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Splits an inline command into `ranges` over `text`; false when a quote is left open.
fn split_inline(line: &[u8], text: &mut Vec<u8>, ranges: &mut Vec<(usize, usize)>) -> bool {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return true;
        }
        let start = text.len();
        match word(rest, text) {
            Some(after) => rest = after,
            None => return false,
        }
        ranges.push((start, text.len()));
    }
}

/// Copies one word, quotes taken off, and returns what follows it.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => return closed(double_quoted(after, text)?),
            b'\'' => return closed(single_quoted(after, text)?),
            b' ' | b'\t' | b'\r' | b'\n' | 0 => return Some(after),
            _ => text.push(byte),
        }
        rest = after;
    }
    Some(rest)
}

/// A closing quote must be followed by a blank or by nothing.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest)
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                text.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [b'"', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
            [] => return None,
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A') + 10,
    }
}
