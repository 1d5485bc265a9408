//! The passage of a request through the engine: taken, queued, waited for, redeemed or abandoned.

use std::task::Waker;

use hedgerow_runtime::time::Instant;

use super::body::{Body, Held};
use super::cell::{Answered, Stand, State};
use super::choose::{Chosen, Why};
use super::deadline::nanos;
use super::outgoing::{enqueue, enqueue_asking};
use super::{CellId, Engine, Found, KeptOf, LinkId, Outside, Stage, Submitted};
use crate::command::Encoded;
use crate::error::{Error, ErrorKind, Fate};
use crate::read::Outcome;
use crate::route::{QueueId, Way};

/// Longest wait for the answer to a PING, where every candidate owes one. In nanoseconds.
const SAMPLING_NS: u64 = 1_000_000_000;

impl<O: Outside> Engine<O> {
    /// Takes a command for the primary: queued at once if a link has room, else it waits for one.
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
        if self.queues.is_empty(Way::PRIMARY.queue())
            && deadline > now
            && let Some(link) = self.primary_with_room()
        {
            return Submitted::taken(self.queue_new(command, link, now, deadline, waker), false);
        }
        self.submit_slowly(command, &Way::PRIMARY, now, deadline, waker)
    }

    /// Takes a command that has more than one place to go to.
    pub(crate) fn submit_routed(
        &mut self,
        command: &Encoded<'_>,
        way: &Way,
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> Submitted {
        let now = self.exact(now);
        if self.queues.is_empty(self.queue_of(way)) && deadline > now {
            match self.choose(now, way, None) {
                Chosen::Link(link) => {
                    let id = self.queue_new(command, link, now, deadline, waker);
                    let armed = self.is_followed(way) && self.begin(id, way, link, now);
                    let may_return = self.keep_way(id, way, command.len());
                    return Submitted::taken(id, armed || may_return);
                }
                Chosen::Never(error) => return Submitted::refused(error, waker),
                Chosen::Wait(_) => {}
            }
        }
        self.submit_slowly(command, way, now, deadline, waker)
    }

    /// As [`Engine::submit`] to the primary of a slot, whose link was found by [`Engine::direct`].
    #[inline]
    pub(crate) fn submit_direct(
        &mut self,
        command: &Encoded<'_>,
        (slot, link): (u16, LinkId),
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> Submitted {
        let id = self.queue_new(command, link, now, deadline, waker);
        let Some(cell) = self.cells.get(id) else { return Submitted::taken(id, true) };
        cell.held = Held::Direct { slot, len: command.len() as u32 };
        // What holds the reply later holds the command until then: nothing of the caller's is kept.
        if let Encoded::Short(text) = command {
            cell.has_text = cell.short.hold(text);
        }
        Submitted::taken(id, !cell.has_text)
    }

    #[inline]
    fn queue_new(
        &mut self,
        command: &Encoded<'_>,
        link: LinkId,
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> CellId {
        let (id, cell) = self.cells.take();
        cell.state = State::InFlight;
        cell.has_text = false;
        cell.link = link;
        cell.deadline = deadline;
        cell.waker = Some(waker);
        enqueue(&mut self.links[link.0 as usize], &mut self.out, id, cell, command);
        self.counters.commands += 1;
        self.watch(id, now, deadline);
        id
    }

    /// Remembers how to send a command of a cluster again. Answers whether that may be needed.
    fn keep_way(&mut self, id: CellId, way: &Way, len: usize) -> bool {
        let in_cluster = self.cluster.is_some();
        if let Some(cell) = self.cells.get(id).filter(|_| in_cluster) {
            cell.held = Held::Sent { way: *way, len: len as u32 };
        }
        in_cluster
    }

    /// Whether anything is to be learnt from when and where a command was answered.
    #[inline]
    fn is_followed(&self, way: &Way) -> bool {
        !way.is_primary() || self.races.is_traced()
    }

    /// A read was queued, or what else is traced. Answers whether a hedge may follow.
    #[inline]
    fn begin(&mut self, id: CellId, way: &Way, link: LinkId, now: Instant) -> bool {
        if self.races.is_due_full() {
            self.forget_answered();
        }
        let node = self.links[link.0 as usize].node;
        let Some(cell) = self.cells.get(id) else { return false };
        let armed = self.races.begin(id, cell, way, node, now);
        if armed {
            self.rearm_hedges();
        }
        armed
    }

    #[cold]
    fn submit_slowly(
        &mut self,
        command: &Encoded<'_>,
        way: &Way,
        now: Instant,
        deadline: Instant,
        waker: Waker,
    ) -> Submitted {
        if let Some(error) = self.refusal(way) {
            return Submitted::refused(error, waker);
        }
        if deadline <= now {
            let at = self.first_link();
            let error = self.timeout_error(now, at, Stage::WaitingForCapacity, self.pressure());
            return Submitted::refused(error, waker);
        }
        let why = match self.choose(now, way, None) {
            Chosen::Wait(why) => why,
            // There is room, but others wait in line for it.
            Chosen::Link(_) => Why::Room,
            Chosen::Never(error) => return Submitted::refused(error, waker),
        };
        if why != Why::Room
            && let Some(error) = self.queue_full(command.len())
        {
            return Submitted::refused(error, waker);
        }
        let own_deadline = deadline;
        let deadline = deadline.min(self.longest_wait(now, why));
        let (link, queue) = (self.awaited_link(way), self.queue_of(way));
        let (id, cell) = self.cells.take();
        cell.state = State::Waiting;
        cell.has_text = false;
        cell.link = link;
        cell.deadline = deadline;
        cell.waker = Some(waker);
        let len = command.len() as u32;
        cell.held = Held::Waiting { own_deadline, len, way: *way, why, queue };
        self.queues.push(queue, id, command.len());
        self.watch(id, now, deadline);
        Submitted::taken(id, true)
    }

    /// Until when a command may wait for what it waits for.
    fn longest_wait(&self, now: Instant, why: Why) -> Instant {
        match why {
            // Counted as a command's own time is: `now` may be behind.
            Why::Connection => self.after_nanos(now, nanos(self.options.queue_timeout)),
            Why::Sample => self.after_nanos(now, SAMPLING_NS),
            Why::Search => self.after_nanos(now, nanos(Some(self.options.connect_and_command()))),
            Why::Room => Instant::NEVER,
        }
    }

    /// Why a command cannot even wait.
    fn refusal(&self, way: &Way) -> Option<Error> {
        if self.closed || self.draining {
            return Some(Error::closed());
        }
        let given_up = if way.is_primary() { self.given_up() } else { None };
        given_up.map(|error| error.with_fate(Fate::NotSent))
    }

    /// Why a command of `len` bytes may not wait for a connection, if as many do as may.
    fn queue_full(&self, len: usize) -> Option<Error> {
        let (waiting, bytes) = (self.queues.waiting(), self.queues.bytes());
        let full = waiting >= self.options.queue_commands_max
            || bytes + len > self.options.queue_bytes_max;
        full.then(|| {
            let text =
                format!("queue full: {waiting} commands ({bytes} bytes) wait for a connection");
            let error = Error::new(ErrorKind::QueueFull, Fate::NotSent, text);
            error.with_node(&self.options.endpoint)
        })
    }

    /// Queues a request that was told that there is room. It waits again if its link is gone. Answers
    /// whether its bytes may be asked for once more. `command` is nothing where its cell has it.
    pub(crate) fn queue_admitted(
        &mut self,
        now: Instant,
        id: CellId,
        command: &Encoded<'_>,
    ) -> bool {
        let Some(cell) = self.cells.get(id) else { return false };
        let own = cell.has_text.then_some(cell.short);
        let own = own.as_ref().map(|text| Encoded::Short(text.raw()));
        let command = own.as_ref().unwrap_or(command);
        let (State::Admitted, Held::Waiting { own_deadline, way, queue, .. }) =
            (cell.state, &cell.held)
        else {
            return false;
        };
        let (at, own_deadline, way, queue) = (cell.link, *own_deadline, *way, *queue);
        if own_deadline <= now {
            let pressure = self.pressure();
            self.expire(now, id, pressure);
            return false;
        }
        self.links[at.0 as usize].reserved -= 1;
        if !self.links[at.0 as usize].is_ready() {
            self.wait_again(now, id, &way, queue, command.len());
            return false;
        }
        cell.state = State::InFlight;
        cell.held = Held::Nothing;
        let wait_is_over = cell.deadline != own_deadline;
        let link = &mut self.links[at.0 as usize];
        match way.is_asking {
            true => enqueue_asking(link, &mut self.out, id, cell, command),
            false => enqueue(link, &mut self.out, id, cell, command),
        }
        self.counters.commands += 1;
        if wait_is_over {
            self.set_deadline(id, now, own_deadline);
        }
        self.keep_way(id, &way, command.len());
        let now = self.exact(now);
        self.is_followed(&way) && self.begin(id, &way, at, now)
    }

    #[cold]
    fn wait_again(&mut self, now: Instant, id: CellId, way: &Way, queue: QueueId, len: usize) {
        match self.choose(now, way, None) {
            Chosen::Never(error) => return self.fail(id, error),
            Chosen::Link(_) | Chosen::Wait(_) => {}
        }
        if let Some(cell) = self.cells.get(id) {
            cell.state = State::Waiting;
            self.queues.push_front(queue, id, len);
        }
        // Another link may have room, and nothing else might say so.
        self.admit(now);
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
            Held::Nothing | Held::Waiting { .. } | Held::Sent { .. } | Held::Direct { .. } => {
                Err(Error::closed())
            }
        };
        self.cells.release(id);
        outcome
    }

    /// Records whom to wake; gives the replaced waker back, to be dropped outside. `Err`: there is
    /// something to do meanwhile, look again.
    pub(crate) fn await_with(&mut self, id: CellId, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.cells.get(id) {
            Some(cell)
                if matches!(cell.state, State::Waiting | State::Parked | State::InFlight) =>
            {
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
    pub(crate) fn abandon(&mut self, id: CellId, now: Instant) -> Dropped<KeptOf<O>> {
        let Some(cell) = self.cells.get(id) else { return Dropped::default() };
        let stood = cell.stand();
        let held = std::mem::replace(&mut cell.held, Held::Nothing);
        let dropped = Dropped { _waker: cell.waker.take(), _held: held };
        cell.state = State::Abandoned;
        if let Some(timer) = cell.timer.take() {
            self.deadlines.cancel(timer);
        }
        self.leave(now, id, stood, None);
        self.cells.free_if_over(id);
        dropped
    }

    /// A request ended before its reply: its place goes to others. `outcome` is how its race ended.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        id: CellId,
        stood: Stand,
        outcome: Option<Outcome>,
    ) {
        match stood.state {
            State::Waiting => {
                self.leave_queue(stood.queue, stood.len);
                self.admit(now);
            }
            State::Parked => {}
            State::Admitted => {
                self.links[stood.link.0 as usize].reserved -= 1;
                self.admit(now);
            }
            State::InFlight => self.mark_all_dead(now, id, stood.link, stood.ordinal, outcome),
            State::Free | State::Answered | State::Done | State::Abandoned => {}
        }
    }

    pub(super) fn leave_queue(&mut self, queue: Option<QueueId>, len: usize) {
        let Some(queue) = queue else { return };
        let cells = &mut self.cells;
        let still_waits = |id: &CellId| cells.get(*id).is_some_and(|c| c.state == State::Waiting);
        self.queues.leave(queue, len, still_waits);
    }

    /// Nobody waits for any copy of a request any more: `outcome` is how its race ended.
    fn mark_all_dead(
        &mut self,
        now: Instant,
        id: CellId,
        at: LinkId,
        ordinal: u64,
        outcome: Option<Outcome>,
    ) {
        let Some(cell) = self.cells.get(id) else { return };
        let hedge = self.races.get(cell.race).map(|race| race.hedge);
        self.races.end(now, cell, outcome);
        self.mark_dead(at, ordinal);
        if let Some(hedge) = hedge {
            self.mark_dead(hedge.link, hedge.ordinal);
        }
        self.settle_races();
    }

    /// Lets waiting requests have the room there is, oldest first, and refuses those that cannot be served
    /// any more.
    #[inline]
    pub(super) fn admit(&mut self, now: Instant) {
        if self.queues.waiting() > 0 {
            self.admit_waiting(now);
        }
    }

    /// Has all who wait stand in line for what they wait for as that is known now: a shard may not have been
    /// known, or have been another.
    pub(super) fn sort_queues(&mut self) {
        if self.queues.waiting() == 0 {
            return;
        }
        for id in self.queues.take_all() {
            let Some(cell) = self.cells.get(id).filter(|cell| cell.state == State::Waiting) else {
                continue;
            };
            let (way, len) = (cell.way(), cell.when_queued().1);
            let sorted = self.queue_of(&way);
            if let Some(cell) = self.cells.get(id)
                && let Held::Waiting { queue, .. } = &mut cell.held
            {
                *queue = sorted;
            }
            self.queues.push(sorted, id, len);
        }
    }

    #[inline(never)]
    fn admit_waiting(&mut self, now: Instant) {
        let mut place = 0;
        while let Some(queue) = self.queues.busy(place) {
            while !self.queues.is_empty(queue) && self.admit_next(now, queue) {}
            // One that is empty now has left its place to another.
            place += usize::from(!self.queues.is_empty(queue));
        }
    }

    /// Whether the next in line may have something to do, too.
    fn admit_next(&mut self, now: Instant, queue: QueueId) -> bool {
        let Some(id) = self.queues.front(queue) else { return false };
        let waits = self.cells.get(id).filter(|c| c.state == State::Waiting);
        let Some((way, len)) = waits.map(|cell| (cell.way(), cell.when_queued().1)) else {
            self.queues.pop(queue);
            return true;
        };
        let chosen = self.choose(now, &way, None);
        if let Chosen::Wait(_) = chosen {
            return false;
        }
        self.queues.pop(queue);
        self.leave_queue(Some(queue), len);
        match chosen {
            Chosen::Never(error) => self.fail(id, error),
            Chosen::Link(at) => {
                let Some(cell) = self.cells.get(id) else { return true };
                cell.state = State::Admitted;
                cell.link = at;
                self.links[at.0 as usize].reserved += 1;
                if let Some(waker) = cell.waker.take() {
                    self.out.wake(waker);
                }
            }
            Chosen::Wait(_) => {}
        }
        true
    }

    /// Memory of a pooled body, to be used again.
    pub(crate) fn give_back(&mut self, mut spare: Vec<u8>) {
        if self.spares.len() < super::SPARES_MAX {
            spare.clear();
            self.spares.push(spare);
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
