//! A checked frame in place.

use std::{borrow::Cow, fmt};

use super::{
    Kind,
    elements::{self, AttributeGroups, Attributes, Elements, Pairs},
    head::{Body, Head},
    number,
    scalar::{self, Extent},
};

/// A view over the bytes of one frame that a [`Decoder`](super::Decoder) has checked. `Copy`, 24
/// bytes, no allocation; aggregates are walked in place.
///
/// No method panics, whatever the bytes are: over bytes that no decoder has checked the answers are
/// unspecified, but they are answers.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    raw: &'a [u8],
    /// Where the value begins, after its attributes.
    value: u32,
    /// Bytes of the value before its payload or first element.
    header: u8,
    kind: Kind,
    form: Form,
}

/// How the value lies in its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// In one piece.
    Plain,
    /// A string in chunks.
    Chunks,
    /// An aggregate.
    Frames,
}

/// How a scalar without attributes lies in its bytes: two bytes that spare a second look at them.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    header: u8,
    kind: Kind,
}

impl Shape {
    /// Of no frame in particular.
    pub(crate) const NULL: Shape = Shape { header: 1, kind: Kind::Null };
}

impl<'a> Frame<'a> {
    /// The shape, if it is a scalar without attributes.
    #[inline(always)]
    pub(crate) fn shape(&self) -> Option<Shape> {
        let plain = self.form == Form::Plain && self.value == 0;
        plain.then_some(Shape { header: self.header, kind: self.kind })
    }

    /// The frame that has this shape.
    #[inline(always)]
    pub(crate) fn of_shape(raw: &'a [u8], shape: Shape) -> Frame<'a> {
        Frame { raw, value: 0, header: shape.header, kind: shape.kind, form: Form::Plain }
    }

    /// A view over `raw`, one whole frame that was checked before.
    #[inline]
    pub fn from_validated(raw: &'a [u8]) -> Frame<'a> {
        match scalar::whole(raw, usize::MAX, true) {
            Some(extent) if extent.len == raw.len() => Frame::scalar(raw, extent),
            _ => Frame::from_validated_slowly(raw),
        }
    }

    #[cold]
    fn from_validated_slowly(raw: &'a [u8]) -> Frame<'a> {
        Frame::at(raw, elements::attributes_end(raw))
    }

    /// A scalar without attributes.
    #[inline(always)]
    pub(super) fn scalar(raw: &'a [u8], extent: Extent) -> Frame<'a> {
        Frame { raw, value: 0, header: extent.header, kind: extent.kind, form: Form::Plain }
    }

    /// A frame whose value begins at `value`.
    pub(super) fn at(raw: &'a [u8], value: usize) -> Frame<'a> {
        let head = raw.get(value..).and_then(Head::parse);
        let parts = head.and_then(|head| {
            let header = u8::try_from(head.header()).ok()?;
            Some((u32::try_from(value).ok()?, header, head.kind?, head.body))
        });
        let Some((value, header, kind, body)) = parts else {
            return Frame { raw, value: 0, header: 1, kind: Kind::Null, form: Form::Plain };
        };
        let form = match body {
            Body::Line | Body::String(_) => Form::Plain,
            Body::Chunks => Form::Chunks,
            Body::Items(_) | Body::Stream => Form::Frames,
        };
        Frame { raw, value, header, kind, form }
    }

    /// All bytes of the frame, attributes included.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The type of the value.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that the frame takes on the wire, attributes included.
    #[inline]
    pub fn len_raw(&self) -> usize {
        self.raw.len()
    }

    /// The text of a scalar as sent: of a string or error without framing, of a verbatim string
    /// without its format, of a number its digits (a big number without a leading plus).
    ///
    /// Empty for nulls, for aggregates, and for a string streamed in more than one chunk: see
    /// [`text`](Self::text).
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        if self.form != Form::Plain {
            return self.single_chunk();
        }
        let start = self.value as usize + usize::from(self.header);
        self.raw.get(start..self.raw.len().saturating_sub(2)).unwrap_or_default()
    }

    /// [`payload`](Self::payload), with the chunks of a streamed string put together.
    #[inline(always)]
    pub fn text(&self) -> Cow<'a, [u8]> {
        if self.form != Form::Chunks {
            return Cow::Borrowed(self.payload());
        }
        self.joined()
    }

    #[cold]
    fn joined(&self) -> Cow<'a, [u8]> {
        let mut chunks = elements::Chunks::new(self.inner());
        match (chunks.next(), chunks.next()) {
            (Some(first), Some(second)) => {
                let mut text = [first, second].concat();
                chunks.for_each(|chunk| text.extend_from_slice(chunk));
                Cow::Owned(text)
            }
            (first, _) => Cow::Borrowed(first.unwrap_or_default()),
        }
    }

    /// The number of an [`Int`](Kind::Int).
    #[inline]
    pub fn int(&self) -> Option<i64> {
        if self.kind == Kind::Int { number::int(self.payload()) } else { None }
    }

    /// The number of a [`Double`](Kind::Double). What does not fit becomes an infinity.
    pub fn double(&self) -> Option<f64> {
        if self.kind == Kind::Double { number::double(self.payload()) } else { None }
    }

    /// The truth of a [`Bool`](Kind::Bool).
    pub fn bool(&self) -> Option<bool> {
        (self.kind == Kind::Bool).then(|| self.payload() == b"t")
    }

    /// The three letters in front of a [`Verbatim`](Kind::Verbatim) string, such as `txt`.
    pub fn format(&self) -> Option<[u8; 3]> {
        if self.kind != Kind::Verbatim {
            return None;
        }
        let end = self.value as usize + usize::from(self.header).checked_sub(1)?;
        self.raw.get(end.checked_sub(3)?..end)?.try_into().ok()
    }

    /// Whether it is a null, in any of the three forms.
    #[inline(always)]
    pub fn is_null(&self) -> bool {
        self.kind == Kind::Null
    }

    /// Whether it is an error of either form.
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        matches!(self.kind, Kind::Error | Kind::BulkError)
    }

    /// Whether it is out-of-band data.
    #[inline]
    pub fn is_push(&self) -> bool {
        self.kind == Kind::Push
    }

    /// The frames inside an aggregate; of a map: key, value, key, value. Empty for scalars.
    pub fn elements(&self) -> Elements<'a> {
        match self.body() {
            Some(Body::Items(due)) => Elements::counted(self.inner(), due),
            Some(Body::Stream) => Elements::streamed(self.inner()),
            _ => Elements::counted(&[], 0),
        }
    }

    /// The elements two by two: the entries of a map, or of a flat array as RESP2 sends maps. An odd
    /// last element is left out.
    pub fn pairs(&self) -> Pairs<'a> {
        Pairs::new(self.elements())
    }

    /// How many frames [`elements`](Self::elements) gives: a map's entry counts twice. One parse of
    /// the header, except for streamed aggregates, which are walked.
    pub fn count(&self) -> usize {
        match self.body() {
            Some(Body::Items(due)) => usize::try_from(due).unwrap_or(usize::MAX),
            Some(Body::Stream) => self.elements().count(),
            _ => 0,
        }
    }

    /// The entries of all attributes in front of the value, in wire order.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.attribute_groups())
    }

    /// The attributes in front of the value, one by one as sent.
    pub fn attribute_groups(&self) -> AttributeGroups<'a> {
        AttributeGroups::new(self.raw.get(..self.value as usize).unwrap_or_default())
    }

    /// The same value without its attributes.
    pub fn without_attributes(&self) -> Frame<'a> {
        let raw = self.raw.get(self.value as usize..).unwrap_or_default();
        Frame { raw, value: 0, ..*self }
    }

    fn body(&self) -> Option<Body> {
        if !self.kind.is_aggregate() {
            return None;
        }
        Some(Head::parse(self.raw.get(self.value as usize..)?)?.body)
    }

    /// What follows the header line.
    fn inner(&self) -> &'a [u8] {
        self.raw.get(self.value as usize + usize::from(self.header)..).unwrap_or_default()
    }

    #[cold]
    fn single_chunk(&self) -> &'a [u8] {
        match self.form {
            Form::Chunks => match self.text() {
                Cow::Borrowed(text) => text,
                Cow::Owned(_) => &[],
            },
            Form::Plain | Form::Frames => &[],
        }
    }
}

impl fmt::Debug for Frame<'_> {
    /// Kind and size only: replies may hold what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("kind", &self.kind).field("len_raw", &self.raw.len()).finish()
    }
}
