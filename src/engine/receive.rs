//! What comes from the servers: replies to their requests, pushes aside.

use hedgerow_runtime::Progress;
use hedgerow_runtime::time::Instant;

use super::body::{Held, INLINE_MAX, POOLED_MAX};
use super::cell::State;
use super::link::LinkState;
use super::race::Leg;
use super::{CellId, Engine, LinkId, Outside, Received};
use crate::connection::{Owner, Push, full, is_full};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{Frame, ServerError, Shape, Step};
use crate::route::{self, Verdict};

impl<O: Outside> Engine<O> {
    /// Takes received bytes: every complete frame in them. Says what it consumed, and how many
    /// bytes beyond those shown the next frame needs.
    pub fn handle_bytes(&mut self, now: Instant, at: LinkId, rx: &mut O::Rx) -> Progress {
        let mut consumed = 0;
        self.now = now;
        if let Some(link) = self.links.get_mut(at.0 as usize) {
            link.last_read = Some(now);
        }
        loop {
            let short = self.take_short(now, at, rx.bytes().get(consumed..).unwrap_or_default());
            rx.count_copy(short);
            consumed += short;
            let all = rx.bytes().len();
            let Some(link) = self.links.get_mut(at.0 as usize).filter(|l| l.is_open()) else {
                return Progress { consumed: all, need: 0 };
            };
            if consumed == all {
                return Progress { consumed, need: 0 };
            }
            match link.connection.decoder.decode(&rx.bytes()[consumed..]) {
                Ok(Step::Frame(frame)) => {
                    let len = frame.len_raw();
                    if frame.is_push() {
                        self.on_push(&frame);
                    } else if self.on_reply(now, at, frame) {
                        self.fill(now, at, rx, consumed, len);
                        self.put_off_hedges(now);
                    }
                    consumed += len;
                    self.end_drained(now, at);
                }
                Ok(Step::More { need }) => return Progress { consumed, need },
                Err(broken) => {
                    self.lose_broken(now, at, Error::protocol(broken));
                    return Progress { consumed: all, need: 0 };
                }
            }
        }
    }

    /// Takes the short scalars at the front, each the one reply of a request: nearly all that ever
    /// comes, in one pass without a second look at link, bytes or queue. Answers their length; what
    /// is anything else (long, an aggregate, an error, a push, of set-up) is left.
    #[inline]
    fn take_short(&mut self, now: Instant, at: LinkId, bytes: &[u8]) -> usize {
        let Some(link) = self.links.get_mut(at.0 as usize).filter(|l| l.is_ready()) else {
            return 0;
        };
        let mut consumed = 0;
        let mut replies = 0;
        while let Some(rest) = bytes.get(consumed..)
            && let Some(frame) = link.connection.decoder.whole(rest)
            && frame.len_raw() <= INLINE_MAX
            && let Some(shape) = frame.shape()
            && let Some(id) = link.connection.in_flight.answer_of_request()
        {
            consumed += frame.len_raw();
            replies += 1;
            let Some(cell) = self.cells.get(id) else { continue };
            cell.entries = cell.entries.saturating_sub(1);
            if cell.watch.is_some() {
                self.races.answered(now, cell, Leg::Original, frame.len_raw());
            }
            if cell.state != State::InFlight {
                self.cells.free_if_over(id);
                continue;
            }
            cell.state = State::Answered;
            cell.short.take(rest, frame.len_raw(), shape);
            if let Some(timer) = cell.timer.take() {
                self.deadlines.cancel(timer);
            }
            if let Some(waker) = cell.waker.take() {
                self.out.wake(waker);
            }
        }
        if replies > 0 {
            link.heard = true;
            self.counters.replies += replies;
            self.settle_races();
            self.put_off_hedges(now);
            self.admit(now);
        }
        consumed
    }

    /// Ends a connection that was only to finish what was in flight, once it has.
    #[inline]
    fn end_drained(&mut self, now: Instant, at: LinkId) {
        let link = &self.links[at.0 as usize];
        if let LinkState::Draining(error) = &link.state
            && link.connection.in_flight.is_empty()
        {
            let error = error.clone();
            self.lose(now, at, error, false);
        }
    }

    fn on_push(&mut self, frame: &Frame<'_>) {
        self.counters.pushes += 1;
        match Push::of(frame) {
            Push::Invalidate | Push::Message | Push::Subscription | Push::Other => {}
        }
    }

    /// A reply came on a link; answers whether it is a request's, which [`Engine::fill`] takes.
    #[inline]
    fn on_reply(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) -> bool {
        let link = &mut self.links[at.0 as usize];
        let Some(unit) = link.connection.in_flight.peek_answer() else {
            let text = "the server sent a reply that nothing asked for";
            let error = Error::new(ErrorKind::Protocol, Fate::Unknown, text);
            self.lose_broken(now, at, error);
            return false;
        };
        match unit.owner {
            // The answer to ASKING; what follows it says all that there is to say.
            Owner::Request(_) | Owner::Hedge(_) if unit.due > 1 => {
                link.connection.in_flight.answer();
                false
            }
            Owner::Request(_) | Owner::Hedge(_) if !frame.is_error() => true,
            Owner::Request(_) | Owner::Hedge(_) if self.cluster.is_some() => {
                self.on_error_in_cluster(now, at, frame)
            }
            Owner::Request(_) | Owner::Hedge(_) => self.on_error_reply(now, at, frame),
            Owner::Setup => {
                link.connection.in_flight.answer();
                self.on_setup_reply(now, at, frame);
                false
            }
            Owner::Role => {
                link.connection.in_flight.answer();
                self.on_role_reply(now, at, frame);
                false
            }
            Owner::Ping => {
                link.connection.in_flight.answer();
                self.on_pong(now, at, frame);
                false
            }
            Owner::Nobody => {
                link.connection.in_flight.answer();
                // A RESP2 set-up may ask nothing else that a full server could refuse.
                if let Some(error) = ServerError::from_frame(&frame).filter(is_full) {
                    let error = full(error).with_node(&link.profile.endpoint);
                    self.lose(now, at, error, false);
                    return false;
                }
                self.admit(now);
                false
            }
        }
    }

    #[cold]
    fn on_error_reply(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) -> bool {
        let Some(error) = ServerError::from_frame(&frame) else { return true };
        match route::verdict(&error, self.links[at.0 as usize].role) {
            Verdict::ReturnAndCheck => {
                self.ask_role(now, at);
                self.hint(at);
                self.give_error(now, at, error)
            }
            Verdict::ReturnAndReconnect => {
                let unit = self.links[at.0 as usize].connection.in_flight.answer();
                if let Some((id, leg)) = unit.and_then(|u| copy_of(u.owner)) {
                    self.settle(now, id, leg, Error::server(error.clone()));
                }
                self.lose(now, at, Error::server(error), false);
                false
            }
            _ => self.give_error(now, at, error),
        }
    }

    /// Answers whether the error reply at the head of a link is what its request gets. Another copy of it
    /// may still succeed, unless every node would say the same; and what a node refuses for its own
    /// state is no reply to learn its speed from.
    pub(super) fn give_error(&mut self, now: Instant, at: LinkId, error: ServerError) -> bool {
        let link = &mut self.links[at.0 as usize];
        let in_flight = &mut link.connection.in_flight;
        let copy = in_flight.peek_answer().and_then(|unit| copy_of(unit.owner));
        let Some((id, leg)) = copy else { return true };
        let Some(cell) = self.cells.get(id) else { return true };
        if cell.watch.is_none() {
            return true;
        }
        let may_succeed = self.races.get(cell.race).is_some() && !route::is_final(&error);
        if !may_succeed && !error.is_transient() {
            return true;
        }
        in_flight.answer();
        link.heard = true;
        self.counters.replies += 1;
        self.settle(now, id, leg, Error::server(error));
        self.admit(now);
        false
    }

    /// Gives the reply at the head of a link to its request.
    #[inline]
    fn fill(&mut self, now: Instant, at: LinkId, rx: &mut O::Rx, from: usize, len: usize) {
        let link = &mut self.links[at.0 as usize];
        link.heard = true;
        let Some(unit) = link.connection.in_flight.answer() else { return };
        let Some((id, leg)) = copy_of(unit.owner) else { return };
        self.counters.replies += 1;
        let Some(cell) = self.cells.get(id) else { return };
        cell.entries = cell.entries.saturating_sub(1);
        if cell.watch.is_some() {
            self.races.answered(now, cell, leg, len);
        }
        if cell.state == State::InFlight {
            cell.state = State::Done;
            if len <= INLINE_MAX {
                cell.short.take(&rx.bytes()[from..], len, Shape::NULL);
                cell.held = Held::Short;
                rx.count_copy(len);
            } else {
                cell.held = keep(&mut self.spares, rx, from, len);
            }
            if let Some(timer) = cell.timer.take() {
                self.deadlines.cancel(timer);
            }
            if let Some(waker) = cell.waker.take() {
                self.out.wake(waker);
            }
        } else {
            self.cells.free_if_over(id);
        }
        self.settle_races();
        self.admit(now);
    }

    /// A copy has no reply, or its reply was already taken from the queue. Its request fails unless another
    /// copy is under way.
    pub(super) fn settle(&mut self, now: Instant, id: CellId, leg: Leg, error: Error) {
        let Some(cell) = self.cells.get(id) else { return };
        cell.entries = cell.entries.saturating_sub(1);
        match self.races.failed(now, cell, leg, error) {
            Some(error) if self.go_on(now, id, &error) => {}
            Some(error) => self.fail(id, error),
            None => self.cells.free_if_over(id),
        }
        self.settle_races();
    }

    /// Records why there is no reply and wakes whoever waits for it.
    pub(super) fn fail(&mut self, id: CellId, error: Error) {
        let Some(cell) = self.cells.get(id) else { return };
        if cell.is_awaited() {
            cell.state = State::Done;
            cell.held = Held::Failed(error);
            if let Some(timer) = cell.timer.take() {
                self.deadlines.cancel(timer);
            }
            if let Some(waker) = cell.waker.take() {
                self.out.wake(waker);
            }
        }
        self.cells.free_if_over(id);
    }
}

/// Which copy of which request a unit is.
pub(super) fn copy_of(owner: Owner) -> Option<(CellId, Leg)> {
    match owner {
        Owner::Request(id) => Some((id, Leg::Original)),
        Owner::Hedge(id) => Some((id, Leg::Hedge)),
        Owner::Setup | Owner::Role | Owner::Ping | Owner::Nobody => None,
    }
}

/// Copies a frame of middling length, keeps a large one.
#[inline]
fn keep<R: Received>(
    spares: &mut Vec<Vec<u8>>,
    rx: &mut R,
    from: usize,
    len: usize,
) -> Held<R::Kept> {
    if len <= POOLED_MAX && R::POOLED {
        let mut bytes = spares.pop().unwrap_or_default();
        bytes.extend_from_slice(&rx.bytes()[from..from + len]);
        rx.count_copy(len);
        return Held::Pooled(bytes);
    }
    Held::Kept(rx.keep(from..from + len))
}
