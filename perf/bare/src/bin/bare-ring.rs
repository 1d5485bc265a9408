//! The limit: io_uring without any client. Multishot receives into provided buffers, one send a
//! connection and turn, and one enter a turn that waits for the first receive beside the sends just
//! queued.

use bare::pool::Pool;
use clap::{Parser, ValueEnum};
use harness::{Arrivals, Pipeline, Workload, connect, counter, now_ns, start};
use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const TIMER: u64 = 4 << 32;

#[derive(Parser)]
#[command(about = "Loop over io_uring: the limit that a client is measured against")]
struct Options {
    #[command(flatten)]
    workload: Workload,
    /// Never block: look at the completion queue and enter only when there is something to do
    /// (always so in an open loop)
    #[arg(long)]
    spin: bool,
    /// How received bytes use the buffers
    #[arg(long, value_enum, default_value_t = Receive::Plain)]
    receive: Receive,
    /// Length of a receive buffer in KiB
    #[arg(long, default_value_t = 16)]
    buffer_kib: usize,
    /// Receive buffers; a power of two
    #[arg(long, default_value_t = 64)]
    buffers: u16,
    /// Keep a timer standing that would end a wait after so many microseconds; 0: none. It is put
    /// off when half of that is over, with a send, so that it never fires while answers come
    #[arg(long, default_value_t = 0)]
    timer_us: u64,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Receive {
    /// One buffer for each receive
    Plain,
    /// One receive may fill several buffers
    Bundle,
    /// Several receives fill one buffer
    Incremental,
}

struct Link {
    socket: TcpStream,
    pipeline: Pipeline,
    sending: Vec<u8>,
    sent: usize,
    busy: bool,
}

impl Link {
    fn new(workload: &Workload, seed: u64) -> Link {
        let sending = Vec::with_capacity(64 << 10);
        let pipeline = Pipeline::new(workload, seed);
        Link { socket: connect(workload), pipeline, sending, sent: 0, busy: false }
    }

    /// The send that is due, if there is one and none is under way.
    fn next_send(&mut self) -> Option<squeue::Entry> {
        if self.busy {
            return None;
        }
        if self.sent == self.sending.len() {
            self.sending.clear();
            std::mem::swap(&mut self.sending, &mut self.pipeline.out);
            self.sent = 0;
        }
        let due = &self.sending[self.sent..];
        if due.is_empty() {
            return None;
        }
        self.busy = true;
        let fd = Fd(self.socket.as_raw_fd());
        let send = opcode::Send::new(fd, due.as_ptr(), due.len() as u32);
        Some(send.flags(libc::MSG_WAITALL).build())
    }
}

/// A timer that is always put off.
struct Timer {
    delay_ns: u64,
    /// When it fires; 0: it does not stand.
    at_ns: u64,
    /// The delay, read by the kernel while it takes the submission.
    spec: Timespec,
}

impl Timer {
    /// The operation that sets it or puts it off, if that is due.
    fn next(&mut self) -> Option<squeue::Entry> {
        let now = if self.delay_ns == 0 { return None } else { now_ns() };
        if self.at_ns > now + self.delay_ns / 2 {
            return None;
        }
        let stands = self.at_ns != 0;
        self.at_ns = now + self.delay_ns;
        Some(if stands {
            opcode::TimeoutUpdate::new(TIMER, &self.spec).build().flags(squeue::Flags::SKIP_SUCCESS)
        } else {
            opcode::Timeout::new(&self.spec).build()
        })
    }
}

struct Loop {
    ring: IoUring,
    timer: Timer,
    pool: Pool,
    links: Vec<Link>,
    /// Links that may have something to send.
    dirty: Vec<usize>,
    receive: Receive,
    spin: bool,
    out_of_buffers: &'static AtomicU64,
}

impl Loop {
    fn new(options: &Options) -> io::Result<Loop> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(4096)
            .build(256)?;
        let incremental = options.receive == Receive::Incremental;
        let pool = Pool::register(&ring, options.buffers, options.buffer_kib << 10, incremental)?;
        let workload = &options.workload;
        let delay_ns = options.timer_us * 1_000;
        Ok(Loop {
            ring,
            timer: Timer {
                delay_ns,
                at_ns: 0,
                spec: Timespec::from(Duration::from_nanos(delay_ns)),
            },
            pool,
            links: (0..workload.connections).map(|i| Link::new(workload, i as u64)).collect(),
            dirty: (0..workload.connections).collect(),
            receive: options.receive,
            spin: options.spin || workload.is_open(),
            out_of_buffers: counter("out_of_buffers"),
        })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a receive names only the pool's memory, which is never unmapped. A send names
        // `sending` of its link, which stays as it is until the completion clears `busy`; links are
        // never dropped before exit.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn arm(&mut self, index: usize) -> io::Result<()> {
        let fd = Fd(self.links[index].socket.as_raw_fd());
        let entry = match self.receive {
            Receive::Bundle => opcode::RecvMultiBundle::new(fd, 0).build(),
            Receive::Plain | Receive::Incremental => opcode::RecvMulti::new(fd, 0).build(),
        };
        self.push(&entry.user_data(RECEIVE | index as u64))
    }

    /// Queues what is due and returns how many sends that were.
    fn queue_sends(&mut self) -> io::Result<usize> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut queued = 0;
        for index in dirty.drain(..) {
            if let Some(send) = self.links[index].next_send() {
                self.push(&send.user_data(SEND | index as u64))?;
                queued += 1;
            }
        }
        self.dirty = dirty;
        Ok(queued)
    }

    fn enter(&mut self, sends: usize) -> io::Result<()> {
        if !self.spin {
            // A send completes within its own submit, so waiting for one completion would return at
            // once.
            return match self.ring.submit_and_wait(1 + sends) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
                _ => Ok(()),
            };
        }
        let submission = self.ring.submission();
        let (queued, kick) = (submission.len() as u32, submission.taskrun());
        drop(submission);
        if queued > 0 || kick {
            const GETEVENTS: u32 = 1;
            // SAFETY: no argument but counts and flags is passed.
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None)? };
        }
        Ok(())
    }

    fn on_receive(&mut self, index: usize, result: i32, flags: u32) -> io::Result<()> {
        if result == -libc::ENOBUFS {
            self.out_of_buffers.fetch_add(1, Relaxed);
            return self.arm(index);
        }
        assert!(result > 0, "receive: {result}");
        let id = cqueue::buffer_select(flags).expect("a receive names its buffer");
        let pipeline = &mut self.links[index].pipeline;
        let len = result as usize;
        match self.receive {
            Receive::Bundle => take_bundle(&mut self.pool, pipeline, id, len),
            Receive::Plain | Receive::Incremental => {
                pipeline.received(self.pool.bytes(id, len));
                if self.receive == Receive::Incremental && cqueue::buffer_more(flags) {
                    self.pool.advance(id, len);
                } else {
                    self.pool.post(id);
                }
            }
        }
        if !cqueue::more(flags) {
            self.arm(index)?;
        }
        Ok(())
    }

    fn on_send(&mut self, index: usize, result: i32) {
        assert!(result >= 0, "send: {result}");
        let link = &mut self.links[index];
        link.sent += result as usize;
        link.busy = false;
    }

    fn turn(&mut self, completions: &mut Vec<(u64, i32, u32)>) -> io::Result<()> {
        let sends = self.queue_sends()?;
        if let Some(entry) = self.timer.next() {
            self.push(&entry.user_data(TIMER))?;
        }
        self.enter(sends)?;
        let ready = self.ring.completion();
        completions.extend(ready.map(|c| (c.user_data(), c.result(), c.flags())));
        if completions.is_empty() {
            return Ok(());
        }
        for (user_data, result, flags) in completions.drain(..) {
            if user_data == TIMER {
                // It fired, or a move found that it just had.
                self.timer.at_ns = 0;
                continue;
            }
            let index = (user_data & u64::from(u32::MAX)) as usize;
            if user_data & RECEIVE != 0 {
                self.on_receive(index, result, flags)?;
            } else {
                self.on_send(index, result);
            }
            self.dirty.push(index);
        }
        self.pool.publish();
        Ok(())
    }
}

/// Takes a bundle of `len` bytes that begins in buffer `id` and goes on in ring order.
fn take_bundle(pool: &mut Pool, pipeline: &mut Pipeline, mut id: u16, mut len: usize) {
    while len > 0 {
        let here = len.min(pool.size());
        pipeline.received(pool.bytes(id, here));
        len -= here;
        let next = pool.next_in_ring();
        pool.post(id);
        id = next;
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let workload = &options.workload;
    let mut bare = Loop::new(&options)?;
    start(workload);
    let mut arrivals = workload.is_open().then(|| Arrivals::new(workload.rate, 1));
    for index in 0..workload.connections {
        bare.arm(index)?;
        if arrivals.is_none() {
            bare.links[index].pipeline.fill(workload.depth);
        }
    }
    let mut completions = Vec::with_capacity(4096);
    let mut next = 0;
    loop {
        if let Some(arrivals) = &mut arrivals {
            let now = now_ns();
            while let Some(at) = arrivals.due(now) {
                bare.links[next].pipeline.fill_at(at);
                bare.dirty.push(next);
                next = (next + 1) % workload.connections;
            }
        }
        bare.turn(&mut completions)?;
    }
}
