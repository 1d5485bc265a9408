//! What a scripted connection does, step by step.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::faults::Close;
use super::reply::{self, Protocol};
use super::script_server::ScriptServer;

/// One command as its arguments.
pub(super) type Words = Vec<Vec<u8>>;

/// A script that one connection of a [`ScriptServer`] plays: exact bytes, at exact moments.
///
/// Steps run in the order in which they were added. While the script waits for a command, the
/// greeting of a client is answered by itself, unless the script asks for it: HELLO with a map (or
/// array) of a server 7.2.0, AUTH, SELECT, CLIENT and READONLY with `+OK`, PING with `+PONG`.
/// [`Script::answer`] adds to these, [`Script::without_greeting`] takes them away. Any other
/// command than the expected one is a failure: it ends the connection, and [`ScriptServer::verify`]
/// tells. After its last step the connection stays open, answers greetings, and leaves everything
/// else unanswered.
///
/// ```
/// use hedgerow::testing::Script;
/// use std::io::{Read, Write};
///
/// let server = Script::new().expect("GET a").reply(b"$1\r\nA\r\n").close().start()?;
/// let mut client = std::net::TcpStream::connect(server.addr())?;
/// client.write_all(b"PING\r\nGET a\r\n")?;
/// let mut replies = Vec::new();
/// client.read_to_end(&mut replies)?;
/// assert_eq!(replies, b"+PONG\r\n$1\r\nA\r\n");
/// assert_eq!(server.received()[1].text(), "GET a");
/// server.verify().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a script does nothing until `start`"]
pub struct Script {
    pub(super) steps: Vec<ScriptStep>,
    greets: bool,
    answers: Vec<(Words, Vec<u8>)>,
}

/// One step of a script.
#[derive(Clone, Debug)]
pub(super) enum ScriptStep {
    Expect(Wanted),
    Send(Vec<u8>),
    Delay(Duration),
    Wait(Gate),
    StopReading,
    EndWriting,
    Close(Close),
}

/// The command that a step waits for.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// Exactly these words; the first whatever its case.
    Exactly(Words),
    /// A command that starts with these words.
    StartingWith(Words),
    Any,
}

impl Wanted {
    pub(super) fn fits(&self, command: &[Vec<u8>]) -> bool {
        match self {
            Self::Exactly(words) => words.len() == command.len() && starts_with(command, words),
            Self::StartingWith(words) => starts_with(command, words),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(words) => write!(f, "`{}`", text_of(words)),
            Self::StartingWith(words) => write!(f, "`{} ..`", text_of(words)),
            Self::Any => f.write_str("any command"),
        }
    }
}

/// The words of a command with blanks between, for people.
pub(super) fn text_of(words: &[Vec<u8>]) -> String {
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join(" ")
}

/// True when `command` begins with `words`; the name is compared whatever its case.
fn starts_with(command: &[Vec<u8>], words: &[Vec<u8>]) -> bool {
    let name = |words: &[Vec<u8>]| words.first().map(|name| name.to_ascii_uppercase());
    command.len() >= words.len()
        && (words.is_empty() || name(command) == name(words))
        && command.iter().zip(words).skip(1).all(|(one, other)| one == other)
}

fn split(text: &str) -> Words {
    text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

impl Script {
    /// A script that only greets.
    pub fn new() -> Self {
        Self { steps: Vec::new(), greets: true, answers: Vec::new() }
    }

    /// Waits for exactly this command, written with blanks between its words: `"GET a"`.
    pub fn expect(self, command: &str) -> Self {
        self.step(ScriptStep::Expect(Wanted::Exactly(split(command))))
    }

    /// Waits for exactly this command, given word by word; for words with blanks or other bytes.
    pub fn expect_words<W: AsRef<[u8]>>(self, words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_vec()).collect();
        self.step(ScriptStep::Expect(Wanted::Exactly(words)))
    }

    /// Waits for a command that begins with these words: `"HELLO 3"` takes `HELLO 3 SETNAME x` too.
    pub fn expect_start(self, words: &str) -> Self {
        self.step(ScriptStep::Expect(Wanted::StartingWith(split(words))))
    }

    /// Waits for a command, whatever it is; greetings count.
    pub fn expect_any(self) -> Self {
        self.step(ScriptStep::Expect(Wanted::Any))
    }

    /// Sends these bytes as they are.
    pub fn reply(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(ScriptStep::Send(bytes.as_ref().to_vec()))
    }

    /// Sends these bytes `size` at a time, with `gap` in between. A size of 0 counts as 1.
    pub fn reply_in_pieces(mut self, bytes: impl AsRef<[u8]>, size: usize, gap: Duration) -> Self {
        for (index, piece) in bytes.as_ref().chunks(size.max(1)).enumerate() {
            if index > 0 {
                self = self.delay(gap);
            }
            self = self.reply(piece);
        }
        self
    }

    /// Waits this long. What arrives meanwhile is read and recorded, and answered afterwards.
    pub fn delay(self, delay: Duration) -> Self {
        self.step(ScriptStep::Delay(delay))
    }

    /// Waits until the test opens the gate. What arrives meanwhile is read and recorded, and
    /// answered afterwards.
    pub fn wait(self, gate: &Gate) -> Self {
        self.step(ScriptStep::Wait(gate.clone()))
    }

    /// Reads no more from here on, so that the client's socket fills up. What was read already can
    /// still be expected.
    pub fn stop_reading(self) -> Self {
        self.step(ScriptStep::StopReading)
    }

    /// Ends the sending side: the client reads the end of the stream, and may still send.
    pub fn end_writing(self) -> Self {
        self.step(ScriptStep::EndWriting)
    }

    /// Ends the connection in order.
    pub fn close(self) -> Self {
        self.step(ScriptStep::Close(Close::End))
    }

    /// Ends the connection with a reset.
    pub fn reset(self) -> Self {
        self.step(ScriptStep::Close(Close::Reset))
    }

    /// Answers every command that begins with these words and is not the expected one, at any time.
    /// Later calls, and any call over the greeting, win.
    pub fn answer(mut self, words: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.answers.push((split(words), bytes.as_ref().to_vec()));
        self
    }

    /// Answers no greeting by itself.
    pub fn without_greeting(mut self) -> Self {
        self.greets = false;
        self
    }

    /// Starts a server at a free port of 127.0.0.1 whose every connection plays this script.
    ///
    /// # Errors
    /// No port, descriptor or thread to be had.
    pub fn start(self) -> io::Result<ScriptServer> {
        ScriptServer::builder().then(self).start()
    }

    fn step(mut self, step: ScriptStep) -> Self {
        self.steps.push(step);
        self
    }

    /// The answer to a command that no step waits for.
    pub(super) fn standing_answer(&self, command: &[Vec<u8>]) -> Option<Vec<u8>> {
        let own = self.answers.iter().rev().find(|(words, _)| starts_with(command, words));
        match own {
            Some((_, bytes)) => Some(bytes.clone()),
            None if self.greets => greeting(command),
            None => None,
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

fn greeting(command: &[Vec<u8>]) -> Option<Vec<u8>> {
    let name = command.first()?.to_ascii_uppercase();
    match name.as_slice() {
        b"HELLO" => {
            let resp3 = command.get(1).is_some_and(|version| version == b"3");
            Some(hello(if resp3 { Protocol::Resp3 } else { Protocol::Resp2 }))
        }
        b"AUTH" | b"SELECT" | b"CLIENT" | b"READONLY" => Some(b"+OK\r\n".to_vec()),
        b"PING" => Some(b"+PONG\r\n".to_vec()),
        _ => None,
    }
}

fn hello(protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    reply::map(&mut out, protocol, 4);
    reply::bulk(&mut out, b"server");
    reply::bulk(&mut out, b"redis");
    reply::bulk(&mut out, b"version");
    reply::bulk(&mut out, b"7.2.0");
    reply::bulk(&mut out, b"proto");
    reply::int(&mut out, reply::protocol_number(protocol));
    reply::bulk(&mut out, b"role");
    reply::bulk(&mut out, b"master");
    out
}

/// A point that scripts wait at until the test lets them go on. Clones are the same gate; it never
/// closes again.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<GateInner>,
}

#[derive(Debug, Default)]
struct GateInner {
    open: AtomicBool,
    waiting: Mutex<Vec<Arc<mio::Waker>>>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets every script go on that waits here, now or later.
    pub fn open(&self) {
        self.inner.open.store(true, Ordering::SeqCst);
        let waiting =
            std::mem::take(&mut *self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in waiting {
            // Fails only when that connection is gone.
            let _ = waker.wake();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.inner.open.load(Ordering::SeqCst)
    }

    /// Asks for a wake-up. Look at [`Gate::is_open`] afterwards, once more.
    pub(super) fn wake_when_open(&self, waker: &Arc<mio::Waker>) {
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Arc::clone(waker));
    }
}
