//! The receiving half of a socket.
//!
//! A multishot receive fills blocks of the socket's own group. Bytes are handed to the handler in
//! place; what it does not consume waits in its block if the kernel goes on writing there
//! (incremental groups), and is moved into `spill` only when the block ends. A frame whose rest is
//! known to be long is received straight into one exact buffer. A socket that receives large frames
//! has only one block posted at a time, as long as the frames when they are alike: each then lands in
//! a block of its own, and the multishot (which ends when the group is empty) cannot run ahead into
//! blocks that would have to be copied together.
//!
//! ```text
//!   Multi --need is large--> Ending --final completion--> Exact --full--> Multi
//!     |  ^                     (its last bytes are copied into the exact buffer first)
//!     |  '-- re-arm: a completion without `more`, a group that was empty
//!     '----> Off (by request), Ended (end of stream, error)
//! ```

use std::ops::Range;

use bytes::Bytes;

use crate::buffer::{Block, LocalBytes, Pool, Slice};
use crate::op::{Completion, GroupId};

/// Blocks in a socket's group.
pub(crate) const BLOCKS: u16 = 8;
/// Smallest and largest block; sizes follow what the socket receives.
const BLOCK_MIN: usize = 16 << 10;
const BLOCK_MAX: usize = 256 << 10;
/// A frame that misses at least this much, and more than its block can still take, gets a buffer
/// of its own.
const EXACT_MIN: usize = 128 << 10;
/// An exact buffer first holds at most this, then grows with what has come, so that an announced
/// length alone reserves nothing.
const EXACT_FIRST: usize = 4 << 20;
/// Parts of a spill from this length on may share its memory.
const SPILL_SHARE_MIN: usize = 16 << 10;
/// Shows with only small frames in a row after which blocks shrink again.
const SHRINK_AFTER: u32 = 64;
/// A socket that receives frames of at least this length has one block posted at a time.
const LARGE_MIN: usize = 32 << 10;
/// Such a socket posts blocks of a whole frame up to this length.
const LARGE_BLOCK_MAX: usize = 4 << 20;
/// Where large frames differ in length, blocks are a quarter of one, within these limits, and what
/// a frame then misses is received into an exact buffer: only its head is copied.
const HEAD_MIN: usize = 16 << 10;
const HEAD_MAX: usize = 64 << 10;
/// Frames are alike when their lengths differ by no more than digits of a header do.
const ALIKE: usize = 64;
/// Shows without a large frame after which a socket is treated as one of small frames again.
const LARGE_UNTIL: u32 = 8;

/// What a handler did with the bytes it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes from the front that will not be shown again.
    pub consumed: usize,
    /// How many bytes beyond those shown are needed before anything more can be consumed; 0 if
    /// unknown.
    pub need: usize,
}

/// Received bytes, in front of a handler.
pub struct Rx {
    source: Source,
    at: usize,
    end: usize,
    may_slice: bool,
    copied: u64,
    /// The longest part that was kept or asked for, which the next blocks are sized by.
    longest: usize,
}

enum Source {
    Block(Block),
    Spill(Vec<u8>),
    /// A spill of which a part was kept: its memory is the user's too.
    Shared(Bytes),
}

impl Rx {
    /// All that was received and not yet consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Block(block) => block.bytes(self.at, self.end),
            Source::Spill(bytes) => &bytes[self.at..self.end],
            Source::Shared(bytes) => &bytes[self.at..self.end],
        }
    }

    /// Keeps a part of [`Rx::bytes`] for as long as the caller likes: a slice of the block if the
    /// part is at least a quarter of it (and the core may give away more), else a copy.
    ///
    /// # Panics
    /// If the range is not inside [`Rx::bytes`].
    pub fn keep(&mut self, range: Range<usize>) -> LocalBytes {
        let len = range.len();
        self.longest = self.longest.max(len);
        if let Source::Block(block) = &self.source
            && self.may_slice
            && len >= block.len() / 4
        {
            assert!(range.end <= self.end - self.at, "the range is not inside the bytes");
            let (at, end) = (self.at + range.start, self.at + range.end);
            return Slice::new(block.clone(), at, end).into();
        }
        if len >= SPILL_SHARE_MIN
            && let Some(part) = self.share_spill(range.clone())
        {
            return part;
        }
        self.copied += len as u64;
        LocalBytes::copy_from(&self.bytes()[range])
    }

    /// A part of the spill that is most of it: what was put together is not copied again.
    fn share_spill(&mut self, range: Range<usize>) -> Option<LocalBytes> {
        if let Source::Spill(bytes) = &mut self.source
            && range.len() >= bytes.capacity() / 2
        {
            self.source = Source::Shared(Bytes::from(std::mem::take(bytes)));
        }
        let Source::Shared(bytes) = &self.source else { return None };
        Some(bytes.slice(self.at + range.start..self.at + range.end).into())
    }

    /// Counts `n` bytes that the handler copied out by itself.
    #[inline]
    pub fn count_copy(&mut self, n: usize) {
        self.copied += n as u64;
    }
}

impl std::fmt::Debug for Rx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rx").field("len", &(self.end - self.at)).finish_non_exhaustive()
    }
}

/// Consumes received bytes; the closure that the core passes down.
pub(crate) type Consume<'a> = dyn FnMut(&mut Rx) -> Progress + 'a;

/// What the socket should do next with its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: a receive is under way, or none is wanted.
    Nothing,
    /// Queue a multishot receive.
    Arm,
    /// Cancel the multishot.
    Cancel,
    /// Receive this many bytes to this place.
    Exact(*mut u8, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No operation in the kernel, none wanted.
    Off,
    /// The multishot runs.
    Multi,
    /// The multishot was cancelled; its final completion is awaited.
    Ending,
    /// An exact receive runs.
    Exact,
    /// End of stream or error: no more bytes will come.
    Ended,
}

struct Posted {
    block: Block,
    /// How much of it was posted: a reserve may hold somewhat larger blocks.
    len: usize,
    /// Bytes that the kernel delivered into it so far. The offset is ours to track (trap 3).
    filled: usize,
}

/// Bytes of a block that the handler has seen and not consumed.
struct Waiting {
    index: u16,
    at: usize,
    end: usize,
}

/// A frame that is received into memory of its own.
struct Exact {
    block: Block,
    have: usize,
    /// Length of the whole frame as far as is known.
    total: usize,
}

pub(crate) struct Recv {
    group: GroupId,
    posted: Vec<Option<Posted>>,
    waiting: Option<Waiting>,
    spill: Vec<u8>,
    /// What the handler said it misses beyond the spill or the waiting bytes.
    need: usize,
    exact: Option<Exact>,
    /// The bytes being shown lie in an exact buffer.
    exact_shown: bool,
    state: State,
    /// Whether receiving is switched on.
    on: bool,
    /// How the stream ended while receiving was off: told after the bytes before it.
    end: Option<Option<i32>>,
    block_len: usize,
    small_run: u32,
    /// Length of the last large frame, while the socket receives such.
    large: Option<usize>,
    /// Indices that are not posted.
    unposted: Vec<u16>,
    incremental: bool,
    pub(crate) copied: u64,
}

impl Recv {
    pub(crate) fn new(group: GroupId, incremental: bool) -> Recv {
        Recv {
            group,
            posted: (0..BLOCKS).map(|_| None).collect(),
            waiting: None,
            spill: Vec::new(),
            need: 0,
            exact: None,
            exact_shown: false,
            state: State::Off,
            on: true,
            end: None,
            block_len: BLOCK_MIN,
            small_run: 0,
            large: None,
            unposted: (0..BLOCKS).rev().collect(),
            incremental,
            copied: 0,
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    /// Whether an operation of this half is in the kernel.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Multi | State::Ending | State::Exact)
    }

    /// The next buffer to post, with its memory; `None` when enough are posted.
    pub(crate) fn next_to_post(&mut self, pool: &Pool) -> Option<(u16, *mut u8, u32)> {
        let enough = self.exact.is_some() || self.unposted.len() < BLOCKS as usize;
        if self.large.is_some() && enough {
            return None;
        }
        let index = self.unposted.pop()?;
        let fits = self.block_len..=self.block_len + self.block_len / 4;
        let cell = &mut self.posted[index as usize];
        let block = match cell.take() {
            Some(p) if p.block.is_unkept() && fits.contains(&p.block.len()) => p.block,
            old => {
                if let Some(p) = old {
                    let_go(p.block);
                }
                pool.take(self.block_len)
            }
        };
        let memory = block.as_mut_ptr();
        *cell = Some(Posted { block, len: self.block_len, filled: 0 });
        Some((index, memory, self.block_len as u32))
    }

    /// Lets all blocks go; nothing of this half may be in the kernel any more.
    pub(crate) fn retire(&mut self) {
        let posted = self.posted.drain(..).flatten().map(|p| p.block);
        posted.chain(self.exact.take().map(|e| e.block)).for_each(let_go);
    }

    /// What should run next, if nothing does.
    pub(crate) fn start(&mut self, pool: &Pool) -> Next {
        if self.state != State::Off || !self.on {
            return Next::Nothing;
        }
        self.want_exact(pool);
        if self.exact.is_some() {
            return self.start_exact(pool);
        }
        self.state = State::Multi;
        Next::Arm
    }

    /// Switches receiving off; bytes that still come wait, and so does the end of the stream.
    pub(crate) fn pause(&mut self) -> Next {
        self.on = false;
        if self.state != State::Multi {
            return Next::Nothing;
        }
        self.state = State::Ending;
        Next::Cancel
    }

    /// Switches receiving on and shows what waited. `Err` is the end, as of `on_completion`.
    pub(crate) fn resume(
        &mut self,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> Result<Next, Option<i32>> {
        if !std::mem::replace(&mut self.on, true) {
            self.feed_exact(pool, consume);
            if self.exact.is_none() {
                self.show_spill(pool, consume);
                self.show_waiting(pool, consume);
            }
            if let Some(end) = self.end.take() {
                return Err(end);
            }
        }
        Ok(self.go_on(pool))
    }

    /// Takes one completion. `Err` is the end: `None` for an orderly one.
    pub(crate) fn on_completion(
        &mut self,
        c: &Completion,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> Result<Next, Option<i32>> {
        if self.state == State::Exact {
            return self.on_exact(c.result, pool, consume);
        }
        if c.result > 0
            && let Some(index) = c.buffer
        {
            self.on_chunk(index, c.result as usize, c.buffer_more, pool, consume);
        }
        if c.more {
            return Ok(self.go_on(pool));
        }
        // Any completion without `more` ends the multishot (traps 1 and 2): re-arm or close.
        // Everything consumed is posted again before the next arm, so an empty group was only
        // drained faster than we looked: arming at once cannot spin.
        self.state = State::Off;
        match c.result {
            0 => self.ended(None),
            n if n < 0 && !goes_on(n) => self.ended(Some(-n)),
            _ => Ok(self.start(pool)),
        }
    }

    fn ended(&mut self, errno: Option<i32>) -> Result<Next, Option<i32>> {
        self.state = State::Ended;
        if self.on {
            return Err(errno);
        }
        self.end = Some(errno);
        Ok(Next::Nothing)
    }

    fn on_chunk(
        &mut self,
        index: u16,
        n: usize,
        stays: bool,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) {
        let Some(Some(posted)) = self.posted.get_mut(index as usize) else { return };
        let (block, from) = (posted.block.clone(), posted.filled);
        posted.filled += n;
        let end = from + n;
        let mut at = self.top_up_exact(&block, from, end, pool, consume);
        if at < end {
            if let Some(w) = self.waiting.take() {
                if w.index == index && w.end == at {
                    at = w.at;
                } else {
                    self.move_to_spill(&w);
                }
            }
            if self.on {
                at = self.top_up_spill(&block, at, end, pool, consume);
                self.show(index, block.clone(), at, end, pool, consume);
            } else {
                self.keep_for_later(index, at, end);
            }
        }
        drop(block);
        if !stays {
            self.block_done(index);
        }
    }

    /// Receiving is off: nothing is shown, all is kept in order.
    fn keep_for_later(&mut self, index: u16, at: usize, end: usize) {
        if self.spill.is_empty() {
            self.waiting = Some(Waiting { index, at, end });
        } else {
            self.move_to_spill(&Waiting { index, at, end });
        }
    }

    /// The block is full (or not incremental): what waits in it moves, its index is posted anew.
    fn block_done(&mut self, index: u16) {
        if let Some(w) = self.waiting.take_if(|w| w.index == index) {
            self.move_to_spill(&w);
        }
        self.unposted.push(index);
    }

    fn move_to_spill(&mut self, w: &Waiting) {
        if let Some(Some(p)) = self.posted.get(w.index as usize) {
            // With room for what its frame still misses, so that it is not moved while it grows.
            self.spill.reserve(w.end - w.at + self.need.min(EXACT_MIN));
            self.spill.extend_from_slice(p.block.bytes(w.at, w.end));
            self.copied += (w.end - w.at) as u64;
        }
    }

    /// Fills the exact buffer, if there is one, from a chunk; returns where the rest begins.
    fn top_up_exact(
        &mut self,
        block: &Block,
        mut at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> usize {
        while let Some(exact) = self.exact.as_mut().filter(|e| at < end && e.have < e.total) {
            at += fill_exact(exact, block.bytes(at, end), pool, &mut self.copied);
            if self.on {
                self.deliver_exact(pool, consume);
            }
        }
        at
    }

    /// Appends to the spill what its frame needs, until it is consumed or the chunk is. A handler
    /// that only knows a small part of what it needs is asked at doubling lengths.
    fn top_up_spill(
        &mut self,
        block: &Block,
        mut at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> usize {
        let mut step = 1;
        while !self.spill.is_empty() && at < end {
            let n = self.need.max(step).min(end - at);
            self.spill.extend_from_slice(block.bytes(at, at + n));
            self.copied += n as u64;
            at += n;
            let before = self.spill.len();
            self.show_spill(pool, consume);
            step = if self.spill.len() < before { 1 } else { n.saturating_mul(2) };
        }
        at
    }

    fn show_spill(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        if self.spill.is_empty() {
            return;
        }
        let end = self.spill.len();
        let source = Source::Spill(std::mem::take(&mut self.spill));
        let (mut rx, progress) = self.call(source, 0, end, pool, consume);
        match &mut rx.source {
            Source::Spill(bytes) => {
                self.spill = std::mem::take(bytes);
                let consumed = progress.consumed.min(self.spill.len());
                self.spill.drain(..consumed);
            }
            Source::Shared(bytes) => {
                let rest = bytes.get(progress.consumed..).unwrap_or_default();
                self.spill.extend_from_slice(rest);
                self.copied += rest.len() as u64;
            }
            Source::Block(_) => {}
        }
    }

    fn show_waiting(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        let Some(w) = self.waiting.take() else { return };
        let Some(Some(p)) = self.posted.get(w.index as usize) else { return };
        let block = p.block.clone();
        let at = self.top_up_spill(&block, w.at, w.end, pool, consume);
        self.show(w.index, block, at, w.end, pool, consume);
    }

    fn show(
        &mut self,
        index: u16,
        block: Block,
        at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) {
        if at == end {
            return;
        }
        let (_, progress) = self.call(Source::Block(block), at, end, pool, consume);
        let at = (at + progress.consumed).min(end);
        if at < end {
            self.waiting = Some(Waiting { index, at, end });
        }
    }

    fn call(
        &mut self,
        source: Source,
        at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> (Rx, Progress) {
        // An exact buffer is no larger than what is kept of it: a copy would save nothing.
        let may_slice = match &source {
            Source::Block(b) => self.exact_shown || pool.may_give_away(b.len()),
            Source::Spill(_) | Source::Shared(_) => false,
        };
        let mut rx = Rx { source, at, end, may_slice, copied: 0, longest: 0 };
        let progress = consume(&mut rx);
        self.copied += rx.copied;
        self.need = progress.need;
        let left = (end - at).saturating_sub(progress.consumed);
        let frame = if progress.need > 0 { left.saturating_add(progress.need) } else { 0 };
        self.follow(rx.longest, rx.longest.max(frame));
        (rx, progress)
    }

    /// Follows what the socket receives: `whole` is the longest complete frame just shown (0 if none
    /// was worth keeping), `longest` counts an unfinished one too.
    fn follow(&mut self, whole: usize, longest: usize) {
        if longest >= LARGE_MIN {
            let alike = self.large.is_some_and(|last| last.abs_diff(longest) <= ALIKE);
            self.block_len = if alike && self.incremental && longest <= LARGE_BLOCK_MAX {
                longest
            } else {
                (longest / 4).clamp(HEAD_MIN, HEAD_MAX)
            };
            self.large = Some(longest);
            self.small_run = 0;
        } else if self.large.is_none() {
            self.size_blocks(longest);
        } else if whole < LARGE_MIN {
            self.small_run += 1;
            if self.small_run >= LARGE_UNTIL {
                self.large = None;
                self.small_run = 0;
                self.block_len = BLOCK_MIN;
            }
        }
    }

    /// Blocks hold about four of the longest frames seen lately, inside the two limits.
    fn size_blocks(&mut self, longest: usize) {
        let fit = (longest.min(BLOCK_MAX) * 4).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
        if fit > self.block_len {
            self.block_len = fit;
            self.small_run = 0;
        } else if fit < self.block_len {
            self.small_run += 1;
            if self.small_run >= SHRINK_AFTER {
                self.block_len /= 2;
                self.small_run = 0;
            }
        } else {
            self.small_run = 0;
        }
    }

    /// After bytes were shown: whether the unfinished frame goes on in memory of its own.
    fn go_on(&mut self, pool: &Pool) -> Next {
        if self.state != State::Multi {
            return self.start(pool);
        }
        self.want_exact(pool);
        if self.exact.is_none() {
            return Next::Nothing;
        }
        self.state = State::Ending;
        Next::Cancel
    }

    /// Begins an exact buffer if the unfinished frame misses much, and more than its block takes.
    fn want_exact(&mut self, pool: &Pool) {
        // Among large frames whatever misses is fetched by itself, however short: taken from the
        // next block it would set every frame after it askew. (1 is what is not known.)
        let least = if self.large.is_some() { 2 } else { EXACT_MIN };
        if self.exact.is_some() || self.need < least {
            return;
        }
        let (have, room) = match (&self.waiting, self.spill.len()) {
            (Some(w), 0) => {
                let block = self.posted.get(w.index as usize).and_then(Option::as_ref);
                let room = block.map_or(0, |p| p.len - p.filled);
                (w.end - w.at, if self.incremental { room } else { 0 })
            }
            (None, n) if n > 0 => (n, 0),
            _ => return,
        };
        if room < self.need {
            self.begin_exact(have, pool);
        }
    }

    fn begin_exact(&mut self, have: usize, pool: &Pool) {
        let total = have.saturating_add(self.need);
        let block = pool.take(total.min(have.max(EXACT_FIRST)));
        let mut exact = Exact { block, have: 0, total };
        if let Some(w) = self.waiting.take() {
            if let Some(Some(p)) = self.posted.get(w.index as usize) {
                fill_exact(&mut exact, p.block.bytes(w.at, w.end), pool, &mut self.copied);
            }
        } else {
            fill_exact(&mut exact, &self.spill, pool, &mut self.copied);
            self.spill.clear();
        }
        self.exact = Some(exact);
    }

    fn start_exact(&mut self, pool: &Pool) -> Next {
        let Some(exact) = self.exact.as_mut().filter(|e| e.have < e.total) else {
            return Next::Nothing;
        };
        grow_exact(exact, exact.have + 1, pool, &mut self.copied);
        let room = exact.block.len().min(exact.total) - exact.have;
        // SAFETY: `have` is inside the block (`fill_exact` and `on_exact` keep it so).
        let to = unsafe { exact.block.as_mut_ptr().add(exact.have) };
        self.state = State::Exact;
        Next::Exact(to, room.min(1 << 30) as u32)
    }

    fn on_exact(
        &mut self,
        result: i32,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> Result<Next, Option<i32>> {
        self.state = State::Off;
        match result {
            0 => return self.ended(None),
            n if n > 0 => {
                if let Some(exact) = &mut self.exact {
                    exact.have += n as usize;
                }
            }
            n if goes_on(n) => {}
            n => return self.ended(Some(-n)),
        }
        if self.on {
            self.deliver_exact(pool, consume);
        }
        Ok(self.start(pool))
    }

    /// Shows a complete exact buffer; what the handler leaves of it goes before the spill.
    fn deliver_exact(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        let Some(exact) = self.exact.take_if(|e| e.have >= e.total) else { return };
        let source = Source::Block(exact.block.clone());
        self.exact_shown = true;
        let (_, progress) = self.call(source, 0, exact.have, pool, consume);
        self.exact_shown = false;
        if progress.consumed == 0 && progress.need > 0 {
            // The frame turned out longer (an aggregate): go on in the same memory.
            let total = exact.have.saturating_add(progress.need);
            self.exact = Some(Exact { total, ..exact });
            return;
        }
        if progress.consumed < exact.have {
            let left = exact.block.bytes(progress.consumed, exact.have);
            self.copied += left.len() as u64;
            self.spill.splice(..0, left.iter().copied());
        }
        let_go(exact.block);
    }

    /// Shows an exact buffer that became complete while receiving was off, and fills it from what
    /// came after it as long as its frame turns out longer.
    fn feed_exact(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        loop {
            self.deliver_exact(pool, consume);
            let Some(exact) = &mut self.exact else { return };
            if !self.spill.is_empty() {
                let n = fill_exact(exact, &self.spill, pool, &mut self.copied);
                self.spill.drain(..n);
            } else if let Some(w) = &mut self.waiting
                && let Some(Some(p)) = self.posted.get(w.index as usize)
            {
                w.at += fill_exact(exact, p.block.bytes(w.at, w.end), pool, &mut self.copied);
                if w.at == w.end {
                    self.waiting = None;
                }
            } else {
                return;
            }
        }
    }
}

/// Results after which the stream goes on: the operation ended, not the connection. A cancel that
/// we did not ask for is the system's; arm again all the same.
fn goes_on(result: i32) -> bool {
    let over = [libc::ECANCELED, libc::ENOBUFS, libc::EINTR, libc::EAGAIN];
    over.contains(&result.saturating_neg())
}

/// Drops a hold; a block that users keep parts of counts as theirs from here on.
fn let_go(block: Block) {
    if !block.is_unkept() {
        block.give_away();
    }
}

/// Copies what the exact buffer still misses out of a chunk; returns how much that was.
fn fill_exact(exact: &mut Exact, bytes: &[u8], pool: &Pool, copied: &mut u64) -> usize {
    let n = (exact.total - exact.have).min(bytes.len());
    grow_exact(exact, exact.have + n, pool, copied);
    exact.have += exact.block.fill(exact.have, &bytes[..n]);
    *copied += n as u64;
    n
}

/// Makes room for `len` bytes: at least doubles, never beyond the frame.
fn grow_exact(exact: &mut Exact, len: usize, pool: &Pool, copied: &mut u64) {
    if len <= exact.block.len() {
        return;
    }
    let grown = pool.take(len.max(exact.block.len() * 2).min(exact.total.max(len)));
    grown.fill(0, exact.block.bytes(0, exact.have));
    *copied += exact.have as u64;
    let_go(std::mem::replace(&mut exact.block, grown));
}

#[cfg(test)]
mod tests;
