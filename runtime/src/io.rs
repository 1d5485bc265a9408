//! The sockets of one core: what is connected, sent, received and closed, over any kernel.
//!
//! Each socket is a cell with a generation. An operation's token carries both, so a completion that
//! comes after its cell got a new tenant is recognised and only has its resources released
//! (trap 11). A cell is free only when nothing of it is in the kernel any more: memory that the
//! kernel may still touch is never freed (trap 12).

mod connect;

use std::io;
use std::os::fd::RawFd;

use connect::Attempt;
pub use connect::{Connect, Target};

use crate::buffer::Pool;
use crate::kernel::{GroupConfig, Kernel};
use crate::op::{Completion, Op, Token};
use crate::recv::{BLOCKS, Next, Progress, Recv, Rx};
use crate::send::{Batch, Send, Sent};
use crate::time::Instant;

const CONNECT: u8 = 1;
const SEND: u8 = 2;
const RECV: u8 = 3;
const WRITABLE: u8 = 4;
const CANCEL: u8 = 5;
const CLOSE: u8 = 6;

/// Names a socket of one core. Stale names are recognised and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

impl SocketId {
    /// Its index in its core's table: small, and used again after the socket is gone.
    pub fn index(&self) -> usize {
        self.index as usize
    }
}

/// What the sockets report to.
pub trait Handler {
    /// A connect ended.
    fn on_connected(&mut self, now: Instant, socket: SocketId, outcome: io::Result<()>);
    /// Bytes came.
    fn on_bytes(&mut self, now: Instant, socket: SocketId, rx: &mut Rx) -> Progress;
    /// `n` bytes of the batch under way were taken by the system; `idle` if that was all of it.
    fn on_sent(&mut self, now: Instant, socket: SocketId, n: usize, idle: bool);
    /// The connection ended by itself: `None` is an orderly end by the peer. The socket is gone.
    fn on_closed(&mut self, now: Instant, socket: SocketId, error: Option<io::Error>);
}

/// Counters of one core, written by that core only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls into the system that submit and collect.
    pub enters: u64,
    /// Times that the submission queue was full in the middle of a turn.
    pub queue_full: u64,
    /// Send operations completed.
    pub sends: u64,
    /// Receive completions with bytes.
    pub receives: u64,
    /// Bytes the system took.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Received bytes that were copied in user space.
    pub bytes_copied: u64,
}

enum Phase {
    /// No tenant, nothing in the kernel.
    Free,
    /// Connecting; the attempt under way and what is left to try.
    Connecting(Box<Attempt>),
    /// Connected.
    Open,
    /// Being closed: waiting for the kernel to let go of every operation.
    Closing,
}

struct Cell {
    generation: u32,
    fd: RawFd,
    phase: Phase,
    send: Send,
    recv: Option<Recv>,
    /// Why sending ended, while what the peer said before it left is still being read.
    gone: Option<i32>,
    /// Operations of this tenant in the kernel.
    in_kernel: u32,
}

/// The sockets of one core.
pub struct Io<K: Kernel> {
    /// The kernel below. Before all memory that it may write to: fields drop in order.
    pub kernel: K,
    cells: Vec<Cell>,
    free: Vec<u32>,
    pool: Pool,
    counters: Counters,
    connecting: usize,
    /// Cells not free, so that teardown knows when all is drained.
    live: usize,
}

impl<K: Kernel> Io<K> {
    /// No sockets yet, over `kernel`.
    pub fn new(kernel: K) -> Io<K> {
        Io {
            kernel,
            cells: Vec::new(),
            free: Vec::new(),
            pool: Pool::default(),
            counters: Counters::default(),
            connecting: 0,
            live: 0,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        Counters {
            enters: self.kernel.enters(),
            queue_full: self.kernel.queue_full(),
            ..self.counters
        }
    }

    /// Bytes of blocks that users keep parts of.
    pub fn retained(&self) -> usize {
        self.pool.retained()
    }

    /// Sockets that are not entirely gone, closing ones included.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Hands a batch to the socket if no send is under way; `batch` is empty afterwards then.
    /// `false` leaves it as it is: offer it again after [`Handler::on_sent`] says idle.
    pub fn send(&mut self, id: SocketId, batch: &mut Batch) -> bool {
        let Some(cell) = self.cell(id) else { return false };
        if !matches!(cell.phase, Phase::Open) || !cell.send.take(batch) {
            return false;
        }
        self.queue_send(id);
        true
    }

    /// Bytes handed over and not yet taken by the system.
    pub fn unsent(&mut self, id: SocketId) -> usize {
        self.cell(id).map_or(0, |c| c.send.unsent())
    }

    fn queue_send(&mut self, id: SocketId) {
        let Some(cell) = self.cells.get_mut(id.index as usize) else { return };
        let op = cell.send.op(cell.fd);
        cell.in_kernel += 1;
        // SAFETY: the bytes are owned by the cell's batch, which is not touched while the send is
        // busy, and the cell is released only when nothing of it is in the kernel.
        unsafe { self.kernel.queue(Token::new(SEND, id.index, id.generation), op) };
    }

    /// Switches receiving on or off. While it is off nothing is shown: bytes that were received
    /// wait, and so does the end of the connection, which is reported after them.
    pub fn receive<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        on: bool,
        handler: &mut H,
    ) {
        let Some(cell) = self.cell(id) else { return };
        let Some(mut recv) = cell.recv.take() else { return };
        let next = match on {
            true => recv.resume(&self.pool, &mut |rx| handler.on_bytes(now, id, rx)),
            false => Ok(recv.pause()),
        };
        self.received(now, id, recv, next, handler);
    }

    /// Closes a socket. Nothing is reported for it any more; its memory lives until the kernel has
    /// let go of it.
    pub fn close(&mut self, id: SocketId) {
        if self.cell(id).is_none() {
            return;
        }
        self.begin_close(id.index);
    }

    fn begin_close(&mut self, index: u32) {
        let cell = &mut self.cells[index as usize];
        if matches!(cell.phase, Phase::Connecting(_)) {
            self.connecting -= 1;
        }
        let connecting = matches!(cell.phase, Phase::Connecting(_));
        let generation = cell.generation;
        let mut cancel = Vec::with_capacity(3);
        if connecting && cell.in_kernel > 0 {
            cancel.push(CONNECT);
        }
        if cell.send.is_busy() {
            cancel.extend([SEND, WRITABLE]);
        }
        if cell.recv.as_ref().is_some_and(Recv::is_busy) {
            cancel.push(RECV);
        }
        // An attempt's address must outlive its connect, so the phase keeps it until released.
        if !connecting {
            cell.phase = Phase::Closing;
        } else if let Phase::Connecting(attempt) = &mut cell.phase {
            attempt.connect.targets.clear();
        }
        for tag in cancel {
            self.queue_cancel(index, generation, tag);
        }
        // From here on completions of the old generation only release.
        let cell = &mut self.cells[index as usize];
        cell.generation = cell.generation.wrapping_add(1);
        if cell.fd >= 0 {
            // Ends operations that a cancel misses, and tells the peer now.
            self.kernel.shutdown(cell.fd);
        }
        self.finish_close(index);
    }

    /// Closes the descriptor and frees the cell, once nothing of it is in the kernel.
    fn finish_close(&mut self, index: u32) {
        let cell = &mut self.cells[index as usize];
        if cell.in_kernel > 0 {
            return;
        }
        if cell.fd >= 0 {
            let fd = std::mem::replace(&mut cell.fd, -1);
            cell.in_kernel += 1;
            let token = Token::new(CLOSE, index, cell.generation.wrapping_sub(1));
            // SAFETY: the operation names no memory.
            unsafe { self.kernel.queue(token, Op::Close { fd }) };
            return;
        }
        self.release(index);
    }

    fn release(&mut self, index: u32) {
        let cell = &mut self.cells[index as usize];
        if let Some(mut recv) = cell.recv.take() {
            self.kernel.ungroup(recv.group());
            self.counters.bytes_copied += recv.copied;
            recv.retire();
        }
        cell.phase = Phase::Free;
        cell.send = Send::default();
        if cell.fd >= 0 {
            self.kernel.close_now(std::mem::replace(&mut cell.fd, -1));
        }
        self.free.push(index);
        self.live -= 1;
    }

    fn queue_cancel(&mut self, index: u32, generation: u32, tag: u8) {
        self.cells[index as usize].in_kernel += 1;
        let target = Token::new(tag, index, generation);
        // SAFETY: the operation names no memory.
        unsafe { self.kernel.queue(Token::new(CANCEL, index, generation), Op::Cancel { target }) };
    }

    /// Closes every socket; they drain in the turns that follow.
    pub fn close_all(&mut self) {
        for index in 0..self.cells.len() {
            let closing = self.cells[index].generation;
            if matches!(self.cells[index].phase, Phase::Connecting(_) | Phase::Open)
                && !self.is_closing_connect(index)
            {
                self.close(SocketId { index: index as u32, generation: closing });
            }
        }
    }

    #[inline]
    fn cell(&mut self, id: SocketId) -> Option<&mut Cell> {
        let cell = self.cells.get_mut(id.index as usize)?;
        (cell.generation == id.generation && !matches!(cell.phase, Phase::Free)).then_some(cell)
    }

    /// Dispatches one completion to the socket it belongs to.
    pub fn dispatch<H: Handler + ?Sized>(&mut self, now: Instant, c: &Completion, handler: &mut H) {
        let (index, tag) = (c.token.index(), c.token.tag());
        let Some(cell) = self.cells.get_mut(index as usize) else { return };
        let id = SocketId { index, generation: c.token.generation() };
        if !c.more {
            cell.in_kernel = cell.in_kernel.saturating_sub(1);
        }
        if cell.generation != id.generation {
            return self.on_stale(index);
        }
        match tag {
            CONNECT => self.on_connect(now, id, c.result, handler),
            SEND => self.on_send(now, id, c.result, handler),
            WRITABLE => {
                cell.send.on_writable();
                self.queue_send(id);
            }
            RECV => self.on_recv(now, id, c, handler),
            _ => {}
        }
    }

    /// A completion for a tenant that was closed. Its buffer is not posted again: the group goes
    /// with the cell.
    fn on_stale(&mut self, index: u32) {
        if matches!(self.cells[index as usize].phase, Phase::Connecting(_) | Phase::Closing) {
            self.finish_close(index);
        }
    }

    /// Makes a connected socket's group and starts to receive.
    fn open(&mut self, id: SocketId) -> io::Result<()> {
        let incremental = self.kernel.incremental();
        let group = self.kernel.group(GroupConfig { entries: BLOCKS, incremental })?;
        let mut recv = Recv::new(group, incremental);
        let next = recv.start(&self.pool);
        self.restore(id, recv, next);
        Ok(())
    }

    fn on_send<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        result: i32,
        handler: &mut H,
    ) {
        let cell = &mut self.cells[id.index as usize];
        self.counters.sends += 1;
        match cell.send.on_completion(result) {
            Sent::All(n) => {
                self.counters.bytes_sent += n as u64;
                handler.on_sent(now, id, n, true);
            }
            Sent::Part(n) => {
                self.counters.bytes_sent += n as u64;
                self.queue_send(id);
                handler.on_sent(now, id, n, false);
            }
            Sent::Blocked => {
                cell.in_kernel += 1;
                let op = Op::PollOut { fd: cell.fd };
                // SAFETY: the operation names no memory.
                unsafe { self.kernel.queue(Token::new(WRITABLE, id.index, id.generation), op) };
            }
            // A server that refuses a connection says why and closes: the reason may be unread.
            // The peer being gone, receiving ends by itself after it.
            Sent::Broken(errno @ (libc::EPIPE | libc::ECONNRESET))
                if cell.recv.as_ref().is_some_and(Recv::is_busy) =>
            {
                cell.gone = Some(errno);
            }
            Sent::Broken(errno) => self.broken(now, id, Some(errno), handler),
        }
    }

    fn on_recv<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        c: &Completion,
        handler: &mut H,
    ) {
        let Some(mut recv) = self.cells[id.index as usize].recv.take() else { return };
        if c.result > 0 {
            self.counters.receives += 1;
            self.counters.bytes_received += c.result as u64;
        }
        let pool = &self.pool;
        let next = recv.on_completion(c, pool, &mut |rx| handler.on_bytes(now, id, rx));
        self.received(now, id, recv, next, handler);
    }

    fn received<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        recv: Recv,
        next: Result<Next, Option<i32>>,
        handler: &mut H,
    ) {
        match next {
            Ok(next) => self.restore(id, recv, next),
            Err(errno) => {
                self.restore(id, recv, Next::Nothing);
                self.broken(now, id, errno, handler);
            }
        }
    }

    /// Puts the receiving half back, posts what it finished with and queues what it wants next.
    fn restore(&mut self, id: SocketId, mut recv: Recv, next: Next) {
        self.counters.bytes_copied += std::mem::take(&mut recv.copied);
        while let Some((index, ptr, len)) = recv.next_to_post(&self.pool) {
            // SAFETY: the block is held by `recv` until its index is consumed, and `recv` lives
            // until nothing of the cell is in the kernel; the index was just consumed (or new).
            unsafe { self.kernel.post(recv.group(), index, ptr, len) };
        }
        let cell = &mut self.cells[id.index as usize];
        let (fd, group) = (cell.fd, recv.group());
        cell.recv = Some(recv);
        // The handler may have closed the socket while the receiving half was with us: nothing new
        // is started, and what still runs is cancelled now, since the close could not see it.
        if cell.generation != id.generation {
            if cell.recv.as_ref().is_some_and(Recv::is_busy) && cell.in_kernel > 0 {
                self.queue_cancel(id.index, id.generation, RECV);
            }
            return;
        }
        let op = match next {
            Next::Nothing => return,
            Next::Arm => Op::RecvMulti { fd, group },
            Next::Exact(ptr, len) => Op::RecvExact { fd, ptr, len },
            Next::Cancel => return self.queue_cancel(id.index, id.generation, RECV),
        };
        cell.in_kernel += 1;
        // SAFETY: blocks and exact buffers are held by `recv` as said above.
        unsafe { self.kernel.queue(Token::new(RECV, id.index, id.generation), op) };
    }

    fn broken<H: Handler + ?Sized>(
        &mut self,
        now: Instant,
        id: SocketId,
        errno: Option<i32>,
        handler: &mut H,
    ) {
        let errno = self.cells[id.index as usize].gone.take().or(errno);
        self.begin_close(id.index);
        handler.on_closed(now, id, errno.map(io::Error::from_raw_os_error));
    }
}

impl<K: Kernel> Drop for Io<K> {
    /// Closes the descriptors that are left when a core is not shut down in order. The kernel goes
    /// next, and with it every operation; the memory they name goes last (the order of the fields).
    fn drop(&mut self) {
        for cell in &mut self.cells {
            if cell.fd >= 0 {
                self.kernel.close_now(std::mem::replace(&mut cell.fd, -1));
            }
        }
    }
}
