//! The client of code that runs on a pinned core: the shortest road.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hedgerow_runtime::buffer::LocalBytes;
use hedgerow_runtime::core::Local;

use super::door::Door;
use super::pages::{Pages, Pins};
use super::request::{Passage, Place, Read, Request};
use super::states::LocalStates;
use crate::command::cursors::ScanPage;
use crate::command::{Command, ToArg, strings};
use crate::config::{Endpoint, Options};
use crate::engine::{Counters, Figures, ReadCopy, SeenNode};
use crate::error::Error;
use crate::placement::core::{CoreDesk, CorePlace};
use crate::read::{Ledger, Reads, Weather};
use crate::resp::{Frame, FromReply, Kept, Reply, ServerError};
use crate::route::{PinId, View};
use crate::topology::{Board, NodeIndex, Topology, TopologyChanges};

/// A client on its core: `!Send`, without locks and without a hop. Clones share its connections;
/// dropping the last clone closes them, and every request still waiting ends with an error.
///
/// Commands are the methods of the traits in [`prelude`](crate::prelude).
#[derive(Clone)]
pub struct LocalClient {
    shared: Rc<Shared>,
    view: View,
}

struct Shared {
    place: CorePlace,
    local: Local,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.place.with(|engine, now| engine.close(now));
    }
}

impl LocalClient {
    /// A client whose connections are begun now.
    pub(crate) fn open(desk: &CoreDesk, options: &Options) -> Result<LocalClient, Error> {
        options.check()?;
        if desk.has_ended() {
            return Err(Error::closed());
        }
        let place = desk.open(Arc::new(options.clone()));
        let shared = Rc::new(Shared { place, local: desk.local().clone() });
        Ok(LocalClient { shared, view: View::of(options) })
    }

    /// The client of a coordinator.
    pub(crate) fn control(desk: &CoreDesk, board: &Arc<Board>) -> Result<LocalClient, Error> {
        if desk.has_ended() {
            return Err(Error::closed());
        }
        let place = desk.open_control(board);
        let shared = Rc::new(Shared { place, local: desk.local().clone() });
        Ok(LocalClient { shared, view: View::default() })
    }

    /// Sends a command to one node.
    pub(crate) fn to_node<R>(&self, node: NodeIndex, command: Command<R>) -> LocalRequest<R> {
        let view = View { node: Some(node), ..self.view };
        LocalRequest(Request::new(self.shared.place.clone(), view, command))
    }

    /// From now on the deployment has these replicas, for every client in this process that was made with
    /// the same options. Those that stay keep their connections; those that left take no new reads at
    /// once, answer what they had accepted, and are closed (R-229).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an address that cannot be dialled or is named
    /// twice, for a client that was made without any replica, and for that of a cluster, which says itself
    /// which it has; [`ErrorKind::Closed`](crate::ErrorKind::Closed) for one that was closed.
    pub fn set_replicas(&self, endpoints: Vec<Endpoint>) -> Result<(), Error> {
        self.shared.place.with(|engine, _| engine.set_replicas(endpoints))
    }

    /// Waits until the first connections are up (R-001).
    pub(crate) async fn up(&self) -> Result<(), Error> {
        poll_fn(|cx| {
            let waker = cx.waker().clone();
            let seen = self.shared.place.with(|engine, _| engine.started(waker));
            match seen {
                Ok(outcome) => Poll::Ready(outcome),
                Err(_waker) => Poll::Pending,
            }
        })
        .await
    }

    /// GET, with the value shown in place: nothing is allocated and nothing kept. `None` is a
    /// missing key.
    ///
    /// # Errors
    /// As [`Door::send`]; also a value that is no string.
    pub fn get_with<T, F: FnOnce(Option<&[u8]>) -> T>(
        &self,
        key: impl ToArg,
        show: F,
    ) -> WithReply<impl FnOnce(Frame<'_>) -> T> {
        let request = self.send(strings::get::<()>(key));
        request.with(move |frame| show((!frame.is_null()).then(|| frame.payload())))
    }

    /// GET, with the value appended to `into`. Answers its length, or `None` for a missing key.
    ///
    /// # Errors
    /// As [`Door::send`].
    pub async fn get_into(
        &self,
        key: impl ToArg,
        into: &mut Vec<u8>,
    ) -> Result<Option<usize>, Error> {
        let copy = |value: Option<&[u8]>| {
            value.map(|v| {
                into.extend_from_slice(v);
                v.len()
            })
        };
        self.get_with(key, copy).await
    }

    /// This client with its reads served otherwise; it shares all else, also the budget of hedges
    /// (R-220, R-267).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a zone policy without a zone (R-281) and for
    /// [`ReadFrom::Replica`](crate::read::ReadFrom) without any replica.
    pub fn read_from(&self, reads: impl Into<Reads>) -> Result<LocalClient, Error> {
        let reads = reads.into();
        self.shared.place.look().options().check_view(reads)?;
        Ok(LocalClient { view: View { reads, ..self.view }, ..self.clone() })
    }

    /// A whole scan, page by page, from one server. `step` makes the command for a cursor.
    ///
    /// ```
    /// use hedgerow::{LocalClient, Error, command::hashes};
    ///
    /// async fn fields(client: &LocalClient) -> Result<usize, Error> {
    ///     let mut pages = client.pages(|cursor| hashes::hscan::<(String, String)>("user:1", cursor));
    ///     let mut count = 0;
    ///     while let Some(page) = pages.next_page().await? {
    ///         count += page.len();
    ///     }
    ///     Ok(count)
    /// }
    /// ```
    pub fn pages<T, F>(&self, step: F) -> Pages<LocalClient, F>
    where
        F: FnMut(u64) -> Command<ScanPage<T>>,
    {
        Pages::new(self, step)
    }

    /// The nodes of the deployment as this client sees them now, the primary first.
    pub fn nodes(&self) -> Vec<SeenNode> {
        self.shared.place.with(|engine, now| engine.nodes(now))
    }

    /// For how long the replicas that it goes by had been published when it took them over; `None` before
    /// they first changed.
    pub fn adopted_after(&self) -> Option<Duration> {
        self.shared.place.look().adopted_after()
    }

    /// What went wrong while removed or demoted replicas finished what they had accepted: up to 64 distinct
    /// errors, and how many more there were (R-230). Closing the client says the same in the log.
    pub fn retirement_errors(&self) -> (Vec<Error>, u64) {
        self.shared.place.look().retired()
    }

    /// All of its figures at once.
    pub fn figures(&self) -> Figures {
        self.shared.place.with(|engine, now| engine.figures(now))
    }

    /// The books of its hedged reads.
    pub fn hedges(&self) -> Ledger {
        self.shared.place.look().hedges()
    }

    /// What the storm guard says: whether hedging is off just now, and why.
    pub fn weather(&self) -> Weather {
        self.shared.place.look().weather()
    }

    /// From now on every answered copy of a read is kept for [`LocalClient::take_trace`], up to
    /// `capacity` of them; the oldest are dropped. 0 switches it off. Of the client of a cluster, commands
    /// that only a primary may run are kept, too.
    pub fn trace_reads(&self, capacity: usize) {
        self.shared.place.look().trace_reads(capacity);
    }

    /// The copies of reads that were answered since the last call, in the order of their replies, and how
    /// many more were dropped for want of room.
    pub fn take_trace(&self) -> (Vec<ReadCopy>, u64) {
        self.shared.place.look().take_trace()
    }

    /// Whether a connection takes commands now (R-099).
    pub fn is_connected(&self) -> bool {
        self.shared.place.with(|engine, _| engine.is_connected())
    }

    /// The changes of its connections from now on (R-099).
    pub fn states(&self) -> LocalStates {
        LocalStates::new(self.shared.place.clone())
    }

    /// How the deployment's topology changes from now on (R-183); `None` for a single server, whose
    /// does not, and for a client that was closed.
    ///
    /// ```
    /// use hedgerow::LocalClient;
    /// async fn follow(client: &LocalClient) {
    ///     let Some(mut changes) = client.topology_changes() else { return };
    ///     while let Some(change) = changes.next().await {
    ///         println!("{change}");
    ///     }
    /// }
    /// ```
    pub fn topology_changes(&self) -> Option<TopologyChanges> {
        self.shared.place.look().reported_board().map(TopologyChanges::new)
    }

    /// This client's counters.
    pub fn counters(&self) -> Counters {
        self.shared.place.with(|engine, _| engine.counters())
    }

    /// Requests that hold a cell: under way, or finished and not yet redeemed.
    pub fn live_requests(&self) -> usize {
        self.shared.place.with(|engine, _| engine.live_requests())
    }

    /// This client as a view that was checked already.
    #[cfg(feature = "hosted")]
    pub(crate) fn viewing(&self, view: View) -> LocalClient {
        LocalClient { view, ..self.clone() }
    }

    /// The core that it lives on.
    #[cfg(feature = "hosted")]
    pub(crate) fn context(&self) -> Local {
        self.shared.local.clone()
    }

    /// Takes no more commands, lets what is in flight finish for at most `limit`, then closes.
    pub async fn close(&self, limit: Duration) {
        let until = self.shared.local.now() + limit;
        let step = Duration::from_millis(1).min(limit);
        while !self.shared.place.with(|engine, _| engine.drain()) {
            if self.shared.local.now() >= until {
                break;
            }
            self.shared.local.sleep(step).await;
        }
        self.shared.place.with(|engine, now| engine.close(now));
    }
}

impl Door for LocalClient {
    type Kept = LocalBytes;
    type Request<R: FromReply<LocalBytes>> = LocalRequest<R>;

    #[inline(always)]
    fn send<R: FromReply<LocalBytes>>(&self, command: Command<R>) -> LocalRequest<R> {
        LocalRequest(Request::new(self.shared.place.clone(), self.view, command))
    }
}

impl Pins for LocalClient {
    fn pinned(&self, pin: PinId, node: Option<NodeIndex>) -> LocalClient {
        LocalClient { view: View { pin: Some(pin), node, ..self.view }, ..self.clone() }
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        self.view.by_slot.then(|| self.shared.place.look().topology().clone())
    }

    fn unpin(&self, pin: PinId) {
        self.shared.place.look().unpin(pin);
    }
}

impl std::fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClient")
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

/// A command of a [`LocalClient`] under way. Sent on its first poll; may be dropped at any instant:
/// a command that is still queued is taken out, one that was written may still run (R-076, R-077).
#[must_use = "a request is sent when it is first polled: await it"]
pub struct LocalRequest<R>(Request<CorePlace, R>);

impl<R> LocalRequest<R> {
    /// Gives up at this instant, counting queueing, connecting and waiting (R-093).
    pub fn deadline(mut self, at: std::time::Instant) -> LocalRequest<R> {
        self.0.deadline(at);
        self
    }

    /// Gives up so long after its first poll, in place of the client's `command_timeout`.
    pub fn timeout(mut self, time: Duration) -> LocalRequest<R> {
        self.0.timeout(time);
        self
    }

    #[cfg(feature = "hosted")]
    pub(crate) fn deadline_at(mut self, at: hedgerow_runtime::time::Instant) -> LocalRequest<R> {
        self.0.deadline_at(at);
        self
    }

    /// Shows the reply in place instead of converting it: nothing is allocated for it.
    pub fn with<T, F: FnOnce(Frame<'_>) -> T>(self, show: F) -> WithReply<F> {
        WithReply { passage: self.0.into_passage(), show: Some(show) }
    }
}

impl<R: FromReply<LocalBytes>> Future for LocalRequest<R> {
    type Output = Result<R, Error>;
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<R> std::fmt::Debug for LocalRequest<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalRequest")
    }
}

/// A request whose reply is shown in place; see [`LocalRequest::with`].
#[must_use = "a request is sent when it is first polled: await it"]
pub struct WithReply<F> {
    passage: Passage<CorePlace>,
    show: Option<F>,
}

impl<T, F: FnOnce(Frame<'_>) -> T + Unpin> Future for WithReply<F> {
    type Output = Result<T, Error>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.passage.poll_with(cx, Show(&mut this.show))
    }
}

/// Shows a reply in place; a server's error is an error.
struct Show<'a, F>(&'a mut Option<F>);

impl<K: Kept, T, F: FnOnce(Frame<'_>) -> T> Read<K> for Show<'_, F> {
    type Value = T;
    const PLAIN: bool = false;

    #[inline]
    fn read(self, reply: Reply<'_, K>) -> Result<T, Error> {
        let frame = reply.frame();
        match (ServerError::from_frame(&frame), self.0.take()) {
            (Some(error), _) => Err(Error::server(error)),
            (None, Some(show)) => Ok(show(frame)),
            (None, None) => Err(Error::closed()),
        }
    }
}

impl<F> std::fmt::Debug for WithReply<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WithReply")
    }
}
