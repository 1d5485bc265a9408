//! The life of links: connecting, setting up, losing, trying again, closing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use super::cell::State;
use super::check::Check;
use super::link::{Link, LinkState};
use super::receive::copy_of;
use super::{
    ConnectionState, Diagnostics, Engine, Line, LinkId, ObserverId, Outside, Pressure, Stage,
    StateChange,
};
use crate::config::Endpoint;
use crate::connection::{Handshake, InFlight, SetupProgress};
use crate::error::{Error, ErrorKind, Fate};
use crate::read::Estimate;
use crate::resp::{Decoder, Frame, Protocol};
use crate::topology::Role;

/// A connection that was up this long has proven itself: the back-off starts anew.
const PROVEN_AFTER: Duration = Duration::from_secs(1);
/// Before a replica of a cluster that could not be had is tried again.
const CLUSTER_COOLDOWN: Duration = Duration::from_secs(1);

/// Process-local connection numbers.
static NUMBER: AtomicU64 = AtomicU64::new(1);

impl<O: Outside> Engine<O> {
    /// Begins to connect the primary, and the replicas if reads go there unless told otherwise.
    pub fn start(&mut self, now: Instant) {
        for at in self.primary.clone() {
            self.connect(now, LinkId(at as u32));
        }
        if self.cluster.is_some() {
            self.start_cluster(now);
        } else if self.options.read_from.from.uses_replicas() {
            self.start_replicas(now);
        }
        self.rearm();
    }

    /// Has the cluster discovered; what is known already serves at once.
    fn start_cluster(&mut self, now: Instant) {
        if let Some(board) = self.reported_board().cloned() {
            self.out.coordinate(&board);
        }
        let topology = self.topology.clone();
        if topology.slots().is_some() {
            self.take_cluster(now, &topology);
        }
    }

    /// Whether any link to the primary takes commands now, in a cluster to any of its nodes.
    pub fn is_connected(&self) -> bool {
        match self.cluster {
            Some(_) => self.links.iter().any(Link::is_ready),
            None => self.primaries().iter().any(Link::is_ready),
        }
    }

    /// The links to the primary.
    fn primaries(&self) -> &[Link] {
        &self.links[self.primary.clone()]
    }

    /// Why no link to the primary will ever take commands again, if all were given up.
    pub(super) fn given_up(&self) -> Option<&Error> {
        let mut last = None;
        for link in self.primaries() {
            match &link.state {
                LinkState::Failed(error) => last = Some(error),
                _ => return None,
            }
        }
        last
    }

    /// Whether the first connections are up: `None` not yet (the waker is kept), else the outcome.
    pub(crate) fn started(&mut self, waker: Waker) -> Result<Result<(), Error>, Waker> {
        if let Some(error) = &self.first_failure {
            return Ok(Err(error.clone()));
        }
        if self.cluster.is_some() && !self.is_connected() {
            return self.start_with(waker);
        }
        let Some(missing) = self.primaries().iter().find(|link| !link.is_ready()) else {
            return Ok(Ok(()));
        };
        // All were up and one is lost again, before the caller could look: nothing would wake it.
        if self.was_up
            && let Some(error) = &missing.last_error
        {
            return Ok(Err(error.clone()));
        }
        self.start_with(waker)
    }

    /// Keeps the waker of a task that waits for the first connections.
    fn start_with(&mut self, waker: Waker) -> Result<Result<(), Error>, Waker> {
        // A task that is polled for other reasons meanwhile is listed once.
        if self.starters.iter().any(|known| known.will_wake(&waker)) {
            return Err(waker);
        }
        self.starters.push(waker);
        Err(Waker::noop().clone())
    }

    pub(super) fn connect(&mut self, now: Instant, at: LinkId) {
        let by = now + self.links[at.0 as usize].profile.connect_timeout;
        self.connect_by(at, by);
    }

    /// Begins to connect a link, until `by` at the latest.
    pub(super) fn connect_by(&mut self, at: LinkId, by: Instant) {
        let link = &mut self.links[at.0 as usize];
        link.state = LinkState::Connecting;
        link.timer = Instant::NEVER;
        let profile = link.profile.clone();
        self.out.connect(at, &profile.endpoint, by, profile.keepalive);
        self.tell(at, ConnectionState::Connecting, None);
    }

    /// A connect ended.
    pub fn handle_connected(&mut self, now: Instant, at: LinkId, outcome: std::io::Result<()>) {
        let Some(link) = self.links.get_mut(at.0 as usize) else { return };
        if !matches!(link.state, LinkState::Connecting) {
            return;
        }
        if let Err(cause) = outcome {
            let error = self.connect_error(now, at, cause);
            return self.lose(now, at, error, false);
        }
        self.counters.connects += 1;
        link.number = NUMBER.fetch_add(1, Ordering::Relaxed);
        link.up_since = Some(now);
        link.heard = false;
        link.unsent = 0;
        link.dead_bytes = 0;
        (link.last_read, link.last_write) = (None, None);
        link.connection.decoder = Decoder::new(Protocol::Resp3, self.options.limits);
        let (handshake, progress) =
            Handshake::start(&link.profile, link.role, &mut link.connection);
        link.state = LinkState::SettingUp(handshake);
        // Its replies follow the command timeout.
        let wait = self.options.command_timeout.unwrap_or(self.options.connect_timeout);
        link.timer = now + wait;
        self.mark_dirty(at);
        self.on_setup_progress(now, at, progress);
        self.rearm();
    }

    fn connect_error(&self, now: Instant, at: LinkId, cause: std::io::Error) -> Error {
        let endpoint = self.endpoint(at);
        if cause.kind() != std::io::ErrorKind::TimedOut {
            let text = format!("connecting: {cause}");
            let error = Error::new(ErrorKind::Connect, Fate::NotSent, text).with_source(cause);
            return error.with_node(endpoint);
        }
        // An expired connect is a timeout of the command CONNECT.
        let after = self.options.connect_timeout;
        let text = format!("no connection after {} ms", after.as_millis());
        Error::new(ErrorKind::Timeout, Fate::NotSent, text)
            .with_command(Some("CONNECT"))
            .with_timeout(Some(after))
            .with_diagnostics(self.diagnostics(now, at, Stage::Connecting, self.pressure()))
            .with_node(endpoint)
    }

    /// Where a link leads.
    fn endpoint(&self, at: LinkId) -> &Endpoint {
        &self.links[at.0 as usize].profile.endpoint
    }

    pub(super) fn mark_dirty(&mut self, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        if !link.dirty && !link.connection.out.is_empty() {
            link.dirty = true;
            self.out.dirty(at);
        }
    }

    pub(super) fn on_setup_reply(&mut self, now: Instant, at: LinkId, frame: Frame<'_>) {
        let link = &mut self.links[at.0 as usize];
        let LinkState::SettingUp(handshake) = &mut link.state else { return };
        let progress = handshake.on_reply(frame, &link.profile, &mut link.connection);
        if let Some(spoken) = handshake.take_spoken() {
            self.out.log(Line::spoken(spoken));
        }
        self.mark_dirty(at);
        self.on_setup_progress(now, at, progress);
    }

    fn on_setup_progress(&mut self, now: Instant, at: LinkId, progress: SetupProgress) {
        match progress {
            SetupProgress::Waiting => {}
            SetupProgress::Ready => self.on_ready(now, at),
            SetupProgress::Failed { error, permanent } => {
                let error = error.with_node(self.endpoint(at));
                self.lose(now, at, error, permanent);
            }
        }
    }

    fn on_ready(&mut self, now: Instant, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        let setup = std::mem::replace(&mut link.state, LinkState::Ready);
        if let LinkState::SettingUp(handshake) = setup {
            let was_primary = handshake.role() == Role::Primary;
            link.take_learnt(now, handshake.into_learnt());
            if was_primary && link.role == Role::Replica && self.cluster.is_some() {
                self.say_read_only(at);
            }
        }
        let link = &self.links[at.0 as usize];
        self.races.forget(at, link.node, link.shard);
        self.links[at.0 as usize].is_dead = false;
        self.route_epoch += 1;
        self.links[at.0 as usize].timer = self.next_check(now, at);
        self.mark_dirty(at);
        self.tell(at, ConnectionState::Connected, None);
        if self.primaries().iter().all(Link::is_ready) {
            (self.first_failure, self.was_up) = (None, true);
            self.wake_starters();
        }
        self.admit(now);
        self.rearm();
    }

    pub(super) fn wake_starters(&mut self) {
        for waker in std::mem::take(&mut self.starters) {
            self.out.wake(waker);
        }
    }

    /// The connection ended by itself: `None` is an orderly end by the server.
    pub fn handle_closed(&mut self, now: Instant, at: LinkId, cause: Option<std::io::Error>) {
        let Some(link) = self.links.get(at.0 as usize).filter(|l| l.is_open()) else { return };
        let setting_up = matches!(link.state, LinkState::SettingUp(_));
        let what = match (&cause, setting_up) {
            (Some(cause), true) => format!("the connection was lost during set-up: {cause}"),
            (None, true) => "the server closed the connection during set-up (HELLO, AUTH)".into(),
            (Some(cause), false) => format!("the connection was lost: {cause}"),
            (None, false) => "the server closed the connection".to_owned(),
        };
        let kind = if setting_up { ErrorKind::Handshake } else { ErrorKind::Disconnected };
        let mut error = Error::new(kind, Fate::Unknown, what).with_node(self.endpoint(at));
        if let Some(cause) = cause {
            error = error.with_source(cause);
        }
        self.drop_connection(now, at, error, false);
        self.rearm();
    }

    /// Ends a connection from our side; all that was in flight on it fails.
    pub(super) fn lose(&mut self, now: Instant, at: LinkId, error: Error, permanent: bool) {
        self.out.close(at);
        self.drop_connection(now, at, error, permanent);
        self.rearm();
    }

    /// Ends a connection whose server broke the protocol. During set-up that is no Redis at all, and
    /// trying again cannot help.
    #[cold]
    pub(super) fn lose_broken(&mut self, now: Instant, at: LinkId, error: Error) {
        let setting_up = self
            .links
            .get(at.0 as usize)
            .is_some_and(|l| matches!(l.state, LinkState::SettingUp(_)));
        let error = error.with_node(self.endpoint(at));
        self.lose(now, at, error, setting_up);
    }

    fn drop_connection(&mut self, now: Instant, at: LinkId, error: Error, permanent: bool) {
        let link = &mut self.links[at.0 as usize];
        let is_cut_short = matches!(link.state, LinkState::Draining(_));
        if is_cut_short && !link.connection.in_flight.is_empty() {
            self.retired.add(&error);
        }
        let proven = link.heard
            || (link.is_ready() && link.up_since.is_some_and(|t| now.since(t) >= PROVEN_AFTER));
        if proven {
            link.attempts = 0;
        }
        let in_cluster = self.cluster.is_some();
        // A replica that cannot be had is left alone for a while, one that was lost is not.
        let cooldown = match link.role {
            Role::Replica if link.is_ready() => Duration::ZERO,
            Role::Replica if in_cluster => CLUSTER_COOLDOWN,
            Role::Replica => self.options.replica_refresh_interval,
            Role::Primary => Duration::ZERO,
        };
        link.is_dead = in_cluster && !link.is_ready() && !is_cut_short;
        link.last_error = Some(error.clone());
        self.forget_connection(at);
        let link = &mut self.links[at.0 as usize];
        let attempt = link.attempts;
        link.attempts += 1;
        let spent = self.options.reconnect.attempts.is_some_and(|max| attempt >= max);
        let was_ready = link.is_ready();
        let state = if link.is_removed {
            link.state = LinkState::Closed;
            link.timer = Instant::NEVER;
            ConnectionState::Closed
        } else if permanent || spent {
            link.state = LinkState::Failed(error.clone());
            link.timer = Instant::NEVER;
            ConnectionState::Failed
        } else {
            link.state = LinkState::Down;
            let delay = self.options.reconnect.delay(attempt, self.random.f64());
            link.timer = now + if cooldown.is_zero() { delay } else { cooldown };
            ConnectionState::Disconnected
        };
        self.fail_in_flight(now, at, &error);
        self.tell(at, state, Some(error.clone()));
        let link = &self.links[at.0 as usize];
        // A primary that stays away may have a successor by now.
        let stays_away = in_cluster && link.role == Role::Primary;
        if (was_ready || stays_away) && !link.is_removed {
            self.hint(at);
        }
        if in_cluster {
            self.connect_first(now);
        }
        let is_coming = in_cluster && self.links.iter().any(Link::is_begun);
        if self.links[at.0 as usize].role == Role::Primary && !self.was_up && !is_coming {
            // Whoever waits for the first connections may only come after the failure.
            self.first_failure.get_or_insert(error.clone());
            self.wake_starters();
        }
        // What the coordinator knows by now may say where else to go. Those that wait may have to, or have
        // nothing to wait for any more.
        self.look_at_board(now);
        self.admit(now);
    }

    /// Nothing that was learnt of a connection holds for the next.
    pub(super) fn forget_connection(&mut self, at: LinkId) {
        let link = &mut self.links[at.0 as usize];
        link.up_since = None;
        link.heard = false;
        link.dirty = false;
        link.check = Check::default();
        link.estimate = Estimate::UNKNOWN;
        link.last_ping = None;
        self.races.leave(at);
        self.pings -= usize::from(link.pinged.take().is_some());
        self.route_epoch += 1;
    }

    /// Fails what was queued or in flight on a link. Nothing is ever sent again.
    fn fail_in_flight(&mut self, now: Instant, at: LinkId, error: &Error) {
        let link = &mut self.links[at.0 as usize];
        if link.connection.in_flight.is_empty() {
            link.connection.out.clear();
            return;
        }
        let pressure = self.pressure();
        let seen = self.diagnostics(now, at, Stage::AwaitingReply, pressure);
        let link = &mut self.links[at.0 as usize];
        let in_flight: InFlight = std::mem::take(&mut link.connection.in_flight);
        let unsent = std::mem::take(&mut link.unsent);
        link.connection.out.clear();
        link.dead_bytes = 0;
        for (unit, stage) in in_flight.into_units(unsent) {
            let Some((id, leg)) = copy_of(unit.owner) else { continue };
            let fate = match stage {
                Stage::Writing | Stage::AwaitingReply => Fate::Unknown,
                _ => Fate::NotSent,
            };
            let diagnostics = Diagnostics { stage, ..seen.clone() };
            let error = error.with_fate(fate).with_diagnostics(diagnostics);
            self.settle(now, id, leg, error);
        }
    }

    fn fail_waiting(&mut self, error: &Error) {
        while let Some(queue) = self.queues.busy(0) {
            let Some(id) = self.queues.front(queue) else { break };
            self.queues.pop(queue);
            let waits = self.cells.get(id).filter(|c| c.state == State::Waiting);
            let Some(len) = waits.map(|cell| cell.when_queued().1) else { continue };
            self.leave_queue(Some(queue), len);
            self.fail(id, error.with_fate(Fate::NotSent));
        }
    }

    /// Set-ups that take too long end, attempts that are due begin.
    pub(super) fn handle_link_timers(&mut self, now: Instant) {
        for at in 0..self.links.len() {
            let link = &mut self.links[at];
            if link.timer > now {
                continue;
            }
            link.timer = Instant::NEVER;
            let at = LinkId(at as u32);
            match link.state {
                LinkState::Down => self.connect(now, at),
                LinkState::SettingUp(_) => {
                    let error = self.setup_timeout(now, at);
                    self.lose(now, at, error, false);
                }
                LinkState::Ready => {
                    // With an interval of zero it is reads that ask.
                    let asks = !self.options.replica_refresh_interval.is_zero();
                    if asks && !self.is_coordinated(now, at) {
                        self.ask_role(now, at);
                    }
                    self.links[at.0 as usize].timer = self.next_check(now, at);
                    self.admit(now);
                }
                LinkState::Draining(ref error) => {
                    let error = error.clone();
                    self.lose(now, at, error, false);
                }
                LinkState::Idle
                | LinkState::Connecting
                | LinkState::Failed(_)
                | LinkState::Closed => {}
            }
        }
    }

    fn setup_timeout(&self, now: Instant, at: LinkId) -> Error {
        let wait = self.options.command_timeout.unwrap_or(self.options.connect_timeout);
        let ms = wait.as_millis();
        let text = format!("set-up: the server did not answer HELLO or AUTH within {ms} ms");
        Error::new(ErrorKind::Timeout, Fate::NotSent, text)
            .with_timeout(Some(wait))
            .with_diagnostics(self.diagnostics(now, at, Stage::AwaitingReply, self.pressure()))
            .with_node(self.endpoint(at))
    }

    /// Takes no more commands; what is in flight may finish. Answers whether nothing is left.
    pub fn drain(&mut self) -> bool {
        if !std::mem::replace(&mut self.draining, true) {
            self.fail_waiting(&Error::closed());
        }
        let busy = |l: &Link| l.reserved > 0 || !l.connection.in_flight.is_empty();
        // What a node would not have is sent again, since it was in flight.
        let is_parked = self.cells.awaited().any(|(_, cell)| cell.state == State::Parked);
        self.queues.waiting() == 0 && !is_parked && !self.links.iter().any(busy)
    }

    /// Ends everything: every request is answered, every link closed. May be called again.
    pub fn close(&mut self, now: Instant) {
        self.close_with(now, Error::closed());
    }

    /// As [`Engine::close`], for another reason.
    pub(crate) fn close_with(&mut self, now: Instant, error: Error) {
        if self.closed {
            return;
        }
        self.closed = true;
        for at in 0..self.links.len() {
            let at = LinkId(at as u32);
            self.out.close(at);
            let link = &mut self.links[at.0 as usize];
            link.state = LinkState::Closed;
            link.timer = Instant::NEVER;
            self.fail_in_flight(now, at, &error);
        }
        self.first_failure.get_or_insert(error.clone());
        self.fail_waiting(&error);
        let admitted: Vec<_> = self.cells.awaited().map(|(id, _)| id).collect();
        for id in admitted {
            self.fail(id, error.clone());
        }
        self.wake_starters();
        self.leave_board();
        let (errors, more) = self.retired.told();
        if !errors.is_empty() {
            self.out.log(Line::retired(errors, more));
        }
        for waker in self.observers.end() {
            self.out.wake(waker);
        }
        self.rearm();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn tell(&mut self, at: LinkId, state: ConnectionState, error: Option<Error>) {
        let endpoint = self.endpoint(at).clone();
        let link = &self.links[at.0 as usize];
        let (class, loud) = (link.class, link.attempts <= 1);
        let change = StateChange { endpoint, link: at, state, error };
        for waker in self.observers.tell(&change) {
            self.out.wake(waker);
        }
        self.out.log(Line::change(change, class, loud));
    }

    pub(crate) fn observe(&mut self) -> ObserverId {
        self.observers.add()
    }

    pub(crate) fn unobserve(&mut self, id: ObserverId) -> Option<Waker> {
        self.observers.remove(id)
    }

    pub(crate) fn next_change(
        &mut self,
        id: ObserverId,
        waker: Waker,
    ) -> Result<(Option<StateChange>, Waker), Option<Waker>> {
        self.observers.next(id, waker)
    }

    /// The connection as it is now, for an error.
    pub(super) fn diagnostics(
        &self,
        now: Instant,
        at: LinkId,
        stage: Stage,
        pressure: Pressure,
    ) -> Diagnostics {
        let seen = Diagnostics { pressure, ..Diagnostics::unavailable(stage) };
        let Some(link) = self.links.get(at.0 as usize) else { return seen };
        let endpoint = Some(link.profile.endpoint.clone());
        if matches!(stage, Stage::Connecting | Stage::WaitingForCapacity) {
            return Diagnostics { endpoint, ..seen };
        }
        let in_flight = &link.connection.in_flight;
        Diagnostics {
            endpoint,
            connection: (link.number != 0).then_some(link.number),
            replies_outstanding: Some(in_flight.len()),
            bytes_outstanding: Some(in_flight.bytes()),
            bytes_unwritten: Some(link.connection.out.len() as u64 + link.unsent),
            since_read: link.last_read.map(|t| now.since(t)),
            since_write: link.last_write.map(|t| now.since(t)),
            ..seen
        }
    }
}
