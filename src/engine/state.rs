//! The state of connections, as it is reported to observers.

use std::collections::VecDeque;
use std::task::Waker;

use super::LinkId;
use crate::config::Endpoint;
use crate::error::Error;

/// Changes that one observer may fall behind by; older ones are dropped first.
const BEHIND_MAX: usize = 1024;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// An attempt began.
    Connecting,
    /// It takes commands.
    Connected,
    /// It was lost, or an attempt failed; another follows.
    Disconnected,
    /// It was given up for good: what the server said cannot change by trying again.
    Failed,
    /// The client closed it.
    Closed,
}

/// One transition of one connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateChange {
    /// The server.
    pub endpoint: Endpoint,
    /// Which of the client's connections.
    pub link: LinkId,
    /// What it is now.
    pub state: ConnectionState,
    /// Why, for [`ConnectionState::Disconnected`] and [`ConnectionState::Failed`].
    pub error: Option<Error>,
}

/// Names an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObserverId(usize);

#[derive(Default)]
struct Observer {
    changes: VecDeque<StateChange>,
    waker: Option<Waker>,
}

/// All observers of an engine.
#[derive(Default)]
pub(super) struct Observers {
    observers: Vec<Option<Observer>>,
    ended: bool,
}

impl Observers {
    pub(super) fn add(&mut self) -> ObserverId {
        // Its stream alone holds an id, and ends it once: the place is free for another then.
        let free = self.observers.iter().position(Option::is_none);
        let at = free.unwrap_or(self.observers.len());
        if at == self.observers.len() {
            self.observers.push(None);
        }
        self.observers[at] = Some(Observer::default());
        ObserverId(at)
    }

    /// Ends an observer; what it held is to be dropped outside the engine.
    pub(super) fn remove(&mut self, id: ObserverId) -> Option<Waker> {
        self.observers.get_mut(id.0)?.take()?.waker
    }

    /// Tells everybody; the wakers are to be woken outside the engine.
    pub(super) fn tell(&mut self, change: &StateChange) -> Vec<Waker> {
        let mut woken = Vec::new();
        for observer in self.observers.iter_mut().flatten() {
            if observer.changes.len() == BEHIND_MAX {
                observer.changes.pop_front();
            }
            observer.changes.push_back(change.clone());
            woken.extend(observer.waker.take());
        }
        woken
    }

    /// No more changes will come: queued ones are suppressed, streams end.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.ended = true;
        self.observers.iter_mut().flatten().filter_map(|o| o.waker.take()).collect()
    }

    /// The next change; `Ok(None)` at the end; `Err` gives the replaced waker back.
    pub(super) fn next(
        &mut self,
        id: ObserverId,
        waker: Waker,
    ) -> Result<(Option<StateChange>, Waker), Option<Waker>> {
        let ended = self.ended;
        let Some(Some(observer)) = self.observers.get_mut(id.0) else { return Ok((None, waker)) };
        if ended {
            return Ok((None, waker));
        }
        match observer.changes.pop_front() {
            Some(change) => Ok((Some(change), waker)),
            None => Err(observer.waker.replace(waker)),
        }
    }
}
