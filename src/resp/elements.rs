//! Walking checked bytes in place: no allocation (but for streams nested deeper than eight), no
//! recursion, one look at each header.

use super::{
    Frame,
    head::{Body, Head},
    scalar,
    stack::Stack,
};

/// Stands for "up to the end mark" where a number of frames is due.
const STREAM: u64 = u64::MAX;

/// The frames inside an aggregate.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    due: u64,
}

impl<'a> Elements<'a> {
    pub(super) fn counted(rest: &'a [u8], due: u64) -> Self {
        Elements { rest, due }
    }

    pub(super) fn streamed(rest: &'a [u8]) -> Self {
        Elements { rest, due: STREAM }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Frame<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.due == 0 {
            return None;
        }
        let (frame, rest) = match split_scalar(self.rest) {
            Some(parts) => parts,
            None => split(self.rest)?,
        };
        self.rest = rest;
        if self.due != STREAM {
            self.due -= 1;
        }
        Some(frame)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An element is at least 3 bytes long, so no header can make a collection reserve much.
        let most = self.rest.len() / 3;
        if self.due == STREAM {
            return (0, Some(most));
        }
        let due = usize::try_from(self.due).unwrap_or(usize::MAX).min(most);
        (due, Some(due))
    }
}

/// Elements two by two.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    elements: Elements<'a>,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(elements: Elements<'a>) -> Self {
        Pairs { elements }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Frame<'a>, Frame<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.elements.next()?, self.elements.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (low, high) = self.elements.size_hint();
        (low / 2, high.map(|most| most / 2))
    }
}

/// The attributes in front of a value, one by one.
#[derive(Clone, Debug)]
pub struct AttributeGroups<'a> {
    rest: &'a [u8],
}

impl<'a> AttributeGroups<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        AttributeGroups { rest }
    }
}

impl<'a> Iterator for AttributeGroups<'a> {
    type Item = Pairs<'a>;

    fn next(&mut self) -> Option<Pairs<'a>> {
        let (inner, due, end) = attribute(self.rest)?;
        let pairs = Pairs::new(Elements::counted(self.rest.get(inner..)?, due));
        self.rest = self.rest.get(end..)?;
        Some(pairs)
    }
}

/// The entries of all attributes in front of a value.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    groups: AttributeGroups<'a>,
    group: Option<Pairs<'a>>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(groups: AttributeGroups<'a>) -> Self {
        Attributes { groups, group: None }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (Frame<'a>, Frame<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.group.as_mut().and_then(Iterator::next) {
                return Some(pair);
            }
            self.group = Some(self.groups.next()?);
        }
    }
}

/// The chunks of a streamed string, without the empty last one.
pub(super) struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Chunks { rest }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, len) = chunk(self.rest)?;
        if len == 0 {
            return None;
        }
        let end = line.checked_add(len)?;
        let text = self.rest.get(line..end)?;
        self.rest = self.rest.get(end.checked_add(2)?..)?;
        Some(text)
    }
}

/// Header line and payload length of the chunk at the start of `bytes`.
fn chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    let rest = bytes.strip_prefix(b";")?;
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let len = usize::try_from(super::number::length(rest.get(..end)?)?).ok()?;
    Some((end + 3, len))
}

/// Where a streamed string whose first chunk is at `at` ends.
pub(super) fn chunks_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let (line, len) = chunk(bytes.get(at..)?)?;
        at = at.checked_add(line)?;
        if len == 0 {
            return Some(at);
        }
        at = at.checked_add(len)?.checked_add(2)?;
    }
}

/// Where the attributes at the start of `bytes` end.
pub(super) fn attributes_end(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some((_, _, len)) = bytes.get(at..).and_then(attribute) {
        at += len;
    }
    at
}

/// First entry, frames due and end of the attribute at the start of `bytes`.
fn attribute(bytes: &[u8]) -> Option<(usize, u64, usize)> {
    if bytes.first() != Some(&b'|') {
        return None;
    }
    let head = Head::parse(bytes)?;
    let Body::Items(due) = head.body else { return None };
    Some((head.line, due, skip(bytes, head.line, due)?))
}

#[inline(always)]
fn split_scalar(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let extent = scalar::whole(bytes, usize::MAX, true)?;
    let (raw, rest) = bytes.split_at_checked(extent.len)?;
    Some((Frame::scalar(raw, extent), rest))
}

/// The frame at the start of `bytes` and what follows it; `None` at an end mark.
#[inline(never)]
fn split(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let value = attributes_end(bytes);
    if matches!(bytes.get(value), None | Some(b'.')) {
        return None;
    }
    let (raw, rest) = bytes.split_at_checked(skip(bytes, value, 1)?)?;
    Some((Frame::at(raw, value), rest))
}

/// Where `due` frames that begin at `at` end. One counter serves all counted levels together; only
/// streams need a stack.
fn skip(bytes: &[u8], mut at: usize, mut due: u64) -> Option<usize> {
    let mut outer = Stack::default();
    loop {
        while due == 0 {
            match outer.pop() {
                Some(rest) => due = rest,
                None => return Some(at),
            }
        }
        let rest = bytes.get(at..)?;
        if due == STREAM && rest.first() == Some(&b'.') {
            at = at.checked_add(3)?;
            due = outer.pop()?;
            continue;
        }
        let (len, inner, is_value) = step(rest)?;
        at = at.checked_add(len)?;
        if due != STREAM && is_value {
            due -= 1;
        }
        match inner {
            0 => {}
            STREAM => {
                outer.push(due);
                due = STREAM;
            }
            inner if due == STREAM => {
                outer.push(STREAM);
                due = inner;
            }
            inner => due = due.checked_add(inner).filter(|sum| *sum != STREAM)?,
        }
    }
}

/// One item: the bytes to go on by, the frames that it opens, and whether it counts as a value.
#[inline]
fn step(bytes: &[u8]) -> Option<(usize, u64, bool)> {
    if let Some(extent) = scalar::whole(bytes, usize::MAX, true) {
        return Some((extent.len, 0, true));
    }
    let head = Head::parse(bytes)?;
    let is_value = head.kind.is_some();
    match head.body {
        Body::Items(due) => Some((head.line, due, is_value)),
        Body::Stream => Some((head.line, STREAM, is_value)),
        _ => Some((head.scalar_len(bytes)?, 0, is_value)),
    }
}
