//! One connection of the server: its socket, its buffers, and the replies that are not yet due.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::time::Instant;

use foldhash::fast::RandomState;

use super::commands::Roster;
use super::faults::{ByteCut, Pace};
use super::guest::Guest;
use super::inbox::Inbox;
use super::request::Parser;
use super::stream::Stream;

/// An empty write buffer above this size is given back, in bytes.
const OUT_KEPT_MAX: usize = 4 * 1024 * 1024;

/// The connections of a server by id. The one that is being served is not among them.
pub(super) type Peers = HashMap<u64, Box<Peer>, RandomState>;

impl Roster for Peers {
    fn each(&self, row: &mut dyn FnMut(&Guest)) {
        let mut guests: Vec<_> = self.values().map(|peer| &peer.guest).collect();
        guests.sort_unstable_by_key(|guest| guest.id);
        guests.into_iter().for_each(row);
    }
}

/// Replies on their way out, in order: bytes due now, and replies held back.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Bytes that are due; those before `sent` are written.
    pub(super) due: Vec<u8>,
    sent: usize,
    held: VecDeque<Held>,
    held_bytes: usize,
    /// All bytes ever written on this connection.
    total: u64,
    /// The byte cut that `cut_from` belongs to, and `total` when this connection first saw it.
    cut_serial: u64,
    cut_from: u64,
    /// No write before this moment.
    gap_until: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    due: Instant,
    bytes: Vec<u8>,
}

/// How far a flush came.
#[derive(Debug)]
pub(super) enum Flushed {
    /// All that is due is written.
    All,
    /// The rest waits for room in the socket, or for the gap between two pieces to pass.
    Part,
    /// The byte of a cut is reached.
    Cut(ByteCut),
}

impl Outbox {
    /// Bytes that are due and unwritten.
    pub(super) fn backlog(&self) -> usize {
        self.due.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.backlog() == 0 && self.held.is_empty()
    }

    /// True when a reply may go straight behind the bytes that are due.
    pub(super) fn nothing_held(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds a reply back, at least as long as the one before it.
    pub(super) fn hold(&mut self, due: Instant, bytes: Vec<u8>) {
        let due = self.held.back().map_or(due, |last| last.due.max(due));
        self.held_bytes += bytes.len();
        self.held.push_back(Held { due, bytes });
    }

    /// Bytes of all replies held back.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// When this connection next has something to do by itself.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        match self.gap_until {
            Some(until) if self.backlog() > 0 => Some(until),
            _ => self.held.front().map(|held| held.due),
        }
    }

    /// Writes what is due.
    pub(super) fn flush(
        &mut self,
        stream: &mut Stream,
        pace: &Pace,
        now: Instant,
    ) -> io::Result<Flushed> {
        while self.held.front().is_some_and(|held| held.due <= now) {
            if let Some(held) = self.held.pop_front() {
                self.held_bytes -= held.bytes.len();
                self.due.extend_from_slice(&held.bytes);
            }
        }
        while self.backlog() > 0 {
            if self.gap_until.is_some_and(|until| until > now) {
                return Ok(Flushed::Part);
            }
            let Some(room) = self.room_before_cut(pace) else { return Ok(self.cut(pace)) };
            let size = room.min(pace.pieces.map_or(usize::MAX, |(bytes, _)| bytes));
            let rest = self.due.get(self.sent..).unwrap_or_default();
            let piece = rest.get(..size).unwrap_or(rest);
            match stream.write(piece) {
                Ok(count) => self.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The socket tells when there is room; no wake-up is needed.
                    self.gap_until = None;
                    return Ok(Flushed::Part);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.gap_until = pace.pieces.map(|(_, gap)| now + gap);
            if self.room_before_cut(pace).is_none() {
                return Ok(self.cut(pace));
            }
        }
        Ok(Flushed::All)
    }

    fn wrote(&mut self, count: usize) {
        self.sent += count;
        self.total += count as u64;
        if self.sent == self.due.len() {
            self.sent = 0;
            self.due.clear();
            if self.due.capacity() > OUT_KEPT_MAX {
                self.due = Vec::new();
            }
        }
    }

    /// How much may be written before the cut; `None` when it is reached.
    fn room_before_cut(&mut self, pace: &Pace) -> Option<usize> {
        let Some(cut) = pace.cut else { return Some(usize::MAX) };
        if self.cut_serial != cut.serial {
            self.cut_serial = cut.serial;
            self.cut_from = self.total;
        }
        let room = cut.bytes.saturating_sub(self.total - self.cut_from);
        usize::try_from(room).ok().filter(|room| *room > 0)
    }

    fn cut(&self, pace: &Pace) -> Flushed {
        pace.cut.map_or(Flushed::All, Flushed::Cut)
    }

    /// All bytes written on this connection.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) stream: Stream,
    pub(super) inbox: Inbox,
    pub(super) parser: Parser,
    pub(super) guest: Guest,
    pub(super) outbox: Outbox,
    /// The client has sent its last byte.
    pub(super) ended: bool,
    /// The moment for which a wake-up of this connection is on the timer's heap.
    pub(super) wake_set: Option<Instant>,
}

impl Peer {
    pub(super) fn new(stream: Stream, guest: Guest) -> Self {
        Self {
            stream,
            inbox: Inbox::new(),
            parser: Parser::default(),
            guest,
            outbox: Outbox::default(),
            ended: false,
            wake_set: None,
        }
    }

    /// True when nothing more will be read and everything is written.
    pub(super) fn is_finished(&self) -> bool {
        (self.ended || self.guest.closing) && self.outbox.is_empty()
    }
}
