//! How a command is spread over the nodes of a cluster: pure functions of its bytes and the table.
//!
//! Keys decide first, then the servers' `request_policy` tips. A tip is not followed where the answer
//! of any one node will do, or where no rule makes one answer of several (see [`keyless`]).
//!
//! A command that is split is no longer atomic: its parts run on their nodes one by one, and some may
//! succeed where others fail. What promises more than its parts could keep (MSETNX, RENAME, SUNION,
//! MSETEX with a condition) is refused.
use super::args::{Args, Head};
use super::key_positions::Keys;
use super::merge::Merge;
use super::slot::slot_of;
use super::table::row::{Begin, Find, KeySpec};
use super::table::{Answer, Ask, Spec};
use super::words::Words;
use super::{Command, Flags, Refused, Said};
use crate::error::Error;
use std::marker::PhantomData;
use std::ops::Range;

/// How a command is spread over a cluster.
#[derive(Debug)]
pub(crate) enum Spread {
    /// As it is, to the node of this slot.
    Slot(u16),
    /// As it is, to any primary: it has no key.
    Any,
    /// Its keys lie in several slots: one command for each of them, by rising slot.
    Parts(Vec<Part>, Merge),
    /// As it is, to every primary.
    AllShards(Merge),
    /// As it is, to every node.
    AllNodes(Merge),
}

/// The share of one slot in a command.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) slot: u16,
    pub(crate) command: Command<()>,
    /// Which keys of the whole command it has, in order: 0 is the first.
    pub(crate) keys: Vec<u32>,
}

/// The slot of a command that has exactly one key, as nearly all have: all that [`spread`] would say of it.
#[inline]
pub(crate) fn slot_of_one<R>(command: &Command<R>) -> Option<u16> {
    if let Some(key) = command.only_key() {
        return Some(slot_of(key));
    }
    let spec = command.spec()?;
    if spec.has_one_key() { command.slot() } else { None }
}

/// Says how a command is spread. One walk over its words and no allocation, unless it is split.
///
/// # Errors
/// [`Refused`], if its keys lie in several slots and it cannot be split.
pub(crate) fn spread<R>(command: &Command<R>) -> Result<Spread, Error> {
    if let Some(slot) = slot_of_one(command) {
        return Ok(Spread::Slot(slot));
    }
    let Some(spec) = command.spec() else { return Ok(Spread::Any) };
    let mut slots = all_keys(command, spec).map(|range| slot_at(command, range));
    let Some(first) = slots.next() else { return Ok(keyless(spec)) };
    if slots.all(|slot| slot == first) {
        return Ok(Spread::Slot(first));
    }
    split(command, spec).map_err(|why| Error::from(why).with_command(Some(spec.name())))
}

fn all_keys<R>(command: &Command<R>, spec: Spec) -> Keys<'_> {
    Keys::new(Some(spec), command.bytes(), command.arg_count(), true)
}

fn slot_at<R>(command: &Command<R>, range: Range<usize>) -> u16 {
    slot_of(command.bytes().get(range).unwrap_or_default())
}

/// Where a command without keys goes: where its tip says, but for
///
/// - PING: whether one node lives is no news of the others, and a client watches each by itself;
/// - what alters or describes its connection (CLIENT SETNAME): the client has more of them to each
///   node, and prepares every one by its options;
/// - what has no rule to make one answer of several (INFO, RANDOMKEY, SCAN, FUNCTION STATS, the
///   reports of MEMORY and LATENCY): one node answers for itself.
#[cold]
fn keyless(spec: Spec) -> Spread {
    let of_one_connection = spec.flags().contains(Flags::CONNECTION_STATE) || spec.name() == "PING";
    if of_one_connection || spec.answer() == Answer::Special {
        return Spread::Any;
    }
    match spec.ask() {
        Ask::AllShards => Spread::AllShards(Merge::of_nodes(spec)),
        Ask::AllNodes => Spread::AllNodes(Merge::of_nodes(spec)),
        Ask::Default | Ask::MultiShard | Ask::Special => Spread::Any,
    }
}

/// How the words of a command that can be split lie: a head, units of a key and what belongs to it,
/// and a tail for all of them.
#[derive(Clone, Copy)]
struct Layout {
    /// Words before the first key.
    head: usize,
    /// Words of a unit.
    unit: usize,
    /// The position of the word that counts the units.
    count: Option<usize>,
}

impl Layout {
    /// `None` for a command whose keys lie in another way, which no tip says of one to be split.
    fn of(spec: Spec) -> Option<Layout> {
        let [KeySpec { begin: Begin::Index(begin), find, channel: false }] = spec.row().keys else {
            return None;
        };
        let begin = usize::from(*begin);
        match *find {
            Find::Range { last: -1, step, limit: 0 | 1 } => {
                Some(Layout { head: begin, unit: usize::from(step), count: None })
            }
            Find::Counted { count, first, step } => Some(Layout {
                head: begin + usize::from(first),
                unit: usize::from(step),
                count: Some(begin + usize::from(count)),
            }),
            Find::Range { .. } => None,
        }
    }
}

/// One command for each slot.
#[cold]
fn split<R>(command: &Command<R>, spec: Spec) -> Result<Spread, Refused> {
    let refused = Refused::CrossSlot { name: spec.name() };
    let layout = match Layout::of(spec) {
        Some(layout) if spec.ask() == Ask::MultiShard => layout,
        _ => return Err(refused),
    };
    let whole = Whole::of(command, spec, layout);
    if whole.tail().iter().any(|word| is_condition(word)) {
        return Err(refused);
    }
    let mut keys: Vec<(u16, u32)> = (0u32..)
        .zip(all_keys(command, spec))
        .map(|(key, range)| (slot_at(command, range), key))
        .collect();
    // Stable: the keys of a slot keep their order.
    keys.sort_by_key(|(slot, _)| *slot);
    let parts = keys.chunk_by(|a, b| a.0 == b.0).map(|share| whole.part(share));
    let parts = parts.collect::<Option<Vec<Part>>>();
    let parts = parts.ok_or(Refused::Unpaired { name: spec.name() })?;
    Ok(Spread::Parts(parts, Merge::of_keys(spec, whole.keys as u32)))
}

/// Whether a word of the tail asks something of all keys together, which no part can judge.
fn is_condition(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"NX") || word.eq_ignore_ascii_case(b"XX")
}

/// A command that is to be split.
struct Whole<'a> {
    said: &'a Said,
    spec: Spec,
    layout: Layout,
    words: Vec<&'a [u8]>,
    keys: usize,
}

impl<'a> Whole<'a> {
    fn of<R>(command: &'a Command<R>, spec: Spec, layout: Layout) -> Whole<'a> {
        let bytes = command.bytes();
        let words = Words::of(bytes).filter_map(|range| bytes.get(range)).collect();
        Whole { said: &command.said, spec, layout, words, keys: all_keys(command, spec).count() }
    }

    /// The words after the last unit.
    fn tail(&self) -> &[&'a [u8]] {
        self.words.get(self.unit_start(self.keys)..).unwrap_or_default()
    }

    fn unit_start(&self, key: usize) -> usize {
        self.layout.head.saturating_add(key.saturating_mul(self.layout.unit))
    }

    /// The command of one slot's keys; `None` if one of them lacks its value.
    fn part(&self, share: &[(u16, u32)]) -> Option<Part> {
        let (slot, _) = *share.first()?;
        // With the table's row, so that the part is as plain as the whole, but the name as it came.
        let mut args = Args::start(Head::new(self.spec.index(), 0, b"*0\r\n"));
        for (position, word) in self.words.get(..self.layout.head)?.iter().enumerate() {
            if self.layout.count == Some(position) {
                args.uint(share.len() as u64);
            } else {
                args.bulk(word);
            }
        }
        for (_, key) in share {
            let start = self.unit_start(*key as usize);
            let unit = self.words.get(start..start.checked_add(self.layout.unit)?)?;
            unit.iter().for_each(|word| args.bulk(word));
        }
        self.tail().iter().for_each(|word| args.bulk(word));
        args.finish();
        let Said { category, raw, .. } = *self.said;
        let command = Command { said: Said { args, category, raw }, reply: PhantomData };
        Some(Part { slot, command, keys: share.iter().map(|(_, key)| *key).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Head;
    use super::super::merge::Piece;
    use super::super::{raw, retry::Category};
    use super::*;
    use crate::error::{ErrorKind, Fate};
    use crate::resp::{Decoder, FromReply, Limits, Protocol, Reply, Step, Value, encode};
    use std::collections::BTreeMap;

    fn command(line: &str) -> Command<()> {
        raw("").args(line.split(' ').collect::<Vec<_>>()).build()
    }

    fn words(command: &Command<()>) -> Vec<&[u8]> {
        Words::of(command.bytes()).filter_map(|range| command.bytes().get(range)).collect()
    }

    fn line(command: &Command<()>) -> String {
        String::from_utf8_lossy(&words(command).join(&b' ')).into_owned()
    }

    /// Fails if the key that a command knows from how it was written is not the one that its words
    /// show, for any row of the table and any number of words.
    #[test]
    fn the_only_key_is_where_the_words_have_it() {
        let mut known = 0;
        for spec in Spec::all() {
            let name: Vec<&str> = spec.name().split(' ').collect();
            let bulks: String = name.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
            let bytes: &'static [u8] = format!("*0\r\n{bulks}").leak().as_bytes();
            let head = Head::new(spec.index(), name.len() as u8, bytes);
            for count in 0..20 {
                let command: Command<()> = Command::build(head, |args| {
                    (0..count).for_each(|n| args.bulk(format!("{{tag{n}}}word").as_bytes()));
                });
                let Some(key) = command.only_key() else { continue };
                let keys: Vec<_> = all_keys(&command, spec).collect();
                let shown = keys.first().and_then(|range| command.bytes().get(range.clone()));
                assert_eq!(Some(key), shown, "{} with {count} words", spec.name());
                assert_eq!(keys.len(), 1, "{}", spec.name());
                assert_eq!(slot_of_one(&command), command.slot(), "{}", spec.name());
                known += 1;
            }
        }
        assert!(known > 1_000, "{known}");
    }

    /// The parts of a command that must be split, as text, and their keys.
    fn parts(text: &str) -> Vec<(String, Vec<u32>)> {
        let Ok(Spread::Parts(parts, _)) = spread(&command(text)) else { panic!("{text} is whole") };
        for part in &parts {
            assert_eq!(part.command.slot(), Some(part.slot), "{text}");
            assert!(matches!(spread(&part.command), Ok(Spread::Slot(at)) if at == part.slot));
            assert!(part.command.is_plain() && part.command.spec() == command(text).spec());
        }
        parts.into_iter().map(|part| (line(&part.command), part.keys)).collect()
    }

    /// Fails if a command whose keys share a slot is not sent whole to that slot.
    #[test]
    fn one_slot_is_no_split() {
        for text in [
            "GET a",
            "MGET a",
            "MGET {t}a {t}b {t}a",
            "mset {t}a 1 {t}b 2",
            "RENAME {t}a {t}b",
            "ZUNIONSTORE {t}d 2 {t}a {t}b",
            "EVAL s 2 {t}a {t}b other",
            "XREAD STREAMS {t}a {t}b 0 0",
            "SORT {t}a STORE {t}b",
            "MIGRATE h 1  0 9 KEYS {t}a {t}b",
            "SPUBLISH c m",
            "SSUBSCRIBE {t}a {t}b",
        ] {
            let command = command(text);
            let slot = command.slot().expect("a slot");
            assert!(matches!(spread(&command), Ok(Spread::Slot(at)) if at == slot), "{text}");
        }
    }

    /// Fails if a key is lost, doubled, out of order or in a part of another slot, or if what belongs
    /// to it goes elsewhere. The slots of a, b and c are 15495, 3300 and 7365.
    #[test]
    fn keys_go_to_their_slots() {
        let part = |text: &str, keys: &[u32]| (text.to_owned(), keys.to_vec());
        assert_eq!(
            parts("MGET a b {a}1 a c b"),
            [part("MGET b b", &[1, 5]), part("MGET c", &[4]), part("MGET a {a}1 a", &[0, 2, 3])]
        );
        assert_eq!(
            parts("mset a 1 b 2 {a}1 3"),
            [part("mset b 2", &[1]), part("mset a 1 {a}1 3", &[0, 2])]
        );
        assert_eq!(
            parts("MSETEX 3 a 1 b 2 {a}1 3 EX 9"),
            [part("MSETEX 1 b 2 EX 9", &[1]), part("MSETEX 2 a 1 {a}1 3 EX 9", &[0, 2])]
        );
        let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let all = parts(&format!("DEL {}", keys.join(" ")));
        assert_eq!(all.iter().map(|(_, keys)| keys.len()).sum::<usize>(), 100);
    }

    /// Fails if a part may be run again, or is refused, where the whole is not, or the reverse.
    #[test]
    fn a_part_is_what_the_whole_is() {
        for whole in [command("MSET a 1 b 2"), command("DEL a b").with_category(Category::Never)] {
            let Ok(Spread::Parts(parts, _)) = spread(&whole) else { panic!("{whole:?} is whole") };
            for part in parts {
                assert_eq!(part.command.category(), whole.category(), "{whole:?}");
                assert_eq!(part.command.check(false), Ok(()), "{whole:?}");
            }
        }
    }

    /// Fails if a command that cannot be split is, or if its refusal does not say why, what would
    /// be right and that nothing was sent, or shows a key.
    #[test]
    fn what_cannot_be_split_is_refused() {
        for (name, args) in [
            ("MSETNX", "secret1 1 secret2 2"),
            ("MSETEX", "2 secret1 1 secret2 2 NX"),
            ("MSETEX", "2 secret1 1 secret2 2 EX 9 xx"),
            ("RENAME", "secret1 secret2"),
            ("SUNION", "secret1 secret2"),
            ("SINTERCARD", "2 secret1 secret2"),
            ("EVAL", "s 2 secret1 secret2"),
            ("XREAD", "STREAMS secret1 secret2 0 0"),
            ("SORT", "secret1 STORE secret2"),
            ("PFCOUNT", "secret1 secret2"),
            ("SSUBSCRIBE", "secret1 secret2"),
        ] {
            let error = spread(&command(&format!("{name} {args}"))).expect_err(name);
            assert_eq!((error.kind(), error.fate()), (ErrorKind::Refused, Fate::NotSent));
            let text = error.to_string();
            assert!(text.starts_with(name) && text.contains("CROSSSLOT"), "{text}");
            assert!(text.contains("hash tag") && text.contains("{tag}a"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    /// Fails if a command that the server would refuse as a whole is run in part.
    #[test]
    fn a_key_without_a_value_is_refused() {
        let error = spread(&command("MSET a 1 b")).expect_err("half a pair");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Refused, Fate::NotSent));
        assert_eq!(error.to_string(), "MSET takes a value for each key, and the last key has none");
        // A count that the words belie finds no keys, and the server says what is wrong.
        assert!(matches!(spread(&command("MSETEX 9 a 1 b 2")), Ok(Spread::Any)));
    }

    fn way(text: &str) -> &'static str {
        let command = command(text);
        // Whose replies are merged is told by the error of a merge of none.
        let named = |merge: Merge| {
            let none = merge.merge(&[]).expect_err("no piece");
            assert_eq!(none.command(), command.name());
        };
        match spread(&command) {
            Ok(Spread::Slot(_)) => "slot",
            Ok(Spread::Any) => "any",
            Ok(Spread::Parts(..)) => "parts",
            Ok(Spread::AllShards(merge)) => {
                named(merge);
                "shards"
            }
            Ok(Spread::AllNodes(merge)) => {
                named(merge);
                "nodes"
            }
            Err(_) => "refused",
        }
    }

    /// Fails if a command without keys asks more or fewer nodes than its answer is of.
    #[test]
    fn tips_say_where_a_command_without_keys_goes() {
        for text in ["DBSIZE", "KEYS *", "FLUSHALL", "FLUSHDB ASYNC", "SCRIPT EXISTS a b"] {
            assert_eq!(way(text), "shards", "{text}");
        }
        for text in
            ["SCRIPT KILL", "FUNCTION LOAD code", "FUNCTION FLUSH", "WAIT 1 0", "MEMORY PURGE"]
        {
            assert_eq!(way(text), "shards", "{text}");
        }
        for text in ["CONFIG SET a 1", "SCRIPT LOAD s", "SCRIPT FLUSH", "SLOWLOG LEN", "ACL SAVE"] {
            assert_eq!(way(text), "nodes", "{text}");
        }
        for text in
            ["PING", "ECHO a", "RANDOMKEY", "SCAN 0", "INFO", "MEMORY STATS", "LATENCY LATEST"]
        {
            assert_eq!(way(text), "any", "{text}");
        }
        for text in
            ["CLIENT SETNAME a", "TIME", "PUBLISH a b", "EVAL s 0", "DEL", "JSON.GET a", "", "NX"]
        {
            assert_eq!(way(text), "any", "{text}");
        }
    }

    /// Fails if a row's tip is not followed without a reason, if a command with keys goes elsewhere than
    /// to them, or if any words at all make it panic.
    #[test]
    fn every_row_goes_where_it_should() {
        let several = ["a", "1", "b", "2"];
        for spec in Spec::all() {
            let name = spec.name();
            for seed in 0..60usize {
                let pick = |n: usize| {
                    ["a", "b", "1", "2", "", "STORE", "KEYS", "9"][(seed * 7 + n * n) % 8]
                };
                let args: Vec<&str> = (0..seed % 9).map(pick).collect();
                let command = raw(name).args(args).build::<()>();
                let (keyed, spread) = (command.slot(), spread(&command));
                if matches!(command.check(true), Err(Refused::Arity { .. })) {
                    // Never sent, so wherever it would go.
                    continue;
                }
                match spread {
                    Ok(Spread::Slot(slot)) => assert_eq!(keyed, Some(slot), "{command:?}"),
                    Ok(Spread::Parts(parts, _)) => assert!(parts.len() > 1, "{command:?}"),
                    Ok(_) => assert_eq!(keyed, None, "{command:?}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{command:?}"),
                }
            }
            let counted = if name == "MSETEX" { &["2"][..] } else { &[] };
            let text = [&[name], counted, &several].concat().join(" ");
            match spec.ask() {
                Ask::MultiShard => assert_eq!(way(&text), "parts", "{name}"),
                _ => assert_ne!(way(&text), "parts", "{name}"),
            }
            // The reasons are those of `keyless`.
            let alone = spec.answer() == Answer::Special
                || name == "PING"
                || spec.flags().contains(Flags::CONNECTION_STATE);
            match spec.ask() {
                Ask::AllShards if !alone => assert_eq!(way(name), "shards", "{name}"),
                Ask::AllNodes if !alone => assert_eq!(way(name), "nodes", "{name}"),
                _ => assert_eq!(way(name), "any", "{name}"),
            }
        }
    }

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// What a server that holds `map` answers.
    fn answer(map: &mut Map, command: &Command<()>, protocol: Protocol) -> Vec<u8> {
        let mut out = Vec::new();
        let args = words(command).split_off(1);
        match command.name() {
            Some("MGET") => {
                encode::array_header(&mut out, args.len());
                for key in args {
                    match map.get(key) {
                        Some(value) => encode::bulk(&mut out, value),
                        None => encode::null(&mut out, protocol),
                    }
                }
            }
            Some("MSET") => {
                let (pairs, _) = args.as_chunks::<2>();
                map.extend(pairs.iter().map(|[key, value]| (key.to_vec(), value.to_vec())));
                encode::simple(&mut out, "OK");
            }
            Some("DEL" | "UNLINK") => {
                let gone = args.iter().filter(|key| map.remove(**key).is_some());
                encode::int(&mut out, gone.count() as i64);
            }
            _ => {
                let there = args.iter().filter(|key| map.contains_key(**key));
                encode::int(&mut out, there.count() as i64);
            }
        }
        out
    }

    fn value(raw: &[u8]) -> Value {
        let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
        let Ok(Step::Frame(frame)) = decoder.decode(raw) else { panic!("no frame: {raw:?}") };
        assert_eq!(frame.len_raw(), raw.len(), "one frame and no more");
        Value::from_reply(Reply::<bytes::Bytes>::new(frame, None)).expect("a value")
    }

    fn any_command(random: &mut fastrand::Rng) -> Command<()> {
        let name = ["MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH"][random.usize(..6)];
        let mut text = raw(name);
        for _ in 0..random.usize(1..12) {
            let key = random.u32(..30);
            text = text.arg(if key < 10 { format!("{{t}}{key}") } else { format!("k{key}") });
            if name == "MSET" {
                text = text.arg(random.u32(..1_000));
            }
        }
        text.build()
    }

    /// Proves split and merge together, on random commands. Fails if the parts of a command, each run by
    /// the node of its slot, leave other data or one other reply than the whole run by one node.
    #[test]
    fn the_parts_make_the_whole() {
        let mut split = 0;
        for seed in 0..if cfg!(miri) { 3 } else { 200 } {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut whole = Map::new();
            let mut nodes: BTreeMap<u16, Map> = BTreeMap::new();
            for _ in 0..40 {
                let command = any_command(&mut random);
                let due = answer(&mut whole, &command, Protocol::Resp3);
                let mut at = |slot: u16, command: &Command<()>| {
                    let protocol = if random.bool() { Protocol::Resp2 } else { Protocol::Resp3 };
                    answer(nodes.entry(slot).or_default(), command, protocol)
                };
                let came = match spread(&command).expect("a way") {
                    Spread::Slot(slot) => at(slot, &command),
                    Spread::Parts(parts, merge) => {
                        split += 1;
                        let replies: Vec<Vec<u8>> =
                            parts.iter().map(|part| at(part.slot, &part.command)).collect();
                        let pieces = parts.iter().zip(&replies);
                        let pieces = pieces.map(|(part, raw)| Piece { raw, keys: &part.keys });
                        merge.merge(&pieces.collect::<Vec<_>>()).expect("one reply")
                    }
                    other => panic!("{command:?} has keys, but goes to {other:?}"),
                };
                assert_eq!(value(&came), value(&due), "seed {seed}: {}", line(&command));
            }
            let joined: Map = nodes.into_values().flatten().collect();
            assert_eq!(joined, whole, "seed {seed}");
        }
        assert!(split > 50, "only {split} commands were split");
    }
}
