//! What is asked of connections besides commands: whether a replica still is one, how far
//! it is behind, and how long its PING takes.

use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::cell::{Cell, State};
use super::choose::ROLE_WAIT;
use super::link::LinkState;
use super::{Engine, LinkId, Outside};
use crate::command::Encoded;
use crate::connection::{Owner, RoleReply, not_a_replica};
use crate::error::Error;
use crate::resp::{Frame, encode};
use crate::route::Way;
use crate::topology::Role;

/// Times a check may be late until its connection serves no more reads: under load an answer waits
/// behind others.
pub(super) const LATE: u32 = 2;

/// How long a connection that takes no more commands waits for replies that nobody waits for any more
///
const DRAIN: Duration = Duration::from_secs(30);

/// What a node said of its role on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Check {
    /// When it last said what it is to be.
    pub(super) at: Option<Instant>,
    /// ROLE is on its way.
    pub(super) asked_since: Option<Instant>,
    /// A replica's own link to its primary is up.
    pub(super) linked: bool,
    pub(super) offset: Option<u64>,
}

impl Check {
    pub(super) fn take(&mut self, now: Instant, reply: RoleReply) {
        *self = Check {
            at: Some(now),
            asked_since: None,
            linked: reply.linked,
            offset: reply.offset.or(self.offset),
        };
    }
}

impl<O: Outside> Engine<O> {
    /// Queues words of the client's own on a link.
    pub(super) fn say(&mut self, at: LinkId, owner: Owner, words: &[&[u8]]) {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, words);
        self.links[at.0 as usize].connection.enqueue(&Encoded::Short(&bytes), owner, 1);
        self.mark_dirty(at);
    }

    /// Begins to connect the replicas, once, when reads first may go there.
    pub(super) fn start_replicas(&mut self, now: Instant) {
        if std::mem::replace(&mut self.replicas_started, true) {
            return;
        }
        for at in 0..self.links.len() {
            if self.links[at].role == Role::Replica && !self.links[at].is_removed {
                self.connect(now, LinkId(at as u32));
            }
        }
        if let Some(board) = self.reported_board().cloned() {
            self.out.coordinate(&board);
        }
        self.rearm();
    }

    /// Reads of a cluster go to replicas: its coordinator asks nodes how far they are.
    pub(super) fn begin_to_ask(&mut self, way: &Way) {
        if way.reads.lag_max.is_none() || std::mem::replace(&mut self.tracks_lag, true) {
            return;
        }
        if let Some(board) = self.reported_board() {
            board.want_roles();
        }
    }

    /// From now on the primary is asked for its offset, too.
    pub(super) fn track_lag(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.tracks_lag, true) {
            for at in self.primary.clone() {
                self.links[at].timer = self.links[at].timer.min(now);
            }
            self.handle_link_timers(now);
            self.rearm();
        }
    }

    /// Whether a replica's last answer to ROLE still holds. With an interval of zero it holds at the very
    /// moment only, so this asks.
    pub(super) fn is_checked(&mut self, now: Instant, at: usize) -> bool {
        let interval = self.options.replica_refresh_interval;
        if self.cluster.is_some() {
            // READONLY was said; the topology tells roles.
            return true;
        }
        if interval.is_zero() {
            let holds = self.links[at].check.at == Some(now);
            if !holds {
                self.ask_role(now, LinkId(at as u32));
            }
            return holds;
        }
        self.said(at).at.is_some_and(|last| now.since(last) < interval * LATE)
    }

    /// Sends ROLE, unless that is on its way.
    pub(super) fn ask_role(&mut self, now: Instant, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        if link.check.asked_since.is_some() {
            return;
        }
        link.check.asked_since = Some(now);
        self.say(at, Owner::Role, &[b"ROLE"]);
        if self.options.replica_refresh_interval.is_zero() {
            // What waits for the answer may go elsewhere then.
            self.links[at.0 as usize].timer = now + ROLE_WAIT;
            self.rearm();
        }
    }

    /// When the next ROLE is due on a link that just had one.
    pub(super) fn next_check(&self, now: Instant, at: LinkId) -> Instant {
        let interval = self.options.replica_refresh_interval;
        if self.cluster.is_some() {
            return Instant::NEVER;
        }
        let wanted = match self.links[at.0 as usize].role {
            Role::Replica => true,
            Role::Primary => self.tracks_lag,
        };
        if wanted && !interval.is_zero() { now + interval } else { Instant::NEVER }
    }

    pub(super) fn on_role_reply(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) {
        let link = &mut self.links[at.0 as usize];
        link.check.asked_since = None;
        self.route_epoch += 1;
        match (RoleReply::of(&frame), link.role) {
            (Some(reply), role) if reply.role == Some(role) => link.check.take(now, reply),
            // A primary that is none any more says so to the next write.
            (_, Role::Primary) => {}
            (reply, Role::Replica) => {
                let error =
                    not_a_replica(reply.and_then(|r| r.role)).with_node(&link.profile.endpoint);
                self.retire(now, at, error);
            }
        }
        self.admit(now);
        self.hedge_after_role(now);
    }

    pub(super) fn on_pong(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) {
        let link = &mut self.links[at.0 as usize];
        if let Some(sent) = link.pinged.take() {
            self.pings -= 1;
            if frame.is_error() {
                link.estimate.forget();
            } else {
                link.estimate.record(now, now.since(sent));
            }
        }
        self.admit(now);
    }

    /// Takes no more commands on a link; when what is in flight has its replies the connection ends
    ///
    pub(super) fn retire(&mut self, now: Instant, at: LinkId, error: Error) {
        let link = &mut self.links[at.0 as usize];
        if link.connection.in_flight.is_empty() {
            return self.lose(now, at, error, false);
        }
        link.state = LinkState::Draining(error);
        self.links[at.0 as usize].timer = self.end_of_drain(now, at);
        self.route_epoch += 1;
        self.rearm();
    }

    /// Until when a connection may finish what it was sent: as long as any caller waits for that.
    fn end_of_drain(&mut self, now: Instant, at: LinkId) -> Instant {
        let usual = now + self.options.command_timeout.unwrap_or(DRAIN);
        let races = &self.races;
        let is_here = |cell: &Cell<_>| {
            cell.link == at || races.get(cell.race).is_some_and(|race| race.hedge.link == at)
        };
        let awaited = self.cells.awaited().map(|(_, cell)| cell);
        let awaited = awaited.filter(|cell| cell.state == State::InFlight && is_here(cell));
        awaited.map(|cell| cell.deadline).fold(usual, Instant::max)
    }

    /// Bytes by which a replica was behind when both were last asked.
    pub(super) fn lag(&self, at: usize) -> Option<u64> {
        let offset = self.said(at).offset?;
        let primary = self.links_of(self.links[at].shard);
        let primary = primary.filter_map(|at| self.said(at).offset).max()?;
        Some(primary.saturating_sub(offset))
    }
}
