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
    /// The walk over the words so far, so that many keys cost one; `walked` is the position of its next.
    walk: Words<'a>,
    walked: u32,
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
        let (run, walk) = (Run::default(), Words::of(bytes));
        let mut keys =
            Keys { bytes, specs: specs.iter(), channels, words, run, extra: None, walk, walked: 0 };
        match spec.map(Spec::name) {
            Some("SORT") => keys.extra = sort_destination(bytes, words),
            Some("MIGRATE") => keys.choose_form(specs),
            _ => {}
        }
        keys
    }

    /// MIGRATE has its keys in one of two places, which the specifications give as both: after KEYS
    /// if the place of the only key is left empty.
    fn choose_form(&mut self, specs: &'static [KeySpec]) {
        self.specs = specs.get(..1).unwrap_or_default().iter();
        if self.word(3).is_none_or(|only| !only.is_empty()) {
            return;
        }
        let mut words = Words::of(self.bytes).enumerate().skip(6);
        while let Some((position, range)) = words.next() {
            let Some(word) = self.bytes.get(range) else { return };
            if word.eq_ignore_ascii_case(b"KEYS") {
                let last = self.words.saturating_sub(1);
                self.run = Run { at: position as u32 + 1, last, step: 1 };
                self.specs = [].iter();
                return;
            }
            // A password may be any word.
            if word.eq_ignore_ascii_case(b"AUTH") {
                words.next();
            } else if word.eq_ignore_ascii_case(b"AUTH2") {
                words.nth(1);
            }
        }
    }

    /// Where the word at a position is; quick where positions rise.
    fn place(&mut self, position: u32) -> Option<Range<usize>> {
        let skip = match position.checked_sub(self.walked) {
            Some(skip) => skip,
            None => {
                self.walk = Words::of(self.bytes);
                position
            }
        };
        self.walked = position.saturating_add(1);
        self.walk.nth(skip as usize)
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
                return self.place(at);
            }
            match self.specs.next() {
                Some(spec) => self.run = self.run_of(spec).unwrap_or_default(),
                None => return self.extra.take(),
            }
        }
    }
}

/// The key that no specification names: the destination of SORT, which is the last STORE's word.
fn sort_destination(bytes: &[u8], words: u32) -> Option<Range<usize>> {
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

#[cfg(test)]
mod tests {
    use crate::command::raw;

    fn keys(words: &[&str]) -> Vec<String> {
        let command = raw("").args(words).build::<()>();
        let text = |range| String::from_utf8_lossy(&command.bytes()[range]).into_owned();
        command.keys().map(text).collect()
    }

    fn keys_of(line: &str) -> String {
        keys(&line.split(' ').collect::<Vec<_>>()).join(" ")
    }

    /// Fails if one form of key specification is read wrong.
    #[test]
    fn each_form_of_specification_finds_its_keys() {
        assert_eq!(keys_of("GET a"), "a");
        assert_eq!(keys_of("MSET a 1 b 2"), "a b");
        assert_eq!(keys_of("BLPOP a b 0"), "a b");
        assert_eq!(keys_of("ZUNIONSTORE d 2 a b WEIGHTS 1 2"), "d a b");
        assert_eq!(keys_of("eval s 1 a b"), "a");
        assert_eq!(keys_of("XREAD COUNT 1 STREAMS a b 0 0"), "a b");
        assert_eq!(keys_of("XREADGROUP GROUP STREAMS c STREAMS a >"), "a");
        assert_eq!(keys_of("MIGRATE h 1 k 0 9 COPY"), "k");
        assert_eq!(keys_of("MIGRATE h 1  0 9 COPY AUTH keys KEYS a KEYS b"), "a KEYS b");
        assert_eq!(keys_of("MIGRATE h 1 k 0 9 KEYS a b"), "k");
        assert_eq!(keys_of("GEORADIUS k 0 0 1 m STORE d"), "k d");
        assert_eq!(keys_of("SORT k BY STORE GET x STORE a LIMIT 0 1 STORE b"), "k b");
        assert_eq!(keys_of("SPUBLISH c m"), "");
        assert_eq!(keys_of("PING"), "");
        assert_eq!(keys_of("MODULE.GET a"), "");
    }

    /// Fails if a count that is no count, or larger than the command, gives keys or does not end.
    #[test]
    fn counts_are_not_believed() {
        for count in ["0", "-1", "x", "", "3", "4294967295", "99999999999999999999"] {
            assert_eq!(keys(&["EVAL", "s", count, "a", "b"]), [""; 0], "{count:?}");
            assert_eq!(keys(&["MSETEX", count, "a", "b"]), [""; 0], "{count:?}");
        }
    }

    /// Fails if any words at all make a walk over a command panic or hang.
    #[test]
    fn no_words_can_break_the_walk() {
        let parts = [
            "",
            "0",
            "1",
            "2",
            "-1",
            "4294967295",
            "STREAMS",
            "KEYS",
            "STORE",
            "BLOCK",
            "FIELDS",
            "COUNT",
            "LIMIT",
            "GET",
            "NX",
            "a",
        ];
        for spec in super::Spec::all() {
            // Every command with a few hundred runs of words; the numbers are only a spread.
            for seed in 0..200usize {
                let pick = |n: usize| parts[(seed * 7 + n * 11 + seed * n) % parts.len()];
                let args: Vec<&str> = (0..seed % 9).map(pick).collect();
                let command = raw(spec.name()).args(args).build::<()>();
                let bytes = command.bytes().len();
                assert!(command.keys().all(|range| range.end < bytes), "{command:?}");
                let _ = (command.slot(), command.block(), command.category(), command.check(true));
            }
        }
    }
}
