//! What a command asks of its route, worked out once when it is submitted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::{Command, Flags};
use crate::config::Options;
use crate::read::{ReadFrom, Reads};
use crate::topology::NodeIndex;

/// Names the server that pages of one scan come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PinId(u64);

/// The next scan's number, above those of policies.
static NEXT: AtomicU64 = AtomicU64::new(ReadFrom::COUNT as u64);

impl PinId {
    /// The pin that all cursor commands share which are no scan of their own. With another bound
    /// on staleness it is another policy.
    fn shared(reads: Reads) -> PinId {
        let bound = reads.lag_max.map_or(0, |max| 1 << 63 | u64::from(max) << 8);
        PinId(bound | reads.from.index() as u64)
    }

    /// That of a scan.
    pub(crate) fn unique() -> PinId {
        PinId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How a view of a client has its reads served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub(crate) reads: Reads,
    /// Of a scan of its own.
    pub(crate) pin: Option<PinId>,
    /// To this node and no other.
    pub(crate) node: Option<NodeIndex>,
    /// Commands go by the slots of their keys.
    pub(crate) by_slot: bool,
}

impl View {
    /// That of a new client.
    pub(crate) fn of(options: &Options) -> View {
        View { reads: options.read_from, by_slot: options.cluster.is_some(), ..View::default() }
    }

    /// Whether it may read elsewhere than from the primary.
    #[inline(always)]
    pub(crate) fn uses_replicas(&self) -> bool {
        self.reads.from.uses_replicas() || self.node.is_some()
    }

    /// Whether its commands all go to the one primary there is.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        !self.by_slot && !self.uses_replicas()
    }
}

/// What is done with a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// There is none.
    None,
    /// A scan begins: any server will do if the pinned one is gone.
    Begins(PinId),
    /// It goes on, on its server or nowhere.
    GoesOn(PinId),
}

/// The route that a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) reads: Reads,
    pub(crate) cursor: Cursor,
    /// Two copies of it may race.
    pub(crate) may_race: bool,
    /// Reads of a class take about as long.
    pub(crate) class: u8,
    /// To this node and no other.
    pub(crate) node: Option<NodeIndex>,
    /// It goes by the slot of its keys.
    pub(crate) by_slot: bool,
    /// That slot; `None` without any key.
    pub(crate) slot: Option<u16>,
    /// It was sent there for this once, and has to say so (ASKING).
    pub(crate) is_asking: bool,
    /// How often it was sent again.
    pub(crate) again: u8,
}

/// Commands that wait for the same: each has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId(u32);

impl QueueId {
    /// Of a policy: reads, reads with a bound on staleness, cursors.
    const KINDS: u32 = 3;
    /// How many a shard has.
    const COUNT: u32 = QueueId::KINDS * ReadFrom::COUNT as u32;

    /// Its number, small where there are few shards.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// That of another shard: what waits for one node must hold up nothing for another.
    pub(crate) fn of_shard(self, shard: NodeIndex) -> QueueId {
        QueueId(self.0 + QueueId::COUNT * (1 + shard.0))
    }
}

impl Way {
    /// How many classes of reads there are.
    pub(crate) const CLASSES: usize = 2;

    /// To the primary, as all that may alter something.
    pub(crate) const PRIMARY: Way = Way {
        reads: Reads { from: ReadFrom::Primary, lag_max: None },
        cursor: Cursor::None,
        may_race: false,
        class: 0,
        node: None,
        by_slot: false,
        slot: None,
        is_asking: false,
        again: 0,
    };

    /// To the primary of a slot.
    pub(crate) const fn to_primary_of(slot: u16) -> Way {
        Way { by_slot: true, slot: Some(slot), ..Way::PRIMARY }
    }

    /// The way of a command sent through a view, with a slot where slots matter.
    pub(crate) fn of(command: &Command<()>, view: View, slot: Option<u16>) -> Way {
        let flags = command.flags();
        let to_primary = Way { by_slot: view.by_slot, slot, ..Way::PRIMARY };
        let to_primary = Way { node: view.node, ..to_primary };
        if view.node.is_some() && !flags.contains(Flags::CURSOR) {
            return to_primary;
        }
        let is_read = view.reads.from.uses_replicas() && flags.contains(Flags::REPLICA_READ);
        // A scan of a cluster is tied to its node, whatever that is for its shard.
        let is_tied = view.by_slot && flags.contains(Flags::CURSOR);
        if !is_read && !is_tied {
            return to_primary;
        }
        let cursor = match flags.contains(Flags::CURSOR) {
            false => Cursor::None,
            true => {
                let pin = view.pin.unwrap_or(PinId::shared(view.reads));
                // Where the cursor of an ARSCAN is nobody knows: it may always begin anew.
                match command.cursor() {
                    Some(b"0") | None => Cursor::Begins(pin),
                    Some(_) => Cursor::GoesOn(pin),
                }
            }
        };
        Way {
            reads: view.reads,
            cursor,
            // Without a slot nobody else could tell the same.
            may_race: flags.contains(Flags::HEDGEABLE) && (!view.by_slot || slot.is_some()),
            class: u8::from(!flags.contains(Flags::FAST)),
            ..to_primary
        }
    }

    /// Whether it may take any of the links that its policy names.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.node.is_none() && self.reads.lag_max.is_none() && self.cursor == Cursor::None
    }

    /// Where it stands in line.
    #[inline]
    pub(crate) fn queue(&self) -> QueueId {
        let kind = match (self.cursor, self.reads.lag_max) {
            (Cursor::Begins(_) | Cursor::GoesOn(_), _) => 2,
            (Cursor::None, Some(_)) => 1,
            (Cursor::None, None) => 0u32,
        };
        QueueId(self.reads.from.index() as u32 * QueueId::KINDS + kind)
    }

    /// Whether there is but one place to go to.
    #[inline]
    pub(crate) fn is_only(&self) -> bool {
        self.is_primary() && !self.by_slot
    }

    /// Whether it goes to the primary whatever the state of the fleet.
    #[inline]
    pub(crate) fn is_primary(&self) -> bool {
        !self.reads.from.uses_replicas() && self.node.is_none()
    }
}
