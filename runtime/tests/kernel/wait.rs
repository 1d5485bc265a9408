//! What ends a wait, the kernel's own and a host's.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use hedgerow_runtime::kernel::{Kernel, Wait};
use hedgerow_runtime::op::Op;
use hedgerow_runtime::time::Instant;

use crate::rig::{PATIENCE, POLL, RECEIVE, Rig};

/// The armed instant ends the wait, not before it; a later one and none are obeyed too.
pub(crate) fn armed_instant<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    for delay_us in [0, 50, 200, 1_000, 5_000] {
        let at = rig.kernel.now() + Duration::from_micros(delay_us);
        rig.kernel.arm(at);
        while rig.kernel.now() < at {
            rig.enter(Wait::Yes);
        }
        assert!(rig.kernel.now() - at < Duration::from_secs(5));
    }
    let (early, late) = (Duration::from_millis(1), Duration::from_millis(15));
    let start = rig.kernel.now();
    rig.kernel.arm(start + early);
    rig.enter(Wait::No);
    rig.kernel.arm(start + late);
    let before = rig.kernel.enters();
    while rig.kernel.now() < start + late {
        rig.enter(Wait::Yes);
    }
    assert!(rig.kernel.enters() - before < 10, "an instant that moved later must not be spun for");
    rig.kernel.arm(start + Duration::from_secs(3600));
    rig.kernel.arm(rig.kernel.now() + early);
    rig.enter(Wait::Yes);
    assert!(rig.out.is_empty());
}

/// Another thread ends the wait, whether it came before it or during it.
pub(crate) fn woken_by_another_thread<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let start = rig.kernel.now();
    rig.kernel.arm(start + PATIENCE);
    let waker = rig.kernel.waker();
    for round in 0..200 {
        let waker = waker.clone();
        if round % 2 == 0 {
            waker.wake();
            waker.wake();
            rig.enter(Wait::Yes);
        } else {
            let thread = std::thread::spawn(move || waker.wake());
            rig.enter(Wait::Yes);
            thread.join().unwrap();
        }
    }
    assert!(rig.kernel.now() < start + PATIENCE, "a wake was lost");
    drop(rig);
    waker.wake();
}

/// Readiness of a descriptor from elsewhere, asked for again and again (the mailbox's eventfd).
pub(crate) fn poll_in_repeats<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    // SAFETY: no pointers; the result is checked.
    let raw = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    assert!(raw >= 0);
    // SAFETY: just made and nobody else's.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    for round in 0..4 {
        if round % 2 == 0 {
            file.write_all(&1u64.to_ne_bytes()).unwrap();
        }
        rig.queue(POLL, Op::PollIn { fd: raw });
        if round % 2 == 1 {
            rig.expect_silence(POLL);
            file.write_all(&1u64.to_ne_bytes()).unwrap();
        }
        assert!(rig.next(POLL).result > 0);
        rig.queue(POLL, Op::PollIn { fd: raw });
        assert!(rig.next(POLL).result > 0, "still readable: must complete at once");
        file.read_exact(&mut [0; 8]).unwrap();
    }
}

/// What a host does: waits on the descriptor, as long as the kernel says that it may.
pub(crate) fn host_wait<K: Kernel>(rig: &mut Rig<K>, fd: RawFd, between: impl FnOnce()) -> bool {
    let safe = rig.kernel.prepare_park();
    between();
    if !safe {
        return true;
    }
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit_ms = PATIENCE.as_millis() as i32;
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, limit_ms) == 1 }
}

/// The park protocol with bytes arriving between each two of its steps.
pub(crate) fn park_and_bytes<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, peer) = rig.connected();
    let (group, first) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let ready = rig.kernel.ready_fd().unwrap();
    for step in 0..40 {
        let write = || (&peer).write_all(b"12345").unwrap();
        match step % 4 {
            0 => {
                write();
                rig.enter(Wait::No);
            }
            1 => {
                rig.enter(Wait::No);
                write();
            }
            _ => rig.enter(Wait::No),
        }
        let at = rig.kernel.now() + PATIENCE * 4;
        rig.kernel.arm(at);
        if rig.out.is_empty() {
            let between = || {
                if step % 4 == 2 {
                    write();
                }
            };
            if step % 4 == 3 {
                let late = peer.try_clone().unwrap();
                let thread = std::thread::spawn(move || (&late).write_all(b"12345").unwrap());
                assert!(host_wait(&mut rig, ready, between), "step {step}: the host sleeps");
                thread.join().unwrap();
            } else {
                assert!(host_wait(&mut rig, ready, between), "step {step}: the host sleeps");
            }
        }
        assert_eq!(rig.receive(group, first, 5), b"12345", "step {step}");
    }
}

/// The park protocol with the armed instant arriving between each two of its steps.
pub(crate) fn park_and_time<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let ready = rig.kernel.ready_fd().unwrap();
    let pass = |at: Instant| while Instant::now() < at {};
    for step in 0..12 {
        let at = rig.kernel.now() + Duration::from_micros(300);
        rig.kernel.arm(at);
        if step % 4 == 0 {
            pass(at);
        }
        rig.enter(Wait::No);
        if step % 4 == 1 {
            pass(at);
        }
        // A core that finds its deadline passed deals with it and does not park.
        while step % 4 != 0 && (step % 4 == 1 || rig.kernel.now() < at) {
            assert!(host_wait(&mut rig, ready, || if step % 4 == 2 {
                pass(at)
            }));
            rig.enter(Wait::No);
            if rig.kernel.now() >= at {
                break;
            }
        }
        rig.kernel.arm(Instant::NEVER);
    }
}

/// A wake from another thread turns the host's descriptor readable.
pub(crate) fn park_and_wake<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let ready = rig.kernel.ready_fd().unwrap();
    for step in 0..20 {
        let waker = rig.kernel.waker();
        rig.enter(Wait::No);
        if step % 2 == 0 {
            waker.wake();
        }
        assert!(host_wait(&mut rig, ready, || if step % 2 == 1 {
            waker.wake();
        }));
        rig.kernel.arm(rig.kernel.now() + PATIENCE);
        rig.enter(Wait::Yes);
    }
}
