//! One connection that plays a script, on a thread of its own.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::faults::Close;
use super::inbox::{Filled, Inbox};
use super::request::{Parser, Step};
use super::script::{Gate, Script, ScriptStep, Wanted, Words, text_of};
use super::script_server::Log;
use super::stream::Stream;

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);

/// How a script ended before its last step, or after it.
enum Stop {
    /// The client ended the connection.
    Ended,
    /// The server is stopping.
    Stopping,
    /// The socket failed; for the client that is an end as well.
    Failed,
    /// The wrong command came: the connection is over.
    Mismatch,
    /// The script closes.
    Closing(Close),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Failed
    }
}

/// Plays a script to its end. The error is one of setting up.
pub(super) fn play(
    stream: std::net::TcpStream,
    script: Script,
    connection: usize,
    log: &Arc<Log>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut stream = TcpStream::from_std(stream);
    let poll = Poll::new()?;
    poll.registry().register(&mut stream, SOCKET, Interest::READABLE | Interest::WRITABLE)?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    if !log.add_waker(&waker) {
        return Ok(());
    }
    let mut player = Player {
        stream: Stream::Tcp(stream),
        poll,
        waker,
        events: Events::with_capacity(8),
        inbox: Inbox::new(),
        parser: Parser::default(),
        arrived: VecDeque::new(),
        reading: true,
        ended: false,
        script,
        connection,
        log: Arc::clone(log),
    };
    let close = player.play();
    player.stream.close(close);
    Ok(())
}

struct Player {
    stream: Stream,
    poll: Poll,
    waker: Arc<Waker>,
    events: Events,
    inbox: Inbox,
    parser: Parser,
    /// Commands read and not yet looked at.
    arrived: VecDeque<Words>,
    reading: bool,
    ended: bool,
    script: Script,
    connection: usize,
    log: Arc<Log>,
}

impl Player {
    fn play(&mut self) -> Close {
        let steps = std::mem::take(&mut self.script.steps);
        for (at, step) in steps.iter().enumerate() {
            if let Err(stop) = self.step(step) {
                return self.stopped(stop, steps.get(at..).unwrap_or_default());
            }
        }
        let stop = self.idle();
        self.stopped(stop, &[])
    }

    /// Records what the script still waited for, and says how to close.
    fn stopped(&self, stop: Stop, rest: &[ScriptStep]) -> Close {
        let wanted = rest.iter().find_map(|step| match step {
            ScriptStep::Expect(wanted) => Some(wanted),
            _ => None,
        });
        match (stop, wanted) {
            (Stop::Closing(close), _) => return close,
            (Stop::Ended | Stop::Failed, Some(wanted)) => {
                let connection = self.connection;
                self.log.failed(format!("connection {connection} ended before {wanted} came"));
            }
            _ => {}
        }
        Close::End
    }

    fn step(&mut self, step: &ScriptStep) -> Result<(), Stop> {
        match step {
            ScriptStep::Expect(wanted) => self.expect(wanted),
            ScriptStep::Send(bytes) => self.send(bytes),
            ScriptStep::Delay(delay) => self.delay(*delay),
            ScriptStep::Wait(gate) => self.wait(gate),
            ScriptStep::StopReading => {
                self.reading = false;
                Ok(())
            }
            ScriptStep::EndWriting => {
                if let Stream::Tcp(stream) = &self.stream {
                    stream.shutdown(std::net::Shutdown::Write)?;
                }
                Ok(())
            }
            ScriptStep::Close(close) => Err(Stop::Closing(*close)),
        }
    }

    /// Waits for a command, answering greetings.
    fn expect(&mut self, wanted: &Wanted) -> Result<(), Stop> {
        loop {
            let command = self.next_command()?;
            if wanted.fits(&command) {
                return Ok(());
            }
            let Some(bytes) = self.script.standing_answer(&command) else {
                let (connection, came) = (self.connection, text_of(&command));
                self.log
                    .failed(format!("connection {connection}: expected {wanted}, got `{came}`"));
                return Err(Stop::Mismatch);
            };
            self.send(&bytes)?;
        }
    }

    /// After the last step: answers what has a standing answer, until the client or the server ends
    /// it.
    fn idle(&mut self) -> Stop {
        loop {
            let answered = self.next_command().and_then(|command| {
                match self.script.standing_answer(&command) {
                    Some(bytes) => self.send(&bytes),
                    None => Ok(()),
                }
            });
            if let Err(stop) = answered {
                return stop;
            }
        }
    }

    fn next_command(&mut self) -> Result<Words, Stop> {
        loop {
            self.read()?;
            if let Some(command) = self.arrived.pop_front() {
                return Ok(command);
            }
            if self.ended {
                return Err(Stop::Ended);
            }
            self.sleep(None)?;
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.sleep(None)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Stop::Failed),
            }
        }
        Ok(())
    }

    fn delay(&mut self, delay: Duration) -> Result<(), Stop> {
        let until = Instant::now() + delay;
        loop {
            self.read()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            // The poller waits in whole milliseconds; the rest is slept.
            if left > Duration::from_millis(2) {
                self.sleep(Some(left - Duration::from_millis(2)))?;
            } else {
                std::thread::sleep(left);
            }
        }
    }

    fn wait(&mut self, gate: &Gate) -> Result<(), Stop> {
        gate.wake_when_open(&self.waker);
        while !gate.is_open() {
            self.read()?;
            self.sleep(None)?;
        }
        Ok(())
    }

    /// Waits for the socket, a wake-up or the timeout. Tells when the server is stopping.
    fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Stop> {
        if self.log.is_stopping() {
            return Err(Stop::Stopping);
        }
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(Stop::Failed),
            _ if self.log.is_stopping() => Err(Stop::Stopping),
            _ => Ok(()),
        }
    }

    /// Reads and records what has arrived.
    fn read(&mut self) -> Result<(), Stop> {
        while self.reading && !self.ended {
            match self.inbox.fill(&mut self.stream) {
                Ok(Filled::Some(_) | Filled::All(_)) => self.parse(),
                Ok(Filled::Nothing) => return Ok(()),
                // A reset is an end too.
                Ok(Filled::End) | Err(_) => {
                    self.ended = true;
                    self.log.ended(self.connection);
                }
            }
        }
        Ok(())
    }

    fn parse(&mut self) {
        loop {
            match self.parser.parse(self.inbox.bytes(), true) {
                Step::Request => {
                    let args = self.parser.args(self.inbox.bytes());
                    let words: Words = args.from(0).map(<[u8]>::to_vec).collect();
                    self.log.received(self.connection, words.clone());
                    self.arrived.push_back(words);
                    self.inbox.consume(self.parser.finish());
                }
                Step::More(need) => return self.inbox.want(need),
                Step::Broken(text) => {
                    let connection = self.connection;
                    self.log.failed(format!("connection {connection}: no request: {text}"));
                    self.reading = false;
                    return;
                }
            }
        }
    }
}
