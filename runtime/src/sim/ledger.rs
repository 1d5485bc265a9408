//! The books of a simulated kernel: what it holds, and what it was misused for.

use std::cell::RefCell;
use std::rc::Rc;

use super::state::State;
use crate::group::Group;

/// What a [`Sim`](super::Sim) holds and what it was misused for; stays readable when the kernel is gone.
#[derive(Clone)]
pub struct Ledger(pub(super) Rc<RefCell<State>>);

impl Ledger {
    /// Misuses of the kernel, in order; empty is what tests assert.
    pub fn violations(&self) -> Vec<String> {
        self.0.borrow().violations.clone()
    }

    /// A wait found that nothing could ever end it: no event, no armed instant, no wake.
    pub fn deadlock(&self) -> bool {
        self.0.borrow().deadlock
    }

    /// Descriptors made and not closed.
    pub fn open_fds(&self) -> usize {
        self.0.borrow().files.len()
    }

    /// Buffers that are posted, partly used ones included.
    pub fn posted_buffers(&self) -> usize {
        self.0.borrow().groups.values().map(Group::len).sum()
    }

    /// Groups made and not removed.
    pub fn groups(&self) -> usize {
        self.0.borrow().groups.len()
    }

    /// Operations whose final completion has not been returned yet.
    pub fn live_ops(&self) -> usize {
        let state = self.0.borrow();
        state.queued.len() + state.live.len() + state.done.iter().filter(|c| !c.more).count()
    }

    /// A hash over all completions returned so far and their instants.
    pub fn trace(&self) -> u64 {
        self.0.borrow().trace
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("open_fds", &self.open_fds())
            .field("live_ops", &self.live_ops())
            .field("posted_buffers", &self.posted_buffers())
            .field("violations", &self.violations())
            .finish_non_exhaustive()
    }
}
