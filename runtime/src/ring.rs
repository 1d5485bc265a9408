//! The io_uring kernel: rungs U2 and U1.
//!
//! One ring a core, driven by the thread that made it (`SINGLE_ISSUER`), task work run only inside
//! our own enters (`DEFER_TASKRUN`). Four rules hold this file together:
//!
//! 1. Sends carry `MSG_DONTWAIT`, so each completes within its own submit, and a wait counts them:
//!    `1 + sends queued`. Without that a turn would cost two enters.
//! 2. One absolute `TIMEOUT` op stands for the armed instant. It is never cancelled: an earlier
//!    instant moves it, a later one lets it fire early. A turn therefore programs no timer.
//! 3. `GETEVENTS` goes with every enter, or deferred task work would not run.
//! 4. `EBUSY`, `EAGAIN` and `EINTR` are back-pressure: collect, then go on.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use io_uring::types::{CancelBuilder, Fd, TimeoutFlags, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::kernel::{Address, GroupConfig, Kernel, Wait, Wakeup};
use crate::op::{Completion, GroupId, Op, Token};
use crate::socket::new_socket;
use crate::time::Instant;

/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;
/// `IOU_PBUF_RING_INC`.
const PBUF_RING_INC: u16 = 2;
/// The smallest ring that is tried when locked memory is short.
const ENTRIES_MIN: u32 = 8;
/// How often, and after what pause, the smallest ring is tried again.
const PATIENCE: u32 = 10;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(4);
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
    host: Option<OwnedFd>,
    /// A host was told that it may wait: notifications are on.
    parked: bool,
    sends_queued: usize,
    /// Completions taken out of the ring while the submission queue was full.
    backlog: Vec<Completion>,
    enters: u64,
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

/// The eventfd with which other threads end a wait.
struct Bell {
    fd: OwnedFd,
}

impl Wakeup for Bell {
    fn wake(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open for the life of `self`; eight readable bytes are given.
        // The result is not needed: the counter can only be full if a wake is outstanding.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
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
            bell: Arc::new(Bell { fd: eventfd(0)? }),
            bell_count: Some(Box::new(0)),
            host: None,
            parked: false,
            sends_queued: 0,
            backlog: Vec::new(),
            enters: 0,
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
        // SAFETY: no argument is passed; all queued entries are valid by `push`.
        let done =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None) };
        if done.is_err() {
            // EBUSY: the completion queue overflowed. Room there is what the kernel waits for.
            let mut taken = std::mem::take(&mut self.backlog);
            self.collect(&mut taken);
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

    /// Brings the standing timeout to the wanted instant if that is earlier.
    fn place_timer(&mut self) {
        if self.timer.wanted >= self.timer.standing {
            return;
        }
        let at = self.timer.wanted.as_nanos();
        *self.timer.spec =
            Timespec::new().sec(at / 1_000_000_000).nsec((at % 1_000_000_000) as u32);
        let spec: *const Timespec = &*self.timer.spec;
        let entry = if self.timer.standing == Instant::NEVER {
            opcode::Timeout::new(spec).flags(TimeoutFlags::ABS).build().user_data(TIMER.0)
        } else {
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
            if token.tag() == Token::RESERVED_TAG {
                // A move that found the timer gone (it just fired) leaves nothing standing either.
                fired |= token == TIMER || token == TIMER_MOVED;
                rung |= token == BELL;
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

    /// Whether a turn without waiting has anything to ask of the system.
    fn idle(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
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

fn try_build(entries: u32, completions: u32) -> io::Result<IoUring> {
    let make = |no_array: bool| {
        let mut b = IoUring::builder();
        b.dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .setup_submit_all()
            .setup_cqsize(completions);
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
        let dontwait = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let entry = match op {
            Op::Connect { fd, addr, len } => opcode::Connect::new(Fd(fd), addr, len).build(),
            Op::Send { fd, ptr, len } => {
                self.sends_queued += 1;
                opcode::Send::new(Fd(fd), ptr, len).flags(dontwait).build()
            }
            Op::SendMsg { fd, msg } => {
                self.sends_queued += 1;
                opcode::SendMsg::new(Fd(fd), msg).flags(dontwait as u32).build()
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
        if std::mem::take(&mut self.parked) {
            self.ring.completion().disable_eventfd();
        }
        self.place_timer();
        out.append(&mut self.backlog);
        let want = match wait {
            Wait::Yes if out.is_empty() => 1 + self.sends_queued,
            _ => 0,
        };
        self.sends_queued = 0;
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
        self.collect(out);
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
        if self.host.is_none() {
            let fd = eventfd(libc::EFD_NONBLOCK)?;
            self.ring.submitter().register_eventfd(fd.as_raw_fd())?;
            self.ring.completion().disable_eventfd();
            self.host = Some(fd);
        }
        Ok(self.host.as_ref().map_or(-1, AsRawFd::as_raw_fd))
    }

    fn prepare_park(&mut self) -> bool {
        // What is queued or armed but not in the kernel yet would never wake anybody.
        let unsaid = self.timer.wanted < self.timer.standing || !self.backlog.is_empty();
        if unsaid || !self.ring.submission().is_empty() || self.ready_fd().is_err() {
            return false;
        }
        let Some(fd) = &self.host else { return false };
        let mut count = 0u64;
        // SAFETY: the descriptor is open and non-blocking; eight writable bytes are given.
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        self.ring.completion().enable_eventfd();
        // Pairs with the kernel's barrier between posting a completion and reading the flag.
        fence(Ordering::SeqCst);
        let work = self.ring.submission().taskrun() || !self.ring.completion().is_empty();
        if work {
            self.ring.completion().disable_eventfd();
        }
        self.parked = !work;
        !work
    }

    fn waker(&self) -> Arc<dyn Wakeup> {
        self.bell.clone()
    }

    fn enters(&self) -> u64 {
        self.enters
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let submitter = self.ring.submitter();
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

fn eventfd(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
