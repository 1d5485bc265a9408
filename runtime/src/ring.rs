//! The io_uring kernel: rungs U2 and U1.
//!
//! One ring a core, driven by the thread that made it (`SINGLE_ISSUER`), task work run only inside
//! our own enters (`DEFER_TASKRUN`). Four rules hold this file together:
//!
//! 1. Sends carry `MSG_DONTWAIT`, so each completes within its own submit. One that went out whole
//!    posts nothing (`SKIP_SUCCESS`), so it ends no wait and a turn costs one enter; one that came
//!    short (`MSG_WAITALL` makes that a failure) or failed posts its result and does end the wait,
//!    for nothing else might come before the rest is out.
//! 2. One absolute `TIMEOUT` op stands for the armed instant. It is never cancelled: an earlier
//!    instant moves it; a later one lets it fire early, unless it is much later and something is
//!    submitted anyway. A turn therefore programs no timer.
//! 3. `GETEVENTS` goes with every enter, or deferred task work would not run.
//! 4. `EBUSY`, `EAGAIN` and `EINTR` are back-pressure: collect, then go on.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering, fence};
use std::sync::{Arc, OnceLock};

use io_uring::types::{CancelBuilder, Fd, TimeoutFlags, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::descriptor::{eventfd, ring_eventfd};
use crate::kernel::{Address, GroupConfig, Kernel, Wait, Wakeup};
use crate::op::{Completion, GroupId, Op, Token, gathered};
use crate::socket::new_socket;
use crate::time::Instant;

/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;
/// How much earlier than wanted the timer fires, since a parked thread takes 20 to 45 us to run again:
/// what is left it spends turning. In nanoseconds.
const WAKE_NS: u64 = 20_000;
/// A timeout that stands so much too early is moved; in nanoseconds.
const PUT_OFF_NS: u64 = 200_000;
/// `IOU_PBUF_RING_INC`.
const PBUF_RING_INC: u16 = 2;
/// The smallest ring that is tried when locked memory is short.
const ENTRIES_MIN: u32 = 8;
/// How often, and after what pause, the smallest ring is tried again.
const PATIENCE: u32 = 10;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(4);
/// Marks the `user_data` of a send; callers' tags leave this bit alone.
const SEND_MARK: u64 = 1 << 63;
/// Tokens of this file's own operations; [`Token::RESERVED_TAG`] keeps callers out of them.
const TIMER: Token = Token::new(Token::RESERVED_TAG, 0, 0);
const TIMER_MOVED: Token = Token::new(Token::RESERVED_TAG, 1, 0);
const BELL: Token = Token::new(Token::RESERVED_TAG, 2, 0);

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Submission entries, default 256. Halved by [`Ring::new`] while the kernel says `ENOMEM`.
    pub entries: u32,
    /// Completion entries, default 4,096, at least four times `entries`.
    pub completions: u32,
    /// Allow incremental buffer groups (rung U2), default true.
    pub incremental: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { entries: 256, completions: 4096, incremental: true }
    }
}

/// An io_uring as a [`Kernel`].
pub struct Ring {
    ring: IoUring,
    incremental: bool,
    groups: Vec<Option<Group>>,
    timer: Timer,
    bell: Arc<Bell>,
    /// Where the standing read of the bell puts its count. Leaked if it cannot be drained.
    bell_count: Option<Box<u64>>,
    /// Whether the host's descriptor is told of completions.
    notifying: bool,
    /// Sends of which no result was reported yet, as if each had gone out whole.
    sends: Vec<Completion>,
    /// Completions taken out of the ring while the submission queue was full.
    backlog: Vec<Completion>,
    enters: u64,
    queue_full: u64,
}

/// The one standing timeout.
struct Timer {
    /// When the core wants to be woken.
    wanted: Instant,
    /// When the operation in the kernel fires; `NEVER` if there is none.
    standing: Instant,
    /// Read by the kernel while it takes the submission, so it must not move before that.
    spec: Box<Timespec>,
}

/// With what other threads end a wait.
struct Bell {
    /// An eventfd that the ring always reads: ends a wait in `enter`.
    fd: OwnedFd,
    /// The host's descriptor, an eventfd too. It is written here as well, for the kernel does not
    /// pass one eventfd's signal on to another from within it: it puts that off by milliseconds,
    /// and after the first time (seen on 6.18) for ever.
    host: OnceLock<OwnedFd>,
}

impl Wakeup for Bell {
    fn wake(&self) {
        // In this order: a host about to park that drains its descriptor finds the ring's work.
        ring_eventfd(&self.fd);
        if let Some(host) = self.host.get() {
            ring_eventfd(host);
        }
    }
}

impl Ring {
    /// Makes a ring for the calling thread, which is the only one that may use it.
    ///
    /// # Errors
    /// `ENOSYS` and `EPERM` where io_uring is absent or refused, `ENOMEM` when locked memory is
    /// exhausted even for the smallest ring.
    pub fn new(config: Config) -> io::Result<Ring> {
        let mut ring = Ring {
            ring: build(config)?,
            incremental: config.incremental,
            groups: Vec::new(),
            timer: Timer {
                wanted: Instant::NEVER,
                standing: Instant::NEVER,
                spec: Box::new(Timespec::new()),
            },
            // Blocking on purpose: a non-blocking eventfd would fail the standing read at once.
            bell: Arc::new(Bell { fd: eventfd(0)?, host: OnceLock::new() }),
            bell_count: Some(Box::new(0)),
            notifying: false,
            sends: Vec::new(),
            backlog: Vec::new(),
            enters: 0,
            queue_full: 0,
        };
        // A kernel without the call only costs a descriptor look-up an enter.
        let _ = ring.ring.submitter().register_ring_fd();
        ring.listen_to_bell();
        Ok(ring)
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: `queue`'s contract keeps the entry's memory valid; our own entries name memory
        // that lives in `self` (boxed) until their completion.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.flush();
        }
    }

    /// Makes room in a full submission queue.
    fn flush(&mut self) {
        let queued = self.ring.submission().len() as u32;
        self.enters += 1;
        self.queue_full += 1;
        // SAFETY: no argument is passed; all queued entries are valid by `push`.
        let done =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None) };
        if done.is_err() {
            // EBUSY: the completion queue overflowed. Room there is what the kernel waits for.
            let mut taken = Vec::new();
            self.collect(&mut taken);
            // Collecting may have come here again: what that took is later.
            taken.append(&mut self.backlog);
            self.backlog = taken;
        }
    }

    fn listen_to_bell(&mut self) {
        let Some(count) = self.bell_count.as_mut() else { return };
        let to = (&raw mut **count).cast::<u8>();
        let entry =
            opcode::Read::new(Fd(self.bell.fd.as_raw_fd()), to, 8).build().user_data(BELL.0);
        self.push(&entry);
    }

    /// Brings the standing timeout to the wanted instant if that is earlier. If it is much later the
    /// timeout is moved along with what is submitted anyway: a wake for nothing costs more.
    fn place_timer(&mut self) {
        let Timer { wanted, standing, .. } = self.timer;
        let puts_off = wanted != Instant::NEVER
            && wanted.as_nanos() > standing.as_nanos().saturating_add(PUT_OFF_NS)
            && !self.ring.submission().is_empty();
        if wanted >= standing && !puts_off {
            return;
        }
        let at = self.timer.wanted.as_nanos().saturating_sub(WAKE_NS);
        *self.timer.spec =
            Timespec::new().sec(at / 1_000_000_000).nsec((at % 1_000_000_000) as u32);
        let spec: *const Timespec = &*self.timer.spec;
        let entry = if self.timer.standing == Instant::NEVER {
            opcode::Timeout::new(spec).flags(TimeoutFlags::ABS).build().user_data(TIMER.0)
        } else {
            // One that fires meanwhile answers ENOENT, which leaves none standing.
            opcode::TimeoutUpdate::new(TIMER.0, spec)
                .flags(TimeoutFlags::ABS)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(TIMER_MOVED.0)
        };
        self.timer.standing = self.timer.wanted;
        self.push(&entry);
    }

    fn collect(&mut self, out: &mut Vec<Completion>) {
        let (mut fired, mut rung) = (false, false);
        for entry in self.ring.completion() {
            let token = Token(entry.user_data());
            if token.0 & SEND_MARK != 0 {
                if token.tag() == Token::RESERVED_TAG {
                    // A move that found the timer gone (it just fired) leaves none standing either.
                    fired |= token == TIMER || token == TIMER_MOVED;
                    rung |= token == BELL;
                } else {
                    correct(Token(token.0 & !SEND_MARK), entry.result(), &mut self.sends, out);
                }
                continue;
            }
            let flags = entry.flags();
            out.push(Completion {
                token,
                result: entry.result(),
                more: cqueue::more(flags),
                buffer: cqueue::buffer_select(flags),
                buffer_more: cqueue::buffer_more(flags),
            });
        }
        if fired {
            self.timer.standing = Instant::NEVER;
        }
        if rung {
            self.listen_to_bell();
        }
    }

    /// Reports the sends that the kernel took, which is all of them once the submission queue is
    /// empty. Those that came short or failed are corrected as their completions are collected.
    fn report_sends(&mut self, out: &mut Vec<Completion>) {
        if self.sends.is_empty() || !self.ring.submission().is_empty() {
            return self.collect(out);
        }
        out.append(&mut self.sends);
        self.collect(out);
        // A failure that the completion queue had no room for must not pass for a success.
        while self.ring.submission().cq_overflow() {
            self.enters += 1;
            // SAFETY: no argument is passed and nothing is submitted.
            let done =
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, GETEVENTS, None) };
            self.collect(out);
            if done.is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                return;
            }
        }
    }

    fn send(&mut self, token: Token, len: usize, entry: squeue::Entry) {
        let result = i32::try_from(len).unwrap_or(i32::MAX);
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(token.0 | SEND_MARK);
        self.push(&entry);
        // After the push, which may report the sends before it.
        self.sends.push(Completion::plain(token, result));
    }

    /// Whether a turn without waiting has anything to ask of the system.
    fn idle(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }
}

/// Gives a send the result that it really had.
#[cold]
fn correct(token: Token, result: i32, sends: &mut [Completion], out: &mut [Completion]) {
    let reported = out.iter_mut().rev().chain(sends).find(|c| c.token == token);
    if let Some(send) = reported {
        send.result = result;
    }
}

/// Tries smaller and smaller rings while locked memory is short. Memory of rings that were just
/// closed comes back some milliseconds late, so the smallest is tried again for a while.
fn build(config: Config) -> io::Result<IoUring> {
    let mut entries = config.entries.next_power_of_two().clamp(ENTRIES_MIN, 32_768);
    let mut completions = config.completions.max(entries * 4);
    let mut patience = PATIENCE;
    loop {
        match try_build(entries, completions) {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && entries > ENTRIES_MIN => {
                entries /= 2;
                completions = (completions / 2).max(entries * 4);
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && patience > 0 => {
                patience -= 1;
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

/// What every ring here is made with, so that one made on trial fails where a core's would.
pub(crate) fn builder(completions: u32) -> io_uring::Builder {
    let mut builder = IoUring::builder();
    builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_clamp()
        .setup_submit_all()
        .setup_cqsize(completions);
    builder
}

fn try_build(entries: u32, completions: u32) -> io::Result<IoUring> {
    let make = |no_array: bool| {
        let mut b = builder(completions);
        b.dontfork();
        if no_array {
            b.setup_no_sqarray();
        }
        b.build(entries)
    };
    match make(true) {
        // NO_SQARRAY came with 6.6; older kernels refuse the unknown flag.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => make(false),
        other => other,
    }
}

impl Kernel for Ring {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn socket(&mut self, address: Address<'_>) -> io::Result<RawFd> {
        new_socket(address)
    }

    unsafe fn queue(&mut self, token: Token, op: Op) {
        debug_assert!(token.0 & SEND_MARK == 0, "tags from 0x80 up belong to the kernel");
        let whole = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match op {
            Op::Connect { fd, addr, len } => opcode::Connect::new(Fd(fd), addr, len).build(),
            Op::Send { fd, ptr, len } => {
                let entry = opcode::Send::new(Fd(fd), ptr, len).flags(whole).build();
                return self.send(token, len as usize, entry);
            }
            Op::SendMsg { fd, msg } => {
                let entry = opcode::SendMsg::new(Fd(fd), msg).flags(whole as u32).build();
                // SAFETY: the caller keeps the header and its parts valid.
                let len = unsafe { gathered(msg) };
                return self.send(token, len, entry);
            }
            Op::RecvMulti { fd, group } => opcode::RecvMulti::new(Fd(fd), group.0).build(),
            Op::RecvExact { fd, ptr, len } => {
                opcode::Recv::new(Fd(fd), ptr, len).flags(libc::MSG_WAITALL).build()
            }
            Op::PollOut { fd } => opcode::PollAdd::new(Fd(fd), libc::POLLOUT as u32).build(),
            Op::PollIn { fd } => opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build(),
            Op::Cancel { target } => opcode::AsyncCancel::new(target.0).build(),
            Op::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        };
        self.push(&entry.user_data(token.0));
    }

    fn enter(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        if std::mem::take(&mut self.notifying) {
            self.ring.completion().disable_eventfd();
        }
        self.place_timer();
        out.append(&mut self.backlog);
        let want = usize::from(wait == Wait::Yes && out.is_empty());
        if want > 0 || !self.idle() {
            let queued = self.ring.submission().len() as u32;
            self.enters += 1;
            // SAFETY: no argument is passed; all queued entries are valid by `push`.
            let done = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(queued, want as u32, GETEVENTS, None)
            };
            if let Err(e) = done {
                match e.raw_os_error() {
                    Some(libc::EBUSY | libc::EAGAIN | libc::EINTR | libc::ETIME) => {}
                    Some(libc::EEXIST) => return Err(foreign_thread()),
                    _ => return Err(e),
                }
            }
        }
        self.report_sends(out);
        Ok(())
    }

    fn incremental(&self) -> bool {
        self.incremental
    }

    fn group(&mut self, config: GroupConfig) -> io::Result<GroupId> {
        let free = self.groups.iter().position(Option::is_none);
        let index = free.unwrap_or(self.groups.len());
        let id = u16::try_from(index)
            .map_err(|_| io::Error::other("a core can hold 65,536 buffer groups, no more"))?;
        let group = Group::new(&self.ring, id, config)?;
        match free {
            Some(i) => self.groups[i] = Some(group),
            None => self.groups.push(Some(group)),
        }
        Ok(GroupId(id))
    }

    unsafe fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, len: u32) {
        if let Some(Some(group)) = self.groups.get_mut(group.0 as usize) {
            group.post(index, ptr, len);
        }
    }

    fn ungroup(&mut self, group: GroupId) {
        let Some(cell @ Some(_)) = self.groups.get_mut(group.0 as usize) else { return };
        // First the kernel forgets the memory, then it is unmapped.
        let _ = self.ring.submitter().unregister_buf_ring(group.0);
        *cell = None;
    }

    #[inline]
    fn arm(&mut self, at: Instant) {
        self.timer.wanted = at;
    }

    fn ready_fd(&mut self) -> io::Result<RawFd> {
        if let Some(fd) = self.bell.host.get() {
            return Ok(fd.as_raw_fd());
        }
        let fd = eventfd(libc::EFD_NONBLOCK)?;
        self.ring.submitter().register_eventfd(fd.as_raw_fd())?;
        self.ring.completion().disable_eventfd();
        Ok(self.bell.host.get_or_init(|| fd).as_raw_fd())
    }

    fn prepare_park(&mut self) -> bool {
        // What the last turn left to be submitted (the bell's next read, a timer that fired before
        // its instant was due) would not end the host's wait.
        if self.timer.wanted < self.timer.standing
            || !self.backlog.is_empty()
            || !self.ring.submission().is_empty()
            || self.ready_fd().is_err()
        {
            return false;
        }
        let Some(fd) = self.bell.host.get() else { return false };
        let mut count = 0u64;
        // SAFETY: the descriptor is open and non-blocking; eight writable bytes are given.
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        self.ring.completion().enable_eventfd();
        self.notifying = true;
        // Pairs with the kernel's barrier between posting a completion and reading the flag.
        fence(Ordering::SeqCst);
        let queue = self.ring.submission();
        let work = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        let work = work || !self.ring.completion().is_empty();
        if work {
            self.ring.completion().disable_eventfd();
            self.notifying = false;
        }
        !work
    }

    fn waker(&self) -> Arc<dyn Wakeup> {
        self.bell.clone()
    }

    fn enters(&self) -> u64 {
        self.enters
    }

    fn queue_full(&self) -> u64 {
        self.queue_full
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let queued = self.ring.submission().len() as u32;
        let submitter = self.ring.submitter();
        // What was queued still happens, a close above all.
        // SAFETY: as in `enter`; the memory of all operations is valid until the kernel is gone.
        let _ = unsafe { submitter.enter::<libc::sigset_t>(queued, 0, GETEVENTS, None) };
        let cancelled = submitter.register_sync_cancel(None, CancelBuilder::any());
        // SAFETY: as in `enter`. Task work must run for the cancelled operations to end.
        let drained = unsafe { submitter.enter::<libc::sigset_t>(0, 0, GETEVENTS, None) };
        if cancelled.is_err() && drained.is_err() {
            // The standing read may still write its count: better lost memory than a wild write.
            std::mem::forget(self.bell_count.take());
        }
    }
}

fn foreign_thread() -> io::Error {
    io::Error::other(
        "this ring belongs to the thread that made it; build the driver on the thread that turns it",
    )
}

/// A provided-buffer ring in memory shared with the kernel.
struct Group {
    entries: *mut io_uring::types::BufRingEntry,
    count: u16,
    tail: u16,
    mapped: usize,
}

impl Group {
    fn new(ring: &IoUring, id: u16, config: GroupConfig) -> io::Result<Group> {
        let count = config.entries.next_power_of_two().clamp(1, 32_768);
        let mapped = (count as usize * 16).next_multiple_of(4096);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping, checked below.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let group = Group { entries: at.cast(), count, tail: 0, mapped };
        let flags = if config.incremental { PBUF_RING_INC } else { 0 };
        // SAFETY: page-aligned memory of `count` entries that stays mapped until `Group` drops,
        // which happens after the group was unregistered or the ring closed.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(at as u64, count, id, flags)?;
        }
        Ok(group)
    }

    fn post(&mut self, index: u16, ptr: *mut u8, len: u32) {
        // SAFETY: the slot is inside the mapping; the kernel reads entries only below the tail
        // that is published last, with release ordering.
        unsafe {
            let entry = &mut *self.entries.add((self.tail & (self.count - 1)) as usize);
            entry.set_addr(ptr as u64);
            entry.set_len(len);
            entry.set_bid(index);
            self.tail = self.tail.wrapping_add(1);
            let tail = io_uring::types::BufRingEntry::tail(self.entries).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, not used after.
        unsafe { libc::munmap(self.entries.cast(), self.mapped) };
    }
}
