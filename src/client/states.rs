//! Streams of connection states.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::request::Place;
use crate::engine::{ConnectionState, ObserverId, StateChange};
use crate::placement::core::CorePlace;

/// The state changes of one client's connections, in order. It ends when the client is closed.
/// An observer that falls more than 1,024 changes behind loses the oldest.
pub(crate) struct States<P: Place> {
    place: P,
    observer: ObserverId,
}

impl<P: Place> States<P> {
    pub(crate) fn new(place: P) -> States<P> {
        let observer = place.with(|engine, _| engine.observe());
        States { place, observer }
    }
}

impl<P: Place> Stream for States<P> {
    type Item = StateChange;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StateChange>> {
        let waker = cx.waker().clone();
        let next = self.place.with(|engine, _| engine.next_change(self.observer, waker));
        match next {
            Ok((change, _waker)) => Poll::Ready(change),
            Err(_replaced) => Poll::Pending,
        }
    }
}

impl<P: Place> Drop for States<P> {
    fn drop(&mut self) {
        let _waker = self.place.with(|engine, _| engine.unobserve(self.observer));
    }
}

/// The state changes of a [`LocalClient`](crate::LocalClient)'s connections, as a stream.
pub struct LocalStates(States<CorePlace>);

impl LocalStates {
    pub(crate) fn new(place: CorePlace) -> LocalStates {
        LocalStates(States::new(place))
    }

    /// The next change, `None` when the client is closed.
    pub async fn next(&mut self) -> Option<StateChange> {
        std::future::poll_fn(|cx| Pin::new(&mut self.0).poll_next(cx)).await
    }
}

impl Stream for LocalStates {
    type Item = StateChange;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StateChange>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl std::fmt::Debug for LocalStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalStates")
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::Disconnected => "disconnected",
            ConnectionState::Failed => "failed",
            ConnectionState::Closed => "closed",
        })
    }
}

/// For a log: `localhost:6379 is disconnected: ` and why.
impl fmt::Display for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.endpoint, self.state)?;
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}
