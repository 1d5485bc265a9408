//! The passage of one command, as a future.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::DerefMut;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::parts::Parts;
use crate::command::{self, Command, Flags, Spread};
use crate::engine::{Body, CellId, Engine, Found, KeptOf, Outside, Submitted};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{Frame, FromReply, Kept, Reply, ServerError};
use crate::route::{View, Way};

/// A placement's door to its engine.
pub(crate) trait Place: Clone + Unpin {
    /// The engine's outside here.
    type Out: Outside;
    /// What a request owes after it queued its command (to send for all, when hosted).
    type Duty: Default + Unpin;

    /// Lets `f` have the engine, and acts on what it asked for afterwards.
    fn with<T>(&self, f: impl FnOnce(&mut Engine<Self::Out>, Instant) -> T) -> T;

    /// Whether nobody waits for the engine while somebody has it.
    const ALONE: bool;

    /// The engine, for as long as this lives.
    type Look<'a>: DerefMut<Target = Engine<Self::Out>>
    where
        Self: 'a;

    /// Has the engine, for what asks nothing of the outside.
    fn look(&self) -> Self::Look<'_>;

    /// As [`Place::with`], for an `f` that queues a command on behalf of the task of `cx`: what it
    /// asks to be sent may wait until that task comes back, which is then its duty.
    fn queue<T>(
        &self,
        duty: &mut Self::Duty,
        cx: &mut Context<'_>,
        f: impl FnOnce(&mut Engine<Self::Out>, Instant) -> T,
    ) -> T;

    /// The task came back, or never will.
    fn discharge(&self, duty: &mut Self::Duty);
}

/// When a request gives up. Like all that a passage is made of it is fully written at once: a move
/// that has to wait for half-written words costs more than the words.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    basis: Basis,
    ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The client's `command_timeout`; `ns` says nothing.
    Default,
    /// At this instant of the clock.
    At,
    /// So long after the first poll.
    After,
}

impl Limit {
    const DEFAULT: Limit = Limit { basis: Basis::Default, ns: 0 };

    fn at(at: Instant) -> Limit {
        Limit { basis: Basis::At, ns: at.as_nanos() }
    }

    fn after(time: Duration) -> Limit {
        Limit { basis: Basis::After, ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Taken,
    /// Its parts are under way.
    InParts,
    Over,
}

/// What is made of a reply. A trait and not a closure, so that it becomes part of the poll.
pub(crate) trait Read<K> {
    /// The outcome.
    type Value;
    /// Whether only this crate's code runs in it.
    const PLAIN: bool;

    fn read(self, reply: Reply<'_, K>) -> Result<Self::Value, Error>;
}

/// Reads an `R`; a server's error is an error.
pub(crate) struct Convert<R>(PhantomData<R>);

impl<K: Kept, R: FromReply<K>> Read<K> for Convert<R> {
    type Value = R;
    const PLAIN: bool = R::PLAIN;

    #[inline(always)]
    fn read(self, reply: Reply<'_, K>) -> Result<R, Error> {
        read(reply)
    }
}

/// A request under way, without the type of its reply.
pub(crate) struct Passage<P: Place> {
    command: Command<()>,
    place: P,
    view: View,
    limit: Limit,
    /// Its cell, while it is taken.
    id: CellId,
    stage: Stage,
    duty: P::Duty,
    /// Of its keys, where that is known from outside.
    slot: Option<u16>,
    /// Of a command that lies on several nodes of a cluster.
    parts: Option<Box<Parts<P>>>,
}

/// Commands of at least this many bytes are shared instead of copied.
const LONG: usize = 16 << 10;

impl<P: Place> Passage<P> {
    #[inline(always)]
    pub(crate) fn new(place: P, view: View, command: Command<()>) -> Passage<P> {
        Passage {
            command,
            place,
            view,
            limit: Limit::DEFAULT,
            id: CellId { index: 0, generation: 0 },
            stage: Stage::New,
            duty: P::Duty::default(),
            slot: None,
            parts: None,
        }
    }

    /// All of its keys have this slot.
    pub(super) fn of_slot(mut self, slot: u16) -> Passage<P> {
        self.slot = Some(slot);
        self
    }

    pub(crate) fn name(&self) -> Option<&'static str> {
        self.command.name()
    }

    #[inline]
    fn deadline(&self, engine: &Engine<P::Out>, now: Instant) -> Instant {
        match self.limit.basis {
            Basis::Default => engine.default_deadline(now),
            Basis::At => Instant::from_nanos(self.limit.ns),
            Basis::After => engine.after_nanos(now, self.limit.ns),
        }
    }

    /// Submits on the first poll, then waits for the reply and hands it to `read`.
    #[inline(always)]
    pub(crate) fn poll_with<W: Read<KeptOf<P::Out>>>(
        &mut self,
        cx: &mut Context<'_>,
        read: W,
    ) -> Poll<Result<W::Value, Error>> {
        if self.stage != Stage::Taken {
            return match self.submit(cx) {
                None if self.stage == Stage::InParts => self.poll_parts(cx, read),
                None => Poll::Pending,
                Some(error) => Poll::Ready(Err(error)),
            };
        }
        self.place.discharge(&mut self.duty);
        let mut engine = self.place.look();
        let Some(answered) = engine.answered(self.id) else {
            drop(engine);
            return self.poll_rarely(cx, read);
        };
        self.stage = Stage::Over;
        // Nothing, but of a read that could have been sent again.
        self.command.forget_text();
        let value = if W::PLAIN && P::ALONE {
            // Nobody's code runs in here, so the bytes need not be moved out first.
            let value = read.read(answered.short().scalar());
            answered.release();
            drop(engine);
            value
        } else {
            let short = *answered.short();
            answered.release();
            drop(engine);
            read.read(short.scalar())
        };
        Poll::Ready(value.map_err(|error| error.with_command(self.name())))
    }

    /// Goes on with the parts of a command.
    #[cold]
    fn poll_parts<W: Read<KeptOf<P::Out>>>(
        &mut self,
        cx: &mut Context<'_>,
        read: W,
    ) -> Poll<Result<W::Value, Error>> {
        let Some(parts) = &mut self.parts else { return Poll::Ready(Err(Error::closed())) };
        let Poll::Ready(outcome) = parts.poll(cx) else { return Poll::Pending };
        let was_unknown = parts.only_discovers();
        (self.stage, self.parts) = (Stage::Over, None);
        if was_unknown && outcome.is_ok() {
            // Now its nodes are known.
            self.stage = Stage::New;
            return self.poll_with(cx, read);
        }
        let whole =
            outcome.and_then(|raw| read.read(Reply::new(Frame::from_validated(&raw), None)));
        Poll::Ready(whole.map_err(|error| error.with_command(self.name())))
    }

    /// Goes on with what is not a short scalar: another reply, none at all, or a request that was told
    /// of room or is polled by another task than before.
    #[inline(never)]
    fn poll_rarely<W: Read<KeptOf<P::Out>>>(
        &mut self,
        cx: &mut Context<'_>,
        read: W,
    ) -> Poll<Result<W::Value, Error>> {
        let found = self.place.look().look_for(self.id, cx.waker());
        match found {
            Found::Nothing => return Poll::Pending,
            Found::Outcome => return Poll::Ready(self.redeem(read)),
            Found::OtherWaker if self.wait_with(cx.waker().clone()) => return Poll::Pending,
            Found::OtherWaker | Found::Reply => {}
            Found::Admitted => self.queue_admitted(cx),
            Found::Hedge => self.queue_hedge(cx),
        }
        self.poll_with(cx, read)
    }

    fn redeem<W: Read<KeptOf<P::Out>>>(&mut self, read: W) -> Result<W::Value, Error> {
        self.stage = Stage::Over;
        let redeemed = self.place.look().redeem(self.id);
        let body = redeemed.map_err(|error| self.explain(error))?;
        let value = read.read(body.reply());
        if let Body::Pooled(memory) = body {
            self.place.look().give_back(memory);
        }
        value.map_err(|error| error.with_command(self.name()))
    }

    #[cold]
    fn queue_admitted(&mut self, cx: &mut Context<'_>) {
        let id = self.id;
        let mut duty = std::mem::take(&mut self.duty);
        let encoded = self.command.encoded();
        self.place.queue(&mut duty, cx, |engine, now| engine.queue_admitted(now, id, &encoded));
        self.duty = duty;
    }

    /// Sends the second copy of a slow read.
    #[cold]
    fn queue_hedge(&mut self, cx: &mut Context<'_>) {
        let id = self.id;
        let mut duty = std::mem::take(&mut self.duty);
        let encoded = self.command.encoded();
        self.place.queue(&mut duty, cx, |engine, now| engine.queue_hedge(now, id, &encoded));
        self.duty = duty;
    }

    /// Records the waker. `false`: look again. The replaced one is dropped outside the engine.
    #[cold]
    fn wait_with(&self, waker: Waker) -> bool {
        let recorded = self.place.look().await_with(self.id, waker);
        recorded.is_ok()
    }

    /// Submits the command, or says why not.
    #[inline(never)]
    fn submit(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        if self.stage == Stage::InParts {
            return None;
        }
        if self.stage == Stage::Over {
            let text = "a finished request was polled again";
            return Some(Error::new(ErrorKind::Closed, Fate::NotSent, text));
        }
        if !self.command.is_plain() || self.command.bytes().len() >= LONG {
            let allow_admin = self.place.look().options().allow_admin;
            if let Err(error) = self.prepare(allow_admin) {
                self.stage = Stage::Over;
                return Some(self.explain(error));
            }
        }
        if !self.view.is_plain() {
            return self.submit_routed(cx);
        }
        let waker = cx.waker().clone();
        let mut duty = std::mem::take(&mut self.duty);
        let taken = self.place.queue(&mut duty, cx, |engine, now| {
            engine.submit(&self.command.encoded(), now, self.deadline(engine, now), waker)
        });
        self.duty = duty;
        self.on_submitted(taken)
    }

    /// As [`Passage::submit`] for a view that has more than one place to go to.
    #[inline(never)]
    fn submit_routed(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        let slot = match self.slot_of_one() {
            Some(slot) => Some(slot),
            None => match self.spread() {
                Ok(_) if self.stage == Stage::InParts => return None,
                Ok(slot) => slot,
                Err(error) => {
                    self.stage = Stage::Over;
                    return Some(self.explain(error));
                }
            },
        };
        let direct = slot.filter(|_| self.goes_to_primary());
        let waker = cx.waker().clone();
        let mut duty = std::mem::take(&mut self.duty);
        let taken = self.place.queue(&mut duty, cx, |engine, now| {
            let deadline = self.deadline(engine, now);
            let command = self.command.encoded();
            if let Some(slot) = direct
                && let Some(link) = engine.direct(slot, now, deadline)
            {
                return engine.submit_direct(&command, (slot, link), now, deadline, waker);
            }
            let way = Way::of(&self.command, self.view, slot);
            match way.is_only() {
                true => engine.submit(&command, now, deadline, waker),
                false => engine.submit_routed(&command, &way, now, deadline, waker),
            }
        });
        self.duty = duty;
        self.on_submitted(taken)
    }

    /// The slot of a command of one key, as nearly all are; `None` says nothing.
    #[inline]
    fn slot_of_one(&self) -> Option<u16> {
        let is_usual = self.view.by_slot && self.view.node.is_none() && self.slot.is_none();
        if is_usual { command::slot_of_one(&self.command) } else { None }
    }

    /// Whether a command that has a slot is for its primary, and tied to nothing else.
    #[inline]
    fn goes_to_primary(&self) -> bool {
        let is_tied = self.command.flags().contains(Flags::CURSOR);
        !is_tied && !self.view.reads.from.uses_replicas()
    }

    /// The slot of a command that goes to one node, if it matters. Else it is divided into parts.
    #[inline(never)]
    fn spread(&mut self) -> Result<Option<u16>, Error> {
        if !self.view.by_slot || self.view.node.is_some() || self.slot.is_some() {
            return Ok(self.slot);
        }
        let spread = command::spread(&self.command)?;
        let is_all = matches!(spread, Spread::AllNodes(_));
        let (place, view) = (&self.place, self.view);
        let mut parts = match spread {
            Spread::Slot(slot) => return Ok(Some(slot)),
            Spread::Any => return Ok(None),
            Spread::Parts(parts, merge) => Parts::by_slot(place, view, parts, merge),
            Spread::AllShards(merge) | Spread::AllNodes(merge) => {
                let nodes = place.look().nodes_of_cluster(is_all);
                match nodes {
                    Some(nodes) => Parts::to_nodes(place, view, &nodes, &self.command, merge),
                    None => {
                        // Finding the nodes takes of its time.
                        let deadline = place.with(|engine, now| self.deadline(engine, now));
                        self.limit = Limit::at(deadline);
                        Parts::to_discover(place, view, merge)
                    }
                }
            }
        };
        parts.set_limit(self.limit);
        (self.parts, self.stage) = (Some(Box::new(parts)), Stage::InParts);
        Ok(None)
    }

    #[inline(always)]
    fn on_submitted(&mut self, taken: Submitted) -> Option<Error> {
        (self.id, self.stage) = (taken.id(), Stage::Taken);
        if let Some(refused) = taken.refused {
            self.stage = Stage::Over;
            let (error, _waker) = *refused;
            return Some(self.explain(error));
        }
        if !taken.keeps_text {
            self.command.forget_text();
        }
        None
    }

    /// Looks closely at what is not plain or not short: what may not be sent is refused, and what is
    /// long is shared with the write queue instead of copied.
    #[cold]
    fn prepare(&mut self, allow_admin: bool) -> Result<(), Error> {
        self.command.check(allow_admin)?;
        if self.command.block().is_some() {
            let text = "it waits on the server, and would hold up every other command on a shared \
                        connection: use its form without a timeout";
            return Err(Error::new(ErrorKind::Refused, Fate::NotSent, text));
        }
        let len = self.command.bytes().len();
        if len > u32::MAX as usize {
            let text = "a command of more than 4 GiB cannot be sent: split its arguments";
            return Err(Error::new(ErrorKind::Refused, Fate::NotSent, text));
        }
        if len >= LONG {
            self.command.share();
        }
        Ok(())
    }

    /// The error with what only the request knows: its command, and the time that it had.
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        let ran_out = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::NotConnected);
        let error = error.with_command(self.name());
        if !ran_out || error.timeout().is_some() {
            return error;
        }
        let had = match self.limit.basis {
            Basis::Default => self.place.with(|engine, _| engine.options().command_timeout),
            Basis::After => Some(Duration::from_nanos(self.limit.ns)),
            Basis::At => None,
        };
        error.with_timeout(had)
    }

    pub(super) fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
        if let Some(parts) = &mut self.parts {
            parts.set_limit(limit);
        }
        if self.stage == Stage::Taken {
            self.place.with(|engine, now| {
                engine.set_deadline(self.id, now, self.deadline(engine, now));
            });
        }
    }
}

impl<P: Place> Drop for Passage<P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.stage == Stage::Taken {
            self.abandon();
        }
        self.place.discharge(&mut self.duty);
    }
}

impl<P: Place> Passage<P> {
    #[cold]
    fn abandon(&mut self) {
        // What the cell held is the user's: dropped after the engine is let go.
        let _held = self.place.with(|engine, now| engine.abandon(self.id, now));
    }
}

/// One command under way. It is sent on the first poll; dropping it at any instant is safe:
/// a command that is still queued is taken out, one that was written may still run on the server.
#[must_use = "a request is sent when it is first polled: await it"]
pub(crate) struct Request<P: Place, R> {
    passage: Passage<P>,
    reply: PhantomData<fn() -> R>,
}

impl<P: Place, R> Request<P, R> {
    #[inline(always)]
    pub(crate) fn new(place: P, view: View, command: Command<R>) -> Request<P, R> {
        Request { passage: Passage::new(place, view, command.returning()), reply: PhantomData }
    }

    pub(crate) fn deadline(&mut self, at: std::time::Instant) {
        self.passage.set_limit(Limit::at(Instant::from_std(at)));
    }

    #[cfg(feature = "hosted")]
    pub(crate) fn deadline_at(&mut self, at: Instant) {
        self.passage.set_limit(Limit::at(at));
    }

    pub(crate) fn timeout(&mut self, time: Duration) {
        self.passage.set_limit(Limit::after(time));
    }

    pub(crate) fn into_passage(self) -> Passage<P> {
        self.passage
    }
}

impl<P: Place, R: FromReply<KeptOf<P::Out>>> Future for Request<P, R> {
    type Output = Result<R, Error>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().passage.poll_with(cx, Convert(PhantomData))
    }
}

/// A reply as a value; a server's error is an error.
#[inline(always)]
pub(crate) fn read<K: Kept, R: FromReply<K>>(reply: Reply<'_, K>) -> Result<R, Error> {
    let frame = reply.frame();
    if frame.is_error()
        && let Some(error) = ServerError::from_frame(&frame)
    {
        return Err(Error::server(error));
    }
    R::from_reply(reply).map_err(Error::convert)
}
