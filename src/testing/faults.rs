//! Faults that a test switches on and off while the server runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::delay::Delay;
use super::slow_periods::SlowPeriods;

/// How a connection is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Close {
    /// In order: the client reads the end of the stream.
    #[default]
    End,
    /// With a reset: the client reads `ECONNRESET`. The same as [`Close::End`] on a Unix socket.
    Reset,
}

/// When a connection is cut that sent a certain command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The command does not run: the data stays as it was.
    BeforeRunning,
    /// The command runs, but its reply is never sent.
    AfterRunning,
}

/// What becomes of new connections. Open ones are not touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// They are served.
    #[default]
    Open,
    /// The listener is closed: the client gets `ECONNREFUSED`. The port is free meanwhile; if another
    /// process takes it, the server tries to have it back, once in 10 ms, when it is to open again.
    Refuse,
    /// They are accepted and closed at once.
    CloseAtOnce,
    /// They are accepted and reset at once.
    ResetAtOnce,
    /// They are left in the backlog: the connect succeeds and nothing is ever answered.
    Ignore,
}

/// Which commands a fault is for: all, or one name whatever its case.
#[derive(Clone, Debug)]
struct Aim(Option<String>);

impl Aim {
    fn new(command: &str) -> Self {
        Self((command != "*").then(|| command.to_owned()))
    }

    fn hits(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|aim| name.eq_ignore_ascii_case(aim.as_bytes()))
    }
}

/// A fault with a number of uses left.
#[derive(Debug)]
struct Shots<T> {
    aim: Aim,
    left: u64,
    what: T,
}

/// Takes one shot of the first fault that hits.
fn shoot<T: Clone>(faults: &mut Vec<Shots<T>>, name: &[u8]) -> Option<T> {
    let at = faults.iter().position(|fault| fault.aim.hits(name))?;
    let fault = faults.get_mut(at)?;
    let what = fault.what.clone();
    fault.left -= 1;
    if fault.left == 0 {
        faults.remove(at);
    }
    Some(what)
}

/// Everything that is switched on.
#[derive(Debug, Default)]
struct Rules {
    delay: Delay,
    stall: Option<(u64, Duration)>,
    replies: u64,
    read_stall: Option<(u64, Duration)>,
    reads: u64,
    slow: Option<(Instant, SlowPeriods)>,
    errors: Vec<Shots<String>>,
    cuts: Vec<Shots<(Cut, Close)>>,
    drops: Vec<Shots<()>>,
    byte_cut: Option<ByteCut>,
    /// Counts the calls that set a byte cut, so that each connection starts its count anew.
    byte_cuts_set: u64,
    pieces: Option<(usize, Duration)>,
}

impl Rules {
    fn armed(&self) -> bool {
        !self.delay.is_none()
            || self.stall.is_some()
            || self.read_stall.is_some()
            || !self.errors.is_empty()
            || !self.cuts.is_empty()
            || !self.drops.is_empty()
            || self.byte_cut.is_some()
            || self.pieces.is_some()
    }
}

/// A cut at a byte of the outgoing stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteCut {
    pub(super) serial: u64,
    pub(super) bytes: u64,
    pub(super) close: Close,
    left: u64,
}

/// How the next bytes may be written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) cut: Option<ByteCut>,
    pub(super) pieces: Option<(usize, Duration)>,
}

/// What becomes of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Run { delay: Duration },
    RunUnanswered,
    Fail { text: String, delay: Duration },
    Cut { run: bool, close: Close },
}

/// What the server's thread is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Admit(Admission),
    DisconnectAll(Close),
}

/// Shared by the handles and the server's thread.
#[derive(Debug, Default)]
pub(super) struct Switchboard {
    armed: AtomicBool,
    paused: AtomicBool,
    stopping: AtomicBool,
    rules: Mutex<Rules>,
    orders: Mutex<Vec<(Order, Sender<()>)>>,
    waker: OnceLock<mio::Waker>,
}

/// A panic elsewhere leaves the lists as they were, so poison says nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switchboard {
    pub(super) fn set_waker(&self, waker: mio::Waker) {
        let _ = self.waker.set(waker);
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // Fails only when the poller is gone, and then nobody sleeps.
            let _ = waker.wake();
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    pub(super) fn take_orders(&self) -> Vec<(Order, Sender<()>)> {
        std::mem::take(&mut *lock(&self.orders))
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = lock(&self.rules);
        change(&mut rules);
        self.armed.store(rules.armed(), Ordering::Release);
    }

    /// Posts an order; the receiver hears when it was carried out, or that the server is gone.
    fn post(&self, order: Order) -> Receiver<()> {
        let (done, receiver) = channel();
        if !self.is_stopping() {
            lock(&self.orders).push((order, done));
            self.wake();
        }
        receiver
    }

    /// Decides about one request, and uses up what hits it. `reads`: it reads keys.
    pub(super) fn judge(&self, name: &[u8], reads: bool, random: &mut fastrand::Rng) -> Fate {
        let mut rules = lock(&self.rules);
        let fate = if let Some((cut, close)) = shoot(&mut rules.cuts, name) {
            Fate::Cut { run: cut == Cut::AfterRunning, close }
        } else if shoot(&mut rules.drops, name).is_some() {
            Fate::RunUnanswered
        } else {
            let delay = rules.draw(reads, random);
            match shoot(&mut rules.errors, name) {
                Some(text) => Fate::Fail { text, delay },
                None => Fate::Run { delay },
            }
        };
        self.armed.store(rules.armed(), Ordering::Release);
        fate
    }

    /// How bytes may be written now.
    pub(super) fn pace(&self) -> Pace {
        if !self.is_armed() {
            return Pace::default();
        }
        let rules = lock(&self.rules);
        Pace { cut: rules.byte_cut, pieces: rules.pieces }
    }

    /// Reports that a connection was cut at a byte.
    pub(super) fn byte_cut_done(&self, serial: u64) {
        self.change(|rules| {
            if let Some(cut) = rules.byte_cut.as_mut().filter(|cut| cut.serial == serial) {
                cut.left = cut.left.saturating_sub(1);
                if cut.left == 0 {
                    rules.byte_cut = None;
                }
            }
        });
    }
}

impl Rules {
    fn draw(&mut self, reads: bool, random: &mut fastrand::Rng) -> Duration {
        self.replies += 1;
        self.reads += u64::from(reads);
        let hit = |rule: Option<(u64, Duration)>, count: u64| match rule {
            Some((every, stall)) if count.is_multiple_of(every) => stall,
            _ => Duration::ZERO,
        };
        let stalled = hit(self.stall, self.replies)
            + if reads { hit(self.read_stall, self.reads) } else { Duration::ZERO };
        let delay = self.delay.draw(random);
        match &self.slow {
            Some((from, slow)) if slow.is_slow(from.elapsed()) => slow.slowed(delay) + stalled,
            _ => delay + stalled,
        }
    }
}

/// Switches faults of a running server on and off.
///
/// Clones act on the same server, from any thread; after the server stopped, calls do nothing. A
/// command's name is matched whatever its case; `"*"` stands for every command, HELLO and AUTH
/// included. `times` says how often a fault strikes before it is used up: 0 takes nothing and does
/// nothing, `u64::MAX` is for ever.
///
/// A fault is in force for every request that is sent after the call returned.
///
/// ```
/// use hedgerow::testing::Server;
/// use std::io::{Read, Write};
///
/// let server = Server::start()?;
/// server.faults().fail("GET", "LOADING Redis is loading the dataset in memory", 1);
///
/// let mut client = std::net::TcpStream::connect(server.addr().unwrap())?;
/// client.write_all(b"GET k\r\n")?;
/// let mut code = [0; 8];
/// client.read_exact(&mut code)?;
/// assert_eq!(&code, b"-LOADING");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    board: Arc<Switchboard>,
}

/// Longest wait for the server's thread to carry out an order. It only matters if that thread
/// hangs.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);

impl Faults {
    pub(super) fn new(board: Arc<Switchboard>) -> Self {
        Self { board }
    }

    /// Delays every reply from now on; [`Delay::None`] ends it. Replies already delayed keep their
    /// time.
    pub fn delay(&self, delay: Delay) {
        self.board.change(|rules| rules.delay = delay);
    }

    /// Adds `stall` to the delay of every `every`-th reply, counted over all connections from this
    /// call on. What is behind it on its connection waits too. An `every` of 0 ends it.
    pub fn stall_every(&self, every: u64, stall: Duration) {
        self.board.change(|rules| {
            rules.replies = 0;
            rules.stall = (every > 0).then_some((every, stall));
        });
    }

    /// Adds `stall` to the delay of every `every`-th command that reads a key, counted over all
    /// connections from this call on; other commands (HELLO, ROLE, PING) neither count nor wait, unless
    /// they are behind one on its connection. An `every` of 0 ends it.
    pub fn stall_every_read(&self, every: u64, stall: Duration) {
        self.board.change(|rules| {
            rules.reads = 0;
            rules.read_stall = (every > 0).then_some((every, stall));
        });
    }

    /// From now on delays are longer in a part of every period: [`Faults::delay`] is multiplied, stalls
    /// are not. `None` ends it.
    pub fn slow_periods(&self, slow: Option<SlowPeriods>) {
        self.slow_periods_from(Instant::now(), slow);
    }

    /// As [`Faults::slow_periods`], with the start of the first period, so that several servers share them.
    pub(super) fn slow_periods_from(&self, from: Instant, slow: Option<SlowPeriods>) {
        self.board.change(|rules| rules.slow = slow.map(|slow| (from, slow)));
    }

    /// Answers `command` with the error `text` (code word first, without the leading `-`) instead
    /// of running it.
    pub fn fail(&self, command: &str, text: &str, times: u64) {
        self.add(command, times, text.to_owned(), |rules| &mut rules.errors);
    }

    /// Runs `command` but never answers it. Replies behind it follow as if it had not been sent.
    pub fn drop_replies(&self, command: &str, times: u64) {
        self.add(command, times, (), |rules| &mut rules.drops);
    }

    /// Ends the connection that sends `command`. Replies to earlier requests that are already due
    /// go out first.
    pub fn disconnect_on(&self, command: &str, cut: Cut, close: Close, times: u64) {
        self.add(command, times, (cut, close), |rules| &mut rules.cuts);
    }

    /// Ends the next `times` connections that come to send `bytes` bytes, after exactly so many. On
    /// a connection that is open already the count starts with its next reply. Replaces an earlier
    /// call.
    pub fn disconnect_at_byte(&self, bytes: u64, close: Close, times: u64) {
        self.board.change(|rules| {
            rules.byte_cuts_set += 1;
            let serial = rules.byte_cuts_set;
            rules.byte_cut = (times > 0).then_some(ByteCut { serial, bytes, close, left: times });
        });
    }

    /// Writes at most `bytes` bytes at a time and waits for `gap` in between, so that the client
    /// reads them in pieces. 0 bytes ends it.
    pub fn split_writes(&self, bytes: usize, gap: Duration) {
        self.board.change(|rules| rules.pieces = (bytes > 0).then_some((bytes, gap)));
    }

    /// Stops reading and writing on all connections, and accepting new ones, until
    /// [`Faults::resume`]. Connections stay open; to the client it looks like a server that hangs.
    pub fn pause(&self) {
        self.board.paused.store(true, Ordering::Release);
    }

    /// Ends [`Faults::pause`]; what arrived meanwhile is served.
    pub fn resume(&self) {
        self.board.paused.store(false, Ordering::Release);
        self.board.wake();
    }

    /// Decides what becomes of new connections; in force when the call returns.
    pub fn admit(&self, admission: Admission) {
        self.order(Order::Admit(admission));
    }

    /// Ends all connections that are open; done when the call returns.
    pub fn disconnect_all(&self, close: Close) {
        self.order(Order::DisconnectAll(close));
    }

    /// Switches everything off: no delay, no fault left, reading resumed, new connections welcome.
    pub fn clear(&self) {
        self.board.change(|rules| {
            *rules = Rules { byte_cuts_set: rules.byte_cuts_set, ..Rules::default() };
        });
        self.resume();
        self.admit(Admission::Open);
    }

    fn add<T>(
        &self,
        command: &str,
        times: u64,
        what: T,
        list: impl FnOnce(&mut Rules) -> &mut Vec<Shots<T>>,
    ) {
        if times > 0 {
            let shots = Shots { aim: Aim::new(command), left: times, what };
            self.board.change(|rules| list(rules).push(shots));
        }
    }

    fn order(&self, order: Order) {
        // An error means that the server is gone, where there is nothing left to do.
        let _ = self.board.post(order).recv_timeout(ORDER_TIMEOUT);
    }
}
