//! From replies to Rust values.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

use super::{Frame, Kept, Kind, Reply, ServerError, from_aggregate};

/// A Rust type that a reply can become. RESP2 and RESP3 shapes give the same value (R-010): a map
/// is also read from a flat array, a set from an array, a double from a string, a bool from 0 or 1.
///
/// Implemented for `()`, `bool`, integers, floats, `String`, `Vec<u8>`, [`Bytes`], `Option`, `Vec`,
/// `VecDeque`, sets, maps, `Vec<(A, B)>`, tuples up to 8, arrays, [`Seconds`](super::Seconds),
/// [`Millis`](super::Millis) and [`Value`](super::Value), and to be implemented for your own types:
///
/// ```
/// use hedgerow::resp::{ConvertError, FromReply, Kept, Reply};
///
/// struct Celsius(f64);
///
/// impl<K: Kept> FromReply<K> for Celsius {
///     fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
///         f64::from_reply(reply).map(Celsius)
///     }
/// }
/// ```
pub trait FromReply<K: Kept = Bytes>: Sized {
    /// Whether only this crate's code runs when one is made, so that it may run where yours must not:
    /// while the client's own state is in use.
    #[doc(hidden)]
    const PLAIN: bool = false;

    /// Makes the value.
    ///
    /// # Errors
    /// [`ConvertError`] when the frame's kind or content does not suit. An error frame never suits:
    /// at the top level it has become an error before, inside an aggregate the error names it.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError>;

    /// Makes a list of such values. Types whose lists have wire forms of their own (bytes, pairs)
    /// override it.
    ///
    /// # Errors
    /// As [`from_reply`](Self::from_reply).
    #[doc(hidden)]
    fn list_from_reply(reply: Reply<'_, K>) -> Result<Vec<Self>, ConvertError> {
        from_aggregate::list(reply)
    }
}

/// A reply that does not suit the type that was asked for. Says what was expected and what came:
/// kinds and counts, never values.
#[derive(Clone, PartialEq, Eq)]
pub struct ConvertError(Box<Mismatch>);

#[derive(Clone, PartialEq, Eq)]
struct Mismatch {
    expected: Cow<'static, str>,
    came: Cow<'static, str>,
    kind: Kind,
    /// Innermost first.
    path: Vec<usize>,
    server: Option<ServerError>,
}

impl ConvertError {
    /// `expected` in words with an article ("an integer"); `frame` is what came.
    #[cold]
    pub fn new(expected: impl Into<Cow<'static, str>>, frame: &Frame<'_>) -> Self {
        let server = ServerError::from_frame(frame);
        let came = match &server {
            Some(error) => Cow::Owned(format!("the server error \"{error}\"")),
            None => Cow::Borrowed(frame.kind().words()),
        };
        let (expected, kind) = (expected.into(), frame.kind());
        ConvertError(Box::new(Mismatch { expected, came, kind, path: Vec::new(), server }))
    }

    /// As [`new`](Self::new), with what came in words: "an array of 3".
    #[cold]
    pub fn with_came(
        expected: impl Into<Cow<'static, str>>,
        came: impl Into<Cow<'static, str>>,
        frame: &Frame<'_>,
    ) -> Self {
        let mut error = ConvertError::new(expected, frame);
        error.0.came = came.into();
        error
    }

    /// Notes that it happened in element `index` of an aggregate.
    #[must_use]
    #[cold]
    pub fn in_element(mut self, index: usize) -> Self {
        self.0.path.push(index);
        self
    }

    /// What was expected, in words.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// What came, in words.
    pub fn came(&self) -> &str {
        &self.0.came
    }

    /// The kind of the frame that did not suit.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The server's error, when it was an error inside an aggregate that stood in the way.
    pub fn server_error(&self) -> Option<&ServerError> {
        self.0.server.as_ref()
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, but {} came", self.0.expected, self.0.came)?;
        for (depth, index) in self.0.path.iter().rev().enumerate() {
            f.write_str(if depth == 0 { " in element " } else { "." })?;
            write!(f, "{index}")?;
        }
        if self.0.kind == Kind::Null {
            f.write_str("; read what may be missing as an `Option`")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConvertError({self})")
    }
}

impl std::error::Error for ConvertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.server_error().map(|error| error as &(dyn std::error::Error + 'static))
    }
}
