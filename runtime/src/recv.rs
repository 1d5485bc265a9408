//! The receiving half of a socket.
//!
//! A multishot receive fills blocks of the socket's own group. Bytes are handed to the handler in
//! place; what it does not consume waits in its block if the kernel goes on writing there
//! (incremental groups), and is moved into `spill` only when the block ends. A frame whose rest is
//! known to be long is received straight into one exact buffer:
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
/// Blocks with only small frames in a row after which blocks shrink again.
const SHRINK_AFTER: u32 = 64;

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
            let (at, end) = (self.at + range.start, self.at + range.end);
            assert!(end <= self.end);
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
    state: State,
    /// Whether receiving is switched on.
    on: bool,
    block_len: usize,
    small_run: u32,
    /// Indices to be posted again, with their blocks.
    pub(crate) to_post: Vec<u16>,
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
            state: State::Off,
            on: true,
            block_len: BLOCK_MIN,
            small_run: 0,
            to_post: (0..BLOCKS).collect(),
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

    /// The memory for buffer `index`, which is about to be posted.
    pub(crate) fn block_for(&mut self, index: u16, pool: &Pool) -> (*mut u8, u32) {
        let fits = self.block_len..=self.block_len + self.block_len / 4;
        let cell = &mut self.posted[index as usize];
        match cell.take() {
            Some(p) if p.block.is_unkept() && fits.contains(&p.block.len()) => {
                *cell = Some(Posted { block: p.block, filled: 0 })
            }
            old => {
                if let Some(p) = old
                    && !p.block.is_unkept()
                {
                    p.block.give_away();
                }
                *cell = Some(Posted { block: pool.take(self.block_len), filled: 0 });
            }
        }
        match cell {
            Some(p) => (p.block.as_mut_ptr(), p.block.len().min(u32::MAX as usize) as u32),
            None => (std::ptr::null_mut(), 0),
        }
    }

    /// Starts, or starts again, what should be running.
    pub(crate) fn start(&mut self) -> Next {
        if self.state == State::Off && self.on {
            self.state = State::Multi;
            return Next::Arm;
        }
        Next::Nothing
    }

    /// Switches receiving on or off; bytes already received wait.
    pub(crate) fn switch(&mut self, on: bool) -> Next {
        self.on = on;
        match self.state {
            State::Off if on => self.start(),
            State::Multi if !on => {
                self.state = State::Ending;
                Next::Cancel
            }
            _ => Next::Nothing,
        }
    }

    /// Shows waiting bytes again, after receiving was switched on.
    pub(crate) fn resume(&mut self, pool: &Pool, consume: &mut Consume<'_>) -> Next {
        if self.on && self.exact.is_none() {
            self.show_spill(pool, consume);
            self.show_waiting(pool, consume);
        }
        self.after_bytes(pool)
    }

    /// Takes one completion. `Err` is the end: `None` for an orderly one.
    pub(crate) fn on_completion(
        &mut self,
        c: &Completion,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> Result<Next, Option<i32>> {
        if self.state == State::Exact {
            return self.on_exact(c, pool, consume);
        }
        if c.result > 0
            && let Some(index) = c.buffer
        {
            self.on_chunk(index, c.result as usize, c.buffer_more, pool, consume);
        }
        if !c.more {
            return self.on_multi_ended(c.result, pool);
        }
        Ok(self.after_bytes(pool))
    }

    /// Any completion without `more` ends the multishot (traps 1 and 2): re-arm or close.
    fn on_multi_ended(&mut self, result: i32, pool: &Pool) -> Result<Next, Option<i32>> {
        let wanted_end = self.state == State::Ending;
        self.state = State::Off;
        match result {
            0 => return self.ended(None),
            // Ours if we asked for it. If not, the system cancelled it: arm again all the same.
            n if n == -libc::ECANCELED || n == -libc::ENOBUFS || n == -libc::EINTR => {}
            n if n < 0 => return self.ended(Some(-n)),
            _ => {}
        }
        if wanted_end && self.exact.is_some() {
            return Ok(self.start_exact(pool));
        }
        Ok(match self.start() {
            // Everything that was consumed is posted again before the next arm, so an empty group
            // was only drained faster than we looked: arming at once cannot spin.
            Next::Arm => Next::Arm,
            other => other,
        })
    }

    fn ended(&mut self, errno: Option<i32>) -> Result<Next, Option<i32>> {
        self.state = State::Ended;
        Err(errno)
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
        let mut at = from;
        let end = from + n;
        if let Some(exact) = &mut self.exact {
            at += fill_exact(exact, &block, at, end, pool, &mut self.copied);
            self.deliver_exact(pool, consume);
        } else if let Some(w) = self.waiting.take() {
            if w.index == index && w.end == at {
                at = w.at;
            } else {
                self.move_to_spill(&w);
            }
        }
        if !self.on && self.exact.is_none() {
            self.keep_for_later(index, at, end);
        } else if self.exact.is_none() {
            at = self.top_up_spill(&block, at, end, pool, consume);
            self.show(index, block.clone(), at, end, pool, consume);
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
        self.to_post.push(index);
    }

    fn move_to_spill(&mut self, w: &Waiting) {
        if let Some(Some(p)) = self.posted.get(w.index as usize) {
            // With room for what its frame still misses, so that it is not moved while it grows.
            self.spill.reserve(w.end - w.at + self.need.min(EXACT_MIN));
            self.spill.extend_from_slice(p.block.bytes(w.at, w.end));
            self.copied += (w.end - w.at) as u64;
        }
    }

    /// Appends to the spill just what its frame needs, until it is consumed or the chunk is.
    fn top_up_spill(
        &mut self,
        block: &Block,
        mut at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> usize {
        while !self.spill.is_empty() && at < end {
            let n = self.need.max(1).min(end - at);
            self.spill.extend_from_slice(block.bytes(at, at + n));
            self.copied += n as u64;
            at += n;
            self.show_spill(pool, consume);
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
        let may_slice = pool.may_give_away(BLOCK_MAX);
        let mut rx = Rx { source, at, end, may_slice, copied: 0, longest: 0 };
        let progress = consume(&mut rx);
        self.copied += rx.copied;
        self.need = progress.need;
        let left = (end - at).saturating_sub(progress.consumed);
        self.size_blocks(rx.longest.max(if progress.need > 0 { left + progress.need } else { 0 }));
        (rx, progress)
    }

    /// Blocks hold about four of the longest frames seen lately, inside the two limits.
    fn size_blocks(&mut self, longest: usize) {
        let fit = (longest.saturating_mul(4)).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
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

    /// Whether the unfinished frame should have memory of its own from here on.
    fn after_bytes(&mut self, pool: &Pool) -> Next {
        if self.state != State::Multi || self.exact.is_some() || self.need < EXACT_MIN {
            return Next::Nothing;
        }
        let (have, room) = match (&self.waiting, self.spill.len()) {
            (Some(w), 0) => {
                let block = self.posted.get(w.index as usize).and_then(Option::as_ref);
                let room = block.map_or(0, |p| p.block.len() - p.filled);
                (w.end - w.at, if self.incremental { room } else { 0 })
            }
            (None, n) if n > 0 => (n, 0),
            _ => return Next::Nothing,
        };
        if room >= self.need {
            return Next::Nothing;
        }
        self.begin_exact(have, pool);
        self.state = State::Ending;
        Next::Cancel
    }

    fn begin_exact(&mut self, have: usize, pool: &Pool) {
        let total = have + self.need;
        let block = pool.take(total.min(have.max(EXACT_FIRST)));
        let mut exact = Exact { block, have: 0, total };
        if let Some(w) = self.waiting.take() {
            if let Some(Some(p)) = self.posted.get(w.index as usize) {
                let part = p.block.clone();
                fill_exact(&mut exact, &part, w.at, w.end, pool, &mut self.copied);
            }
        } else {
            exact.have = exact.block.fill(0, &self.spill);
            self.copied += exact.have as u64;
            self.spill.clear();
        }
        self.exact = Some(exact);
    }

    fn start_exact(&mut self, pool: &Pool) -> Next {
        let Some(exact) = &mut self.exact else { return self.start() };
        grow_exact(exact, exact.have + 1, pool, &mut self.copied);
        let room = exact.block.len().min(exact.total) - exact.have;
        // SAFETY: `have` is inside the block (`fill_exact` and `on_exact` keep it so).
        let to = unsafe { exact.block.as_mut_ptr().add(exact.have) };
        self.state = State::Exact;
        Next::Exact(to, room.min(1 << 30) as u32)
    }

    fn on_exact(
        &mut self,
        c: &Completion,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> Result<Next, Option<i32>> {
        self.state = State::Off;
        let Some(exact) = &mut self.exact else { return Ok(self.start()) };
        match c.result {
            0 => return self.ended(None),
            n if n == -libc::EINTR || n == -libc::EAGAIN => return Ok(self.start_exact(pool)),
            n if n == -libc::ECANCELED => return Ok(Next::Nothing),
            n if n < 0 => return self.ended(Some(-n)),
            n => exact.have += n as usize,
        }
        if exact.have < exact.total {
            return Ok(self.start_exact(pool));
        }
        self.deliver_exact(pool, consume);
        if self.exact.is_some() {
            return Ok(self.start_exact(pool));
        }
        Ok(self.start())
    }

    /// Shows a complete exact buffer; what the handler leaves of it starts the spill.
    fn deliver_exact(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        let Some(exact) = self.exact.take_if(|e| e.have >= e.total) else { return };
        let source = Source::Block(exact.block.clone());
        let (_, progress) = self.call(source, 0, exact.have, pool, consume);
        if progress.consumed >= exact.have {
            return;
        }
        if progress.consumed == 0 && progress.need > 0 {
            // The frame turned out longer (an aggregate): go on in the same memory.
            self.exact = Some(Exact { total: exact.have + progress.need, ..exact });
        } else {
            self.spill.extend_from_slice(exact.block.bytes(progress.consumed, exact.have));
        }
    }
}

/// Copies what the exact buffer still misses out of a chunk; returns how much that was.
fn fill_exact(
    exact: &mut Exact,
    block: &Block,
    at: usize,
    end: usize,
    pool: &Pool,
    copied: &mut u64,
) -> usize {
    let n = (exact.total - exact.have).min(end - at);
    grow_exact(exact, exact.have + n, pool, copied);
    exact.have += exact.block.fill(exact.have, block.bytes(at, at + n));
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
    exact.block = grown;
}
