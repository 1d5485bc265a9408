//! The client of ordinary services: `Send + Sync + Clone`, on any executor.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use hedgerow_runtime::time::Instant;

use super::door::Door;
use super::pages::{Pages, Pins};
use super::pinned::{Pinned, PinnedRequest};
use super::request::{Place, Request};
use super::states::States;
use crate::command::cursors::ScanPage;
use crate::command::{Command, Flags};
use crate::config::{Endpoint, Options};
use crate::engine::{Counters, Figures, ReadCopy, SeenNode, StateChange};
use crate::error::Error;
use crate::placement::hosted::HostPlace;
use crate::read::{Ledger, Reads, Weather};
use crate::resp::FromReply;
use crate::route::{PinId, View};
use crate::topology::{NodeIndex, Topology, TopologyChanges};

/// A client to be shared by all tasks of a service. Clones share its connections; dropping the last
/// one closes them.
///
/// [`Client::connect`] places it inside the tokio runtime that calls it: no thread of its own, no
/// hop. [`Cores::connect`](super::Cores::connect) places it on pinned cores, which costs a hop for
/// each command and suits callers that are not on tokio. Both speak the same engine.
///
/// ```no_run
/// use hedgerow::{Client, Options, prelude::*};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), hedgerow::Error> {
/// let client = Client::connect(&Options::from_url("redis://localhost")?).await?;
/// client.set("greeting", "hello").await?;
/// let greeting: Option<String> = client.get("greeting").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    placed: Arc<Placed>,
    view: View,
}

enum Placed {
    Hosted(Lanes),
    Pinned(Pinned),
}

/// The engines of a hosted client, one for each connection.
struct Lanes {
    lanes: Vec<HostPlace>,
    next: AtomicUsize,
}

impl Lanes {
    /// The first lane; there always is one.
    fn first(&self) -> &HostPlace {
        &self.lanes[0]
    }

    /// The next lane in turn.
    #[inline]
    fn pick(&self) -> HostPlace {
        if let [only] = &self.lanes[..] {
            return only.clone();
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        self.lanes[at].clone()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.with(|engine, now| engine.close(now));
        }
    }
}

impl Client {
    /// A client inside the present tokio runtime, once its connections are up (R-001).
    ///
    /// # Errors
    /// [`ErrorKind::Runtime`](crate::ErrorKind::Runtime) outside a tokio runtime or in one without I/O and
    /// timers, which `#[tokio::main]` and `enable_all` have,
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for invalid options, and the reason when the
    /// first attempt of a connection fails.
    pub async fn connect(options: &Options) -> Result<Client, Error> {
        let client = Client::create(options)?;
        let Placed::Hosted(lanes) = &*client.placed else { return Ok(client) };
        for lane in &lanes.lanes {
            up(lane).await?;
        }
        Ok(client)
    }

    /// As [`Client::connect`], without waiting: connections are made in the background, and commands
    /// wait for them.
    ///
    /// # Errors
    /// Outside a tokio runtime or in one without I/O and timers, or for invalid options.
    pub fn create(options: &Options) -> Result<Client, Error> {
        options.check()?;
        let profile = Arc::new(Options { connections: 1, ..options.clone() });
        let open = |_| HostPlace::open(profile.clone());
        let lanes = (0..options.connections).map(open).collect::<Result<Vec<_>, _>>()?;
        let lanes = Lanes { lanes, next: AtomicUsize::new(0) };
        Ok(Client { placed: Arc::new(Placed::Hosted(lanes)), view: View::of(options) })
    }

    pub(crate) fn over(pinned: Pinned) -> Client {
        let view = View::of(pinned.options());
        Client { placed: Arc::new(Placed::Pinned(pinned)), view }
    }

    /// This client with its reads served otherwise; it shares all else, also the budget of hedges
    /// (R-220, R-267).
    ///
    /// # Errors
    /// As [`LocalClient::read_from`](super::LocalClient::read_from).
    pub fn read_from(&self, reads: impl Into<Reads>) -> Result<Client, Error> {
        let reads = reads.into();
        match &*self.placed {
            Placed::Hosted(lanes) => lanes.first().look().options().check_view(reads)?,
            Placed::Pinned(pinned) => pinned.options().check_view(reads)?,
        }
        Ok(Client { placed: self.placed.clone(), view: View { reads, ..self.view } })
    }

    /// A whole scan, page by page, from one server. `step` makes the command for a cursor.
    ///
    /// ```
    /// use hedgerow::{Client, Error, command::hashes};
    ///
    /// async fn fields(client: &Client) -> Result<usize, Error> {
    ///     let mut pages = client.pages(|cursor| hashes::hscan::<(String, String)>("user:1", cursor));
    ///     let mut count = 0;
    ///     while let Some(page) = pages.next_page().await? {
    ///         count += page.len();
    ///     }
    ///     Ok(count)
    /// }
    /// ```
    pub fn pages<T, F>(&self, step: F) -> Pages<Client, F>
    where
        F: FnMut(u64) -> Command<ScanPage<T>>,
    {
        Pages::new(self, step)
    }

    /// From now on the deployment has these replicas; as
    /// [`LocalClient::set_replicas`](super::LocalClient::set_replicas).
    ///
    /// # Errors
    /// As there.
    pub fn set_replicas(&self, endpoints: Vec<Endpoint>) -> Result<(), Error> {
        match &*self.placed {
            Placed::Hosted(lanes) => lanes.first().with(|engine, _| engine.set_replicas(endpoints)),
            Placed::Pinned(pinned) => pinned.set_replicas(endpoints),
        }
    }

    /// What each of its connections, or each pinned core, has seen: the one way to the figures of those.
    /// Cores that have ended are left out.
    ///
    /// ```no_run
    /// # async fn watch(client: &hedgerow::Client) {
    /// let mut hedges = hedgerow::read::Ledger::default();
    /// client.figures().await.iter().for_each(|part| hedges.merge(&part.hedges));
    /// println!("{} of {} reads were hedged", hedges.sent, hedges.reads);
    /// # }
    /// ```
    pub async fn figures(&self) -> Vec<Figures> {
        match &*self.placed {
            Placed::Hosted(lanes) => {
                lanes.lanes.iter().map(|l| l.with(|engine, now| engine.figures(now))).collect()
            }
            Placed::Pinned(pinned) => pinned.figures().await,
        }
    }

    /// The nodes of the deployment as the first of its connections sees them, the primary first; `None`
    /// over pinned cores, of which each sees its own.
    pub fn nodes(&self) -> Option<Vec<SeenNode>> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        Some(lanes.first().with(|engine, now| engine.nodes(now)))
    }

    /// The books of its hedged reads; `None` over pinned cores, which keep their own.
    pub fn hedges(&self) -> Option<Ledger> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        let mut all = Ledger::default();
        lanes.lanes.iter().for_each(|lane| all.merge(&lane.look().hedges()));
        Some(all)
    }

    /// What the storm guard says: whether hedging is off just now on any connection, and why; `None` over
    /// pinned cores, which have a guard each.
    pub fn weather(&self) -> Option<Weather> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        let mut each = lanes.lanes.iter().map(|lane| lane.look().weather());
        Some(each.find(|weather| *weather != Weather::Clear).unwrap_or(Weather::Clear))
    }

    /// From now on answers are kept for [`Client::take_trace`]; as
    /// [`LocalClient::trace_reads`](super::LocalClient::trace_reads), `capacity` being that of each
    /// connection. Does nothing over pinned cores.
    pub fn trace_reads(&self, capacity: usize) {
        if let Placed::Hosted(lanes) = &*self.placed {
            lanes.lanes.iter().for_each(|lane| lane.look().trace_reads(capacity));
        }
    }

    /// The copies that were answered since the last call, one connection after the other, and how many more
    /// were dropped for want of room; `None` over pinned cores.
    pub fn take_trace(&self) -> Option<(Vec<ReadCopy>, u64)> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        let (mut copies, mut dropped) = (Vec::new(), 0);
        for lane in &lanes.lanes {
            let (some, lost) = lane.look().take_trace();
            copies.extend(some);
            dropped += lost;
        }
        Some((copies, dropped))
    }

    /// Whether a connection takes commands now (R-099). Over pinned cores: whether one did when
    /// that was last heard of.
    pub fn is_connected(&self) -> bool {
        match &*self.placed {
            Placed::Hosted(lanes) => {
                lanes.lanes.iter().any(|l| l.with(|engine, _| engine.is_connected()))
            }
            Placed::Pinned(pinned) => pinned.is_connected(),
        }
    }

    /// The changes of its connections from now on (R-099). Over pinned cores the stream begins
    /// shortly after the call.
    pub fn states(&self) -> ClientStates {
        ClientStates(match &*self.placed {
            Placed::Hosted(lanes) => {
                Changes::Hosted(lanes.lanes.iter().map(|l| States::new(l.clone())).collect())
            }
            Placed::Pinned(pinned) => Changes::Pinned(pinned.states()),
        })
    }

    /// How the deployment's topology changes from now on (R-183); as
    /// [`LocalClient::topology_changes`](super::LocalClient::topology_changes).
    pub fn topology_changes(&self) -> Option<TopologyChanges> {
        match &*self.placed {
            Placed::Hosted(lanes) => {
                lanes.first().look().reported_board().map(TopologyChanges::new)
            }
            Placed::Pinned(pinned) => pinned.topology_changes(),
        }
    }

    /// The client's counters; `None` over pinned cores, which keep their own.
    pub fn counters(&self) -> Option<Counters> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        let each = lanes.lanes.iter().map(|l| l.with(|engine, _| engine.counters()));
        Some(each.fold(Counters::default(), Counters::plus))
    }

    /// Requests under way, or finished and not yet redeemed; `None` over pinned cores.
    pub fn live_requests(&self) -> Option<usize> {
        let Placed::Hosted(lanes) = &*self.placed else { return None };
        Some(lanes.lanes.iter().map(|l| l.with(|engine, _| engine.live_requests())).sum())
    }

    /// Takes no more commands, lets what is in flight finish for at most `limit`, then closes. Every
    /// request ends; later ones fail at once.
    pub async fn close(&self, limit: Duration) {
        match &*self.placed {
            Placed::Hosted(lanes) => {
                // All stop taking commands at once; then each is given what is left of the limit.
                for lane in &lanes.lanes {
                    lane.with(|engine, _| engine.drain());
                }
                let until = Instant::now() + limit;
                for lane in &lanes.lanes {
                    lane.drained(until.since(Instant::now())).await;
                }
                for lane in &lanes.lanes {
                    lane.with(|engine, now| engine.close(now));
                }
            }
            Placed::Pinned(pinned) => pinned.close(limit).await,
        }
    }
}

/// Waits until a lane's first connection is up.
async fn up(lane: &HostPlace) -> Result<(), Error> {
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        match lane.with(|engine, _| engine.started(waker)) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(_waker) => Poll::Pending,
        }
    })
    .await
}

impl Door for Client {
    type Kept = Bytes;
    type Request<R: FromReply<Bytes>> = ClientRequest<R>;

    #[inline]
    fn send<R: FromReply<Bytes>>(&self, command: Command<R>) -> ClientRequest<R> {
        // The server of a cursor is known to one engine.
        let pinned_down = !self.view.is_plain() && command.flags().contains(Flags::CURSOR);
        ClientRequest(match &*self.placed {
            Placed::Hosted(lanes) if pinned_down => {
                Way::Hosted(Request::new(lanes.first().clone(), self.view, command))
            }
            Placed::Hosted(lanes) => Way::Hosted(Request::new(lanes.pick(), self.view, command)),
            Placed::Pinned(pinned) => Way::Pinned(pinned.send(self.view, pinned_down, command)),
        })
    }
}

impl Pins for Client {
    fn pinned(&self, pin: PinId, node: Option<NodeIndex>) -> Client {
        let view = View { pin: Some(pin), node, ..self.view };
        Client { placed: self.placed.clone(), view }
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        if !self.view.by_slot {
            return None;
        }
        match &*self.placed {
            Placed::Hosted(lanes) => Some(lanes.first().look().topology().clone()),
            Placed::Pinned(pinned) => Some(pinned.topology()),
        }
    }

    fn unpin(&self, pin: PinId) {
        match &*self.placed {
            Placed::Hosted(lanes) => lanes.first().look().unpin(pin),
            Placed::Pinned(pinned) => pinned.unpin(pin),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("connected", &self.is_connected()).finish_non_exhaustive()
    }
}

/// A command of a [`Client`] under way. Sent on its first poll; may be dropped at any instant: a
/// command that is still queued is taken out, one that was written may still run (R-076, R-077).
#[must_use = "a request is sent when it is first polled: await it"]
pub struct ClientRequest<R>(Way<R>);

enum Way<R> {
    Hosted(Request<HostPlace, R>),
    Pinned(PinnedRequest<R>),
}

impl<R> ClientRequest<R> {
    /// Gives up at this instant, counting queueing, connecting and waiting (R-093).
    pub fn deadline(mut self, at: std::time::Instant) -> ClientRequest<R> {
        match &mut self.0 {
            Way::Hosted(request) => request.deadline(at),
            Way::Pinned(request) => request.deadline(at),
        }
        self
    }

    /// Gives up so long after its first poll, in place of the client's `command_timeout`.
    pub fn timeout(mut self, time: Duration) -> ClientRequest<R> {
        match &mut self.0 {
            Way::Hosted(request) => request.timeout(time),
            Way::Pinned(request) => request.timeout(time),
        }
        self
    }
}

impl<R: FromReply<Bytes>> Future for ClientRequest<R> {
    type Output = Result<R, Error>;
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Way::Hosted(request) => Pin::new(request).poll(cx),
            Way::Pinned(request) => Pin::new(request).poll(cx),
        }
    }
}

impl<R> std::fmt::Debug for ClientRequest<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientRequest")
    }
}

/// The state changes of a [`Client`]'s connections, as a stream. It ends when the client is closed.
pub struct ClientStates(Changes);

enum Changes {
    Hosted(Vec<States<HostPlace>>),
    Pinned(tokio::sync::mpsc::Receiver<StateChange>),
}

impl ClientStates {
    /// The next change, `None` when the client is closed.
    pub async fn next(&mut self) -> Option<StateChange> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for ClientStates {
    type Item = StateChange;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StateChange>> {
        let lanes = match &mut self.0 {
            Changes::Pinned(changes) => return changes.poll_recv(cx),
            Changes::Hosted(lanes) => lanes,
        };
        let mut all_ended = true;
        for lane in lanes {
            match Pin::new(lane).poll_next(cx) {
                Poll::Ready(Some(change)) => return Poll::Ready(Some(change)),
                Poll::Ready(None) => {}
                Poll::Pending => all_ended = false,
            }
        }
        if all_ended { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl std::fmt::Debug for ClientStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientStates")
    }
}
