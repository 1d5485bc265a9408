//! Which words of a command are keys: the server's key specifications applied to its bytes.
use super::table::Spec;
use super::table::row::{Begin, Find, KeySpec};
use super::words::Words;
use std::ops::Range;

/// The positions of the keys (or channels) in a command's bytes, in the order of the server's
/// `COMMAND GETKEYS`.
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    bytes: &'a [u8],
    specs: std::slice::Iter<'static, KeySpec>,
    channels: bool,
    words: u32,
    run: Run,
    extra: Option<Range<usize>>,
}

/// Word positions still to be given: `at`, `at + step`, ... up to and including `last`.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    at: u32,
    last: u32,
    step: u32,
}

impl<'a> Keys<'a> {
    /// The keys of a command of `words` words; with `channels` also what is not a key but has a
    /// slot.
    pub(super) fn new(spec: Option<Spec>, bytes: &'a [u8], words: u32, channels: bool) -> Keys<'a> {
        let specs = spec.map_or(&[][..], |spec| spec.row().keys);
        let extra = spec.and_then(|spec| irregular(spec, bytes, words));
        Keys { bytes, specs: specs.iter(), channels, words, run: Run::default(), extra }
    }

    /// The word at a position.
    fn word(&self, position: u32) -> Option<&'a [u8]> {
        let range = Words::of(self.bytes).nth(position as usize)?;
        self.bytes.get(range)
    }

    /// Where the search of a specification begins.
    fn begin(&self, begin: Begin) -> Option<u32> {
        match begin {
            Begin::Index(index) => Some(u32::from(index)),
            Begin::Keyword(keyword, from) => self.after_keyword(keyword, from),
            Begin::Unknown => None,
        }
    }

    fn after_keyword(&self, keyword: &str, from: i16) -> Option<u32> {
        let is = |word: &[u8]| word.eq_ignore_ascii_case(keyword.as_bytes());
        let found = if from >= 0 {
            let from = usize::from(from.unsigned_abs());
            let mut words = Words::of(self.bytes).enumerate().skip(from);
            words.find(|(_, range)| self.bytes.get(range.clone()).is_some_and(is))?.0
        } else {
            let words = Words::of(self.bytes).enumerate().skip(1);
            let last = self.words.checked_sub(u32::from(from.unsigned_abs()))?;
            let words = words.take_while(|(position, _)| *position as u32 <= last);
            words.filter(|(_, range)| self.bytes.get(range.clone()).is_some_and(is)).last()?.0
        };
        u32::try_from(found + 1).ok()
    }

    /// The words that a specification finds; `None` if it finds nothing.
    fn run_of(&self, spec: &KeySpec) -> Option<Run> {
        if spec.channel && !self.channels {
            return None;
        }
        let begin = self.begin(spec.begin)?;
        match spec.find {
            Find::Range { last, step, limit } => {
                let last = self.range_end(begin, last, limit)?;
                Some(Run { at: begin, last, step: u32::from(step) })
            }
            Find::Counted { count, first, step } => {
                let count = self.word(begin.checked_add(u32::from(count))?)?;
                let count: u32 = std::str::from_utf8(count).ok()?.parse().ok()?;
                let (at, step) = (begin.checked_add(u32::from(first))?, u32::from(step));
                let last = count.checked_sub(1)?.checked_mul(step)?.checked_add(at)?;
                (last < self.words).then_some(Run { at, last, step })
            }
        }
    }

    fn range_end(&self, begin: u32, last: i16, limit: u16) -> Option<u32> {
        if last >= 0 {
            return begin.checked_add(u32::from(last.unsigned_abs()));
        }
        if limit > 1 {
            let part = self.words.checked_sub(begin)? / u32::from(limit);
            return (begin + part).checked_sub(1);
        }
        self.words.checked_sub(u32::from(last.unsigned_abs()))
    }
}

impl Iterator for Keys<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let Run { at, last, step } = self.run;
            if at != 0 && at <= last && at < self.words {
                // A step of 0 would never end.
                self.run.at = at.checked_add(step.max(1)).unwrap_or(0);
                return Words::of(self.bytes).nth(at as usize);
            }
            match self.specs.next() {
                Some(spec) => self.run = self.run_of(spec).unwrap_or_default(),
                None => return self.extra.take(),
            }
        }
    }
}

/// The key that no specification names: the destination of SORT, which is the last STORE's word.
fn irregular(spec: Spec, bytes: &[u8], words: u32) -> Option<Range<usize>> {
    if spec.name() != "SORT" {
        return None;
    }
    let mut all = Words::of(bytes).skip(2);
    let mut store = None;
    let mut position = 2u32;
    while let Some(range) = all.next() {
        let word = bytes.get(range)?;
        position += 1;
        let skip = |n: usize, all: &mut std::iter::Skip<Words<'_>>| (n > 0).then(|| all.nth(n - 1));
        if word.eq_ignore_ascii_case(b"LIMIT") {
            skip(2, &mut all);
            position += 2;
        } else if word.eq_ignore_ascii_case(b"BY") || word.eq_ignore_ascii_case(b"GET") {
            skip(1, &mut all);
            position += 1;
        } else if word.eq_ignore_ascii_case(b"STORE") && position < words {
            store = all.next();
            position += 1;
        }
    }
    store
}
