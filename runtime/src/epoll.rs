//! Rung E: the [`Kernel`] over edge-triggered epoll, for machines that refuse io_uring.
//!
//! A descriptor is registered once, for both directions and edge-triggered, so that a turn costs no
//! `epoll_ctl`: a round trip is one `send`, one `epoll_wait` and one `recv`. What an edge said is
//! remembered per descriptor until the socket was drained; a receive that comes back short has
//! drained it and saves the call that would answer `EAGAIN`.
//!
//! Time is one standing absolute timerfd in the epoll set, programmed only when an instant earlier
//! than the programmed one is armed and left alone otherwise. A timeout on each wait would start
//! and cancel a kernel timer per turn and is rounded by the thread's timer slack (50 us); the
//! timerfd has no slack, and it also turns [`Kernel::ready_fd`] readable for a host.

mod call;
mod eventfd;
mod file;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use call::{answer, answer_once, control, errno, poll_now, send};
use eventfd::EventFd;
use file::{File, Reader, Sink, Waiter};

use crate::descriptor::owned;
use crate::group::Group;
use crate::kernel::{Address, GroupConfig, Kernel, Wait, Wakeup};
use crate::op::{Completion, GroupId, Op, Token};
use crate::socket::{close_now, new_socket};
use crate::time::Instant;

/// Bytes after which a socket waits for the next `enter`, so that one that always has more delays
/// the others by no more than the copy of so many bytes (some 30 us).
pub const RECEIVE_BURST_BYTES: u32 = 256 * 1024;

/// How many events one `epoll_wait` may return. More stay in the kernel's list for the next one.
const EVENTS: usize = 256;

/// What every descriptor is registered for.
const INTEREST: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// What makes a receive worth trying.
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// What says that an end (of stream, or an error) lies behind the bytes.
const ENDED: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// What completes an [`Op::PollIn`].
const POLL_IN: u32 = (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// What completes an [`Op::PollOut`] or an [`Op::Connect`].
const POLL_OUT: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// `epoll_data` of the waker's eventfd and of the timerfd; every other value is a descriptor.
const WAKE_KEY: u64 = u64::MAX;
const TIMER_KEY: u64 = u64::MAX - 1;

/// The [`Kernel`] over epoll. It belongs to one thread.
///
/// Descriptors made by [`Kernel::socket`] must be closed by [`Op::Close`]; descriptors from
/// elsewhere may also be closed by their owner once they have no operation here.
#[derive(Debug)]
pub struct Epoll {
    set: OwnedFd,
    timer: OwnedFd,
    wake: Arc<EventFd>,
    events: Vec<libc::epoll_event>,
    /// Ops since the last `enter`.
    queued: Vec<(Token, Op)>,
    /// By descriptor number.
    files: Vec<Option<Box<File>>>,
    groups: Vec<Option<Group>>,
    /// Where each unfinished operation waits.
    live: HashMap<Token, RawFd>,
    /// Descriptors that have both bytes and a receive; each at most once.
    ready: Vec<RawFd>,
    /// The same vector's twin, to walk one while the other fills.
    walked: Vec<RawFd>,
    armed: Instant,
    /// When the timerfd will fire; `NEVER` when it is not running.
    programmed: Instant,
    /// A wake was collected that no `enter(Wait::Yes)` has answered yet.
    woken: bool,
    enters: u64,
}

impl Epoll {
    /// Makes the epoll set with its eventfd and timerfd.
    ///
    /// # Errors
    /// The system's error, for example `EMFILE`.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no pointers; the descriptor is fresh.
        let set = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: as above.
        let timer = unsafe { owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)) }?;
        let wake = Arc::new(EventFd::new()?);
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        control(&set, libc::EPOLL_CTL_ADD, timer.as_raw_fd(), edge, TIMER_KEY)?;
        control(&set, libc::EPOLL_CTL_ADD, wake.fd.as_raw_fd(), edge, WAKE_KEY)?;
        Ok(Epoll {
            set,
            timer,
            wake,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            queued: Vec::new(),
            files: Vec::new(),
            groups: Vec::new(),
            live: HashMap::new(),
            ready: Vec::new(),
            walked: Vec::new(),
            armed: Instant::NEVER,
            programmed: Instant::NEVER,
            woken: false,
            enters: 0,
        })
    }

    /// Starts everything queued; returns how many sends went out whole. Those end no wait: what
    /// comes next is the reply. One that came short or failed does, for the rest of a command must
    /// go out before there can be a reply.
    fn submit(&mut self, out: &mut Vec<Completion>) -> usize {
        let mut sends = 0;
        let mut queued = std::mem::take(&mut self.queued);
        for (token, op) in queued.drain(..) {
            // SAFETY: whoever queued the op keeps what it names valid until its completion.
            if let Some((result, whole)) = unsafe { send(&op) } {
                sends += usize::from(whole);
                out.push(Completion::plain(token, result));
            } else if let Err(errno) = self.start(token, op, out) {
                out.push(Completion::plain(token, -errno));
            }
        }
        self.queued = queued;
        sends
    }

    /// Starts one operation that is not a send. An error is its completion.
    fn start(&mut self, token: Token, op: Op, out: &mut Vec<Completion>) -> Result<(), i32> {
        match op {
            Op::Send { .. } | Op::SendMsg { .. } => return Ok(()),
            Op::Connect { fd, addr, len } => return self.connect(token, fd, addr, len, out),
            Op::RecvMulti { fd, group } => {
                if self.group_mut(group).is_none_or(|g| g.is_empty()) {
                    return Err(libc::ENOBUFS);
                }
                self.register(fd)?;
                self.read(fd, token, Sink::Group(group));
            }
            Op::RecvExact { len: 0, .. } => out.push(Completion::plain(token, 0)),
            Op::RecvExact { fd, ptr, len } => {
                self.register(fd)?;
                self.read(fd, token, Sink::Exact { ptr, len, done: 0 });
            }
            Op::PollOut { fd } => self.poll(token, fd, POLL_OUT, out)?,
            Op::PollIn { fd } => self.poll(token, fd, POLL_IN, out)?,
            Op::Cancel { target } => self.cancel(token, target, out),
            Op::Close { fd } => self.close(token, fd, out),
        }
        Ok(())
    }

    fn connect(
        &mut self,
        token: Token,
        fd: RawFd,
        addr: *const libc::sockaddr,
        len: libc::socklen_t,
        out: &mut Vec<Completion>,
    ) -> Result<(), i32> {
        // SAFETY: whoever queued the op keeps `addr..addr + len` valid until its completion.
        match answer(|| unsafe { libc::connect(fd, addr, len) as isize }) {
            // An interrupted connect goes on by itself; asked again it says EALREADY.
            Err(libc::EINPROGRESS | libc::EALREADY) => {
                self.register(fd)?;
                self.wait(fd, Waiter { token, mask: POLL_OUT, connect: true });
                Ok(())
            }
            Err(errno) => Err(errno),
            Ok(_) => {
                out.push(Completion::plain(token, 0));
                Ok(())
            }
        }
    }

    /// Waits for `mask` on `fd`. A registration that was there before may have reported its edge
    /// long ago, so the present state is asked for; a new one reports it by itself.
    fn poll(
        &mut self,
        token: Token,
        fd: RawFd,
        mask: u32,
        out: &mut Vec<Completion>,
    ) -> Result<(), i32> {
        let new = self.register(fd)?;
        if !new {
            let found = poll_now(fd, mask);
            if found != 0 {
                out.push(Completion::plain(token, found));
                return Ok(());
            }
        }
        self.wait(fd, Waiter { token, mask, connect: false });
        Ok(())
    }

    fn cancel(&mut self, token: Token, target: Token, out: &mut Vec<Completion>) {
        let file = self.live.remove(&target).and_then(|fd| file_mut(&mut self.files, fd));
        let Some(file) = file else {
            return out.push(Completion::plain(token, -libc::ENOENT));
        };
        if let Some(at) = file.readers.iter().position(|r| r.token == target) {
            out.push(file.readers.remove(at).cancelled());
        } else if let Some(at) = file.waiters.iter().position(|w| w.token == target) {
            out.push(Completion::plain(file.waiters.remove(at).token, -libc::ECANCELED));
        }
        out.push(Completion::plain(token, 0));
    }

    /// Closes `fd`; operations that still wait on it end as cancelled, they could never complete.
    fn close(&mut self, token: Token, fd: RawFd, out: &mut Vec<Completion>) {
        let file = usize::try_from(fd).ok().and_then(|at| self.files.get_mut(at)?.take());
        if let Some(file) = file {
            if file.registered {
                // Closing alone is not enough when a duplicate of the descriptor exists.
                let _ = control(&self.set, libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            for reader in file.readers {
                self.live.remove(&reader.token);
                out.push(reader.cancelled());
            }
            for waiter in file.waiters {
                self.live.remove(&waiter.token);
                out.push(Completion::plain(waiter.token, -libc::ECANCELED));
            }
        }
        // SAFETY: the caller gave the descriptor away with the op. Not repeated on EINTR: Linux
        // has released the descriptor even then.
        let result = if unsafe { libc::close(fd) } == 0 { 0 } else { -errno() };
        out.push(Completion::plain(token, result));
    }

    /// Sees to it that `fd` is in the set. `true`: it was put there now, so that the set reports
    /// its present state as an edge.
    fn register(&mut self, fd: RawFd) -> Result<bool, i32> {
        let at = usize::try_from(fd).map_err(|_| libc::EBADF)?;
        if at >= self.files.len() {
            // A number that no descriptor can have must not size our table.
            if poll_now(fd, POLL_IN) & i32::from(libc::POLLNVAL) != 0 {
                return Err(libc::EBADF);
            }
            self.files.resize_with(at + 1, || None);
        }
        let file = self.files[at].get_or_insert_default();
        let busy = !file.readers.is_empty() || !file.waiters.is_empty();
        if file.registered && (file.ours || busy) {
            return Ok(false);
        }
        let add = control(&self.set, libc::EPOLL_CTL_ADD, fd, INTEREST, at as u64);
        let done = match add {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                control(&self.set, libc::EPOLL_CTL_MOD, fd, INTEREST, at as u64)
            }
            other => other,
        };
        done.map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))?;
        (file.registered, file.readable, file.ended) = (true, false, false);
        Ok(true)
    }

    fn read(&mut self, fd: RawFd, token: Token, sink: Sink) {
        if let Some(file) = file_mut(&mut self.files, fd) {
            self.live.insert(token, fd);
            file.readers.push(Reader { token, sink });
            file.schedule(fd, &mut self.ready);
        }
    }

    fn wait(&mut self, fd: RawFd, waiter: Waiter) {
        if let Some(file) = file_mut(&mut self.files, fd) {
            self.live.insert(waiter.token, fd);
            file.waiters.push(waiter);
        }
    }

    fn group_mut(&mut self, group: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(usize::from(group.0))?.as_mut()
    }

    /// One `epoll_wait`. `false`: a signal ended it.
    fn collect(&mut self, timeout_ms: i32, out: &mut Vec<Completion>) -> io::Result<bool> {
        self.enters += 1;
        // SAFETY: `events` holds EVENTS initialised, writable entries.
        let count = answer_once(|| unsafe {
            let (events, len) = (self.events.as_mut_ptr(), self.events.len() as i32);
            libc::epoll_wait(self.set.as_raw_fd(), events, len, timeout_ms) as isize
        });
        match count {
            Err(libc::EINTR) => return Ok(false),
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            Ok(count) => {
                for at in 0..count.min(self.events.len()) {
                    let event = self.events[at];
                    self.on_event(event.u64, event.events, out);
                }
            }
        }
        Ok(true)
    }

    fn on_event(&mut self, key: u64, events: u32, out: &mut Vec<Completion>) {
        match key {
            WAKE_KEY => self.woken = true,
            TIMER_KEY => self.programmed = Instant::NEVER,
            key => {
                let fd = key as RawFd;
                if let Some(file) = file_mut(&mut self.files, fd) {
                    file.readable |= events & READABLE != 0;
                    file.ended |= events & ENDED != 0;
                    file.schedule(fd, &mut self.ready);
                    file.complete_waiters(fd, events, &mut self.live, out);
                }
            }
        }
    }

    /// Receives on every ready descriptor, each up to its share.
    fn receive_ready(&mut self, out: &mut Vec<Completion>) {
        std::mem::swap(&mut self.ready, &mut self.walked);
        let Epoll { files, groups, live, ready, walked, .. } = self;
        for fd in walked.drain(..) {
            if let Some(file) = file_mut(files, fd) {
                file.scheduled = false;
                file.receive(fd, groups, live, out);
                file.schedule(fd, ready);
            }
        }
    }

    /// Programs the timerfd if it would fire too late.
    fn program(&mut self) {
        if self.armed >= self.programmed {
            return;
        }
        // Zero would disarm the timer; an instant in the past fires at once.
        let ns = self.armed.as_nanos().max(1);
        let value = libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        };
        let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: interval, it_value: value };
        let (fd, absolute) = (self.timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
        // SAFETY: `spec` is a valid itimerspec and the old value is not asked for.
        unsafe { libc::timerfd_settime(fd, absolute, &spec, std::ptr::null_mut()) };
        self.programmed = self.armed;
    }

    /// Whether the armed instant came. The clock is read only after the timer fired.
    fn due(&self) -> bool {
        self.armed != Instant::NEVER
            && self.programmed == Instant::NEVER
            && self.now() >= self.armed
    }
}

impl Kernel for Epoll {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn socket(&mut self, address: Address<'_>) -> io::Result<RawFd> {
        let fd = new_socket(address)?;
        let at = fd as usize;
        if at >= self.files.len() {
            self.files.resize_with(at + 1, || None);
        }
        self.files[at] = Some(Box::new(File { ours: true, ..File::default() }));
        Ok(fd)
    }

    fn close_now(&mut self, fd: RawFd) {
        // The number may come back as another descriptor: what was known of this one goes.
        if let Some(file) = usize::try_from(fd).ok().and_then(|at| self.files.get_mut(at)) {
            *file = None;
        }
        close_now(fd);
    }

    unsafe fn queue(&mut self, token: Token, op: Op) {
        self.queued.push((token, op));
    }

    fn enter(&mut self, wait: Wait, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        let sends = self.submit(out);
        loop {
            let found = out.len() - before > sends;
            let mut timeout_ms = 0;
            if wait == Wait::Yes && !found && !self.woken {
                self.program();
                // Left over from an earlier share: look at the others, then go on there.
                timeout_ms = if self.ready.is_empty() { -1 } else { 0 };
            }
            let uninterrupted = self.collect(timeout_ms, out)?;
            self.receive_ready(out);
            if wait == Wait::No {
                return Ok(());
            }
            let found = out.len() - before > sends;
            if found || self.woken || !uninterrupted || self.due() {
                break;
            }
        }
        if std::mem::take(&mut self.woken) {
            self.wake.answer();
        }
        Ok(())
    }

    fn incremental(&self) -> bool {
        true
    }

    fn group(&mut self, config: GroupConfig) -> io::Result<GroupId> {
        let group = Group::new(config)?;
        let free = self.groups.iter().position(Option::is_none).unwrap_or(self.groups.len());
        let id = u16::try_from(free).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
        if free == self.groups.len() {
            self.groups.push(Some(group));
        } else {
            self.groups[free] = Some(group);
        }
        Ok(GroupId(id))
    }

    unsafe fn post(&mut self, group: GroupId, index: u16, ptr: *mut u8, len: u32) {
        debug_assert!(len > 0, "an empty buffer would read as the end of the stream");
        if let Some(group) = self.group_mut(group).filter(|_| len > 0) {
            // SAFETY: as the caller promises.
            unsafe { group.post(index, ptr, len) };
        }
    }

    fn ungroup(&mut self, group: GroupId) {
        if let Some(place) = self.groups.get_mut(usize::from(group.0)) {
            *place = None;
        }
    }

    fn arm(&mut self, at: Instant) {
        self.armed = at;
    }

    /// The epoll descriptor itself: it is readable exactly when `epoll_wait` would report, and the
    /// timerfd in it stands for the armed instant.
    fn ready_fd(&mut self) -> io::Result<RawFd> {
        Ok(self.set.as_raw_fd())
    }

    /// Also asks the set itself, because a host that watches [`Kernel::ready_fd`] edge-triggered
    /// may have cleared an edge that came before.
    fn prepare_park(&mut self) -> bool {
        // A host never waits in `enter`, so a wake that a turn collected is answered here.
        if std::mem::take(&mut self.woken) {
            self.wake.answer();
            return false;
        }
        if !self.queued.is_empty() || !self.ready.is_empty() {
            return false;
        }
        self.program();
        poll_now(self.set.as_raw_fd(), libc::EPOLLIN as u32) == 0
    }

    fn waker(&self) -> Arc<dyn Wakeup> {
        self.wake.clone()
    }

    /// Counts calls of `epoll_wait`; the `send`, `recv` and rare `epoll_ctl`, `poll` and
    /// `timerfd_settime` calls around them are not counted.
    fn enters(&self) -> u64 {
        self.enters
    }
}

fn file_mut(files: &mut [Option<Box<File>>], fd: RawFd) -> Option<&mut File> {
    files.get_mut(usize::try_from(fd).ok()?)?.as_deref_mut()
}
