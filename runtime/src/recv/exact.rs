//! A frame whose rest is known to be long, received straight into one buffer of its own.

use super::{Consume, Next, Recv, Source, State, goes_on, let_go};
use crate::buffer::{Block, Pool};

/// A frame that misses at least this much, and more than its block can still take, gets a buffer
/// of its own.
pub(super) const EXACT_MIN: usize = 128 << 10;
/// An exact buffer first holds at most this, then grows with what has come, so that an announced
/// length alone reserves nothing.
pub(super) const EXACT_FIRST: usize = 4 << 20;

/// A frame that is received into memory of its own.
pub(super) struct Exact {
    pub(super) block: Block,
    have: usize,
    /// Length of the whole frame as far as is known.
    total: usize,
}

impl Exact {
    /// Copies what the exact buffer still misses out of a chunk; returns how much that was.
    fn fill(&mut self, bytes: &[u8], pool: &Pool, copied: &mut u64) -> usize {
        let n = (self.total - self.have).min(bytes.len());
        self.grow(self.have + n, pool, copied);
        self.have += self.block.fill(self.have, &bytes[..n]);
        *copied += n as u64;
        n
    }

    /// Makes room for `len` bytes: at least doubles, never beyond the frame.
    fn grow(&mut self, len: usize, pool: &Pool, copied: &mut u64) {
        if len <= self.block.len() {
            return;
        }
        let grown = pool.take(len.max(self.block.len() * 2).min(self.total.max(len)));
        grown.fill(0, self.block.bytes(0, self.have));
        *copied += self.have as u64;
        let_go(std::mem::replace(&mut self.block, grown));
    }
}

impl Recv {
    /// Fills the exact buffer, if there is one, from a chunk; returns where the rest begins.
    #[inline]
    pub(super) fn top_up_exact(
        &mut self,
        block: &Block,
        mut at: usize,
        end: usize,
        pool: &Pool,
        consume: &mut Consume<'_>,
    ) -> usize {
        while let Some(exact) = self.exact.as_mut().filter(|e| at < end && e.have < e.total) {
            at += exact.fill(block.bytes(at, end), pool, &mut self.copied);
            if self.on {
                self.deliver_exact(pool, consume);
            }
        }
        at
    }

    /// Begins an exact buffer if the unfinished frame misses much, and more than its block takes.
    #[inline]
    pub(super) fn want_exact(&mut self, pool: &Pool) {
        // Among large frames whatever misses is fetched by itself, however short: taken from the
        // next block it would set every frame after it askew. (1 is what is not known.)
        let least = if self.size.is_large() { 2 } else { EXACT_MIN };
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
                exact.fill(p.block.bytes(w.at, w.end), pool, &mut self.copied);
            }
        } else {
            exact.fill(&self.spill, pool, &mut self.copied);
            self.spill.clear();
        }
        self.exact = Some(exact);
    }

    pub(super) fn start_exact(&mut self, pool: &Pool) -> Next {
        let Some(exact) = self.exact.as_mut().filter(|e| e.have < e.total) else {
            return Next::Nothing;
        };
        exact.grow(exact.have + 1, pool, &mut self.copied);
        let room = exact.block.len().min(exact.total) - exact.have;
        // SAFETY: `have` is inside the block (`fill` and `on_exact` keep it so).
        let to = unsafe { exact.block.as_mut_ptr().add(exact.have) };
        self.state = State::Exact;
        Next::Exact(to, room.min(1 << 30) as u32)
    }

    pub(super) fn on_exact(
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
    pub(super) fn feed_exact(&mut self, pool: &Pool, consume: &mut Consume<'_>) {
        loop {
            self.deliver_exact(pool, consume);
            let Some(exact) = &mut self.exact else { return };
            if !self.spill.is_empty() {
                let n = exact.fill(&self.spill, pool, &mut self.copied);
                self.spill.drain(..n);
            } else if let Some(w) = &mut self.waiting
                && let Some(Some(p)) = self.posted.get(w.index as usize)
            {
                w.at += exact.fill(p.block.bytes(w.at, w.end), pool, &mut self.copied);
                if w.at == w.end {
                    self.waiting = None;
                }
            } else {
                return;
            }
        }
    }
}
