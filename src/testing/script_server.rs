//! A server whose connections play scripts, and its record of what arrived.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::script::{Script, Words, text_of};
use super::script_connection::play;

/// One command that a scripted server read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The connection, counted from 0 in the order of accepting.
    pub connection: usize,
    /// When its last byte was read.
    pub at: Instant,
    /// Its words.
    pub words: Vec<Vec<u8>>,
}

impl Received {
    /// The words with blanks between; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.words)
    }
}

/// What happened so far.
#[derive(Debug, Default)]
struct Record {
    received: Vec<Received>,
    accepted: usize,
    /// Connections that the client ended, and when this was read.
    ended: Vec<(usize, Instant)>,
    failures: Vec<String>,
    stopping: bool,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<()>>,
}

/// The record with a bell for those who wait for more.
#[derive(Debug, Default)]
pub(super) struct Log {
    record: Mutex<Record>,
    more: Condvar,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> T {
        let outcome = change(&mut self.lock());
        self.more.notify_all();
        outcome
    }

    pub(super) fn received(&self, connection: usize, words: Words) {
        let received = Received { connection, at: Instant::now(), words };
        self.change(|record| record.received.push(received));
    }

    pub(super) fn ended(&self, connection: usize) {
        self.change(|record| record.ended.push((connection, Instant::now())));
    }

    pub(super) fn failed(&self, text: String) {
        self.change(|record| record.failures.push(text));
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Adds a thread's waker; false when the server is stopping already.
    pub(super) fn add_waker(&self, waker: &Arc<Waker>) -> bool {
        self.change(|record| {
            record.wakers.push(Arc::clone(waker));
            !record.stopping
        })
    }

    fn wait_until<T>(&self, timeout: Duration, look: impl Fn(&Record) -> Option<T>) -> Option<T> {
        let until = Instant::now() + timeout;
        let mut record = self.lock();
        loop {
            if let Some(found) = look(&record) {
                return Some(found);
            }
            let left =
                until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            record = match self.more.wait_timeout(record, left) {
                Ok((record, _)) => record,
                Err(poison) => poison.into_inner().0,
            };
        }
    }
}

/// Says which connection plays which script.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `start`"]
pub struct ScriptServerBuilder {
    scripts: Vec<Script>,
    only: bool,
}

impl ScriptServerBuilder {
    /// The script of the next connection. The last one is also that of all further connections.
    pub fn then(mut self, script: Script) -> Self {
        self.scripts.push(script);
        self
    }

    /// Stops listening after one connection for each script: further ones are refused.
    pub fn only_these(mut self) -> Self {
        self.only = true;
        self
    }

    /// Listens at a free port of 127.0.0.1. Without any script, connections are only greeted.
    ///
    /// # Errors
    /// No port, descriptor or thread to be had.
    pub fn start(mut self) -> io::Result<ScriptServer> {
        if self.scripts.is_empty() {
            self.scripts.push(Script::new());
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        let source = listener.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), Token(0), Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(1))?);
        let log = Arc::new(Log::default());
        log.add_waker(&waker);
        let for_thread = Arc::clone(&log);
        let thread = std::thread::Builder::new()
            .name("hedgerow-script-server".to_owned())
            .spawn(move || accept_all(listener, poll, &self, &for_thread))?;
        Ok(ScriptServer { address, log, thread: Some(thread) })
    }

    fn script(&self, connection: usize) -> Option<&Script> {
        match self.scripts.get(connection) {
            None if !self.only => self.scripts.last(),
            found => found,
        }
    }
}

/// Accepts until told to stop or until the scripts are used up; then the listener closes.
fn accept_all(listener: TcpListener, mut poll: Poll, plan: &ScriptServerBuilder, log: &Arc<Log>) {
    let mut events = Events::with_capacity(8);
    let mut connection = 0;
    while let Some(script) = plan.script(connection) {
        if log.is_stopping() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                log.change(|record| record.accepted += 1);
                start_playing(stream, script.clone(), connection, log);
                connection += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if poll
                    .poll(&mut events, None)
                    .is_err_and(|e| e.kind() != io::ErrorKind::Interrupted)
                {
                    return;
                }
            }
            // The connection was gone before it was taken, or no descriptor is free: try again.
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn start_playing(stream: TcpStream, script: Script, connection: usize, log: &Arc<Log>) {
    let for_thread = Arc::clone(log);
    let spawned = std::thread::Builder::new().name(format!("hedgerow-script-{connection}")).spawn(
        move || {
            if let Err(error) = play(stream, script, connection, &for_thread) {
                for_thread.failed(format!("connection {connection}: {error}"));
            }
        },
    );
    match spawned {
        Ok(thread) => log.change(|record| record.threads.push(thread)),
        Err(error) => log.failed(format!("connection {connection}: no thread: {error}")),
    }
}

/// A server for hostile bytes: each connection plays a [`Script`]. Stops when dropped.
#[derive(Debug)]
pub struct ScriptServer {
    address: SocketAddr,
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptServer {
    /// Says which connection plays which script; for one script, [`Script::start`] is shorter.
    pub fn builder() -> ScriptServerBuilder {
        ScriptServerBuilder::default()
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// A URL to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Everything that was read, in the order of arrival.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.log.lock().received.clone()
    }

    /// Number of connections accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.log.lock().accepted
    }

    /// Waits until `count` commands have arrived, greetings included, and returns all; `None` when
    /// `timeout` passes first.
    #[must_use]
    pub fn wait_received(&self, count: usize, timeout: Duration) -> Option<Vec<Received>> {
        self.log.wait_until(timeout, |record| {
            (record.received.len() >= count).then(|| record.received.clone())
        })
    }

    /// Waits for a command that begins with these words; `None` when `timeout` passes first.
    #[must_use]
    pub fn wait_for(&self, words: &str, timeout: Duration) -> Option<Received> {
        self.log.wait_until(timeout, |record| {
            let fits = |text: &str| {
                text.strip_prefix(words)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            record.received.iter().find(|received| fits(&received.text())).cloned()
        })
    }

    /// Waits until `count` connections were accepted; false when `timeout` passes first.
    #[must_use]
    pub fn wait_accepted(&self, count: usize, timeout: Duration) -> bool {
        self.log.wait_until(timeout, |record| (record.accepted >= count).then_some(())).is_some()
    }

    /// Waits until the client has ended this connection, and says when that was read; `None` when
    /// `timeout` passes first. Not seen where the script ended the connection or stopped reading.
    #[must_use]
    pub fn wait_ended(&self, connection: usize, timeout: Duration) -> Option<Instant> {
        self.log.wait_until(timeout, |record| {
            let ended = record.ended.iter().find(|(ended, _)| *ended == connection);
            ended.map(|(_, at)| *at)
        })
    }

    /// Tells whether everything went by the scripts so far.
    ///
    /// # Errors
    /// One line for each command that was not the expected one, and for each connection that the
    /// client ended before all expected commands had come.
    pub fn verify(&self) -> Result<(), String> {
        let record = self.log.lock();
        if record.failures.is_empty() { Ok(()) } else { Err(record.failures.join("\n")) }
    }

    /// Ends all connections and threads, and waits for them. Dropping the server does the same.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.wake_to_stop();
        // An error is a panic of that thread, which has been printed.
        let _ = thread.join();
        // No thread is added from here on.
        let threads = self.log.change(|record| std::mem::take(&mut record.threads));
        self.wake_to_stop();
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn wake_to_stop(&self) {
        let wakers = self.log.change(|record| {
            record.stopping = true;
            record.wakers.clone()
        });
        for waker in wakers {
            // Fails only when its thread is gone.
            let _ = waker.wake();
        }
    }
}

impl Drop for ScriptServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}
