//! One round over the nodes of a cluster, which asks them who serves which slots.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hedgerow_runtime::time::Instant;

use crate::client::{LocalClient, LocalContext};
use crate::command::raw;
use crate::config::Endpoint;
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::Frame;
use crate::topology::{Board, NodeIndex, SlotsReply};

/// What a node has at least to answer, and at most while there is another one to ask.
const LEAST: Duration = Duration::from_millis(100);
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// How long a node has before the next is asked as well, where commands wait for the answer.
const HEAD_START: Duration = Duration::from_millis(250);

/// A round over the nodes.
pub(super) struct Round {
    pub(super) core: LocalContext,
    pub(super) client: LocalClient,
    pub(super) board: Arc<Board>,
    pub(super) until: Instant,
    /// Commands wait for it: no node is waited for alone.
    pub(super) is_awaited: bool,
    /// The reconnect policy bounds it.
    pub(super) is_bounded: bool,
    /// Of the spread of delays.
    pub(super) seed: u64,
}

/// What a node said.
pub(super) struct Said {
    pub(super) from: Endpoint,
    pub(super) slots: SlotsReply,
}

/// A node that is being asked.
type Ask<'a> = Pin<Box<dyn Future<Output = Result<Said, Error>> + 'a>>;

/// What is said is handed on; `true` if nobody else needs to be asked.
type Take<'a> = dyn FnMut(Result<Said, Error>) -> bool + 'a;

/// A node to be asked, and by when.
pub(super) struct Candidate {
    pub(super) node: NodeIndex,
    pub(super) endpoint: Endpoint,
    pub(super) part: Part,
}

/// How the time of a pass is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nodes of the cluster: half of it.
    Known,
    /// Seeds but the last: half of the rest.
    Seed,
    /// What is left.
    Last,
}

impl Round {
    /// Asks one after the other, until `take` has what it wants of one. Where commands wait for it none is
    /// waited for long before the next is asked as well.
    pub(super) async fn ask_all(&self, candidates: Vec<Candidate>, take: &mut Take<'_>) {
        let mut asks: Vec<Ask<'_>> = Vec::new();
        let begun = self.core.now();
        let all = self.until.since(begun);
        let seeds_until = begun + all / 2 + all / 4;
        let has_seeds = candidates.iter().any(|candidate| candidate.part != Part::Known);
        let parts: Vec<_> = candidates.iter().map(|candidate| candidate.part).collect();
        let mut asked = 0;
        for (n, Candidate { node, endpoint, part }) in candidates.into_iter().enumerate() {
            let until = match part {
                Part::Known if has_seeds => begun + all / 2,
                Part::Seed => seeds_until,
                Part::Known | Part::Last => self.until,
            };
            // Nobody waits for the turn of one that it is too late for.
            if self.core.now() < until && asked > 0 {
                match self.await_turn(asked, &mut asks, take).await {
                    Turn::Next => {}
                    Turn::NoMore => break,
                    Turn::Over => return,
                }
            }
            let left = parts[n..].iter().filter(|other| **other == part).count() as u32;
            let time = self.time_of_one(until.since(self.core.now()), left);
            if !time.is_zero() {
                asked += 1;
                asks.push(Box::pin(self.ask(node, endpoint, time)));
            }
        }
        while !asks.is_empty() {
            if take(poll_fn(|cx| poll_first(&mut asks, cx)).await) {
                return;
            }
        }
    }

    /// Waits until another node is to be asked, where `n` were.
    async fn await_turn(&self, n: usize, asks: &mut Vec<Ask<'_>>, take: &mut Take<'_>) -> Turn {
        let policy = &self.board.profile().reconnect;
        let bound = policy.attempts.filter(|_| self.is_bounded);
        let left = self.until.since(self.core.now());
        if left.is_zero() || bound.is_some_and(|most| n > most as usize) {
            return Turn::NoMore;
        }
        let random = fastrand::Rng::with_seed(self.seed.wrapping_add(n as u64)).f64();
        let (pause, ends_early) = match bound {
            // As with attempts to connect, of which there may only be so many.
            Some(_) => (policy.delay(n as u32 - 1, random), false),
            None if self.is_awaited => (HEAD_START, true),
            None => (left, true),
        };
        let mut paused = pin!(self.core.sleep(pause.min(left)));
        while !(asks.is_empty() && ends_early) {
            let Some(said) = select(&mut paused, asks).await else { break };
            if take(said) {
                return Turn::Over;
            }
        }
        Turn::Next
    }

    /// The time of one node, with so many left that share `time`: at most that of a connect and a command,
    /// and one that says nothing leaves the others enough.
    fn time_of_one(&self, time: Duration, left: u32) -> Duration {
        let most = self.board.profile().connect_and_command();
        match left {
            0 | 1 => time.min(most),
            _ => (time / left).clamp(time.min(LEAST), most).min(ONE_OF_SEVERAL),
        }
    }

    /// Asks one node.
    async fn ask(
        &self,
        node: NodeIndex,
        endpoint: Endpoint,
        time: Duration,
    ) -> Result<Said, Error> {
        let until = self.core.now() + time;
        let slots = raw("CLUSTER").arg("SLOTS").build::<()>();
        let request = self.client.to_node(node, slots).timeout(time);
        let said = request.with(|frame: Frame<'_>| SlotsReply::of(&frame, &endpoint)).await;
        let said = said.map_err(|error| not_a_cluster(error, &endpoint))?;
        let said = said.and_then(|said| match said.0.iter().any(|range| range.primary.is_some()) {
            false if said.0.is_empty() => Err("it serves no slots"),
            false => Err("it names no primary that could be reached"),
            true => Ok(said),
        });
        let said = said.map_err(|wrong| {
            let text = format!("the answer to CLUSTER SLOTS is of no use: {wrong}");
            Error::new(ErrorKind::Protocol, Fate::Answered, text).with_node(&endpoint)
        })?;
        self.identify(node, until).await;
        Ok(Said { from: endpoint, slots: said })
    }

    /// Asks a node that is only known by the address of a seed which one it is.
    async fn identify(&self, node: NodeIndex, until: Instant) {
        let topology = self.board.topology();
        if topology.node(node).is_none_or(|node| node.id.is_some()) {
            return;
        }
        let time = until.since(self.core.now());
        let request = self.client.to_node(node, raw("CLUSTER").arg("MYID").build::<()>());
        let id = request.timeout(time).with(|frame: Frame<'_>| {
            let text = std::str::from_utf8(frame.payload()).ok().filter(|_| !frame.is_null());
            text.filter(|id| !id.is_empty()).map(str::to_owned)
        });
        // Where that may not be asked the seed is one more node.
        if let Ok(Some(id)) = id.await
            && let Some(next) = self.board.topology().with_id(self.core.now(), node, &id)
        {
            self.board.publish_topology(next);
        }
    }
}

/// What comes next in a round.
enum Turn {
    /// The next node is asked.
    Next,
    /// No other node is asked.
    NoMore,
    /// Nobody needs to be asked any more.
    Over,
}

/// The first of them to end, which is taken out.
fn poll_first(asks: &mut Vec<Ask<'_>>, cx: &mut Context<'_>) -> Poll<Result<Said, Error>> {
    for n in 0..asks.len() {
        if let Poll::Ready(one) = asks[n].as_mut().poll(cx) {
            drop(asks.swap_remove(n));
            return Poll::Ready(one);
        }
    }
    Poll::Pending
}

/// Waits for it, unless `pause` is over before.
async fn select(
    pause: &mut Pin<&mut impl Future>,
    asks: &mut Vec<Ask<'_>>,
) -> Option<Result<Said, Error>> {
    poll_fn(|cx| match poll_first(asks, cx) {
        Poll::Ready(one) => Poll::Ready(Some(one)),
        Poll::Pending => pause.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// What a server without cluster support says means that the options are wrong.
fn not_a_cluster(error: Error, endpoint: &Endpoint) -> Error {
    let said = error.server_error().map(|said| said.text().to_ascii_lowercase());
    match said {
        Some(said) if said.contains("cluster support disabled") => {
            let text = "`cluster`: the server is no node of a cluster: leave the option out, or name a \
                        server with `cluster-enabled yes`";
            Error::config(text).with_node(endpoint)
        }
        _ => error,
    }
}
