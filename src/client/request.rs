//! The passage of one command, as a future.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::time::Instant;

use crate::command::Command;
use crate::connection::Encoded;
use crate::engine::{Body, CellId, Engine, KeptOf, Outside, Redeemed, Submitted};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{FromReply, Reply, ServerError};

/// A placement's door to its engine.
pub(crate) trait Place: Clone + Unpin {
    /// The engine's outside here.
    type Out: Outside;
    /// What a request owes after it queued its command (to send for all, when hosted).
    type Duty: Default + Unpin;

    /// Lets `f` have the engine, and acts on what it asked for afterwards.
    fn with<T>(&self, f: impl FnOnce(&mut Engine<Self::Out>, Instant) -> T) -> T;

    /// As [`Place::with`], for an `f` that asks for nothing.
    fn look<T>(&self, f: impl FnOnce(&mut Engine<Self::Out>) -> T) -> T;

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

/// When a request gives up.
#[derive(Clone, Copy)]
enum Limit {
    /// After the client's `command_timeout`.
    Default,
    /// At this instant.
    At(Instant),
    /// So long after its first poll.
    After(Duration),
}

enum State {
    New,
    Taken(CellId),
    Over,
}

/// A request under way, without the type of its reply.
pub(crate) struct Passage<P: Place> {
    place: P,
    command: Command<()>,
    /// A long command's bytes, shared with the write queue instead of copied.
    long: Option<Bytes>,
    limit: Limit,
    state: State,
    duty: P::Duty,
}

/// Commands of at least this many bytes are shared instead of copied.
const LONG: usize = 16 << 10;

impl<P: Place> Passage<P> {
    pub(crate) fn new(place: P, command: Command<()>) -> Passage<P> {
        Passage {
            place,
            command,
            long: None,
            limit: Limit::Default,
            state: State::New,
            duty: P::Duty::default(),
        }
    }

    pub(crate) fn name(&self) -> Option<&'static str> {
        self.command.name()
    }

    #[inline]
    fn encoded(&self) -> Encoded<'_> {
        match &self.long {
            Some(bytes) => Encoded::Long(bytes),
            None => Encoded::Short(self.command.bytes()),
        }
    }

    #[inline]
    fn deadline(&self, engine: &Engine<P::Out>, now: Instant) -> Instant {
        let time = match self.limit {
            Limit::At(at) => return at,
            Limit::After(time) => time,
            Limit::Default => match engine.options().command_timeout {
                Some(time) => time,
                None => return Instant::NEVER,
            },
        };
        engine.instant_after(now, time)
    }

    /// Submits on the first poll, then waits for the body of the reply.
    #[inline]
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Body<KeptOf<P::Out>>, Error>> {
        let id = match self.state {
            State::Taken(id) => id,
            State::New => return self.submit(cx),
            State::Over => {
                let text = "a finished request was polled again";
                return Poll::Ready(Err(Error::new(ErrorKind::Closed, Fate::NotSent, text)));
            }
        };
        self.place.discharge(&mut self.duty);
        loop {
            match self.place.look(|engine| engine.redeem(id, cx.waker())) {
                Redeemed::Ready(outcome) => {
                    self.state = State::Over;
                    return Poll::Ready(outcome);
                }
                Redeemed::Pending => return Poll::Pending,
                Redeemed::OtherWaker => {
                    if self.wait_with(id, cx.waker().clone()) {
                        return Poll::Pending;
                    }
                }
                Redeemed::Admitted => {
                    let mut duty = std::mem::take(&mut self.duty);
                    let encoded = self.encoded();
                    self.place.queue(&mut duty, cx, |engine, now| {
                        engine.queue_admitted(now, id, &encoded);
                    });
                    self.duty = duty;
                }
            }
        }
    }

    /// Records the waker. `false`: look again. The replaced one is dropped outside the engine.
    fn wait_with(&self, id: CellId, waker: Waker) -> bool {
        let recorded = self.place.look(|engine| engine.await_with(id, waker));
        recorded.is_ok()
    }

    #[inline]
    fn submit(&mut self, cx: &mut Context<'_>) -> Poll<Result<Body<KeptOf<P::Out>>, Error>> {
        if self.command.bytes().len() >= LONG {
            self.long = Some(self.command.share());
        }
        let waker = cx.waker().clone();
        let mut duty = std::mem::take(&mut self.duty);
        let taken = self.place.queue(&mut duty, cx, |engine, now| {
            if let Err(error) = self.check(engine) {
                return Submitted::Refused(error, waker);
            }
            engine.submit(&self.encoded(), now, self.deadline(engine, now), waker)
        });
        self.duty = duty;
        match taken {
            Submitted::Taken(id) => {
                self.state = State::Taken(id);
                Poll::Pending
            }
            Submitted::Refused(error, _waker) => {
                self.state = State::Over;
                Poll::Ready(Err(self.explain(error)))
            }
        }
    }

    #[inline]
    fn check(&self, engine: &Engine<P::Out>) -> Result<(), Error> {
        self.command.check(engine.options().allow_admin)?;
        if self.command.block().is_some() {
            let text = "it waits on the server, and would hold up every other command on a shared \
                        connection: use its form without a timeout";
            return Err(Error::new(ErrorKind::Refused, Fate::NotSent, text));
        }
        if self.command.bytes().len() > u32::MAX as usize {
            let text = "a command of more than 4 GiB cannot be sent: split its arguments";
            return Err(Error::new(ErrorKind::Refused, Fate::NotSent, text));
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
        let had = match self.limit {
            Limit::Default => self.place.with(|engine, _| engine.options().command_timeout),
            Limit::After(time) => Some(time),
            Limit::At(_) => None,
        };
        error.with_timeout(had)
    }

    /// Gives memory of the body back to the engine, where that pays.
    #[inline]
    pub(crate) fn give_back(&self, body: Body<KeptOf<P::Out>>) {
        if matches!(body, Body::Pooled(_)) {
            self.give_back_memory(body);
        }
    }

    #[inline(never)]
    fn give_back_memory(&self, body: Body<KeptOf<P::Out>>) {
        if let Body::Pooled(memory) = body {
            self.place.look(|engine| engine.give_back(memory));
        }
    }

    fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
        if let State::Taken(id) = self.state {
            self.place.with(|engine, now| {
                let deadline = match limit {
                    Limit::At(at) => at,
                    Limit::After(time) => engine.instant_after(now, time),
                    Limit::Default => return,
                };
                engine.set_deadline(id, now, deadline);
            });
        }
    }
}

impl<P: Place> Drop for Passage<P> {
    fn drop(&mut self) {
        if let State::Taken(id) = self.state {
            // What the cell held is the user's: dropped after the engine is let go.
            let _held = self.place.with(|engine, _| engine.abandon(id));
        }
        self.place.discharge(&mut self.duty);
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
    pub(crate) fn new(place: P, command: Command<R>) -> Request<P, R> {
        Request { passage: Passage::new(place, command.returning()), reply: PhantomData }
    }

    pub(crate) fn deadline(&mut self, at: std::time::Instant) {
        self.passage.set_limit(Limit::At(Instant::from_std(at)));
    }

    #[cfg(feature = "hosted")]
    pub(crate) fn deadline_at(&mut self, at: Instant) {
        self.passage.set_limit(Limit::At(at));
    }

    pub(crate) fn timeout(&mut self, time: Duration) {
        self.passage.set_limit(Limit::After(time));
    }

    pub(crate) fn into_passage(self) -> Passage<P> {
        self.passage
    }
}

impl<P: Place, R: FromReply<KeptOf<P::Out>>> Future for Request<P, R> {
    type Output = Result<R, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let outcome = match this.passage.poll_body(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(outcome) => outcome,
        };
        Poll::Ready(match outcome {
            Ok(body) => {
                let value = read(body.reply());
                this.passage.give_back(body);
                value.map_err(|e| e.with_command(this.passage.name()))
            }
            Err(error) => Err(this.passage.explain(error)),
        })
    }
}

/// A reply as a value; a server's error is an error.
#[inline]
pub(crate) fn read<K: crate::resp::Kept, R: FromReply<K>>(reply: Reply<'_, K>) -> Result<R, Error> {
    let frame = reply.frame();
    if frame.is_error()
        && let Some(error) = ServerError::from_frame(&frame)
    {
        return Err(Error::server(error));
    }
    R::from_reply(reply).map_err(Error::convert)
}
