//! The boards of a process, and the thread that coordinates them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hedgerow_runtime::caps::{self, Rung};
use hedgerow_runtime::core::{Remote, Turn};
use hedgerow_runtime::epoll::Epoll;
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::ring::{self, Ring};

use super::core::CoreDriver;
use crate::client::LocalContext;
use crate::config::Options;
use crate::coordinator::coordinate;
use crate::topology::Board;

/// How long the thread stays without any deployment.
const LINGER: Duration = Duration::from_secs(1);

/// Boards by the settings of their deployments.
#[derive(Default)]
pub(super) struct Boards(Vec<Weak<Board>>);

impl Boards {
    /// The board of a deployment with these settings, which all its clients share.
    pub(super) fn of(&mut self, profile: &Arc<Options>) -> Arc<Board> {
        self.0.retain(|board| board.strong_count() > 0);
        let known = self.0.iter().filter_map(Weak::upgrade);
        if let Some(board) = known.into_iter().find(|board| board.profile() == profile) {
            return board;
        }
        let board = Arc::new(Board::new(profile.clone()));
        self.0.push(Arc::downgrade(&board));
        board
    }
}

struct Process {
    boards: Boards,
    /// Deployments that wait to be coordinated.
    queue: Vec<Arc<Board>>,
    running: bool,
    thread: Option<Remote>,
}

impl Process {
    /// The coordinator's thread ends: the next deployment begins another.
    fn end(&mut self) {
        (self.running, self.thread) = (false, None);
    }
}

static PROCESS: Mutex<Process> = Mutex::new(Process {
    boards: Boards(Vec::new()),
    queue: Vec::new(),
    running: false,
    thread: None,
});

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The board of a deployment in this process.
pub(crate) fn board_of(profile: &Arc<Options>) -> Arc<Board> {
    process().boards.of(profile)
}

/// Has the process's coordinator take care of a deployment, once.
pub(super) fn start(board: &Arc<Board>) {
    if !board.begin() {
        return;
    }
    let mut process = process();
    process.queue.push(board.clone());
    if let Some(thread) = &process.thread {
        // An empty job: it only has to look. A full mailbox means that it is awake.
        let _ = thread.run(|| {});
    }
    if process.running {
        return;
    }
    let spawned = std::thread::Builder::new().name("hedgerow-coord".to_owned()).spawn(run);
    match spawned {
        Ok(_) => process.running = true,
        Err(error) => {
            process.queue.clear();
            tracing::warn!(%error, "no thread for the coordinator: cores go by what they see themselves");
        }
    }
}

fn run() {
    let forced =
        std::env::var(crate::client::RUNG_VARIABLE).ok().and_then(|word| word.parse().ok());
    let rung = caps::choose(forced, false).map_or(Rung::Epoll, |choice| choice.rung);
    let ring = match rung {
        Rung::Epoll => None,
        rung => {
            let config = ring::Config { incremental: rung == Rung::U2, ..Default::default() };
            Ring::new(config).ok()
        }
    };
    match ring {
        Some(ring) => drive(ring),
        None => match Epoll::new() {
            Ok(epoll) => drive(epoll),
            Err(error) => {
                tracing::warn!(%error, "no coordinator: cores go by what they see themselves");
                let mut process = process();
                (process.running, process.queue) = (false, Vec::new());
            }
        },
    }
}

/// Coordinates a deployment, and stays a little longer for the next one.
async fn look_after(core: LocalContext, board: Arc<Board>, thread: Remote) {
    coordinate(core.clone(), board).await;
    core.sleep(LINGER).await;
    // Else the turn in which this ends would wait for what never comes.
    let _ = thread.run(|| {});
}

fn drive<K: Kernel>(kernel: K) {
    let parker = Parker::new(ParkPolicy::Park, None, 1, 1);
    let mut driver = CoreDriver::new(kernel, parker);
    let desk = driver.desk();
    process().thread = Some(desk.local().remote());
    let core = LocalContext::new(desk.clone(), 0, None);
    loop {
        let new = std::mem::take(&mut process().queue);
        for board in new {
            desk.local().spawn(look_after(core.clone(), board, desk.local().remote()));
        }
        if desk.local().live_tasks() == 0 {
            let mut process = process();
            if process.queue.is_empty() {
                process.end();
                break;
            }
            continue;
        }
        if let Err(error) = driver.turn(Turn::MayWait) {
            tracing::error!(%error, "the coordinator's kernel failed");
            process().end();
            break;
        }
    }
    driver.shut_down();
}
