//! What the clients of a run asked and got, and whether that fits what its server saw.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::runtime::time::Instant;
use hedgerow::testing::{ModelServer, Seen};
use hedgerow::{Error, Fate, LocalContext};

/// How a request ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// Nothing is known yet; so it stays for one whose future was dropped.
    Dropped,
    Value,
    Failed(Error),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// What its first argument begins with on the wire, unique in the run.
    pub(super) key: String,
    pub(super) name: &'static str,
    pub(super) by: Instant,
    pub(super) ended: Instant,
    pub(super) ending: Ending,
    /// Requests of one batch (0 is none) were first polled in the order of their entries.
    pub(super) batch: usize,
}

/// All requests of a run. Clones are the same books.
#[derive(Clone, Default)]
pub(super) struct Books(Rc<RefCell<Vec<Entry>>>);

impl Books {
    /// A number that no other request of the run has.
    pub(super) fn next(&self) -> usize {
        self.0.borrow().len()
    }

    pub(super) fn open(
        &self,
        core: &LocalContext,
        name: &'static str,
        key: String,
        limit: Duration,
        batch: usize,
    ) -> usize {
        let now = core.turn_now();
        let ending = Ending::Dropped;
        let entry = Entry { key, name, by: now + limit, ended: now, ending, batch };
        self.0.borrow_mut().push(entry);
        self.next() - 1
    }

    pub(super) fn close<T>(&self, at: usize, core: &LocalContext, outcome: &Result<T, Error>) {
        let entry = &mut self.0.borrow_mut()[at];
        entry.ended = core.turn_now();
        entry.ending = match outcome {
            Ok(_) => Ending::Value,
            Err(error) => Ending::Failed(error.clone()),
        };
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.0.borrow().clone()
    }

    /// Compares with what the server saw. `late`: how long after its deadline a request may end.
    /// `in_order`: whether batches must arrive as they were asked.
    pub(super) fn check(
        &self,
        server: &ModelServer,
        late: Duration,
        in_order: bool,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let seen = server.seen();
        let mut arrived: BTreeMap<(&str, String), Vec<&Seen>> = BTreeMap::new();
        for s in &seen {
            arrived.entry((&s.name, identity(&s.key))).or_default().push(s);
        }
        let partial = server.partial();
        let entries = self.entries();
        for entry in &entries {
            let there = arrived.get(&(entry.name, entry.key.clone())).map_or(&[][..], |v| v);
            if let Some(what) = check_entry(entry, there, &partial, late) {
                wrong.push(format!("{} {}: {what}; {:?}", entry.name, entry.key, entry.ending));
            }
        }
        if in_order {
            wrong.extend(out_of_order(&entries, &seen));
        }
        wrong
    }
}

/// The part of an argument that names its request: up to the second colon.
fn identity(argument: &[u8]) -> String {
    let text = String::from_utf8_lossy(argument);
    text.split(':').take(2).collect::<Vec<_>>().join(":")
}

fn check_entry(
    entry: &Entry,
    there: &[&Seen],
    partial: &[Vec<u8>],
    late: Duration,
) -> Option<String> {
    if there.len() > 1 {
        return Some(format!("sent {} times", there.len()));
    }
    if entry.ended > entry.by + late {
        return Some(format!("ended {:?} after its deadline", entry.ended.since(entry.by)));
    }
    let fate = match &entry.ending {
        Ending::Dropped => return None,
        Ending::Value => Fate::Answered,
        Ending::Failed(error) => error.fate(),
    };
    let begun = || {
        let key = format!("{}:", entry.key);
        let (key, bare) = (key.as_bytes(), entry.key.as_bytes());
        partial.iter().any(|p| {
            p.windows(key.len()).any(|w| w == key)
                || p.windows(bare.len() + 2).any(|w| w.starts_with(bare) && w.ends_with(b"\r\n"))
        })
    };
    match (fate, there.is_empty()) {
        (Fate::NotSent, false) => Some("is said not to be sent, and arrived".to_owned()),
        (Fate::NotSent, true) if begun() => Some("is said not to be sent, and began".to_owned()),
        (Fate::Answered, true) => Some("was answered, and never arrived".to_owned()),
        _ => None,
    }
}

/// Requests of one batch that arrived on one connection in another order.
fn out_of_order(entries: &[Entry], seen: &[Seen]) -> Vec<String> {
    let named = entries.iter().enumerate().map(|(at, e)| (format!("{} {}", e.name, e.key), at));
    let places: BTreeMap<String, usize> = named.collect();
    let mut last: BTreeMap<(u64, usize), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for s in seen {
        let name = format!("{} {}", s.name, identity(&s.key));
        let Some(at) = places.get(&name) else { continue };
        if entries[*at].batch == 0 {
            continue;
        }
        let before = last.insert((s.connection, entries[*at].batch), *at);
        if before.is_some_and(|before| before > *at) {
            wrong.push(format!("{} {} overtook another", s.name, entries[*at].key));
        }
    }
    wrong
}
