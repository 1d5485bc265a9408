//! What the null server says: enough RESP for a client's handshake, and GET and SET at next to no
//! cost.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::SocketAddr;
use std::sync::Arc;

const SLICES: usize = 64;
const OK: &[u8] = b"+OK\r\n";

/// Ready-made replies, repeated so that one write carries many.
#[derive(Debug)]
pub struct Patterns {
    value_len: usize,
    values: Vec<u8>,
    oks: Vec<u8>,
}

impl Patterns {
    /// GET answers with a value of `size` bytes.
    pub fn new(size: usize) -> Patterns {
        let mut value = format!("${size}\r\n").into_bytes();
        value.resize(value.len() + size, b'v');
        value.extend_from_slice(b"\r\n");
        let values = value.repeat(((256 << 10) / value.len()).max(1));
        Patterns { value_len: value.len(), values, oks: OK.repeat(4096) }
    }
}

/// Answers that are due, the same ones in a row as a count.
#[derive(Debug)]
enum Answers {
    Values(usize),
    Oks(usize),
    Other(Vec<u8>),
}

/// How a command begins and how long it is: the next one is most often the same but for its key.
#[derive(Clone, Copy, Debug)]
struct Shape {
    begins: [u8; 16],
    len: usize,
    is_get: bool,
}

/// One connection of the null server.
#[derive(Debug)]
pub struct Session {
    buffer: Vec<u8>,
    filled: usize,
    due: VecDeque<Answers>,
    sent: usize,
    last: Option<Shape>,
    resp3: bool,
    silent: bool,
    /// The answer to CLUSTER SLOTS.
    slots: Arc<[u8]>,
}

/// What CLUSTER SLOTS answers where the slots are divided evenly among the first so many of these nodes,
/// and the others are their replicas.
pub fn slots_of(nodes: &[SocketAddr], primaries: usize) -> Vec<u8> {
    let mut answer = format!("*{primaries}\r\n");
    for n in 0..primaries {
        let (first, last) = (n * 16384 / primaries, (n + 1) * 16384 / primaries - 1);
        let shard = nodes.iter().enumerate().skip(n).step_by(primaries);
        answer += &format!("*{}\r\n:{first}\r\n:{last}\r\n", 2 + nodes.len() / primaries);
        for (number, node) in shard {
            let (host, port) = (node.ip().to_string(), node.port());
            answer += &format!("*3\r\n${}\r\n{host}\r\n:{port}\r\n", host.len());
            answer += &format!("$40\r\n{number:040x}\r\n");
        }
    }
    answer.into_bytes()
}

impl Session {
    /// A session whose commands carry values of up to `size` bytes.
    pub fn new(size: usize) -> Session {
        let buffer = vec![0; (4 * size + (64 << 10)).max(256 << 10)];
        let due = VecDeque::new();
        let slots = Arc::default();
        Session { buffer, filled: 0, due, sent: 0, last: None, resp3: false, silent: false, slots }
    }

    /// Answers CLUSTER SLOTS so.
    pub fn in_cluster(mut self, slots: Arc<[u8]>) -> Session {
        self.slots = slots;
        self
    }

    /// Leaves every GET and SET without an answer.
    pub fn silent(mut self, silent: bool) -> Session {
        self.silent = silent;
        self
    }

    /// Where to read to; empty when a command is longer than the session was made for.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Whether there is something to write.
    pub fn has_answers(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes `len` bytes that were read into [`room`](Self::room) and queues the answers to
    /// complete commands.
    ///
    /// # Errors
    /// Bytes that are no command.
    pub fn received(&mut self, len: usize) -> io::Result<()> {
        self.filled += len;
        let mut at = 0;
        loop {
            at += self.take_repeats(at);
            match self.take_one(at)? {
                0 => break,
                len => at += len,
            }
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }

    /// Counts the commands at `at` that have the shape of the last one; returns their length.
    fn take_repeats(&mut self, at: usize) -> usize {
        let Some(shape) = self.last else { return 0 };
        let commands = self.buffer[at..self.filled].chunks_exact(shape.len);
        let same = |c: &&[u8]| c.starts_with(&shape.begins) && c[shape.len - 1] == b'\n';
        let count = commands.take_while(same).count();
        self.answer(shape.is_get, count);
        count * shape.len
    }

    /// Answers the command at `at` whatever it is; returns its length, or 0 if it is not complete.
    fn take_one(&mut self, at: usize) -> io::Result<usize> {
        let bytes = &self.buffer[at..self.filled];
        let Some((len, words)) = split(bytes)? else { return Ok(0) };
        let verb = words.first().map(|w| w.to_ascii_uppercase()).unwrap_or_default();
        let is_get = verb == b"GET";
        if is_get || verb == b"SET" {
            if let Some(begins) = bytes.first_chunk::<16>().filter(|_| len >= 16) {
                self.last = Some(Shape { begins: *begins, len, is_get });
            }
            self.answer(is_get, 1);
        } else {
            let has_slots = !self.slots.is_empty();
            let answer = match (&verb[..], words.get(1)) {
                (b"CLUSTER", Some(word)) if has_slots && word.eq_ignore_ascii_case(b"SLOTS") => {
                    self.slots.to_vec()
                }
                _ => other(&verb, &words, &mut self.resp3),
            };
            self.due.push_back(Answers::Other(answer));
        }
        Ok(len)
    }

    fn answer(&mut self, is_get: bool, count: usize) {
        match (self.due.back_mut(), is_get) {
            _ if count == 0 || self.silent => {}
            (Some(Answers::Values(n)), true) | (Some(Answers::Oks(n)), false) => *n += count,
            (_, true) => self.due.push_back(Answers::Values(count)),
            (_, false) => self.due.push_back(Answers::Oks(count)),
        }
    }

    /// Writes what is due until the socket is full.
    ///
    /// # Errors
    /// What the socket said, but for `WouldBlock`.
    pub fn flush(&mut self, socket: &mut impl Write, patterns: &Patterns) -> io::Result<()> {
        while let Some(answers) = self.due.front_mut() {
            let written = match answers {
                Answers::Other(bytes) => socket.write(&bytes[self.sent..]),
                Answers::Values(n) => {
                    let total = *n * patterns.value_len;
                    write_repeated(socket, &patterns.values, patterns.value_len, self.sent, total)
                }
                Answers::Oks(n) => {
                    write_repeated(socket, &patterns.oks, OK.len(), self.sent, *n * OK.len())
                }
            };
            match written {
                Ok(len) => self.sent += len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
            if self.drop_sent(patterns.value_len) {
                self.due.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }

    /// Drops whole answers that have been sent; true if nothing of the front is left.
    fn drop_sent(&mut self, value_len: usize) -> bool {
        let (count, len) = match self.due.front_mut() {
            Some(Answers::Other(bytes)) => return self.sent == bytes.len(),
            Some(Answers::Values(n)) => (n, value_len),
            Some(Answers::Oks(n)) => (n, OK.len()),
            None => return true,
        };
        *count -= self.sent / len;
        self.sent %= len;
        *count == 0
    }
}

/// Writes bytes `sent` to `total` of an endless repetition of `pattern`, which holds whole answers
/// of length `one`.
fn write_repeated(
    socket: &mut impl Write,
    pattern: &[u8],
    one: usize,
    sent: usize,
    total: usize,
) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut used = 0;
    let mut left = total - sent;
    let mut from = sent % one;
    while left > 0 && used < SLICES {
        let len = left.min(pattern.len() - from);
        slices[used] = IoSlice::new(&pattern[from..from + len]);
        used += 1;
        left -= len;
        from = 0;
    }
    socket.write_vectored(&slices[..used])
}

/// Splits the command at the head of `bytes`: its length and words, or `None` if it is not
/// complete.
type Words<'a> = Vec<&'a [u8]>;
fn split(bytes: &[u8]) -> io::Result<Option<(usize, Words<'_>)>> {
    let Some((mut at, head)) = line(bytes, 0) else { return Ok(None) };
    if head.first() != Some(&b'*') {
        return Ok(Some((at, head.split(|b| *b == b' ').collect())));
    }
    let mut words = Vec::new();
    for _ in 0..number(head)? {
        let Some((from, head)) = line(bytes, at) else { return Ok(None) };
        let to = from + number(head)?;
        let Some(word) = bytes.get(from..to).filter(|_| bytes.len() >= to + 2) else {
            return Ok(None);
        };
        words.push(word);
        at = to + 2;
    }
    Ok(Some((at, words)))
}

/// The line at `at` without its CRLF, and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(usize, &[u8])> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| *b == b'\n')?;
    Some((at + end + 1, rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end])))
}

/// The number behind the type byte of `head`.
fn number(head: &[u8]) -> io::Result<usize> {
    let digits = head.get(1..).and_then(|d| std::str::from_utf8(d).ok());
    digits.and_then(|d| d.parse().ok()).ok_or_else(|| io::Error::other("a length is no number"))
}

fn other(verb: &[u8], words: &[&[u8]], resp3: &mut bool) -> Vec<u8> {
    let second = words.get(1).map(|w| w.to_ascii_uppercase()).unwrap_or_default();
    match verb {
        b"PING" => b"+PONG\r\n".to_vec(),
        b"HELLO" => {
            *resp3 = if words.len() > 1 { second == b"3" } else { *resp3 };
            hello(*resp3)
        }
        b"INFO" => {
            let text =
                "# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\nrole:master\r\n";
            format!("${}\r\n{text}\r\n", text.len()).into_bytes()
        }
        // As a replica that has all: reads may go to it by another name.
        b"ROLE" => {
            b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:1\r\n".to_vec()
        }
        b"COMMAND" => b"*0\r\n".to_vec(),
        b"CONFIG" if *resp3 => b"%0\r\n".to_vec(),
        b"CONFIG" => b"*0\r\n".to_vec(),
        b"CLIENT" if second == b"ID" => b":1\r\n".to_vec(),
        b"CLUSTER" => b"-ERR This instance has cluster support disabled\r\n".to_vec(),
        _ => OK.to_vec(),
    }
}

fn hello(resp3: bool) -> Vec<u8> {
    let fields = [
        ("server", "$5\r\nredis"),
        ("version", "$5\r\n7.2.4"),
        ("proto", if resp3 { ":3" } else { ":2" }),
        ("id", ":1"),
        ("mode", "$10\r\nstandalone"),
        ("role", "$6\r\nmaster"),
        ("modules", "*0"),
    ];
    let mut reply =
        if resp3 { format!("%{}\r\n", fields.len()) } else { format!("*{}\r\n", 2 * fields.len()) };
    for (name, value) in fields {
        reply += &format!("${}\r\n{name}\r\n{value}\r\n", name.len());
    }
    reply.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes `0` bytes at most each time.
    struct Narrow(usize, Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn talk(bytes: &[u8], cut: usize, width: usize) -> Vec<u8> {
        let mut session = Session::new(3);
        let mut socket = Narrow(width, Vec::new());
        for part in bytes.chunks(cut) {
            session.room()[..part.len()].copy_from_slice(part);
            session.received(part.len()).expect("commands");
            session.flush(&mut socket, &Patterns::new(3)).expect("a socket that never fails");
        }
        socket.1
    }

    /// Fails if commands cut at any width, or answers written in pieces of any width, change what
    /// is answered.
    #[test]
    fn answers_do_not_depend_on_cuts() {
        let get = b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n".repeat(5);
        let set = b"*3\r\n$3\r\nset\r\n$3\r\nabc\r\n$3\r\nxyz\r\n".repeat(2);
        let all = [b"PING\r\n".as_slice(), &get, &set, &get].concat();
        let values = b"$3\r\nvvv\r\n".repeat(5);
        let expected = [b"+PONG\r\n", values.as_slice(), &OK.repeat(2), &values].concat();
        for cut in 1..40 {
            for width in 1..20 {
                assert_eq!(talk(&all, cut, width), expected, "cut {cut}, width {width}");
            }
        }
    }

    /// Fails if a client that asks for RESP3 is answered with an array.
    #[test]
    fn hello_chooses_the_protocol() {
        assert!(talk(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", 99, 999).starts_with(b"%7\r\n"));
        assert!(talk(b"*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n", 99, 999).starts_with(b"*14\r\n"));
    }
}
