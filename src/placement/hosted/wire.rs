//! The sockets of one link, one after the other.

use std::io;
use std::io::IoSlice;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use hedgerow_runtime::Batch;
use tokio::task::AbortHandle;

use super::super::stream::WriteHalf;
use super::lock;
use super::out::Number;
use crate::engine::LinkId;

/// Parts that one send gathers.
pub(super) const PARTS_MAX: usize = 64;

/// The sending side of the present connection.
#[derive(Default)]
pub(super) struct Sender {
    /// Which connection, and whether it is over already.
    pub(super) number: Number,
    pub(super) over: bool,
    pub(super) half: Option<Arc<WriteHalf>>,
    pub(super) batch: Batch,
    /// Bytes of the batch that are out.
    pub(super) out: usize,
    /// A task waits until the socket takes bytes again.
    pub(super) blocked: bool,
}

impl Sender {
    /// Whether this connection is over, or was followed by another.
    #[inline]
    pub(super) fn is_past(&self, number: Number) -> bool {
        self.number > number || (self.number == number && self.over)
    }
}

/// The sockets of one link, one after the other.
pub(super) struct Wire {
    pub(super) link: LinkId,
    pub(super) sender: Mutex<Sender>,
    /// A flush was asked for while another was under way.
    pub(super) again: AtomicBool,
    /// The reader or the connect under way.
    pub(super) tasks: Mutex<Vec<(Number, AbortHandle)>>,
}

impl Wire {
    pub(super) fn new(link: LinkId) -> Wire {
        let (sender, again, tasks) = Default::default();
        Wire { link, sender, again, tasks }
    }

    pub(super) fn keep(&self, number: Number, task: AbortHandle) {
        {
            let mut tasks = lock(&self.tasks);
            tasks.retain(|(_, task)| !task.is_finished());
            tasks.push((number, task));
        }
        // It may have been hung up before its task was on the list.
        let is_past = lock(&self.sender).is_past(number);
        if is_past {
            self.abort(number);
        }
    }

    pub(super) fn abort(&self, number: Number) {
        lock(&self.tasks).retain(|(of, task)| {
            if *of <= number {
                task.abort();
            }
            *of > number
        });
    }

    /// Ends a connection from our side.
    pub(super) fn hang_up(&self, number: Number) {
        self.end_sending(number);
        self.abort(number);
    }

    pub(super) fn end_sending(&self, number: Number) {
        let mut sender = lock(&self.sender);
        if !sender.is_past(number) {
            *sender = Sender { number, over: true, ..Sender::default() };
        }
    }
}

/// Sends from `out` on; returns how much the system took.
pub(super) fn write(half: &WriteHalf, batch: &Batch, out: usize) -> io::Result<usize> {
    let mut skip = out;
    let mut parts = [IoSlice::new(&[]); PARTS_MAX];
    let mut count = 0;
    for part in batch.parts() {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        parts[count] = IoSlice::new(&part[skip..]);
        skip = 0;
        count += 1;
        if count == PARTS_MAX {
            break;
        }
    }
    half.try_write(&parts[..count])
}
