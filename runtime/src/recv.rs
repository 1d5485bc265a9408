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

mod exact;
mod rx;
mod size;

use exact::{EXACT_MIN, Exact};
use rx::Source;
pub use rx::{Progress, Rx};
use size::BlockSize;

use crate::buffer::{Block, Pool};
use crate::op::{Completion, GroupId};

/// Blocks in a socket's group.
pub(crate) const BLOCKS: u16 = 8;

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
    size: BlockSize,
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
            size: BlockSize::new(),
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
        if self.size.is_large() && enough {
            return None;
        }
        let index = self.unposted.pop()?;
        let fits = self.size.len..=self.size.len + self.size.len / 4;
        let cell = &mut self.posted[index as usize];
        let block = match cell.take() {
            Some(p) if p.block.is_unkept() && fits.contains(&p.block.len()) => p.block,
            old => {
                if let Some(p) = old {
                    let_go(p.block);
                }
                pool.take(self.size.len)
            }
        };
        let memory = block.as_mut_ptr();
        *cell = Some(Posted { block, len: self.size.len, filled: 0 });
        Some((index, memory, self.size.len as u32))
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
        self.size.follow(rx.longest, rx.longest.max(frame), self.incremental);
        (rx, progress)
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

#[cfg(test)]
mod tests;
