//! What a command asks of its route, worked out once when it is submitted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::{Command, Flags};
use crate::read::{ReadFrom, Reads};
use crate::topology::NodeIndex;

/// Names the server that pages of one scan come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PinId(u64);

/// The next scan's number, above those of policies.
static NEXT: AtomicU64 = AtomicU64::new(ReadFrom::COUNT as u64);

impl PinId {
    /// The pin that all cursor commands share which are no scan of their own.
    fn shared(from: ReadFrom) -> PinId {
        PinId(from.index() as u64)
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
}

impl View {
    /// Whether it may read elsewhere than from the primary.
    #[inline(always)]
    pub(crate) fn uses_replicas(&self) -> bool {
        self.reads.from.uses_replicas() || self.node.is_some()
    }
}

impl From<Reads> for View {
    fn from(reads: Reads) -> View {
        View { reads, ..View::default() }
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
    };

    /// The way of a command sent through a view.
    pub(crate) fn of(command: &Command<()>, view: View) -> Way {
        let flags = command.flags();
        if view.node.is_some() {
            return Way { node: view.node, ..Way::PRIMARY };
        }
        if !view.reads.from.uses_replicas() || !flags.contains(Flags::REPLICA_READ) {
            return Way::PRIMARY;
        }
        let cursor = match flags.contains(Flags::CURSOR) {
            false => Cursor::None,
            true => {
                let pin = view.pin.unwrap_or(PinId::shared(view.reads.from));
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
            may_race: flags.contains(Flags::HEDGEABLE),
            class: u8::from(!flags.contains(Flags::FAST)),
            node: None,
        }
    }

    /// Whether it goes to the primary whatever the state of the fleet.
    #[inline]
    pub(crate) fn is_primary(&self) -> bool {
        !self.reads.from.uses_replicas() && self.node.is_none()
    }
}
