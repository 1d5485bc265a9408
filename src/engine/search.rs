//! Searches: where no replica of a shard can serve a read, the nodes of the cluster are asked for others
//!
//!
//! All reads of a shard share one search, which the coordinator makes. Those that another node may serve do
//! not wait for it.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::link::{Link, LinkState};
use super::{Engine, LinkId, Outside};
use crate::topology::{Board, Hint, NodeIndex, Role};

/// From the end of a search to the next one of its shard: so long the first time, twice as long each time
/// that none was found, up to the second.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// How long the nodes that are known may take to be connected to once more, at the end of a search.
const RETRY_MOST: Duration = Duration::from_secs(1);

/// The search for replicas of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    step: Step,
    /// The slot that is asked for.
    slot: u16,
    /// How many searches for it had ended before.
    ended: u64,
    /// None begins before this; while one is on, when it is given up.
    next: Instant,
    /// How often none was found, in a row.
    vain: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// None is on.
    #[default]
    Over,
    /// The nodes of the cluster are asked.
    Asks,
    /// What they know is connected to.
    Connects,
}

impl<O: Outside> Engine<O> {
    /// Whether a search for replicas of this shard is on, which begins one unless that was done lately.
    pub(super) fn seeks(&mut self, now: Instant, slot: Option<u16>, shard: NodeIndex) -> bool {
        let coming = self.is_any_coming(shard);
        let Some(search) = self.search(shard) else { return false };
        match search.step {
            Step::Asks if now < search.next => return true,
            Step::Connects if now < search.next && coming => return true,
            Step::Asks | Step::Connects => self.end_search(now, shard),
            Step::Over => {}
        }
        let may_begin = self.search(shard).is_some_and(|search| now >= search.next);
        may_begin && slot.is_some_and(|slot| self.begin_search(now, slot, shard))
    }

    fn search(&mut self, shard: NodeIndex) -> Option<&mut Search> {
        self.cluster.as_mut()?.searches.get_mut(shard.0 as usize)
    }

    #[cold]
    fn begin_search(&mut self, now: Instant, slot: u16, shard: NodeIndex) -> bool {
        let Some(ended) = self.reported_board().map(|board| board.searches(slot)) else {
            return false;
        };
        // Reads wait no longer than the budget; it comes to an end by itself unless nobody coordinates.
        let next = now + self.options.connect_and_command() * 2;
        if let Some(search) = self.search(shard) {
            *search = Search { step: Step::Asks, slot, ended, next, vain: search.vain };
        }
        self.tell_coordinator(Hint::Sought(slot));
        true
    }

    /// Whether no replica of a shard is known at all.
    pub(super) fn has_no_replica(&self, shard: NodeIndex) -> bool {
        self.cluster.is_some() && self.readable(shard) <= self.lanes
    }

    /// The shards whose nodes were asked for by now.
    pub(super) fn ended_searches(&self, board: &Board) -> Vec<NodeIndex> {
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let has_ended = |search: &Search| {
            search.step == Step::Asks && board.searches(search.slot) > search.ended
        };
        let shards = (0..).map(NodeIndex).zip(&cluster.searches);
        shards.filter(|(_, search)| has_ended(search)).map(|(shard, _)| shard).collect()
    }

    /// The nodes of the cluster were asked, and what they know is taken over. Replicas that could not be
    /// reached before are tried once more, as they may have recovered where they were.
    pub(super) fn end_searches(&mut self, now: Instant, shards: &[NodeIndex]) {
        for shard in shards {
            let most = RETRY_MOST.min(self.options.connect_timeout);
            if let Some(search) = self.search(*shard) {
                (search.step, search.next) = (Step::Connects, now + most);
            }
            for n in 0..self.readable(*shard) {
                self.try_again(now, self.readable_at(*shard, n), most);
            }
        }
    }

    /// An attempt beside those that the reconnect policy allows. Reads that come meanwhile wait for it, those
    /// that come later find the node dead as before.
    fn try_again(&mut self, now: Instant, at: usize, most: Duration) {
        let link = &mut self.links[at];
        let is_away = link.is_dead && matches!(link.state, LinkState::Down);
        if is_away && link.role == Role::Replica {
            link.attempts = link.attempts.saturating_sub(1);
            self.connect_by(LinkId(at as u32), now + most);
        }
    }

    /// Whether a replica of the shard is about to be connected.
    fn is_any_coming(&self, shard: NodeIndex) -> bool {
        let links = (0..self.readable(shard)).map(|n| &self.links[self.readable_at(shard, n)]);
        let comes =
            |link: &Link| matches!(link.state, LinkState::Connecting | LinkState::SettingUp(_));
        links.filter(|link| link.role == Role::Replica).any(comes)
    }

    fn end_search(&mut self, now: Instant, shard: NodeIndex) {
        let found = (0..self.readable(shard)).any(|n| {
            let link = &self.links[self.readable_at(shard, n)];
            link.role == Role::Replica && !link.is_dead
        });
        let Some(search) = self.search(shard) else { return };
        let vain = if found { 0 } else { search.vain + 1 };
        // It may have ended long ago, and nobody looked.
        let ended = now.min(search.next);
        let pause = AGAIN_FIRST.saturating_mul(1 << vain.saturating_sub(1).min(16)).min(AGAIN_MOST);
        (search.step, search.vain, search.next) = (Step::Over, vain, ended + pause);
    }
}
