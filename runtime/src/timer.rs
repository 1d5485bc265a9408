//! Deadlines of one core: a hierarchical wheel with O(1) insert and cancel.
//!
//! Command timeouts and hedge delays are nearly always cancelled, so both ends of that life must
//! cost a few stores and no search. Time is cut into slices of 2^13 ns (8 us). A deadline is rounded
//! up to the next slice, so it never fires early and at most one slice late.
//!
//! Nine levels of 64 slices cover the whole 64-bit clock, so no deadline needs a list of its own for
//! the far future. A deadline lies on the level of the highest base-64 digit in which it differs from
//! the wheel's present slice: all of a lower level comes before all of a higher one, and within a
//! level the digits are in order. The earliest deadline is therefore two `trailing_zeros` away, and a
//! jump of the clock by days visits occupied slices only.

use crate::time::Instant;

/// log2 of a slice in nanoseconds: 8.192 us.
const SLICE_BITS: u32 = 13;
/// log2 of the slices of one level.
const LEVEL_BITS: u32 = 6;
/// Slices of one level.
const LEVEL_SIZE: usize = 1 << LEVEL_BITS;
/// Nine digits of six bits hold the 51 bits that a slice number can have.
const LEVELS: usize = 9;
/// End of a list.
const NIL: u32 = u32::MAX;
/// `Cell::home` of a cell that holds no deadline.
const FREE: u16 = u16::MAX;

/// Names one inserted deadline; stale once it has fired or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: u32,
    generation: u32,
}

/// One deadline, or a free cell whose `next` continues the free list.
#[derive(Clone, Copy, Debug)]
struct Cell<T> {
    item: T,
    /// Slice number at which it fires.
    at: u64,
    next: u32,
    prev: u32,
    generation: u32,
    /// `level * 64 + digit`, or `FREE`.
    home: u16,
}

/// The deadlines of one slice of one level, in order of insertion.
#[derive(Clone, Copy, Debug)]
struct Slice {
    head: u32,
    tail: u32,
    /// Not later than the earliest deadline in here; a cancel leaves it, because finding the next
    /// one would be a search.
    earliest: u64,
}

const EMPTY: Slice = Slice { head: NIL, tail: NIL, earliest: u64::MAX };

/// A timer wheel that hands back `T` when its deadline has come.
///
/// Allocates only while the number of deadlines held at once grows beyond its former peak.
///
/// ```
/// use hedgerow_runtime::{time::Instant, timer::Wheel};
/// use std::time::Duration;
///
/// let start = Instant::from_nanos(1_000_000_000);
/// let mut wheel = Wheel::new(start);
/// let key = wheel.insert(start + Duration::from_micros(200), "hedge");
/// wheel.insert(start + Duration::from_secs(2), "timeout");
/// assert_eq!(wheel.cancel(key), Some("hedge"));
///
/// let mut fired = Vec::new();
/// wheel.expire(start + Duration::from_secs(3), &mut fired);
/// assert_eq!(fired, ["timeout"]);
/// assert_eq!(wheel.next(), Instant::NEVER);
/// ```
#[derive(Debug)]
pub struct Wheel<T> {
    cells: Vec<Cell<T>>,
    free: u32,
    len: u32,
    /// Slice number of the latest time seen: all earlier deadlines have fired.
    cursor: u64,
    /// Bit l: level l holds something.
    levels: u16,
    /// Bit d of entry l: slice d of level l holds something.
    occupied: [u64; LEVELS],
    slices: Box<[Slice; LEVELS * LEVEL_SIZE]>,
}

impl<T: Copy> Wheel<T> {
    /// Granularity in nanoseconds: a deadline fires at most so much late (32,768).
    pub const RESOLUTION_NS: u64 = 1 << SLICE_BITS;

    /// An empty wheel whose time is `now`.
    pub fn new(now: Instant) -> Wheel<T> {
        Wheel {
            cells: Vec::new(),
            free: NIL,
            len: 0,
            cursor: now.as_nanos() >> SLICE_BITS,
            levels: 0,
            occupied: [0; LEVELS],
            slices: Box::new([EMPTY; LEVELS * LEVEL_SIZE]),
        }
    }

    /// How many deadlines are held.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no deadline is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hands `item` back from the first [`Wheel::expire`] at or after `at`. An instant that is past
    /// counts as now; [`Instant::NEVER`] is kept and never fires.
    pub fn insert(&mut self, at: Instant, item: T) -> TimerKey {
        let at = at.as_nanos().div_ceil(Self::RESOLUTION_NS).max(self.cursor);
        let index = self.take_cell(item, at);
        self.link(index);
        self.len += 1;
        TimerKey { index, generation: self.cells[index as usize].generation }
    }

    /// Takes a deadline out. `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let cell = *self.cells.get(key.index as usize)?;
        if cell.generation != key.generation || cell.home == FREE {
            return None;
        }
        self.unlink(cell);
        self.release(key.index);
        Some(cell.item)
    }

    /// When [`Wheel::expire`] is next worth calling: not later than the earliest deadline rounded up
    /// to its slice; [`Instant::NEVER`] when nothing is held.
    ///
    /// Exact unless an earlier neighbour of that deadline was cancelled; then it may be too early, and
    /// the call made there makes it exact. At most one such call for each level.
    pub fn next(&self) -> Instant {
        match self.first() {
            Some((home, _)) => instant(self.slices[home].earliest),
            None => Instant::NEVER,
        }
    }

    /// Appends all that is due at `now` to `out`, earliest slice first and in order of insertion
    /// within a slice.
    ///
    /// A `now` before one seen earlier counts as that one: the wheel's time does not go back.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<T>) {
        let target = (now.as_nanos() >> SLICE_BITS).max(self.cursor);
        while let Some((home, start)) = self.first() {
            if start > target {
                break;
            }
            // Nothing lies between the old cursor and `start`, so every other deadline keeps its
            // place: it still first differs from the cursor in the same digit.
            self.cursor = start;
            let head = self.take_slice(home);
            if home < LEVEL_SIZE { self.fire(head, out) } else { self.cascade(head) }
        }
        self.cursor = target;
    }

    /// The first occupied slice as its place and the slice number at which it starts.
    fn first(&self) -> Option<(usize, u64)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let digit = u64::from(self.occupied[level as usize].trailing_zeros());
        let shift = level * LEVEL_BITS;
        let above = shift + LEVEL_BITS;
        let start = (self.cursor >> above << above) | (digit << shift);
        Some((level as usize * LEVEL_SIZE + digit as usize, start))
    }

    /// Appends a whole list to `out` and frees its cells.
    fn fire(&mut self, mut index: u32, out: &mut Vec<T>) {
        while index != NIL {
            let cell = self.cells[index as usize];
            out.push(cell.item);
            self.release(index);
            index = cell.next;
        }
    }

    /// Spreads a list of a higher level over the lower ones.
    fn cascade(&mut self, mut index: u32) {
        while index != NIL {
            let next = self.cells[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    /// A cell for `item`, from the free list if it has one.
    fn take_cell(&mut self, item: T, at: u64) -> u32 {
        let index = self.free;
        if index == NIL {
            // Memory ends long before 2^32 cells do.
            let index = self.cells.len() as u32;
            self.cells.push(Cell { item, at, next: NIL, prev: NIL, generation: 0, home: FREE });
            return index;
        }
        let cell = &mut self.cells[index as usize];
        self.free = cell.next;
        (cell.item, cell.at) = (item, at);
        index
    }

    /// Gives a cell that is in no list back; its keys are stale from here on.
    fn release(&mut self, index: u32) {
        let cell = &mut self.cells[index as usize];
        cell.generation = cell.generation.wrapping_add(1);
        cell.home = FREE;
        cell.next = self.free;
        self.free = index;
        self.len -= 1;
    }

    /// Puts a cell at the end of the slice in which its deadline belongs.
    fn link(&mut self, index: u32) {
        let at = self.cells[index as usize].at;
        let (level, digit) = place(at, self.cursor);
        let home = level * LEVEL_SIZE + digit;
        let slice = &mut self.slices[home];
        let tail = slice.tail;
        slice.tail = index;
        slice.earliest = slice.earliest.min(at);
        if tail == NIL {
            slice.head = index;
            self.occupied[level] |= 1 << digit;
            self.levels |= 1 << level;
        } else {
            self.cells[tail as usize].next = index;
        }
        let cell = &mut self.cells[index as usize];
        (cell.prev, cell.next, cell.home) = (tail, NIL, home as u16);
    }

    /// Takes `cell` out of its list.
    fn unlink(&mut self, cell: Cell<T>) {
        let home = usize::from(cell.home);
        match cell.prev {
            NIL => self.slices[home].head = cell.next,
            prev => self.cells[prev as usize].next = cell.next,
        }
        match cell.next {
            NIL => self.slices[home].tail = cell.prev,
            next => self.cells[next as usize].prev = cell.prev,
        }
        if self.slices[home].head == NIL {
            self.take_slice(home);
        }
    }

    /// Empties a slice and returns the first cell of the list it had.
    fn take_slice(&mut self, home: usize) -> u32 {
        let (level, digit) = (home / LEVEL_SIZE, home % LEVEL_SIZE);
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        std::mem::replace(&mut self.slices[home], EMPTY).head
    }
}

/// Level and digit for slice number `at`, seen from `cursor`.
fn place(at: u64, cursor: u64) -> (usize, usize) {
    let differing = (at ^ cursor) | 1;
    let level = (63 - differing.leading_zeros()) / LEVEL_BITS;
    (level as usize, (at >> (level * LEVEL_BITS)) as usize % LEVEL_SIZE)
}

/// The start of a slice; the one that holds [`Instant::NEVER`] starts beyond the clock.
fn instant(slice: u64) -> Instant {
    Instant::from_nanos(slice.saturating_mul(1 << SLICE_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const SLICE_NS: u64 = 1 << SLICE_BITS;
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// What the wheel must do, done slowly: deadlines by (slice, order of insertion).
    #[derive(Default)]
    struct Model {
        held: BTreeMap<(u64, u64), u64>,
        latest: u64,
        order: u64,
    }

    impl Model {
        fn insert(&mut self, at: Instant, item: u64) -> (u64, u64) {
            self.order += 1;
            let key = (at.as_nanos().div_ceil(SLICE_NS).max(self.latest), self.order);
            self.held.insert(key, item);
            key
        }

        fn expire(&mut self, now: Instant) -> Vec<u64> {
            self.latest = self.latest.max(now.as_nanos() / SLICE_NS);
            let rest = self.held.split_off(&(self.latest + 1, 0));
            std::mem::replace(&mut self.held, rest).into_values().collect()
        }
    }

    fn delay(random: &mut fastrand::Rng) -> Duration {
        match random.u8(..10) {
            0 => Duration::ZERO,
            1..=4 => Duration::from_nanos(random.u64(..3_000_000)),
            5..=7 => Duration::from_millis(random.u64(..5_000)),
            8 => Duration::from_secs(random.u64(..40 * 3600)),
            _ => DAY * random.u32(..4000),
        }
    }

    /// Moves the clock: mostly a little, at times by days or a little back.
    fn step(random: &mut fastrand::Rng, now: Instant) -> Instant {
        match random.u8(..100) {
            0 => now + DAY * random.u32(1..10),
            1..=5 => Instant::from_nanos(now.as_nanos().saturating_sub(random.u64(..5_000_000))),
            6..=15 => now + Duration::from_millis(random.u64(..3_000)),
            _ => now + Duration::from_nanos(random.u64(..200_000)),
        }
    }

    /// One seed: the wheel and the model get the same operations and must agree.
    fn agree(seed: u64, steps: u32) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::from_nanos(random.u64(..1 << 50));
        let (mut wheel, mut model) = (Wheel::new(now), Model::default());
        model.latest = now.as_nanos() / SLICE_NS;
        let (mut keys, mut out) = (Vec::new(), Vec::new());
        for item in 0..u64::from(steps) {
            let at = now + delay(&mut random);
            keys.push((wheel.insert(at, item), model.insert(at, item)));
            while random.u8(..10) < 4 && !keys.is_empty() {
                let (key, twin) = keys.swap_remove(random.usize(..keys.len()));
                assert_eq!(wheel.cancel(key), model.held.remove(&twin), "seed {seed}");
                assert_eq!(wheel.cancel(key), None, "seed {seed}: a stale key");
            }
            let bound = wheel.next().as_nanos();
            match model.held.first_key_value() {
                Some((&(slice, _), _)) => assert!(bound <= slice * SLICE_NS, "seed {seed}"),
                None => assert_eq!(bound, u64::MAX, "seed {seed}"),
            }
            if random.bool() {
                now = step(&mut random, now);
                out.clear();
                wheel.expire(now, &mut out);
                assert_eq!(out, model.expire(now), "seed {seed}: what is due, in order");
            }
            assert_eq!(wheel.len(), model.held.len(), "seed {seed}");
        }
    }

    /// case behaviour/23, trap 11. Fails if the wheel and a sorted map ever disagree on what is due,
    /// over random inserts, cancels, clock jumps by days and small steps back.
    #[test]
    fn agrees_with_a_sorted_map() {
        let seeds = if cfg!(miri) { 2 } else { 400 };
        (0..seeds).for_each(|seed| agree(seed, if cfg!(miri) { 150 } else { 1_000 }));
    }

    /// Design section 5. Fails if a deadline fires early, or more than one slice (33 us) late, when the
    /// wheel is asked exactly at the instants it names.
    #[test]
    fn fires_within_one_slice() {
        let mut random = fastrand::Rng::with_seed(7);
        let start = Instant::from_nanos(123_456_789);
        let mut wheel = Wheel::new(start);
        for _ in 0..if cfg!(miri) { 50 } else { 5_000 } {
            let at = start + delay(&mut random);
            wheel.insert(at, at);
        }
        let (mut out, mut last, mut calls) = (Vec::new(), start, 0);
        while !wheel.is_empty() {
            let now = wheel.next();
            assert!(now >= last || last == start, "the bound goes back");
            wheel.expire(now, &mut out);
            for at in out.drain(..) {
                assert!(at <= now, "early");
                assert!(now.max(start).since(at).as_nanos() as u64 <= SLICE_NS, "late");
                assert!(at.as_nanos().div_ceil(SLICE_NS) >= last.as_nanos() / SLICE_NS, "order");
            }
            (last, calls) = (now, calls + 1);
            assert!(calls <= 5_000 * LEVELS, "too many calls that yield nothing");
        }
    }

    /// case behaviour/23. Fails if deadlines passed during a stop of days come out of order or twice.
    #[test]
    fn expires_in_order_after_a_stop() {
        let start = Instant::from_nanos(1);
        let mut wheel = Wheel::new(start);
        for hours in (0..100u32).rev() {
            wheel.insert(start + Duration::from_secs(3600) * hours, hours);
        }
        let mut out = Vec::new();
        wheel.expire(start + DAY * 30, &mut out);
        assert_eq!(out, (0..100).collect::<Vec<_>>());
        wheel.expire(start + DAY * 60, &mut out);
        assert_eq!(out.len(), 100);
    }

    /// case behaviour/23. Fails if a clock that steps back panics, fires early or hides what is due.
    #[test]
    fn time_does_not_go_back() {
        let start = Instant::from_nanos(10_000_000_000);
        let mut wheel = Wheel::new(start);
        let mut out = Vec::new();
        wheel.expire(start + Duration::from_secs(1), &mut out);
        wheel.expire(start, &mut out);
        wheel.insert(start, "past");
        wheel.insert(start + Duration::from_secs(2), "ahead");
        wheel.expire(Instant::ZERO, &mut out);
        assert_eq!(out, ["past"]);
        wheel.expire(start + Duration::from_secs(3), &mut out);
        assert_eq!(out, ["past", "ahead"]);
    }

    /// Design section 5. Fails if the ends of the clock overflow or `NEVER` fires.
    #[test]
    fn never_does_not_fire() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let key = wheel.insert(Instant::NEVER, 1);
        assert_eq!(wheel.next(), Instant::NEVER);
        let mut out = Vec::new();
        wheel.expire(Instant::NEVER, &mut out);
        assert!(out.is_empty());
        wheel.insert(Instant::NEVER, 2);
        assert_eq!(wheel.cancel(key), Some(1));
        assert_eq!(wheel.len(), 1);
    }

    /// Trap 11. Fails if a key of an earlier tenant cancels the deadline that has its cell now.
    #[test]
    fn a_stale_key_cancels_nothing() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let old = wheel.insert(Instant::from_nanos(5), 1);
        assert_eq!(wheel.cancel(old), Some(1));
        let new = wheel.insert(Instant::from_nanos(5), 2);
        assert_eq!(old.index, new.index);
        assert_eq!(wheel.cancel(old), None);
        assert_eq!(wheel.cancel(new), Some(2));
    }

    /// Design section 2, budget of the local road. Fails if a warm wheel takes new cells.
    #[test]
    fn a_warm_wheel_reuses_its_cells() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let mut out = Vec::with_capacity(8);
        for turn in 0..1_000u64 {
            let now = Instant::from_nanos(turn * 100_000);
            let keys = [1, 2, 3, 4].map(|n| wheel.insert(now + Duration::from_millis(n), n));
            keys.iter().take(3).for_each(|&key| _ = wheel.cancel(key));
            wheel.expire(now + Duration::from_secs(1), &mut out);
            out.clear();
            assert_eq!(wheel.cells.len(), 4);
        }
    }
}
