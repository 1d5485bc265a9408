//! Searches: where no replica of a shard can serve a read, the nodes of the cluster are asked for others
//!
//!
//! All reads of a shard share one search, which the coordinator makes. Those that another node may serve do
//! not wait for it.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::link::LinkState;
use super::{Engine, LinkId, Outside};
use crate::topology::{Board, Hint, NodeIndex};

/// From the end of a search to the next one of its shard: so long the first time, twice as long each time
/// that none was found, up to the second.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// The search for replicas of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// The slot that is asked for.
    slot: u16,
    /// How many searches for it had ended before.
    ended: u64,
    /// While one is on: when it is given up.
    until: Option<Instant>,
    /// None begins before this.
    next: Instant,
    /// How often none was found, in a row.
    vain: u32,
}

impl Search {
    fn end(&mut self, now: Instant, found: bool) {
        self.vain = if found { 0 } else { self.vain + 1 };
        let pause = AGAIN_FIRST.saturating_mul(1 << self.vain.saturating_sub(1).min(16));
        (self.until, self.next) = (None, now + pause.min(AGAIN_MOST));
    }
}

impl<O: Outside> Engine<O> {
    /// Whether a search for replicas of this shard is on, which begins one unless that was done lately.
    pub(super) fn seeks(&mut self, now: Instant, slot: Option<u16>, shard: NodeIndex) -> bool {
        let cluster = self.cluster.as_mut();
        let Some(search) = cluster.and_then(|c| c.searches.get_mut(shard.0 as usize)) else {
            return false;
        };
        match search.until {
            Some(until) if now < until => true,
            Some(_) => {
                search.end(now, false);
                false
            }
            None if now < search.next => false,
            None => slot.is_some_and(|slot| self.begin_search(now, slot, shard)),
        }
    }

    #[cold]
    fn begin_search(&mut self, now: Instant, slot: u16, shard: NodeIndex) -> bool {
        let until = Some(now + self.search_time());
        let Some(ended) = self.reported_board().map(|board| board.searches(slot)) else {
            return false;
        };
        if let Some(cluster) = &mut self.cluster {
            let search = &mut cluster.searches[shard.0 as usize];
            (search.slot, search.ended, search.until) = (slot, ended, until);
        }
        self.tell_coordinator(Hint::Sought(slot));
        true
    }

    /// Longest search: a connect and a command.
    pub(super) fn search_time(&self) -> Duration {
        let connect = self.options.connect_timeout;
        connect + self.options.command_timeout.unwrap_or(connect)
    }

    /// Whether no replica of a shard is known at all.
    pub(super) fn has_no_replica(&self, shard: NodeIndex) -> bool {
        self.cluster.is_some() && self.readable(shard) <= self.lanes
    }

    /// Searches may have ended: what they found is known. Nodes that could not be reached before are tried
    /// again, as they may have recovered where they were.
    pub(super) fn end_searches(&mut self, now: Instant, board: &Board) {
        let count = self.cluster.as_ref().map_or(0, |cluster| cluster.searches.len());
        for shard in (0..count as u32).map(NodeIndex) {
            let found = !self.has_no_replica(shard);
            let Some(cluster) = &mut self.cluster else { return };
            let search = &mut cluster.searches[shard.0 as usize];
            if search.until.is_none() || board.searches(search.slot) <= search.ended {
                continue;
            }
            search.end(now, found);
            for n in 0..self.readable(shard) {
                self.try_again(now, self.readable_at(shard, n));
            }
        }
    }

    fn try_again(&mut self, now: Instant, at: usize) {
        let link = &mut self.links[at];
        if link.is_dead && matches!(link.state, LinkState::Down) {
            link.is_dead = false;
            self.connect(now, LinkId(at as u32));
        }
    }
}
