//! What an engine takes from the board of its deployment, and what it tells there.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hedgerow_runtime::time::Instant;

use super::check::Check;
use super::link::LinkState;
use super::{Engine, LinkId, Outside};
use crate::config::Endpoint;
use crate::connection::not_a_replica;
use crate::error::{Error, ErrorKind, Fate};
use crate::read::Published;
use crate::route::Way;
use crate::topology::{Board, Call, Health, Hint, NodeIndex, Report, Role, Topology};

/// Between two reports of what was learnt.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// An engine's side of the board.
pub(super) struct Notice {
    pub(super) board: Arc<Board>,
    /// The last publication that was looked at.
    seen: u64,
    health: Arc<Health>,
    /// Where to put what is learnt; the coordinator's own engine learns nothing.
    report: Option<Arc<ArcSwap<Report>>>,
    /// The last report but one, to be written again.
    spare: Option<Arc<Report>>,
    reported: Instant,
    /// A publication is being taken over: what that leads to looks at no newer one.
    adopting: bool,
    /// For how long the last topology had been out when it was taken over.
    adopted_after: Option<Duration>,
    /// Names the call.
    call: usize,
}

impl<O: Outside> Engine<O> {
    /// Follows the publications of `board` from now on. `reports`: and tells what it learns.
    /// `call` gets the placement to look, where it waits.
    pub(crate) fn follow(&mut self, board: Arc<Board>, reports: bool, call: Call) {
        let nodes = self.topology.nodes().count();
        let report = reports.then(|| board.join(Report::with_room(nodes, Way::CLASSES)));
        let (health, call) = (board.health(), board.on_publish(call));
        self.notice = Some(Notice {
            board,
            seen: 0,
            health,
            report,
            spare: Some(Arc::new(Report::with_room(nodes, Way::CLASSES))),
            reported: self.now,
            adopting: false,
            adopted_after: None,
            call,
        });
    }

    /// The board that it tells what it learns; the coordinator's own engine has none.
    pub(crate) fn reported_board(&self) -> Option<&Arc<Board>> {
        self.notice.as_ref().filter(|notice| notice.report.is_some()).map(|notice| &notice.board)
    }

    /// Takes over what was published since the last look: once a turn, and after a node's error. No command
    /// sees two epochs, since it is chosen and queued within one call.
    #[inline]
    pub(crate) fn look_at_board(&mut self, now: Instant) {
        let Some(notice) = &self.notice else { return };
        if notice.board.epoch() != notice.seen && !notice.adopting {
            self.adopt(now);
        }
        if self.notice.as_ref().is_some_and(|notice| now.since(notice.reported) >= REPORT_EVERY) {
            self.report(now);
        }
    }

    #[cold]
    fn adopt(&mut self, now: Instant) {
        let Some(board) = self.notice.as_ref().map(|notice| notice.board.clone()) else { return };
        // Read first: what is published meanwhile is looked at the next time.
        let seen = board.epoch();
        // Before the topology: what a pass or a search found is there when its end is.
        let (pass, searched) = (board.pass(), self.ended_searches(&board));
        let Some(notice) = &mut self.notice else { return };
        (notice.seen, notice.adopting) = (seen, true);
        notice.health = board.health();
        let health = notice.health.clone();
        let topology = board.topology();
        if topology.epoch() > self.topology.epoch() {
            notice.adopted_after = Some(self.out.clock(now).since(topology.published()));
            let old = std::mem::replace(&mut self.topology, topology.clone());
            board.give_back(old);
            self.take_topology(now, &topology);
        }
        self.take_health(now, &health);
        self.take_pass(now, &board, pass);
        self.end_searches(now, &searched);
        self.route_epoch += 1;
        self.admit(now);
        self.rearm();
        if let Some(notice) = &mut self.notice {
            notice.adopting = false;
        }
    }

    /// For how long the topology that it goes by had been out when it was taken over; `None` for the first.
    pub(crate) fn adopted_after(&self) -> Option<Duration> {
        self.notice.as_ref()?.adopted_after
    }

    fn take_topology(&mut self, now: Instant, topology: &Topology) {
        if self.cluster.is_some() {
            return self.take_cluster(now, topology);
        }
        for (index, node) in topology.nodes() {
            if self.links_of(index).is_empty() && !node.is_removed {
                self.add_links(index, node);
            }
            for at in self.links_of(index).filter(|_| node.role == Role::Replica) {
                self.follow_node(now, LinkId(at as u32), node.is_removed);
            }
        }
        self.races.resize(self.links.len(), topology.nodes().count());
    }

    /// A replica's link ends where its node was removed, and begins where that came.
    pub(super) fn follow_node(&mut self, now: Instant, at: LinkId, is_removed: bool) {
        let link = &mut self.links[at.0 as usize];
        link.is_removed = is_removed;
        match (&link.state, is_removed) {
            (LinkState::Ready, true) => {
                let text = "the replica was removed from the deployment";
                let error = Error::new(ErrorKind::Disconnected, Fate::Unknown, text);
                let error = error.with_node(&link.profile.endpoint);
                self.retire(now, at, error);
            }
            (LinkState::Connecting | LinkState::SettingUp(_), true) => {
                let error = Error::new(ErrorKind::Closed, Fate::NotSent, "the replica was removed");
                self.lose(now, at, error, false);
            }
            (LinkState::Down | LinkState::Idle, true) => {
                link.state = LinkState::Closed;
                link.timer = Instant::NEVER;
            }
            (LinkState::Closed, false) if self.cluster.is_some() => {
                link.state = LinkState::Idle;
                (link.attempts, link.is_dead) = (0, false);
            }
            (LinkState::Closed | LinkState::Failed(_), false) if self.replicas_started => {
                self.connect(now, at)
            }
            (LinkState::Down, false) if self.replicas_started && link.attempts == 0 => {
                self.connect(now, at);
            }
            _ => {}
        }
    }

    /// Takes over how often the nodes of a cluster were asked, and that nothing could be found out.
    fn take_pass(&mut self, now: Instant, board: &Board, pass: u64) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.pass = pass;
        if cluster.slots.is_none()
            && let Some(error) = board.failure()
        {
            cluster.failure = Some(error.clone());
            self.first_failure = Some(error);
            self.wake_starters();
        }
        self.look_at_parked(now);
    }

    fn take_health(&mut self, now: Instant, health: &Health) {
        if self.cluster.is_some() {
            return self.races.publish(health);
        }
        for at in 0..self.links.len() {
            let link = &self.links[at];
            let said = health.node(link.node);
            let newer = said.checked > link.check.at;
            if link.is_ready()
                && link.role == Role::Replica
                && newer
                && said.role != Some(link.role)
            {
                let error = not_a_replica(said.role).with_node(&link.profile.endpoint);
                self.retire(now, LinkId(at as u32), error);
            }
        }
        self.races.publish(health);
    }

    fn report(&mut self, now: Instant) {
        let Some(notice) = &mut self.notice else { return };
        notice.reported = now;
        let Some(cell) = notice.report.clone() else { return };
        // Memory that a reader still has is left to it.
        let unused = notice.spare.take().filter(|spare| Arc::strong_count(spare) == 1);
        let mut spare = unused.unwrap_or_default();
        if let Some(report) = Arc::get_mut(&mut spare) {
            let nodes = 0..self.topology.nodes().count();
            report.pings.clear();
            report.pings.extend(nodes.map(|at| self.ping_of(NodeIndex(at as u32))));
            report.classes.clear();
            report.classes.extend((0..Way::CLASSES).map(|class| self.races.row(class)));
        }
        if **cell.load() != *spare {
            spare = cell.swap(spare);
        }
        if let Some(notice) = &mut self.notice {
            notice.spare = Some(spare);
        }
    }

    fn ping_of(&self, node: NodeIndex) -> Option<Published> {
        let links = self.links.iter().filter(|link| link.node == node);
        Published::of_all(links.filter_map(|link| link.estimate.published()))
    }

    /// The round trip of a node's PINGs over all cores.
    pub(super) fn published_ping(&self, node: NodeIndex) -> Option<Published> {
        self.notice.as_ref()?.health.node(node).ping
    }

    /// What a node last said of its role: on this connection, or to the coordinator.
    #[inline]
    pub(super) fn said(&self, at: usize) -> Check {
        let link = &self.links[at];
        let Some(notice) = &self.notice else { return link.check };
        let said = notice.health.node(link.node);
        // A new connection to a replica counts from its own answer; those of a cluster are never asked, and
        // one to a primary only where nobody else does.
        let is_unchecked =
            self.cluster.is_none() && link.role == Role::Replica && link.check.at.is_none();
        if is_unchecked || said.checked <= link.check.at {
            return link.check;
        }
        let offset = said.offset.or(link.check.offset);
        Check { at: said.checked, linked: said.linked, offset, ..link.check }
    }

    /// Whether the coordinator asks nodes for their role, so that this need not.
    pub(super) fn is_coordinated(&self, now: Instant, at: LinkId) -> bool {
        let Some(notice) = &self.notice else { return false };
        let said = notice.health.node(self.links[at.0 as usize].node);
        let interval = self.options.replica_refresh_interval;
        said.checked.is_some_and(|last| now.since(last) < interval)
    }

    /// Tells the coordinator that a node is worth a look.
    pub(super) fn hint(&self, at: LinkId) {
        if let Some(notice) = &self.notice
            && notice.report.is_some()
        {
            let node = self.links[at.0 as usize].node;
            notice.board.hint(match self.cluster {
                Some(_) => Hint::Lost(node),
                None => Hint::Check(node),
            });
        }
    }

    /// The deployment has these replicas from now on.
    ///
    /// # Errors
    /// As [`Options::check_new_replicas`](crate::Options).
    pub(crate) fn set_replicas(&mut self, replicas: Vec<Endpoint>) -> Result<(), Error> {
        self.options.check_new_replicas(&replicas)?;
        let Some(notice) = &self.notice else { return Err(Error::closed()) };
        notice.board.hint(Hint::Replicas(replicas));
        self.out.coordinate(&notice.board);
        Ok(())
    }

    /// Whether it follows a board.
    pub(crate) fn is_following(&self) -> bool {
        self.notice.is_some()
    }

    /// The engine was closed.
    pub(super) fn leave_board(&mut self) {
        let Some(notice) = self.notice.take() else { return };
        notice.board.uncall(notice.call);
        if let Some(report) = &notice.report {
            for waker in notice.board.leave(report) {
                self.out.wake(waker);
            }
        }
    }
}
