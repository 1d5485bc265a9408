//! Scalars from replies.

use std::{borrow::Cow, str::FromStr, time::Duration};

use bytes::Bytes;

use super::{ConvertError, Frame, FromReply, Kept, Kind, Reply, from_aggregate, number};

/// The text of a frame that has one: strings, and numbers as sent.
#[inline(always)]
fn text<'a>(expected: &'static str, frame: &Frame<'a>) -> Result<Cow<'a, [u8]>, ConvertError> {
    match frame.kind() {
        Kind::Simple | Kind::Bulk | Kind::Verbatim | Kind::Int | Kind::Double | Kind::BigNumber => {
            Ok(frame.text())
        }
        _ => Err(ConvertError::new(expected, frame)),
    }
}

impl<K: Kept> FromReply<K> for () {
    const PLAIN: bool = true;

    /// Any answer but an error.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        match reply.frame().is_error() {
            true => Err(ConvertError::new("any answer", &reply.frame())),
            false => Ok(()),
        }
    }
}

impl<K: Kept> FromReply<K> for bool {
    const PLAIN: bool = true;

    /// A boolean, 0 or 1; OK is true and a null is false, as `SET key value NX` answers.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let frame = reply.frame();
        let truth = match frame.kind() {
            Kind::Bool => frame.bool(),
            Kind::Null => Some(false),
            Kind::Int | Kind::Simple | Kind::Bulk => match &*frame.text() {
                b"1" | b"OK" => Some(true),
                b"0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        truth.ok_or_else(|| match frame.kind() {
            Kind::Int => ConvertError::with_came("0 or 1", "another integer", &frame),
            _ => ConvertError::new("a boolean, 0 or 1", &frame),
        })
    }
}

/// The integers that a double holds exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn integer<T>(frame: &Frame<'_>, name: &'static str) -> Result<T, ConvertError>
where
    T: TryFrom<i64> + TryFrom<i128> + FromStr,
{
    let out_of_range =
        || ConvertError::with_came(format!("an integer that fits {name}"), "another one", frame);
    let whole = match frame.kind() {
        Kind::Int => frame.int().map(i128::from),
        Kind::Bool => frame.bool().map(i128::from),
        Kind::Double => frame
            .double()
            .filter(|number| number.fract() == 0.0 && number.abs() <= EXACT_MAX)
            .map(|number| number as i128),
        Kind::Bulk | Kind::Simple | Kind::BigNumber | Kind::Verbatim => {
            let text = frame.text();
            // `u128` reaches beyond `i128`, so the text is also tried as the type itself.
            let parsed = std::str::from_utf8(&text).ok().filter(|_| number::is_big(&text));
            match parsed.map(|text| (text.parse::<T>(), text)) {
                Some((Ok(value), _)) => return Ok(value),
                Some((Err(_), _)) => return Err(out_of_range()),
                None => None,
            }
        }
        _ => None,
    };
    let whole = whole.ok_or_else(|| match frame.kind() {
        // The kind is right: GET answers a number as a string too.
        Kind::Bulk | Kind::Simple | Kind::Verbatim => {
            ConvertError::with_came("an integer", "a string with other text", frame)
        }
        _ => ConvertError::new("an integer", frame),
    })?;
    T::try_from(whole).map_err(|_| out_of_range())
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl<K: Kept> FromReply<K> for $type {
            const PLAIN: bool = true;

            #[inline]
            fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
                let frame = reply.frame();
                if let Some(value) = frame.int().and_then(|int| <$type>::try_from(int).ok()) {
                    return Ok(value);
                }
                integer(&frame, stringify!($type))
            }
        }
    )*};
}

integers!(i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize);

impl<K: Kept> FromReply<K> for u8 {
    const PLAIN: bool = true;

    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        integer(&reply.frame(), "u8")
    }

    /// A list of `u8` is a string of bytes.
    fn list_from_reply(reply: Reply<'_, K>) -> Result<Vec<Self>, ConvertError> {
        if reply.frame().kind().is_aggregate() {
            return from_aggregate::list(reply);
        }
        Ok(text("a string", &reply.frame())?.into_owned())
    }
}

impl<K: Kept> FromReply<K> for f64 {
    const PLAIN: bool = true;

    /// A double, an integer, or a string that holds one, as RESP2 sends doubles.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let frame = reply.frame();
        let text = text("a number", &frame)?;
        number::double(&text)
            .ok_or_else(|| ConvertError::with_came("a number", "a string with other text", &frame))
    }
}

impl<K: Kept> FromReply<K> for f32 {
    const PLAIN: bool = true;

    /// As `f64`, rounded to the nearest.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        f64::from_reply(reply).map(|number| number as f32)
    }
}

impl<K: Kept> FromReply<K> for String {
    const PLAIN: bool = true;

    /// A string, or the text of a number; it must be UTF-8.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let frame = reply.frame();
        let text = text("a string", &frame)?.into_owned();
        String::from_utf8(text).map_err(|_| {
            ConvertError::with_came("a string of UTF-8", "a string of other bytes", &frame)
        })
    }
}

impl<K: Kept> FromReply<K> for Box<str> {
    /// As `String`.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        String::from_reply(reply).map(String::into_boxed_str)
    }
}

impl<K: Kept> FromReply<K> for Bytes {
    const PLAIN: bool = true;

    /// A string, or the text of a number. Large ones share the received memory.
    #[inline(always)]
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        match text("a string", &reply.frame())? {
            Cow::Borrowed(text) if reply.shares(text.len()) => Ok(reply.slice(text).into_bytes()),
            Cow::Borrowed(text) => Ok(Bytes::copy_from_slice(text)),
            Cow::Owned(text) => Ok(Bytes::from(text)),
        }
    }
}

impl<T: FromReply<K>, K: Kept> FromReply<K> for Option<T> {
    const PLAIN: bool = T::PLAIN;

    /// `None` for any of the three nulls.
    #[inline(always)]
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        if reply.frame().is_null() { Ok(None) } else { T::from_reply(reply).map(Some) }
    }
}

/// A length of time that the server sends in whole seconds. Negative answers, such as those of TTL
/// for a key without one, are no length of time and give an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(pub Duration);

/// A length of time that the server sends in whole milliseconds. See [`Seconds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub Duration);

impl<K: Kept> FromReply<K> for Seconds {
    const PLAIN: bool = true;

    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        u64::from_reply(reply).map(|count| Seconds(Duration::from_secs(count)))
    }
}

impl<K: Kept> FromReply<K> for Millis {
    const PLAIN: bool = true;

    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        u64::from_reply(reply).map(|count| Millis(Duration::from_millis(count)))
    }
}
