//! Reads of which more is known than their place in a connection: those that may be hedged, and those
//! from whose time a choice is learnt or that are traced.
//!
//! What most of them need is two words in their cell. Only a read whose hedge is on its way has a record
//! beside it, until the end of its last copy: the loser of a race may outlive the caller.

use std::collections::VecDeque;
use std::time::Duration;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::timer::Wheel;

use super::cell::{Cell, NO_RACE, State};
use super::{CellId, LinkId, ReadCopy};
use crate::error::Error;
use crate::read::{Choice, Ledger, Outcome, ReadFrom, Reads, Row, Tail, Weather};
use crate::route::Way;
use crate::topology::{Health, NodeIndex};

/// Hedges that wait for an answer to ROLE.
const AWAIT_ROLE_MAX: usize = 1024;

/// One of the copies of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    Original,
    Hedge,
}

/// What a cell remembers of a read that is learnt from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// When its original was queued.
    pub(super) at: Instant,
    pub(super) reads: Reads,
    /// Where the original went.
    node: NodeIndex,
    class: u8,
    /// A hedge to this link was granted, and goes out when the read's task comes by with the bytes.
    pub(super) granted: Option<LinkId>,
}

/// A copy on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) node: NodeIndex,
    pub(super) link: LinkId,
    /// Its place in the link's order of units.
    pub(super) ordinal: u64,
    pub(super) at: Instant,
}

/// A read with two copies.
pub(super) struct Race {
    pub(super) hedge: Sent,
    /// Bytes of a copy.
    len: u32,
    /// The original failed while its hedge was under way.
    failed: Option<Error>,
    /// How it ended is on the books.
    decided: bool,
    /// When the caller's reply came.
    won_at: Option<Instant>,
}

/// The last answered copies of reads.
#[derive(Default)]
struct Trace {
    copies: VecDeque<ReadCopy>,
    capacity: usize,
    dropped: u64,
}

impl Trace {
    fn add(&mut self, copy: ReadCopy) {
        if self.copies.len() >= self.capacity {
            self.copies.pop_front();
            self.dropped += 1;
        }
        self.copies.push_back(copy);
    }
}

/// The reads of an engine.
pub(super) struct Races {
    races: Vec<Race>,
    free: Vec<u32>,
    /// The decisions; `None` without hedging.
    pub(super) tail: Option<Tail>,
    pub(super) choice: Choice,
    /// Armed reads by the end of their delay. A delay that does not change makes a plain queue of them,
    /// which costs a read less than a timer; what would come before its end goes into the wheel.
    due: VecDeque<(Instant, CellId)>,
    /// Reads that ask again, or whose delay became shorter.
    again: Wheel<(CellId, bool)>,
    /// Reads whose hedge waits for what a node says of its role.
    pub(super) await_role: Vec<(CellId, bool)>,
    trace: Trace,
    /// Copies that lost while they were queued: they need not be sent.
    pub(super) lost: Vec<(LinkId, u64)>,
    /// What the guard says, if that has changed.
    pub(super) change: Option<Weather>,
}

impl Races {
    pub(super) fn new(tail: Option<Tail>, now: Instant) -> Races {
        Races {
            races: Vec::new(),
            free: Vec::new(),
            tail,
            choice: Choice::default(),
            due: VecDeque::new(),
            again: Wheel::new(now),
            await_role: Vec::new(),
            trace: Trace::default(),
            lost: Vec::new(),
            change: None,
        }
    }

    /// Whether the list of armed reads would have to grow for another one.
    #[inline]
    pub(super) fn is_due_full(&self) -> bool {
        self.due.len() == self.due.capacity()
    }

    /// Makes room in the list of armed reads: most that are on it were answered long before their delay's
    /// end. It grows only where those that were not would fill half of it.
    #[cold]
    pub(super) fn make_room(&mut self, mut is_over: impl FnMut(CellId) -> bool) {
        self.due.retain(|(_, id)| !is_over(*id));
        if self.due.len() * 2 >= self.due.capacity() {
            self.due.reserve(self.due.capacity() + 1);
        }
    }

    /// A read's original was queued. Answers whether a hedge may follow, which will need its bytes.
    #[inline]
    pub(super) fn begin<K>(
        &mut self,
        id: CellId,
        cell: &mut Cell<K>,
        way: &Way,
        node: NodeIndex,
        now: Instant,
    ) -> bool {
        let delay = match &mut self.tail {
            // The shard that said ASK has the key no more.
            Some(tail) if way.may_race && !way.is_primary() && !way.is_asking => {
                if way.again == 0 {
                    tail.on_read(now, way.class.into())
                } else {
                    // It earned its credit when it was sent the first time.
                    tail.delay(now, way.class.into())
                }
            }
            _ => None,
        };
        let learns = way.reads.from == ReadFrom::Quickest;
        if delay.is_none() && !learns && self.trace.capacity == 0 {
            return false;
        }
        if learns {
            self.choice.on_sent(cell.link.0 as usize);
        }
        let (reads, class) = (way.reads, way.class);
        cell.watch = Some(Watch { at: now, reads, node, class, granted: None });
        let Some(delay) = delay else { return false };
        let end = now + delay;
        match self.due.back() {
            Some((last, _)) if end < *last => _ = self.again.insert(end, (id, false)),
            _ => self.due.push_back((end, id)),
        }
        true
    }

    pub(super) fn get(&self, race: u32) -> Option<&Race> {
        self.races.get(race as usize)
    }

    /// When the next armed read has waited for its delay. `is_over` tells which need not wait any more.
    pub(super) fn next_due(&mut self, mut is_over: impl FnMut(CellId) -> bool) -> Instant {
        while self.due.front().is_some_and(|(_, id)| is_over(*id)) {
            self.due.pop_front();
        }
        self.due.front().map_or(Instant::NEVER, |(end, _)| *end).min(self.again.next())
    }

    /// An instant that is no later than the end of the delay of the read that was armed last.
    #[inline]
    pub(super) fn last_armed(&self) -> Instant {
        self.due.back().map_or(Instant::NEVER, |(end, _)| *end).min(self.again.next())
    }

    /// The end of the delay of the read that was armed last, if there is one on the list.
    #[inline]
    pub(super) fn newest_due(&self) -> Option<Instant> {
        self.due.back().map(|(end, _)| *end)
    }

    /// Takes the reads whose delay has passed at `now`; the flag says which asked before.
    pub(super) fn take_due(&mut self, now: Instant, due: &mut Vec<(CellId, bool)>) {
        while let Some((_, id)) = self.due.front().filter(|(end, _)| *end <= now) {
            due.push((*id, false));
            self.due.pop_front();
        }
        self.again.expire(now, due);
    }

    /// A read that found no credit asks again at `at`.
    pub(super) fn ask_again(&mut self, at: Instant, id: CellId) {
        self.again.insert(at, (id, true));
    }

    /// A read's hedge waits for the answer to ROLE; where too many do, the read goes the ordinary way.
    pub(super) fn await_role(&mut self, id: CellId, again: bool) {
        if self.await_role.len() < AWAIT_ROLE_MAX {
            self.await_role.push((id, again));
        }
    }

    /// A hedge was queued.
    pub(super) fn start<K>(&mut self, cell: &mut Cell<K>, hedge: Sent, len: usize) {
        let race = Race { hedge, len: len as u32, failed: None, decided: false, won_at: None };
        cell.race = match self.free.pop() {
            Some(index) => {
                self.races[index as usize] = race;
                index
            }
            None => {
                self.races.push(race);
                self.races.len() as u32 - 1
            }
        };
        cell.entries += 1;
        if cell.watch.is_some_and(|watch| watch.reads.from == ReadFrom::Quickest) {
            self.choice.on_sent(hedge.link.0 as usize);
        }
    }

    /// The hedge's place changed, as units before it were cut out.
    pub(super) fn move_hedge(&mut self, race: u32, to: u64) {
        if let Some(race) = self.races.get_mut(race as usize) {
            race.hedge.ordinal = to;
        }
    }

    /// Where and when a copy was sent.
    fn sent<K>(&self, cell: &Cell<K>, watch: &Watch, leg: Leg) -> Sent {
        match (leg, self.races.get(cell.race as usize)) {
            (Leg::Hedge, Some(race)) => race.hedge,
            _ => Sent { node: watch.node, link: cell.link, ordinal: cell.ordinal, at: watch.at },
        }
    }

    /// A copy was answered, with no error; its entry is off the cell's count already. If the cell is in
    /// flight this is the reply that the caller gets.
    #[inline]
    pub(super) fn answered<K>(&mut self, now: Instant, cell: &mut Cell<K>, leg: Leg, len: usize) {
        let Some(watch) = cell.watch else { return };
        let is_plain = cell.race == NO_RACE
            && watch.reads.from != ReadFrom::Quickest
            && self.trace.capacity == 0
            && watch.granted.is_none();
        if !is_plain {
            return self.answered_rarely(now, cell, watch, leg, len);
        }
        cell.watch = None;
        if let Some(tail) = &mut self.tail {
            let time = now.since(watch.at);
            tail.on_reply(now, watch.class.into(), watch.node.0 as usize, time);
        }
    }

    #[inline(never)]
    fn answered_rarely<K>(
        &mut self,
        now: Instant,
        cell: &mut Cell<K>,
        watch: Watch,
        leg: Leg,
        len: usize,
    ) {
        let wins = cell.state == State::InFlight;
        let sent = self.sent(cell, &watch, leg);
        let time = now.since(sent.at);
        if watch.reads.from == ReadFrom::Quickest {
            self.choice.on_reply(now, sent.link.0 as usize, time);
        }
        if self.trace.capacity > 0 {
            let (node, is_hedge) = (sent.node.0, leg == Leg::Hedge);
            self.trace.add(ReadCopy { node, at: sent.at, time, is_hedge, won: wins });
        }
        self.take_back(cell);
        let race = self.races.get_mut(cell.race as usize);
        // What only the primary may run says nothing of reads.
        let learns = watch.reads.from.uses_replicas();
        if let Some(tail) = self.tail.as_mut().filter(|_| learns) {
            tail.on_reply(now, watch.class.into(), sent.node.0 as usize, time);
            match (wins, race) {
                (_, None) => {}
                (true, Some(race)) => {
                    (race.won_at, race.decided) = (Some(now), true);
                    let won = leg == Leg::Hedge;
                    let outcome = if won { Outcome::Won } else { Outcome::Lost };
                    let change = tail.on_outcome(now, outcome);
                    self.change = change.or(self.change);
                    if cell.entries > 0 {
                        let (link, ordinal) = match won {
                            true => (cell.link, cell.ordinal),
                            false => (race.hedge.link, race.hedge.ordinal),
                        };
                        self.lost.push((link, ordinal));
                    }
                }
                (false, Some(race)) => {
                    let margin = race.won_at.filter(|_| leg == Leg::Original);
                    let margin = margin.map(|won_at| now.since(won_at));
                    tail.on_loser(u64::from(race.len) + len as u64, time, margin);
                }
            }
        }
        self.release_if_over(cell);
    }

    /// A copy will not be answered with success: an error reply, a lost connection. Answers what the
    /// request fails with, unless its other copy is still under way.
    pub(super) fn failed<K>(
        &mut self,
        now: Instant,
        cell: &mut Cell<K>,
        leg: Leg,
        error: Error,
    ) -> Option<Error> {
        let Some(watch) = cell.watch else { return Some(error) };
        let sent = self.sent(cell, &watch, leg);
        if watch.reads.from == ReadFrom::Quickest {
            self.choice.on_failure(now, sent.link.0 as usize);
        }
        self.take_back(cell);
        let race = self.races.get_mut(cell.race as usize);
        if cell.state != State::InFlight {
            // A loser, whose end nobody waits for.
            if let (Some(tail), Some(race)) = (&mut self.tail, race) {
                tail.on_loser(u64::from(race.len), now.since(sent.at), None);
            }
            self.release_if_over(cell);
            return None;
        }
        if cell.entries > 0 {
            if let (Leg::Original, Some(race)) = (leg, race) {
                race.failed = Some(error);
            }
            return None;
        }
        let error = race.and_then(|race| race.failed.take()).unwrap_or(error);
        self.decide(now, cell.race, Some(Outcome::BothFailed));
        self.release_if_over(cell);
        Some(error)
    }

    /// The request ends without a reply: by its deadline (both copies failed it), or as nobody waits for
    /// it any more. Its copies may still be under way.
    pub(super) fn end<K>(&mut self, now: Instant, cell: &mut Cell<K>, outcome: Option<Outcome>) {
        self.take_back(cell);
        self.give_up(now, cell);
        self.decide(now, cell.race, outcome);
        self.release_if_over(cell);
    }

    /// A hedge that was granted is not needed any more: its credit comes back.
    pub(super) fn take_back<K>(&mut self, cell: &mut Cell<K>) {
        if let (Some(watch), Some(tail)) = (&mut cell.watch, &mut self.tail)
            && watch.granted.take().is_some()
        {
            tail.on_unsent();
        }
    }

    /// The error of an original that failed while its hedge was under way.
    pub(super) fn take_failure(&mut self, race: u32) -> Option<Error> {
        self.races.get_mut(race as usize)?.failed.take()
    }

    /// What is known of the links whose replies nobody waits for any more.
    fn give_up<K>(&mut self, now: Instant, cell: &Cell<K>) {
        let Some(watch) = cell.watch.filter(|watch| watch.reads.from == ReadFrom::Quickest) else {
            return;
        };
        let race = self.races.get(cell.race as usize);
        let failed = race.is_some_and(|race| race.failed.is_some());
        let original = (!failed).then(|| self.sent(cell, &watch, Leg::Original));
        let hedge = race.map(|race| race.hedge).filter(|_| failed || cell.entries > 1);
        for sent in original.into_iter().chain(hedge) {
            self.choice.on_given_up(now, sent.link.0 as usize, now.since(sent.at));
        }
    }

    /// A queued copy was cut out; its entry is off the cell's count already.
    pub(super) fn cut<K>(&mut self, cell: &mut Cell<K>, link: LinkId) {
        if cell.watch.is_some_and(|watch| watch.reads.from == ReadFrom::Quickest) {
            self.choice.on_cut(link.0 as usize);
        }
        self.release_if_over(cell);
    }

    fn decide(&mut self, now: Instant, race: u32, outcome: Option<Outcome>) {
        let Some(race) = self.races.get_mut(race as usize) else { return };
        let open = !std::mem::replace(&mut race.decided, true);
        if let (true, Some(outcome), Some(tail)) = (open, outcome, &mut self.tail) {
            let change = tail.on_outcome(now, outcome);
            self.change = change.or(self.change);
        }
    }

    /// Forgets a read without any copy under way.
    #[inline]
    pub(super) fn release_if_over<K>(&mut self, cell: &mut Cell<K>) {
        if cell.entries > 0 {
            return;
        }
        cell.watch = None;
        if cell.race == NO_RACE {
            return;
        }
        if let Some(race) = self.races.get_mut(cell.race as usize) {
            race.failed = None;
            self.free.push(cell.race);
        }
        cell.race = NO_RACE;
    }

    /// The connection was replaced: what was learnt of it goes. It serves the reads of `shard`.
    pub(super) fn forget(&mut self, link: LinkId, node: NodeIndex, shard: NodeIndex) {
        self.choice.forget(link.0 as usize);
        self.choice.join(link.0 as usize, shard.0);
        if let Some(tail) = &mut self.tail {
            tail.forget(node.0 as usize);
        }
    }

    /// The connection was lost.
    pub(super) fn leave(&mut self, link: LinkId) {
        self.choice.leave(link.0 as usize);
    }

    /// A connection serves the reads of another shard from now on.
    pub(super) fn move_to(&mut self, link: LinkId, shard: NodeIndex) {
        self.choice.join(link.0 as usize, shard.0);
    }

    /// From now on there are so many links and nodes.
    pub(super) fn resize(&mut self, links: usize, nodes: usize) {
        self.choice.resize(links);
        if let Some(tail) = &mut self.tail {
            tail.resize(nodes);
        }
    }

    /// Takes over the latencies that all cores have seen.
    pub(super) fn publish(&mut self, health: &Health) {
        let Some(tail) = &mut self.tail else { return };
        for (class, row) in health.classes.iter().enumerate() {
            if let Some((at, row)) = row {
                tail.class_mut(class).publish(*at, *row);
            }
        }
    }

    /// What this engine has seen of a class of reads.
    pub(super) fn row(&self, class: usize) -> Option<(Instant, Row)> {
        let quantiles = self.tail.as_ref()?.class(class).quantiles();
        quantiles.row().map(|row| (quantiles.last(), row))
    }

    /// The delays of the classes of reads in force.
    pub(super) fn delays(&self, now: Instant) -> Option<[Duration; Way::CLASSES]> {
        let tail = self.tail.as_ref()?;
        Some(std::array::from_fn(|class| tail.class(class).delay(now)))
    }

    /// The books.
    pub(super) fn ledger(&self) -> Ledger {
        self.tail.as_ref().map(|tail| tail.ledger().clone()).unwrap_or_default()
    }

    /// What the guard says.
    pub(super) fn weather(&self) -> Weather {
        self.tail.as_ref().map_or(Weather::Clear, Tail::weather)
    }

    /// Whether answers are kept.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.trace.capacity > 0
    }

    pub(super) fn trace(&mut self, capacity: usize) {
        self.trace = Trace { capacity, ..Trace::default() };
    }

    pub(super) fn take_trace(&mut self) -> (Vec<ReadCopy>, u64) {
        let copies = self.trace.copies.drain(..).collect();
        (copies, std::mem::take(&mut self.trace.dropped))
    }
}
