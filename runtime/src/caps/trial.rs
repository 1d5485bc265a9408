//! Tries what a rung needs on a tiny ring or epoll: the only proof that it works here.

use std::fmt;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, Probe, cqueue, opcode, types};

use crate::descriptor::owned;
use crate::ring::builder;

/// What went wrong, and in which step.
#[derive(Debug)]
pub(super) struct Fault {
    /// The call, or what was being tried.
    pub(super) step: &'static str,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// The system said no.
    System(io::Error),
    /// It said yes and did something else.
    Wrong(String),
}

impl Fault {
    pub(super) fn out_of_memory(&self) -> bool {
        matches!(&self.what, What::System(error) if error.raw_os_error() == Some(libc::ENOMEM))
    }
}

fn system(step: &'static str) -> impl FnOnce(io::Error) -> Fault {
    move |error| Fault { step, what: What::System(error) }
}

fn wrong(step: &'static str, what: impl Into<String>) -> Fault {
    Fault { step, what: What::Wrong(what.into()) }
}

/// Submission entries of the trial's ring: the least that a core would work with.
const ENTRIES: u32 = 8;
/// `IOU_PBUF_RING_INC`: receives go on in the same buffer until it is full.
const INCREMENTAL: u16 = 2;
/// One page holds the group's entries, the next its buffers.
const PAGE: usize = 4096;
/// Longest wait for a completion that should be there at once.
const PATIENCE_S: u64 = 1;

/// Operations that a ring rung queues.
const OPERATIONS: [(&str, u8); 9] = [
    ("connect", opcode::Connect::CODE),
    ("send", opcode::Send::CODE),
    ("sendmsg", opcode::SendMsg::CODE),
    ("recv", opcode::Recv::CODE),
    ("poll", opcode::PollAdd::CODE),
    ("cancel", opcode::AsyncCancel::CODE),
    ("close", opcode::Close::CODE),
    ("timeout", opcode::Timeout::CODE),
    ("timeout remove", opcode::TimeoutRemove::CODE),
];

/// Operations that are used where they exist.
const EXTRAS: [(&str, u8); 3] = [
    ("msg_ring", opcode::MsgRingData::CODE),
    ("send_zc", opcode::SendZc::CODE),
    ("socket", opcode::Socket::CODE),
];

/// What the kernel's io_uring offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingCaps {
    /// Names of the features that the kernel reports.
    pub features: Vec<&'static str>,
    /// The operations of interest, and whether the kernel knows them.
    pub operations: Vec<(&'static str, bool)>,
    /// Whether incremental buffer groups can be made.
    pub incremental: bool,
}

impl fmt::Display for RingCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |wanted: bool| {
            let names = self.operations.iter().filter(|(_, known)| *known == wanted);
            let names: Vec<_> = names.map(|(name, _)| *name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        writeln!(f, "io_uring features: {}", self.features.join(", "))?;
        writeln!(f, "io_uring operations: {}; missing: {}", known(true), known(false))?;
        let incremental = if self.incremental { "yes" } else { "no" };
        writeln!(f, "io_uring incremental buffers: {incremental}")
    }
}

/// Makes a tiny ring and asks what the kernel knows.
pub(super) fn ring_caps() -> Result<RingCaps, Fault> {
    let ring = ring()?;
    let probe = probe(&ring)?;
    let (known, params) = (OPERATIONS.iter().chain(&EXTRAS), ring.params());
    let features = [
        ("nodrop", params.is_feature_nodrop()),
        ("submit_stable", params.is_feature_submit_stable()),
        ("fast_poll", params.is_feature_fast_poll()),
        ("ext_arg", params.is_feature_ext_arg()),
        ("native_workers", params.is_feature_native_workers()),
        ("cqe_skip", params.is_feature_skip_cqe_on_success()),
        ("recvsend_bundle", params.is_feature_recvsend_bundle()),
        ("min_timeout", params.is_feature_min_timeout()),
        ("no_iowait", params.is_feature_no_iowait()),
    ];
    Ok(RingCaps {
        features: features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect(),
        operations: known.map(|&(name, code)| (name, probe.is_supported(code))).collect(),
        incremental: Group::new(&ring, true).and_then(|group| group.free(&ring)).is_ok(),
    })
}

/// Receives twice through a multishot into a buffer group, then the end of the stream.
pub(super) fn ring_works(incremental: bool) -> Result<(), Fault> {
    let mut ring = ring()?;
    let probe = probe(&ring)?;
    if let Some((name, _)) = OPERATIONS.iter().find(|(_, code)| !probe.is_supported(*code)) {
        return Err(wrong("io_uring operations", format!("the kernel has no {name}")));
    }
    let (near, mut far) = UnixStream::pair().map_err(system("socketpair"))?;
    let group = Group::new(&ring, incremental)?;
    let receive = opcode::RecvMulti::new(types::Fd(near.as_raw_fd()), Group::ID).build();
    // SAFETY: the receive writes only into the group's memory, which is freed in `Group::free` after
    // the final completion, and leaked on every other way out of this function.
    unsafe { ring.submission().push(&receive) }
        .map_err(|_| wrong("io_uring submission", "the queue of a new ring is full"))?;

    far.write_all(b"abc").map_err(system("write to a socketpair"))?;
    let first = completion(&mut ring)?;
    far.write_all(b"de").map_err(system("write to a socketpair"))?;
    let second = completion(&mut ring)?;
    drop(far);
    let last = completion(&mut ring)?;

    let seen = (Piece::of(&first)?, Piece::of(&second)?);
    let piece = |len, buffer, stays| Piece { len, buffer, stays };
    let wanted = match incremental {
        true => (piece(3, 0, true), piece(2, 0, true)),
        false => (piece(3, 0, false), piece(2, 1, false)),
    };
    if seen != wanted {
        return Err(wrong("multishot receive", format!("{seen:?} came instead of {wanted:?}")));
    }
    if last.result() != 0 || cqueue::more(last.flags()) {
        return Err(wrong("multishot receive", "it did not end with the stream"));
    }
    group.check(incremental)?;
    group.free(&ring)
}

/// The ring that a core makes, as small as can be.
fn ring() -> Result<IoUring, Fault> {
    builder(4 * ENTRIES).build(ENTRIES).map_err(system("io_uring_setup"))
}

fn probe(ring: &IoUring) -> Result<Probe, Fault> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(system("io_uring_register"))?;
    Ok(probe)
}

/// Submits and waits for the next completion.
fn completion(ring: &mut IoUring) -> Result<cqueue::Entry, Fault> {
    let patience = types::Timespec::new().sec(PATIENCE_S);
    let args = types::SubmitArgs::new().timespec(&patience);
    loop {
        if let Some(entry) = ring.completion().next() {
            return Ok(entry);
        }
        match ring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                return Err(wrong("io_uring_enter", "no completion came within a second"));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(system("io_uring_enter")(error)),
        }
    }
}

/// What one completion of the multishot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    len: u32,
    buffer: u16,
    /// The buffer stays posted.
    stays: bool,
}

impl Piece {
    fn of(entry: &cqueue::Entry) -> Result<Piece, Fault> {
        let (result, flags) = (entry.result(), entry.flags());
        let len = u32::try_from(result).map_err(|_| {
            system("multishot receive")(io::Error::from_raw_os_error(result.saturating_neg()))
        })?;
        match cqueue::buffer_select(flags) {
            Some(buffer) if cqueue::more(flags) => {
                Ok(Piece { len, buffer, stays: cqueue::buffer_more(flags) })
            }
            Some(_) => Err(wrong("multishot receive", "it ended after one piece")),
            None => Err(wrong("multishot receive", "it took no buffer of its group")),
        }
    }
}

/// A provided-buffer group in memory of its own: a buffer for each piece, and one more, because a
/// multishot whose group is empty ends with `ENOBUFS` before it sees the end of the stream.
struct Group {
    memory: ManuallyDrop<Pages>,
}

impl Group {
    const ID: u16 = 0;
    const BUFFERS: u16 = 4;
    const BUFFER_LEN: usize = PAGE / Self::BUFFERS as usize;

    /// Registers the group and posts its buffers. Dropping it leaks two pages, because a receive may
    /// still write into them; [`Group::free`] does not.
    fn new(ring: &IoUring, incremental: bool) -> Result<Group, Fault> {
        let memory = Pages::map().map_err(system("mmap"))?;
        let entries = memory.0.as_ptr().cast::<types::BufRingEntry>();
        for index in 0..Self::BUFFERS {
            let buffer =
                memory.0.as_ptr().wrapping_add(PAGE + usize::from(index) * Self::BUFFER_LEN);
            // SAFETY: the first page is ours, zeroed, page-aligned and large enough for all entries
            // (16 bytes each), for which any bit pattern is valid; the kernel does not know it yet.
            let entry = unsafe { &mut *entries.add(usize::from(index)) };
            entry.set_addr(buffer as u64);
            entry.set_len(Self::BUFFER_LEN as u32);
            entry.set_bid(index);
        }
        let flags = if incremental { INCREMENTAL } else { 0 };
        let submitter = ring.submitter();
        // SAFETY: `entries` is page-aligned, writable and holds the entries; it stays mapped until
        // `free` has unregistered the group, and for ever if that never happens.
        unsafe {
            submitter.register_buf_ring_with_flags(entries as u64, Self::BUFFERS, Self::ID, flags)
        }
        .map_err(system("io_uring_register"))?;
        // SAFETY: `entries` points to the first of the group's entries; the tail overlays its last
        // field, two bytes aligned to two, and from now on only this store and the kernel touch it.
        let tail = unsafe { &*types::BufRingEntry::tail(entries).cast::<AtomicU16>() };
        tail.store(Self::BUFFERS, Ordering::Release);
        Ok(Group { memory: ManuallyDrop::new(memory) })
    }

    /// Whether the received bytes lie where the completions said.
    fn check(&self, incremental: bool) -> Result<(), Fault> {
        let second = if incremental { 3 } else { Self::BUFFER_LEN };
        // SAFETY: the second page is mapped, initialised (zeroed at mapping) and, after the final
        // completion, written by nobody.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.0.as_ptr().add(PAGE), PAGE) };
        if bytes.starts_with(b"abc") && bytes.get(second..second + 2) == Some(b"de") {
            return Ok(());
        }
        Err(wrong("multishot receive", "the bytes are not where the completions say"))
    }

    /// Unregisters the group and frees its memory. No receive may be using it.
    fn free(self, ring: &IoUring) -> Result<(), Fault> {
        ring.submitter().unregister_buf_ring(Self::ID).map_err(system("io_uring_register"))?;
        drop(ManuallyDrop::into_inner(self.memory));
        Ok(())
    }
}

/// Two zeroed pages.
struct Pages(NonNull<u8>);

impl Pages {
    fn map() -> io::Result<Pages> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // that anybody else uses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(Pages).ok_or_else(io::Error::last_os_error)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping with this length, and `Group` lets go of it only when
        // neither the kernel nor a slice refers to it.
        unsafe { libc::munmap(self.0.as_ptr().cast(), 2 * PAGE) };
    }
}

/// Waits for a byte with epoll.
pub(super) fn epoll_works() -> Result<(), Fault> {
    let (near, mut far) = UnixStream::pair().map_err(system("socketpair"))?;
    // SAFETY: no pointers; the descriptor is fresh.
    let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let epoll = epoll.map_err(system("epoll_create1"))?;
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
    // SAFETY: both descriptors are open, `event` is valid and only read.
    let added = unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, near.as_raw_fd(), &mut event)
    };
    if added != 0 {
        return Err(system("epoll_ctl")(io::Error::last_os_error()));
    }
    far.write_all(b"a").map_err(system("write to a socketpair"))?;
    // SAFETY: `event` is valid and writable for the one event that is asked for.
    match unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 1_000) } {
        1 => Ok(()),
        0 => Err(wrong("epoll_wait", "no event came within a second")),
        _ => Err(system("epoll_wait")(io::Error::last_os_error())),
    }
}
