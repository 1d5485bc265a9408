//! A [`Client`](super::Client) over pinned cores: commands are encoded by the caller, posted to a
//! core's mailbox and awaited through a one-shot. The hop costs tens of microseconds when both
//! sides sleep.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::buffer::LocalBytes;
use hedgerow_runtime::core::{Remote, RemoteError};
use hedgerow_runtime::time::Instant;
use tokio::sync::{mpsc, oneshot};

use super::door::Door;
use super::local::LocalClient;
use super::pages::Pins;
use super::request::read;
use crate::command::{self, Command, Spread};
use crate::config::{Endpoint, Mesh, Options};
use crate::engine::{Figures, StateChange};
use crate::error::{Error, ErrorKind, Fate};
use crate::placement::boards;
use crate::resp::{ConvertError, Frame, FromReply, Reply};
use crate::route::{PinId, View};
use crate::topology::{Board, Topology, TopologyChanges};

thread_local! {
    /// The clients of this core's remote callers.
    static CLIENTS: RefCell<HashMap<u64, LocalClient>> = RefCell::default();
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Pinned {
    number: u64,
    /// Its cores.
    seats: Arc<Vec<Remote>>,
    next: AtomicUsize,
    connected: Arc<AtomicBool>,
    options: Arc<Options>,
    /// Of a cluster.
    board: Option<Arc<Board>>,
}

impl Pinned {
    /// Takes one client from each core; `seats` pairs a core with what it answered.
    pub(crate) fn new(number: u64, remotes: Vec<Remote>, options: &Options) -> Pinned {
        let options = Arc::new(options.clone());
        Pinned {
            number,
            seats: Arc::new(remotes),
            next: AtomicUsize::new(0),
            connected: Arc::new(AtomicBool::new(true)),
            board: options.is_coordinated().then(|| boards::board_of(&options)),
            options,
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// A number for a new client.
    pub(crate) fn number() -> u64 {
        NUMBER.fetch_add(1, Ordering::Relaxed)
    }

    /// Seats a client on the calling core.
    pub(crate) fn seat(number: u64, client: LocalClient) {
        CLIENTS.with_borrow_mut(|clients| clients.insert(number, client));
    }

    pub(crate) fn is_connected(&self) -> bool {
        let (number, connected) = (self.number, self.connected.clone());
        if let Some(seat) = self.seats.first() {
            let look = move || {
                let up = client(number).is_some_and(|c| c.is_connected());
                connected.store(up, Ordering::Relaxed);
            };
            let _ = seat.run(look);
        }
        self.connected.load(Ordering::Relaxed)
    }

    /// Checks the addresses here, and has the first core publish them.
    pub(crate) fn set_replicas(&self, endpoints: Vec<Endpoint>) -> Result<(), Error> {
        self.options.check_new_replicas(&endpoints)?;
        let (number, seat) = (self.number, self.seats.first().ok_or_else(Error::closed)?);
        let set = move || {
            if let Some(client) = client(number) {
                // They are right: that was checked.
                let _ = client.set_replicas(endpoints.clone());
            }
        };
        Errand::new(seat, set).go();
        Ok(())
    }

    /// A scan is over, whose server the first core knew.
    pub(crate) fn unpin(&self, pin: PinId) {
        let number = self.number;
        let unpin = move || {
            if let Some(client) = client(number) {
                Pins::unpin(&client, pin);
            }
        };
        if let Some(seat) = self.seats.first() {
            Errand::new(seat, unpin).go();
        }
    }

    pub(crate) fn topology_changes(&self) -> Option<TopologyChanges> {
        self.board.as_ref().map(TopologyChanges::new)
    }

    /// What each core has seen of its client.
    pub(crate) async fn figures(&self) -> Vec<Figures> {
        let number = self.number;
        let ask = |seat: &Remote| {
            let (send, receive) = mpsc::channel(1);
            let look = move || {
                if let Some(client) = client(number) {
                    let _ = send.try_send(client.figures());
                }
            };
            Errand::new(seat, look).go();
            receive
        };
        // All are asked before one is waited for.
        let asked: Vec<_> = self.seats.iter().map(ask).collect();
        let mut all = Vec::with_capacity(asked.len());
        for mut answer in asked {
            all.extend(answer.recv().await);
        }
        all
    }

    pub(crate) fn states(&self) -> mpsc::Receiver<StateChange> {
        let (send, receive) = mpsc::channel(1024);
        let number = self.number;
        for seat in self.seats.iter() {
            let send = send.clone();
            Errand::new(seat, move || watch(number, send.clone())).go();
        }
        receive
    }

    pub(crate) async fn close(&self, limit: Duration) {
        let number = self.number;
        let mut closed = Vec::new();
        for seat in self.seats.iter() {
            let (send, receive) = mpsc::channel::<()>(1);
            let close = move || {
                let (Some(client), send) = (client(number), send.clone()) else { return };
                client.context().spawn(async move {
                    client.close(limit).await;
                    drop(send);
                });
            };
            Errand::new(seat, close).go();
            closed.push(receive);
        }
        for mut receive in closed {
            // Nothing is sent: it ends when the core has closed its client, or has itself ended.
            let _ = receive.recv().await;
        }
    }

    /// What is known of the cluster; where it is none, of the server.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        match &self.board {
            Some(board) => board.topology(),
            None => Arc::new(Topology::of(&self.options)),
        }
    }

    /// The core that is connected to the primary of a command's slot; the first for what has none, or has
    /// several.
    fn seat_of<R>(&self, command: &Command<R>) -> usize {
        let topology = self.topology();
        let owner = match command::spread(command) {
            Ok(Spread::Slot(slot)) => topology.slots().and_then(|slots| slots.owner(slot)),
            _ => None,
        };
        owner.map_or(0, |owner| owner.0 as usize % self.seats.len().max(1))
    }

    /// Sends through a view of the client; `first`: by its first core.
    pub(crate) fn send<R>(&self, view: View, first: bool, command: Command<R>) -> PinnedRequest<R> {
        let is_owned = self.options.cluster.as_ref().is_some_and(|c| c.mesh == Mesh::Owned);
        let at = match first {
            true => 0,
            false if is_owned => self.seat_of(&command),
            false => self.next.fetch_add(1, Ordering::Relaxed) % self.seats.len().max(1),
        };
        PinnedRequest {
            number: self.number,
            seats: self.seats.clone(),
            at,
            view,
            command: Some(command.returning()),
            name: None,
            limit: Limit::After(self.options.command_timeout),
            answer: None,
            reply: PhantomData,
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let number = self.number;
        for seat in self.seats.iter() {
            let leave = move || drop(CLIENTS.with_borrow_mut(|c| c.remove(&number)));
            Errand::new(seat, leave).go();
        }
    }
}

/// On the core: passes its client's state changes on.
fn watch(number: u64, to: mpsc::Sender<StateChange>) {
    let Some(client) = client(number) else { return };
    let mut states = client.states();
    // The watcher must not keep the client open.
    let context = client.context();
    drop(client);
    context.spawn(async move {
        while let Some(change) = states.next().await {
            if to.send(change).await.is_err() {
                return;
            }
        }
    });
}

/// A job for a core that must not get lost. Where the mailbox is full it goes once there is room, and
/// nobody waits: whoever sends it may be the very core that has to make room.
#[derive(Clone)]
struct Errand {
    seat: Remote,
    job: Arc<dyn Fn() + Send + Sync>,
}

impl Errand {
    fn new(seat: &Remote, job: impl Fn() + Send + Sync + 'static) -> Errand {
        Errand { seat: seat.clone(), job: Arc::new(job) }
    }

    fn go(self) {
        let (seat, job) = (self.seat.clone(), self.job.clone());
        // An ended core has nothing left to do it to.
        let _ = seat.run_or_wait(move || job(), &Waker::from(Arc::new(self)));
    }
}

impl Wake for Errand {
    fn wake(self: Arc<Errand>) {
        Arc::unwrap_or_clone(self).go();
    }
}

fn client(number: u64) -> Option<LocalClient> {
    CLIENTS.with_borrow(|clients| clients.get(&number).cloned())
}

#[derive(Clone, Copy)]
enum Limit {
    At(Instant),
    After(Option<Duration>),
}

type Answer = Result<Bytes, Error>;

/// A command on its way through a core's mailbox.
pub(crate) struct PinnedRequest<R> {
    number: u64,
    seats: Arc<Vec<Remote>>,
    at: usize,
    view: View,
    command: Option<Command<Raw>>,
    name: Option<&'static str>,
    limit: Limit,
    answer: Option<oneshot::Receiver<Answer>>,
    reply: PhantomData<fn() -> R>,
}

impl<R> PinnedRequest<R> {
    pub(crate) fn deadline(&mut self, at: std::time::Instant) {
        self.limit = Limit::At(Instant::from_std(at));
    }

    pub(crate) fn timeout(&mut self, time: Duration) {
        self.limit = Limit::After(Some(time));
    }

    /// Posts the command. Where the mailbox is full there is no answer to wait for yet, and the task is
    /// woken when there is room.
    fn post(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let until = match self.limit {
            Limit::At(at) => at,
            Limit::After(Some(time)) => Instant::now() + time,
            Limit::After(None) => Instant::NEVER,
        };
        self.limit = Limit::At(until);
        if until <= Instant::now() {
            let text = "the deadline passed before the core's mailbox had room";
            return Err(Error::new(ErrorKind::Timeout, Fate::NotSent, text));
        }
        let Some(seat) = self.seats.get(self.at) else { return Err(Error::closed()) };
        let Some(command) = self.command.clone() else { return Err(Error::closed()) };
        let (send, receive) = oneshot::channel();
        let (number, view) = (self.number, self.view);
        match seat.run_or_wait(move || carry(number, view, command, until, send), cx.waker()) {
            Ok(()) => {
                self.name = self.command.take().and_then(|c| c.name());
                self.answer = Some(receive);
                Ok(())
            }
            Err(RemoteError::Ended) => Err(Error::closed()),
            Err(RemoteError::Full) => Ok(()),
        }
    }
}

/// On the core: sends the command, and the answer back; dropped when the caller is gone.
fn carry(
    number: u64,
    view: View,
    command: Command<Raw>,
    until: Instant,
    mut send: oneshot::Sender<Answer>,
) {
    let Some(client) = client(number) else {
        let _ = send.send(Err(Error::closed()));
        return;
    };
    let context = client.context();
    let mut request = client.viewing(view).send(command).deadline_at(until);
    drop(client);
    context.spawn(async move {
        let answered = std::future::poll_fn(|cx| {
            if send.poll_closed(cx).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut request).poll(cx).map(Some)
        });
        if let Some(answer) = answered.await {
            let _ = send.send(answer.map(|raw| raw.0));
        }
    });
}

/// A reply's whole frame, as it came.
struct Raw(Bytes);

impl FromReply<LocalBytes> for Raw {
    fn from_reply(reply: Reply<'_, LocalBytes>) -> Result<Raw, ConvertError> {
        let raw = reply.frame().raw();
        Ok(Raw(match reply.kept() {
            Some(kept) => kept.slice_ref(raw).into_bytes(),
            None => Bytes::copy_from_slice(raw),
        }))
    }
}

impl<R: FromReply<Bytes>> Future for PinnedRequest<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.answer.is_none()
            && let Err(error) = this.post(cx)
        {
            return Poll::Ready(Err(error));
        }
        let Some(answer) = &mut this.answer else { return Poll::Pending };
        let answer = match Pin::new(answer).poll(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(answer) => answer.unwrap_or_else(|_| Err(Error::closed())),
        };
        // Polled again, it has neither an answer nor a command, and says so.
        this.answer = None;
        Poll::Ready(answer.and_then(|raw| {
            let frame = Frame::from_validated(&raw);
            read(Reply::new(frame, Some(&raw))).map_err(|e| e.with_command(this.name))
        }))
    }
}
