//! A command whose keys, or whose effect, lie on more than one node of a cluster: one request for each part,
//! and one reply made of theirs.

use std::task::{Context, Poll};

use super::request::{Limit, Passage, Place, Read};
use crate::command::{Command, Merge, Part, Piece, raw};
use crate::error::{Error, Fate};
use crate::resp::{Frame, Kept, Reply};
use crate::route::View;
use crate::topology::NodeIndex;

/// The requests of the parts.
pub(super) struct Parts<P: Place> {
    parts: Vec<One<P>>,
    merge: Merge,
    /// They are only to wait until the nodes of the cluster are known.
    only_discovers: bool,
}

struct One<P: Place> {
    passage: Passage<P>,
    /// Which keys of the whole command it has.
    keys: Vec<u32>,
    outcome: Option<Result<Vec<u8>, Error>>,
}

/// Takes a reply as it came: also an error, of which the whole may be better.
struct Raw;

impl<K: Kept> Read<K> for Raw {
    type Value = Vec<u8>;
    const PLAIN: bool = true;

    fn read(self, reply: Reply<'_, K>) -> Result<Vec<u8>, Error> {
        Ok(reply.frame().raw().to_vec())
    }
}

impl<P: Place> Parts<P> {
    /// Each part to the node of its slot.
    pub(super) fn by_slot(place: &P, view: View, parts: Vec<Part>, merge: Merge) -> Parts<P> {
        let one = |part: Part| One {
            passage: Passage::new(place.clone(), view, part.command).of_slot(part.slot),
            keys: part.keys,
            outcome: None,
        };
        Parts { parts: parts.into_iter().map(one).collect(), merge, only_discovers: false }
    }

    /// The whole command to each of these nodes.
    pub(super) fn to_nodes(
        place: &P,
        view: View,
        nodes: &[NodeIndex],
        command: &Command<()>,
        merge: Merge,
    ) -> Parts<P> {
        let one = |node: &NodeIndex| {
            let view = View { node: Some(*node), ..view };
            let passage = Passage::new(place.clone(), view, command.clone());
            One { passage, keys: Vec::new(), outcome: None }
        };
        Parts { parts: nodes.iter().map(one).collect(), merge, only_discovers: false }
    }

    /// A command that any node answers, once one is known.
    pub(super) fn to_discover(place: &P, view: View, merge: Merge) -> Parts<P> {
        let passage = Passage::new(place.clone(), view, raw("PING").build());
        let parts = vec![One { passage, keys: Vec::new(), outcome: None }];
        Parts { parts, merge, only_discovers: true }
    }

    pub(super) fn only_discovers(&self) -> bool {
        self.only_discovers
    }

    pub(super) fn set_limit(&mut self, limit: Limit) {
        self.parts.iter_mut().for_each(|part| part.passage.set_limit(limit));
    }

    /// Ready once all parts are over: what a part may have altered is part of the outcome.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error>> {
        let mut waits = false;
        for part in self.parts.iter_mut().filter(|part| part.outcome.is_none()) {
            match part.passage.poll_with(cx, Raw) {
                Poll::Ready(outcome) => part.outcome = Some(outcome),
                Poll::Pending => waits = true,
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(self.whole()) }
    }

    fn whole(&self) -> Result<Vec<u8>, Error> {
        let outcomes = self.parts.iter().filter_map(|part| part.outcome.as_ref());
        let is_success = |raw: &Vec<u8>| !Frame::from_validated(raw).is_error();
        let has_succeeded = outcomes.clone().flatten().any(is_success);
        let is_settled = has_succeeded && self.merge.takes_one();
        let mut errors = outcomes.filter_map(|outcome| outcome.as_ref().err());
        if !is_settled && let Some(error) = errors.clone().next() {
            // Of the whole command a part may have been run.
            let may_have_run = has_succeeded || errors.any(|error| error.fate() == Fate::Unknown);
            let fate = if may_have_run { Fate::Unknown } else { error.fate() };
            return Err(error.with_fate(fate));
        }
        if self.only_discovers {
            return Ok(Vec::new());
        }
        let pieces = self.parts.iter().filter_map(|part| {
            let raw = part.outcome.as_ref()?.as_ref().ok()?;
            Some(Piece { raw, keys: &part.keys })
        });
        self.merge.merge(&pieces.collect::<Vec<_>>())
    }
}
