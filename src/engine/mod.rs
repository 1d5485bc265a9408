//! The engine: requests, links and deadlines of one client in one placement.
//!
//! Plain code, without socket, thread, future, lock or clock. `handle_*(now, ..)` feeds it what
//! happened outside; what it wants done it records through [`Outside`]. No waker is cloned, woken
//! or dropped, and no code or value of a user runs, while it is borrowed.

mod body;
mod cell;
mod deadline;
mod diagnostics;
mod life;
mod link;
mod log;
mod outside;
mod seen;
mod state;

pub(crate) use body::Body;
pub use cell::CellId;
pub use diagnostics::{Diagnostics, Pressure, Stage};
pub use link::{Class, LinkId};
pub use log::Line;
pub use outside::{KeptOf, Outside, Received};
pub use seen::{ReadCopy, SeenNode};
pub(crate) use state::ObserverId;
pub use state::{ConnectionState, StateChange};

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use hedgerow_runtime::time::Instant;
use hedgerow_runtime::{Batch, Progress};

use crate::command::Encoded;
use crate::config::Options;
use crate::connection::{Owner, Push, full, is_full};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{Frame, ServerError, Shape, Step};
use crate::route::{self, Verdict};
use crate::topology::Topology;
use body::{Held, INLINE_MAX, POOLED_MAX};
use cell::{Answered, Cell, Cells, State};
use deadline::{Deadlines, nanos};
use link::{Link, LinkState};
use state::Observers;

/// Spare buffers for pooled bodies.
const SPARES_MAX: usize = 1024;

/// What became of a submission.
pub(crate) enum Submitted {
    /// It is in a connection's write buffer; poll with [`Engine::redeem`].
    Queued(CellId),
    /// It waits for a connection or for room, and its bytes are still needed; poll likewise.
    Waits(CellId),
    /// It was refused; the waker comes back, to be dropped outside.
    Refused(Error, Waker),
}

/// What a request's poll finds.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    /// No outcome yet, and the waker on record is the right one.
    Nothing,
    /// Not yet; record another waker with [`Engine::await_with`].
    OtherWaker,
    /// There is room now: queue it with [`Engine::queue_admitted`].
    Admitted,
    /// A reply for [`Engine::answered`], after all.
    Reply,
    /// An outcome for [`Engine::redeem`].
    Outcome,
}

/// Counters of one engine, written by its placement only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands queued.
    pub commands: u64,
    /// Replies that reached a request, or would have.
    pub replies: u64,
    /// Push frames.
    pub pushes: u64,
    /// Requests that a deadline ended.
    pub timeouts: u64,
    /// Connections made.
    pub connects: u64,
}

impl Counters {
    /// The sum of two engines' counters.
    pub(crate) fn plus(self, other: Counters) -> Counters {
        Counters {
            commands: self.commands + other.commands,
            replies: self.replies + other.replies,
            pushes: self.pushes + other.pushes,
            timeouts: self.timeouts + other.timeouts,
            connects: self.connects + other.connects,
        }
    }
}

/// The requests and links of one client in one placement.
pub struct Engine<O: Outside> {
    out: O,
    topology: Arc<Topology>,
    options: Arc<Options>,
    /// The `command_timeout` in nanoseconds.
    command_ns: u64,
    cells: Cells<KeptOf<O>>,
    links: Vec<Link>,
    /// Where the search for a link with room begins.
    lane: usize,
    /// Requests that wait for a connection or for room, oldest first; may hold stale names.
    waiters: VecDeque<CellId>,
    waiting: usize,
    waiting_bytes: usize,
    deadlines: Deadlines,
    spares: Vec<Vec<u8>>,
    observers: Observers,
    /// Who waits for the first connections to be up.
    starters: Vec<Waker>,
    random: fastrand::Rng,
    counters: Counters,
    closed: bool,
    draining: bool,
    /// Why the first attempt of some link failed, until all were up once.
    first_failure: Option<Error>,
    was_up: bool,
}

impl<O: Outside> Engine<O> {
    /// An engine for the nodes of `topology`; nothing is connected before [`Engine::start`].
    pub fn new(out: O, topology: Arc<Topology>, now: Instant, seed: u64) -> Engine<O> {
        let node = route::pick(&topology).node;
        // A snapshot always has the node that `pick` names; a default keeps this free of panics.
        let options = topology.node(node).map(|n| n.profile.clone()).unwrap_or_else(|| {
            Arc::new(Options::new(crate::config::Endpoint::tcp("localhost", 6379)))
        });
        let lanes = 0..options.connections.clamp(1, 1 << 16);
        let link = |i: usize| Link::new(node, Class::Shared(i as u16), options.limits);
        Engine {
            out,
            links: lanes.map(link).collect(),
            topology,
            command_ns: nanos(options.command_timeout),
            options,
            cells: Cells::default(),
            lane: 0,
            waiters: VecDeque::new(),
            waiting: 0,
            waiting_bytes: 0,
            deadlines: Deadlines::new(now),
            spares: Vec::new(),
            observers: Observers::default(),
            starters: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            counters: Counters::default(),
            closed: false,
            draining: false,
            first_failure: None,
            was_up: false,
        }
    }

    /// The placement's side.
    pub fn out(&mut self) -> &mut O {
        &mut self.out
    }

    /// The settings.
    pub(crate) fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// The snapshot that commands are routed by.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that hold a cell, and whether replies or connects are outstanding.
    pub fn live_requests(&self) -> usize {
        self.cells.live()
    }

    /// Whether anything is due from outside.
    pub fn in_flight(&self) -> bool {
        self.links
            .iter()
            .any(|l| !l.connection.in_flight.is_empty() || matches!(l.state, LinkState::Connecting))
    }

    /// Whether the system was handed commands on `at` that are not answered yet.
    #[inline]
    pub(crate) fn replies_due(&self, at: LinkId) -> bool {
        let link = self.links.get(at.0 as usize);
        link.is_some_and(|l| l.connection.in_flight.peek_answer().is_some())
    }

    // --- A request's passage -----------------------------------------------------------------

    /// Takes a command: queued at once if a link has room, else it waits for one.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        command: &Encoded<'_>,
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> Submitted {
        // Whether a near deadline is past, only the clock itself can tell.
        let is_near = deadline <= now.plus_nanos(O::BEHIND_NS);
        let now = if is_near { self.out.clock(now) } else { now };
        if self.waiting == 0
            && deadline > now
            && let Some(link) = self.link_with_room()
        {
            let (id, cell) = self.cells.take();
            cell.state = State::InFlight;
            cell.link = link;
            cell.deadline = deadline;
            cell.waker = Some(waker);
            enqueue(&mut self.links[link.0 as usize], &mut self.out, id, cell, command);
            self.counters.commands += 1;
            self.watch(id, now, deadline);
            return Submitted::Queued(id);
        }
        self.submit_slowly(command, now, deadline, waker)
    }

    #[cold]
    fn submit_slowly(
        &mut self,
        command: &Encoded<'_>,
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> Submitted {
        if let Some(error) = self.refusal(command.len()) {
            return Submitted::Refused(error, waker);
        }
        if deadline <= now {
            let at = LinkId(0);
            let error = self.timeout_error(now, at, Stage::WaitingForCapacity, self.pressure());
            return Submitted::Refused(error, waker);
        }
        let own_deadline = deadline;
        let deadline = if self.is_connected() {
            deadline
        } else {
            // Counted as a command's own time is: `now` may be behind.
            deadline.min(self.after_nanos(now, nanos(self.options.queue_timeout)))
        };
        let (id, cell) = self.cells.take();
        cell.state = State::Waiting;
        cell.link = LinkId(0);
        cell.deadline = deadline;
        cell.waker = Some(waker);
        cell.held = Held::Waiting { own_deadline, len: command.len() as u32 };
        self.waiters.push_back(id);
        self.waiting += 1;
        self.waiting_bytes += command.len();
        self.watch(id, now, deadline);
        Submitted::Waits(id)
    }

    /// Why a command cannot even wait.
    fn refusal(&self, len: usize) -> Option<Error> {
        if self.closed || self.draining {
            return Some(Error::closed());
        }
        if let Some(error) = self.given_up() {
            return Some(error.with_fate(Fate::NotSent));
        }
        let full = self.waiting >= self.options.queue_commands_max
            || self.waiting_bytes + len > self.options.queue_bytes_max;
        (full && !self.is_connected()).then(|| {
            let text = format!(
                "queue full: {} commands ({} bytes) wait for a connection",
                self.waiting, self.waiting_bytes
            );
            let error = Error::new(ErrorKind::QueueFull, Fate::NotSent, text);
            error.with_node(&self.options.endpoint)
        })
    }

    /// The next link that takes a command, in turn.
    #[inline]
    fn link_with_room(&mut self) -> Option<LinkId> {
        let max = self.options.in_flight_max;
        let fits = |l: &Link| l.is_ready() && l.has_room(max);
        if self.closed || self.draining {
            return None;
        }
        if let [only] = &self.links[..] {
            return fits(only).then_some(LinkId(0));
        }
        for _ in 0..self.links.len() {
            let at = self.lane;
            self.lane = if at + 1 == self.links.len() { 0 } else { at + 1 };
            if fits(&self.links[at]) {
                return Some(LinkId(at as u32));
            }
        }
        None
    }

    /// Queues a request that was told that there is room. It waits again if its link is gone.
    pub(crate) fn queue_admitted(&mut self, now: Instant, id: CellId, command: &Encoded<'_>) {
        let Some(cell) = self.cells.get(id) else { return };
        if cell.state != State::Admitted {
            return;
        }
        let (at, (own_deadline, _)) = (cell.link, cell.when_queued());
        if own_deadline <= now {
            let pressure = self.pressure();
            return self.expire(now, id, pressure);
        }
        self.links[at.0 as usize].reserved -= 1;
        if !self.links[at.0 as usize].is_ready() {
            return self.wait_again(id, command.len());
        }
        cell.state = State::InFlight;
        cell.held = Held::Nothing;
        let wait_is_over = cell.deadline != own_deadline;
        enqueue(&mut self.links[at.0 as usize], &mut self.out, id, cell, command);
        self.counters.commands += 1;
        if wait_is_over {
            self.set_deadline(id, now, own_deadline);
        }
    }

    #[cold]
    fn wait_again(&mut self, id: CellId, len: usize) {
        if let Some(error) = self.given_up() {
            let error = error.with_fate(Fate::NotSent);
            return self.fail(id, error);
        }
        if let Some(cell) = self.cells.get(id) {
            cell.state = State::Waiting;
            self.waiters.push_front(id);
            self.waiting += 1;
            self.waiting_bytes += len;
        }
    }

    /// The reply of a request, if it has one that is a short scalar.
    #[inline(always)]
    pub(crate) fn answered(&mut self, id: CellId) -> Option<Answered<'_, KeptOf<O>>> {
        self.cells.answered(id)
    }

    /// Where a request without such a reply is, for the task of `waker`.
    pub(crate) fn look_for(&mut self, id: CellId, waker: &Waker) -> Found {
        self.cells.look_for(id, waker)
    }

    /// Takes the outcome of a request of which [`Found::Outcome`] was said; its cell is given back.
    pub(crate) fn redeem(&mut self, id: CellId) -> Result<Body<KeptOf<O>>, Error> {
        let cell = self.cells.get(id).filter(|cell| cell.state == State::Done);
        let Some(cell) = cell else { return Err(Error::closed()) };
        let outcome = match std::mem::replace(&mut cell.held, Held::Nothing) {
            Held::Short => Ok(Body::Short(cell.short)),
            Held::Pooled(bytes) => Ok(Body::Pooled(bytes)),
            Held::Kept(kept) => Ok(Body::Kept(kept)),
            Held::Failed(error) => Err(error),
            Held::Nothing | Held::Waiting { .. } => Err(Error::closed()),
        };
        self.cells.release(id);
        outcome
    }

    /// Records whom to wake; gives the replaced waker back, to be dropped outside. `Err`: there is
    /// something to do meanwhile, look again.
    pub(crate) fn await_with(&mut self, id: CellId, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.cells.get(id) {
            Some(cell) if matches!(cell.state, State::Waiting | State::InFlight) => {
                Ok(cell.waker.replace(waker))
            }
            _ => Err(waker),
        }
    }

    /// Changes the deadline of a request that is under way.
    pub(crate) fn set_deadline(&mut self, id: CellId, now: Instant, deadline: Instant) {
        let Some(cell) = self.cells.get(id) else { return };
        if !cell.is_awaited() {
            return;
        }
        let mut until = deadline;
        if let Held::Waiting { own_deadline, .. } = &mut cell.held {
            // The limit on waiting stays what it was.
            if cell.deadline < *own_deadline {
                until = until.min(cell.deadline);
            }
            *own_deadline = deadline;
        }
        cell.deadline = until;
        if let Some(timer) = cell.timer.take() {
            self.deadlines.cancel(timer);
        }
        self.watch(id, now, until);
    }

    /// The caller is gone. What is queued is cut out before the next send, what is in flight keeps
    /// its place and its reply is discarded. What comes back is to be dropped outside.
    pub(crate) fn abandon(&mut self, id: CellId) -> Dropped<KeptOf<O>> {
        let Some(cell) = self.cells.get(id) else { return Dropped::default() };
        let (_, len) = cell.when_queued();
        let held = std::mem::replace(&mut cell.held, Held::Nothing);
        let dropped = Dropped { _waker: cell.waker.take(), _held: held };
        let (state, at, ordinal) = (cell.state, cell.link, cell.ordinal);
        cell.state = State::Abandoned;
        if let Some(timer) = cell.timer.take() {
            self.deadlines.cancel(timer);
        }
        match state {
            State::Waiting => self.leave_queue(len),
            State::Admitted => {
                self.links[at.0 as usize].reserved -= 1;
                self.admit();
            }
            State::InFlight => self.mark_dead(at, ordinal),
            State::Free | State::Answered | State::Done | State::Abandoned => {}
        }
        self.cells.free_if_over(id);
        dropped
    }

    fn leave_queue(&mut self, len: usize) {
        self.waiting -= 1;
        self.waiting_bytes -= len;
        // Stale names are skipped when their turn comes; a queue of mostly stale ones is swept.
        if self.waiters.len() > 64 && self.waiters.len() > 4 * self.waiting {
            let cells = &mut self.cells;
            self.waiters.retain(|id| cells.get(*id).is_some_and(|c| c.state == State::Waiting));
        }
    }

    /// A queued unit is not wanted any more: it is cut out before the next send, or at once when
    /// such units make up half of what is queued.
    fn mark_dead(&mut self, at: LinkId, ordinal: u64) {
        let link = &mut self.links[at.0 as usize];
        if link.connection.in_flight.is_handed(ordinal) {
            return;
        }
        let unit = link.connection.in_flight.unit(ordinal);
        link.dead_bytes += unit.map_or(0, |u| u64::from(u.bytes));
        if link.dead_bytes * 2 > link.connection.out.len() as u64 {
            self.cut_dead(at);
        }
    }

    /// Cuts queued units that nobody waits for out of the write buffer.
    fn cut_dead(&mut self, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        link.dead_bytes = 0;
        let cells = &mut self.cells;
        let mut over = Vec::new();
        let mut cuts = Vec::new();
        link.connection.in_flight.retain_queued(|unit, ordinal| {
            let keep = match unit.owner {
                Owner::Request(id) => match cells.get(id) {
                    Some(cell) if cell.state == State::InFlight => {
                        cell.ordinal = ordinal;
                        true
                    }
                    Some(cell) => {
                        cell.entries = cell.entries.saturating_sub(1);
                        over.push(id);
                        false
                    }
                    None => false,
                },
                Owner::Setup | Owner::Nobody => true,
            };
            cuts.push((unit.bytes as usize, keep));
            keep
        });
        link.connection.out.retain_units(cuts.into_iter());
        for id in over {
            self.cells.free_if_over(id);
        }
        self.admit_waiting();
    }

    /// Offers what `at` has to send: `send` takes the batch (leaving it empty) and answers true, or
    /// leaves it and answers false, and is asked again when the link is dirty the next time.
    pub fn flush(&mut self, now: Instant, at: LinkId, send: impl FnOnce(&mut Batch) -> bool) {
        if self.links.get(at.0 as usize).is_none_or(|l| !l.is_open()) {
            return;
        }
        if self.links[at.0 as usize].dead_bytes > 0 {
            self.cut_dead(at);
        }
        let link = &mut self.links[at.0 as usize];
        link.dirty = false;
        let len = link.connection.out.len() as u64;
        if len > 0 && send(&mut link.connection.out) {
            link.connection.in_flight.hand_over();
            link.unsent += len;
            link.handed_at = Some(now);
        }
    }

    /// A place came free.
    #[inline]
    fn admit_waiting(&mut self) {
        if self.waiting > 0 {
            self.admit();
        }
    }

    /// Lets waiting requests have the room there is, oldest first.
    fn admit(&mut self) {
        while self.waiting > 0 {
            let Some(at) = self.link_with_room() else { return };
            let Some(id) = self.waiters.pop_front() else { return };
            let Some(cell) = self.cells.get(id).filter(|c| c.state == State::Waiting) else {
                continue;
            };
            cell.state = State::Admitted;
            cell.link = at;
            self.waiting -= 1;
            self.waiting_bytes -= cell.when_queued().1;
            self.links[at.0 as usize].reserved += 1;
            if let Some(waker) = cell.waker.take() {
                self.out.wake(waker);
            }
        }
    }

    /// Memory of a pooled body, to be used again.
    pub(crate) fn give_back(&mut self, mut spare: Vec<u8>) {
        if self.spares.len() < SPARES_MAX {
            spare.clear();
            self.spares.push(spare);
        }
    }

    // --- What comes from the server ----------------------------------------------------------

    /// Takes received bytes: every complete frame in them. Says what it consumed, and how many
    /// bytes beyond those shown the next frame needs.
    pub fn handle_bytes(&mut self, now: Instant, at: LinkId, rx: &mut O::Rx) -> Progress {
        let mut consumed = 0;
        if let Some(link) = self.links.get_mut(at.0 as usize) {
            link.last_read = Some(now);
        }
        loop {
            let short = self.take_short(at, rx.bytes().get(consumed..).unwrap_or_default());
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
                        self.fill(at, rx, consumed, len);
                    }
                    consumed += len;
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
    fn take_short(&mut self, at: LinkId, bytes: &[u8]) -> usize {
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
            self.admit_waiting();
        }
        consumed
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
            Owner::Request(_) => {
                if frame.is_error() {
                    return self.on_error_reply(now, at, frame);
                }
                true
            }
            Owner::Setup => {
                link.connection.in_flight.answer();
                self.on_setup_reply(now, at, frame);
                false
            }
            Owner::Nobody => {
                link.connection.in_flight.answer();
                // A RESP2 set-up may ask nothing else that a full server could refuse.
                if let Some(error) = ServerError::from_frame(&frame).filter(is_full) {
                    let error = full(error).with_node(&self.options.endpoint);
                    self.lose(now, at, error, false);
                    return false;
                }
                self.admit_waiting();
                false
            }
        }
    }

    #[cold]
    fn on_error_reply(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) -> bool {
        let Some(error) = ServerError::from_frame(&frame) else { return true };
        match route::verdict(&error) {
            Verdict::Return => true,
            Verdict::ReturnAndReconnect => {
                let unit = self.links[at.0 as usize].connection.in_flight.answer();
                if let Some(Owner::Request(id)) = unit.map(|u| u.owner) {
                    self.settle(id, Error::server(error.clone()));
                }
                self.lose(now, at, Error::server(error), false);
                false
            }
        }
    }

    /// Gives the reply at the head of a link to its request.
    #[inline]
    fn fill(&mut self, at: LinkId, rx: &mut O::Rx, from: usize, len: usize) {
        let link = &mut self.links[at.0 as usize];
        link.heard = true;
        let Some(unit) = link.connection.in_flight.answer() else { return };
        let Owner::Request(id) = unit.owner else { return };
        self.counters.replies += 1;
        let Some(cell) = self.cells.get(id) else { return };
        cell.entries = cell.entries.saturating_sub(1);
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
        self.admit_waiting();
    }

    /// Ends a request that has no reply, or whose reply was already taken from the queue.
    fn settle(&mut self, id: CellId, error: Error) {
        let Some(cell) = self.cells.get(id) else { return };
        cell.entries = cell.entries.saturating_sub(1);
        self.fail(id, error);
    }

    /// Records why there is no reply and wakes whoever waits for it.
    fn fail(&mut self, id: CellId, error: Error) {
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

    /// `n` more bytes of what was handed over were taken by the system; `idle` if that was all.
    pub fn handle_sent(&mut self, now: Instant, at: LinkId, n: usize, idle: bool) {
        let Some(link) = self.links.get_mut(at.0 as usize) else { return };
        link.unsent = link.unsent.saturating_sub(n as u64);
        // What went out in one go went out when it was handed over: a core may hear of it only at
        // the end of the wait that the send began.
        let at_once = idle.then(|| link.handed_at.take()).flatten();
        link.handed_at = None;
        link.last_write = at_once.or(Some(now));
        if idle && !link.connection.out.is_empty() && !link.dirty && link.is_open() {
            link.dirty = true;
            self.out.dirty(at);
        }
    }
}

/// What an abandoned request held. Dropped outside the engine, since it is the user's.
pub(crate) struct Dropped<K> {
    _waker: Option<Waker>,
    _held: Held<K>,
}

impl<K> Default for Dropped<K> {
    fn default() -> Dropped<K> {
        Dropped { _waker: None, _held: Held::Nothing }
    }
}

/// Queues the command of a request on a link.
#[inline]
fn enqueue<O: Outside>(
    link: &mut Link,
    out: &mut O,
    id: CellId,
    cell: &mut Cell<KeptOf<O>>,
    command: &Encoded<'_>,
) {
    cell.ordinal = link.connection.enqueue(command, Owner::Request(id), 1);
    cell.entries = 1;
    if !link.dirty {
        link.dirty = true;
        out.dirty(cell.link);
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

impl<O: Outside> Engine<O> {
    /// The nodes as they are now.
    pub fn nodes(&self, _now: Instant) -> Vec<SeenNode> { Vec::new() }
    pub(crate) fn hedges(&self) -> crate::read::Ledger { Default::default() }
    pub(crate) fn weather(&self) -> crate::read::Weather { crate::read::Weather::Clear }
    pub(crate) fn trace_reads(&mut self, _capacity: usize) {}
    pub(crate) fn take_trace(&mut self) -> (Vec<ReadCopy>, u64) { (Vec::new(), 0) }
}
