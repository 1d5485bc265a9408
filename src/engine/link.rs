//! One connection of the engine: its protocol state, its life cycle, what it has to send.

use std::sync::Arc;

use hedgerow_runtime::time::Instant;

use super::Stage;
use super::check::Check;
use crate::config::Options;
use crate::connection::{Connection, Handshake, Learnt};
use crate::error::Error;
use crate::read::{Estimate, Standing};
use crate::topology::{Node, NodeIndex, Role};

/// Names a link of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// What a link is for. Together with its node this is its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Multiplexed, one of several.
    Shared(u16),
}

/// Where a link is in its life.
pub(super) enum LinkState {
    /// Nobody has asked for it yet.
    Idle,
    /// A connect is under way.
    Connecting,
    /// Connected; protocol, authentication and database are being set up.
    SettingUp(Handshake),
    /// Takes commands.
    Ready,
    /// Takes no more commands; what is in flight may finish, then it is lost with this error.
    Draining(Error),
    /// Lost; the next attempt begins when its timer fires.
    Down,
    /// Given up for good.
    Failed(Error),
    /// Closed by the client.
    Closed,
}

pub(super) struct Link {
    pub(super) node: NodeIndex,
    pub(super) role: Role,
    /// The primary of its node's shard.
    pub(super) shard: NodeIndex,
    /// Credentials, address and settings.
    pub(super) profile: Arc<Options>,
    pub(super) class: Class,
    pub(super) state: LinkState,
    pub(super) connection: Connection,
    /// Said to be dirty and not flushed since.
    pub(super) dirty: bool,
    /// Places promised to requests that were woken to queue themselves.
    pub(super) reserved: usize,
    /// Bytes of queued units that nobody waits for any more.
    pub(super) dead_bytes: u64,
    /// Bytes handed over that the system has not taken.
    pub(super) unsent: u64,
    /// Attempts since the back-off was last reset.
    pub(super) attempts: u32,
    /// Its last attempt failed: whoever needs it need not wait for the next.
    pub(super) is_dead: bool,
    /// Whether a command was answered since the connection came up.
    pub(super) heard: bool,
    pub(super) up_since: Option<Instant>,
    /// Process-local number of the present connection.
    pub(super) number: u64,
    pub(super) last_read: Option<Instant>,
    pub(super) last_write: Option<Instant>,
    /// When the batch that is under way was handed over.
    pub(super) handed_at: Option<Instant>,
    /// Set-up answers are due by then, or the next attempt begins then.
    pub(super) timer: Instant,
    pub(super) last_error: Option<Error>,
    /// What the node said of its role.
    pub(super) check: Check,
    /// The zone that it said it is in, and whether that is the client's.
    pub(super) zone: Option<String>,
    pub(super) same_zone: bool,
    pub(super) estimate: Estimate,
    /// When the unanswered PING was queued.
    pub(super) pinged: Option<Instant>,
    pub(super) last_ping: Option<Instant>,
    /// Its node left the deployment.
    pub(super) is_removed: bool,
}

impl Link {
    /// A link that is connected once it is asked for; where there is no cluster, at the start.
    pub(super) fn new(index: NodeIndex, node: &Node, class: Class) -> Link {
        let is_lazy = node.profile.cluster.is_some();
        Link {
            node: index,
            role: node.role,
            shard: node.shard,
            profile: node.profile.clone(),
            class,
            state: if is_lazy { LinkState::Idle } else { LinkState::Down },
            connection: Connection::new(node.profile.limits),
            dirty: false,
            reserved: 0,
            dead_bytes: 0,
            unsent: 0,
            attempts: 0,
            is_dead: false,
            heard: false,
            up_since: None,
            number: 0,
            last_read: None,
            last_write: None,
            handed_at: None,
            timer: Instant::NEVER,
            last_error: None,
            check: Check::default(),
            zone: None,
            same_zone: false,
            estimate: Estimate::UNKNOWN,
            pinged: None,
            last_ping: None,
            is_removed: false,
        }
    }

    /// What its set-up has learnt of the server.
    pub(super) fn take_learnt(&mut self, now: Instant, learnt: Learnt) {
        if let Some(role) = learnt.role {
            self.check.take(now, role);
        }
        let mine = self.profile.client_availability_zone.as_deref();
        self.same_zone = mine.is_some() && learnt.zone.as_deref() == mine;
        self.zone = learnt.zone;
    }

    /// What a policy looks at; `linked`: its node's own link to the primary is up.
    #[inline]
    pub(super) fn standing(&self, linked: bool) -> Standing {
        Standing { role: self.role, linked, same_zone: self.same_zone }
    }

    /// Whether it is up, or on its way there.
    pub(super) fn is_begun(&self) -> bool {
        matches!(self.state, LinkState::Connecting | LinkState::SettingUp(_) | LinkState::Ready)
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, LinkState::Ready)
    }

    /// Whether bytes may come and go.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Ready | LinkState::SettingUp(_) | LinkState::Draining(_))
    }

    #[inline]
    pub(super) fn has_room(&self, max: usize) -> bool {
        self.connection.in_flight.len() + self.reserved < max
    }

    /// How far the unit with this ordinal has come.
    pub(super) fn stage(&self, ordinal: u64) -> Stage {
        let in_flight = &self.connection.in_flight;
        if !in_flight.is_handed(ordinal) {
            Stage::Buffered
        } else if in_flight.is_writing(ordinal, self.unsent) {
            Stage::Writing
        } else {
            Stage::AwaitingReply
        }
    }
}
