//! The owned tree of a reply, with its shape as it came.

use std::fmt;

use bytes::Bytes;

use super::{
    ConvertError, Frame, FromReply, Kept, Kind, Reply, ServerError,
    head::{Body, Head},
};

/// Deepest nesting that becomes a [`Value`], so that no method of it can exhaust a stack.
const DEPTH_MAX: usize = 512;

/// A reply as an owned tree: kinds, order, repeats and attributes as on the wire (R-010). Errors are
/// values here, so a `Value` can always be had of a reply that is nested at most 512 deep.
///
/// `Debug` writes one line in every mode: indentation costs the square of the depth.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A simple string.
    Simple(Bytes),
    /// An error line; see [`Value::server_error`].
    Error(Bytes),
    /// An integer.
    Int(i64),
    /// A bulk string, streamed or not.
    Bulk(Bytes),
    /// Any of the three nulls.
    Null,
    /// A boolean.
    Bool(bool),
    /// A double.
    Double(f64),
    /// The digits of a big number, without a leading plus.
    BigNumber(Bytes),
    /// An error that may hold any byte; see [`Value::server_error`].
    BulkError(Bytes),
    /// A string with its format.
    Verbatim {
        /// Three letters, such as `txt` or `mkd`.
        format: [u8; 3],
        /// The string.
        text: Bytes,
    },
    /// An ordered list.
    Array(Vec<Value>),
    /// Entries in wire order, repeats kept.
    Map(Vec<(Value, Value)>),
    /// Members in wire order, repeats kept.
    Set(Vec<Value>),
    /// Out-of-band data.
    Push(Vec<Value>),
    /// A value with the attributes that stood in front of it.
    Attributed(Box<Attributed>),
}

/// A value with its attributes.
#[derive(Clone, PartialEq)]
pub struct Attributed {
    /// The attributes one by one as sent, each with its entries in wire order.
    pub attributes: Vec<Vec<(Value, Value)>>,
    /// What they decorate.
    pub value: Value,
}

impl Value {
    /// The server's error, if it is one of either form.
    pub fn server_error(&self) -> Option<ServerError> {
        match self {
            Value::Error(line) | Value::BulkError(line) => Some(ServerError::new(line)),
            Value::Attributed(inner) => match &inner.value {
                Value::Error(line) | Value::BulkError(line) => Some(ServerError::new(line)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The kind of the value, looking through attributes.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Simple(_) => Kind::Simple,
            Value::Error(_) => Kind::Error,
            Value::Int(_) => Kind::Int,
            Value::Bulk(_) => Kind::Bulk,
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Double(_) => Kind::Double,
            Value::BigNumber(_) => Kind::BigNumber,
            Value::BulkError(_) => Kind::BulkError,
            Value::Verbatim { .. } => Kind::Verbatim,
            Value::Array(_) => Kind::Array,
            Value::Map(_) => Kind::Map,
            Value::Set(_) => Kind::Set,
            Value::Push(_) => Kind::Push,
            // The builder never puts one into another.
            Value::Attributed(inner) => match &inner.value {
                Value::Attributed(_) => Kind::Null,
                value => value.kind(),
            },
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, vec![Part::Value(self)])
    }
}

impl fmt::Debug for Attributed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, Part::attributed(self))
    }
}

/// What is left to print, the next part last.
enum Part<'a> {
    Text(&'static str),
    Value(&'a Value),
    Values(&'a [Value]),
    Entries(&'a [(Value, Value)]),
}

impl<'a> Part<'a> {
    fn attributed(of: &'a Attributed) -> Vec<Part<'a>> {
        let mut parts = vec![Part::Text(")"), Part::Value(&of.value)];
        for group in of.attributes.iter().rev() {
            parts.extend([Part::Text("}, "), Part::Entries(group), Part::Text("{")]);
        }
        parts.push(Part::Text("Attributed("));
        parts
    }
}

/// Prints without recursion.
fn print(f: &mut fmt::Formatter<'_>, mut parts: Vec<Part<'_>>) -> fmt::Result {
    while let Some(part) = parts.pop() {
        match part {
            Part::Text(text) => f.write_str(text)?,
            Part::Value(value) => print_value(f, value, &mut parts)?,
            Part::Values([]) | Part::Entries([]) => {}
            Part::Values([first, rest @ ..]) => {
                parts.push(Part::Values(rest));
                parts.extend((!rest.is_empty()).then_some(Part::Text(", ")));
                parts.push(Part::Value(first));
            }
            Part::Entries([(key, value), rest @ ..]) => {
                parts.push(Part::Entries(rest));
                parts.extend((!rest.is_empty()).then_some(Part::Text(", ")));
                parts.extend([Part::Value(value), Part::Text(": "), Part::Value(key)]);
            }
        }
    }
    Ok(())
}

/// Prints a scalar, or puts what an aggregate is made of onto `parts`.
fn print_value<'a>(
    f: &mut fmt::Formatter<'_>,
    value: &'a Value,
    parts: &mut Vec<Part<'a>>,
) -> fmt::Result {
    let (open, inner, close) = match value {
        Value::Simple(text) => return write!(f, "Simple({text:?})"),
        Value::Error(text) => return write!(f, "Error({text:?})"),
        Value::Int(number) => return write!(f, "Int({number})"),
        Value::Bulk(text) => return write!(f, "Bulk({text:?})"),
        Value::Null => return f.write_str("Null"),
        Value::Bool(truth) => return write!(f, "Bool({truth})"),
        Value::Double(number) => return write!(f, "Double({number:?})"),
        Value::BigNumber(digits) => return write!(f, "BigNumber({digits:?})"),
        Value::BulkError(text) => return write!(f, "BulkError({text:?})"),
        Value::Verbatim { format, text } => {
            let format = String::from_utf8_lossy(format);
            return write!(f, "Verbatim({format:?}, {text:?})");
        }
        Value::Array(items) => ("Array([", Part::Values(items), "])"),
        Value::Map(entries) => ("Map({", Part::Entries(entries), "})"),
        Value::Set(items) => ("Set([", Part::Values(items), "])"),
        Value::Push(items) => ("Push([", Part::Values(items), "])"),
        Value::Attributed(inner) => {
            parts.extend(Part::attributed(inner));
            return Ok(());
        }
    };
    parts.extend([Part::Text(close), inner]);
    f.write_str(open)
}

impl<K: Kept> FromReply<K> for Value {
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        Builder { reply, open: Vec::new(), attributes: Vec::new() }.build()
    }
}

type Groups = Vec<Vec<(Value, Value)>>;

/// Builds the tree in one pass over the bytes, with its own stack.
struct Builder<'a, K> {
    reply: Reply<'a, K>,
    open: Vec<Open>,
    /// What decorates the next value.
    attributes: Groups,
}

/// An aggregate or attribute under way.
struct Open {
    /// `None`: an attribute.
    kind: Option<Kind>,
    items: Vec<Value>,
    /// Frames due; `None` for streamed ones.
    due: Option<u64>,
    attributes: Groups,
}

impl<K: Kept> Builder<'_, K> {
    fn build(mut self) -> Result<Value, ConvertError> {
        let mut rest = self.reply.frame().raw();
        loop {
            let (value, len) = match rest.first() {
                Some(b'.') => (self.close(), 3),
                _ => self.item(rest)?,
            };
            rest = rest.get(len..).unwrap_or_default();
            if let Some(value) = value.and_then(|value| self.add(value)) {
                return Ok(value);
            }
        }
    }

    /// The item at the start of `rest`: a value, or none yet if it opens a level.
    fn item(&mut self, rest: &[u8]) -> Result<(Option<Value>, usize), ConvertError> {
        let Some(head) = Head::parse(rest) else { return Err(self.unreadable()) };
        let due = match head.body {
            Body::Items(due) => Some(due),
            Body::Stream => None,
            _ => {
                let raw = head.scalar_len(rest).and_then(|len| rest.get(..len));
                let raw = raw.ok_or_else(|| self.unreadable())?;
                let value = scalar(self.reply.with_frame(Frame::at(raw, 0)));
                return Ok((Some(self.decorate(value)), raw.len()));
            }
        };
        if self.open.len() >= DEPTH_MAX {
            let came = "a deeper one";
            let frame = self.reply.frame();
            return Err(ConvertError::with_came("a reply nested at most 512 deep", came, &frame));
        }
        let attributes = std::mem::take(&mut self.attributes);
        let capacity = due.unwrap_or(0).min((rest.len() / 3) as u64) as usize;
        self.open.push(Open {
            kind: head.kind,
            items: Vec::with_capacity(capacity),
            due,
            attributes,
        });
        Ok((if due == Some(0) { self.close() } else { None }, head.line))
    }

    /// Adds a value to the level around it and ends the levels that it was the last of. Gives the
    /// value back when no level is open: the tree is whole.
    fn add(&mut self, mut value: Value) -> Option<Value> {
        loop {
            let Some(level) = self.open.last_mut() else { return Some(value) };
            level.items.push(value);
            let due = level.due.as_mut()?;
            *due = due.saturating_sub(1);
            if *due > 0 {
                return None;
            }
            value = self.close()?;
        }
    }

    /// Ends the innermost level: its value, or none if it is an attribute.
    fn close(&mut self) -> Option<Value> {
        let Open { kind, items, attributes, .. } = self.open.pop()?;
        self.attributes = attributes;
        let value = match kind {
            None => {
                self.attributes.push(entries(items));
                return None;
            }
            Some(Kind::Map) => Value::Map(entries(items)),
            Some(Kind::Set) => Value::Set(items),
            Some(Kind::Push) => Value::Push(items),
            Some(_) => Value::Array(items),
        };
        Some(self.decorate(value))
    }

    fn decorate(&mut self, value: Value) -> Value {
        if self.attributes.is_empty() {
            return value;
        }
        let attributes = std::mem::take(&mut self.attributes);
        Value::Attributed(Box::new(Attributed { attributes, value }))
    }

    /// Only for bytes that no decoder has checked.
    fn unreadable(&self) -> ConvertError {
        ConvertError::with_came("a whole frame", "something else", &self.reply.frame())
    }
}

fn entries(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut entries = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        entries.push((key, value));
    }
    entries
}

fn scalar<K: Kept>(reply: Reply<'_, K>) -> Value {
    let frame = reply.frame();
    let text = || reply.text().into_bytes();
    match frame.kind() {
        Kind::Simple => Value::Simple(text()),
        Kind::Error => Value::Error(text()),
        Kind::Int => Value::Int(frame.int().unwrap_or_default()),
        Kind::Bool => Value::Bool(frame.bool().unwrap_or_default()),
        Kind::Double => Value::Double(frame.double().unwrap_or_default()),
        Kind::BigNumber => Value::BigNumber(text()),
        Kind::BulkError => Value::BulkError(text()),
        Kind::Verbatim => {
            Value::Verbatim { format: frame.format().unwrap_or_default(), text: text() }
        }
        Kind::Bulk => Value::Bulk(text()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R-096. Fails if a value prints over more than one line, or loses a part.
    #[test]
    fn debug_is_one_line() {
        let whole = b"|1\r\n+k\r\n:1\r\n|0\r\n*3\r\n%1\r\n_\r\n#t\r\n~0\r\n=5\r\ntxt:a\r\n";
        let frame = Frame::from_validated(whole);
        let value: Value = Reply::<Bytes>::new(frame, None).convert().expect("a value");
        let text = concat!(
            r#"Attributed({Simple(b"k"): Int(1)}, {}, "#,
            r#"Array([Map({Null: Bool(true)}), Set([]), Verbatim("txt", b"a")]))"#
        );
        assert_eq!(format!("{value:#?}"), text);
    }
}
