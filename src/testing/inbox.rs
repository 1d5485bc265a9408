//! The read buffer of one connection.

use std::io::{self, Read};

/// Size of a fresh buffer, in bytes. It is zeroed lazily by the kernel, so an idle connection costs
/// none of it.
const FRESH: usize = 64 * 1024;
/// An empty buffer above this size is given back.
const KEPT_MAX: usize = 1024 * 1024;

/// Bytes read and not yet used up. The space behind them stays initialized, so reading needs no
/// unsafe code.
#[derive(Debug)]
pub(super) struct Inbox {
    space: Vec<u8>,
    start: usize,
    end: usize,
    /// Room that the request now arriving is known to need behind `end`.
    wanted: usize,
}

/// What one read gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// Bytes; there may be more.
    Some(usize),
    /// Bytes, and the socket was empty afterwards.
    All(usize),
    /// Nothing for now.
    Nothing,
    /// The client will send no more.
    End,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { space: vec![0; FRESH], start: 0, end: 0, wanted: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.space.get(self.start..self.end).unwrap_or_default()
    }

    /// Drops bytes from the front.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Says how many more bytes the request now arriving needs.
    pub(super) fn want(&mut self, count: usize) {
        self.wanted = count;
    }

    /// Reads once.
    pub(super) fn fill(&mut self, stream: &mut impl Read) -> io::Result<Filled> {
        self.make_room();
        let room = self.space.get_mut(self.end..).unwrap_or_default();
        let size = room.len();
        match stream.read(room) {
            Ok(0) => Ok(Filled::End),
            Ok(count) => {
                self.end += count;
                Ok(if count < size { Filled::All(count) } else { Filled::Some(count) })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Filled::Some(0)),
            Err(error) => Err(error),
        }
    }

    fn make_room(&mut self) {
        let pending = self.end - self.start;
        if pending == 0 {
            (self.start, self.end) = (0, 0);
            if self.space.len() > KEPT_MAX && self.wanted <= FRESH {
                self.space = vec![0; FRESH];
            }
        }
        // At most one doubling ahead of what has arrived: who promises 512 MiB must send them to
        // cost them.
        let wanted = self.wanted.clamp(FRESH / 4, pending.max(FRESH));
        if self.space.len() - self.end >= wanted {
            return;
        }
        self.space.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, pending);
        let size = pending + wanted;
        if self.space.len() < size {
            self.space.resize(size.next_power_of_two(), 0);
        }
    }
}
