//! Receives: over posted buffers, exact ones, and their ends.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use hedgerow_runtime::kernel::{Kernel, Wait};
use hedgerow_runtime::op::{Op, Token};

use crate::rig::{CANCEL, EXACT, RECEIVE, Rig, SEND, pattern};

/// What went out comes back in order, over buffers that are posted again as they empty.
pub(crate) fn echo_in_order<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(8, 512, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    for round in 0..50 {
        let sent = pattern(100 + round * 40);
        rig.send_all(fd, &sent);
        let mut heard = vec![0; sent.len()];
        peer.read_exact(&mut heard).unwrap();
        assert_eq!(heard, sent);
        peer.write_all(&heard).unwrap();
        assert_eq!(rig.receive(group, first, sent.len()), sent);
    }
    rig.close(fd);
}

/// Successive receives land one after the other in one buffer, whose last says that it is done.
pub(crate) fn incremental_offsets<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    if !rig.kernel.incremental() {
        return;
    }
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(2, 100, true);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let sent = pattern(150);
    let mut offsets = [0usize; 2];
    let mut got = Vec::new();
    for piece in sent.chunks(30) {
        peer.write_all(piece).unwrap();
        let goal = got.len() + piece.len();
        while got.len() < goal {
            let c = rig.next(RECEIVE);
            assert!(c.more && c.result > 0, "{c:?}");
            let index = usize::from(c.buffer.unwrap());
            got.extend(rig.memory[first + index].read(offsets[index], c.result as usize));
            offsets[index] += c.result as usize;
            assert_eq!(c.buffer_more, offsets[index] < 100, "{c:?} at {}", offsets[index]);
        }
    }
    assert_eq!(got, sent);
    assert_eq!(offsets, [100, 50], "buffers are used in the order in which they were posted");
}

/// An empty group ends the multishot; a new one goes on with the very next byte.
pub(crate) fn empty_group_ends_then_rearm<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(2, 16, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let sent = pattern(64);
    peer.write_all(&sent).unwrap();
    let mut got = Vec::new();
    let mut full = Vec::new();
    loop {
        let c = rig.next(RECEIVE);
        if c.result < 0 {
            assert_eq!((c.result, c.more, c.buffer), (-libc::ENOBUFS, false, None));
            break;
        }
        got.extend(rig.memory[first + usize::from(c.buffer.unwrap())].read(0, c.result as usize));
        full.push(c.buffer.unwrap());
        if !c.more {
            // A kernel may end it together with the last buffer.
            break;
        }
    }
    assert_eq!(full, [0, 1]);
    rig.expect_silence(RECEIVE);
    for index in full {
        let ptr = rig.memory[first + usize::from(index)].ptr;
        rig.post(group, index, ptr, 16);
    }
    while got.len() < sent.len() {
        rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        loop {
            let c = rig.next(RECEIVE);
            if c.result > 0 {
                rig.take(group, first, c, &mut got);
            }
            if !c.more || got.len() == sent.len() {
                break;
            }
        }
    }
    assert_eq!(got, sent);
}

/// A cancelled multishot ends with ECANCELED; one that had ended cannot be cancelled.
pub(crate) fn cancel_against_complete<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (group, first) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    peer.write_all(b"before").unwrap();
    assert_eq!(rig.receive(group, first, 6), b"before");
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    assert_eq!(rig.next(CANCEL).result, 0);
    let end = rig.next(RECEIVE);
    assert_eq!((end.result, end.more), (-libc::ECANCELED, false));
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    assert_eq!(rig.next(CANCEL).result, -libc::ENOENT);
    peer.write_all(b"after").unwrap();
    rig.expect_silence(RECEIVE);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    assert_eq!(rig.receive(group, first, 5), b"after");
}

/// A stream that goes on while a multishot is cancelled for an exact receive arrives whole.
pub(crate) fn exact_after_cancel_loses_nothing<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let sent = pattern(3 << 20);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
    let (group, first) = rig.group(4, 4096, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    let mut got = rig.receive(group, first, 10_000);
    rig.queue(CANCEL, Op::Cancel { target: RECEIVE });
    loop {
        let c = rig.next(RECEIVE);
        if c.result > 0 {
            rig.take(group, first, c, &mut got);
        }
        if !c.more {
            break;
        }
    }
    let rest = sent.len() - got.len();
    let (at, ptr) = rig.memory(vec![0; rest]);
    rig.queue(EXACT, Op::RecvExact { fd, ptr, len: rest as u32 });
    assert_eq!(rig.next(EXACT).result, rest as i32);
    got.extend(rig.memory[at].read(0, rest));
    assert!(got == sent, "bytes were lost or doubled");
    let mut peer = writer.join().unwrap().unwrap();
    rig.queue(Token(RECEIVE.0 + 1), Op::RecvMulti { fd, group });
    peer.write_all(b"on").unwrap();
    let c = rig.next(Token(RECEIVE.0 + 1));
    assert_eq!(c.result, 2);
}

/// An exact receive that meets the end of the stream says how far it came.
pub(crate) fn exact_cut_short<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (at, ptr) = rig.memory(vec![0; 100]);
    rig.queue(EXACT, Op::RecvExact { fd, ptr, len: 100 });
    peer.write_all(b"short").unwrap();
    rig.expect_silence(EXACT);
    drop(peer);
    assert_eq!(rig.next(EXACT).result, 5);
    assert_eq!(rig.memory[at].read(0, 5), b"short");
}

/// The last bytes, then the end.
pub(crate) fn end_of_stream<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    for round in 0..20 {
        let (fd, mut peer) = rig.connected();
        let (group, first) = rig.group(4, 64, false);
        let late = round % 2 == 0;
        if late {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
            rig.enter(Wait::No);
        }
        peer.write_all(b"last words").unwrap();
        drop(peer);
        if !late {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        }
        let mut got = Vec::new();
        let end = loop {
            let c = rig.next(RECEIVE);
            if c.result <= 0 {
                break c;
            }
            rig.take(group, first, c, &mut got);
        };
        assert_eq!((end.result, end.more), (0, false));
        assert_eq!(got, b"last words");
        rig.close(fd);
        rig.kernel.ungroup(group);
    }
}

/// A peer that resets: ECONNRESET ends the receive and sends fail, without a signal.
pub(crate) fn reset_by_peer<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, peer) = rig.connected();
    let (group, _) = rig.group(4, 64, false);
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    rig.enter(Wait::No);
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: `linger` is readable for `len` bytes.
    let done = unsafe {
        libc::setsockopt(peer.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len)
    };
    assert_eq!(done, 0);
    drop(peer);
    let end = rig.next(RECEIVE);
    assert_eq!((end.result, end.more), (-libc::ECONNRESET, false));
    let (_, ptr) = rig.memory(vec![1; 8]);
    rig.queue(SEND, Op::Send { fd, ptr, len: 8 });
    assert_eq!(rig.next(SEND).result, -libc::EPIPE);
}

/// A socket that always has bytes leaves room for others, and gets all of its own.
pub(crate) fn greedy_socket_is_bounded<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (quiet, mut quiet_peer) = rig.connected();
    let (group, first) = rig.group(64, 16 * 1024, false);
    let (quiet_group, _) = rig.group(1, 64, false);
    let quiet_token = Token(RECEIVE.0 + 9);
    let sent = pattern(8 << 20);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
    rig.queue(RECEIVE, Op::RecvMulti { fd, group });
    rig.queue(quiet_token, Op::RecvMulti { fd: quiet, group: quiet_group });
    quiet_peer.write_all(b"me too").unwrap();
    assert_eq!(rig.next(quiet_token).result, 6);
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let c = rig.next(RECEIVE);
        if c.result > 0 {
            rig.take(group, first, c, &mut got);
        }
        if !c.more {
            rig.queue(RECEIVE, Op::RecvMulti { fd, group });
        }
    }
    assert!(got == sent);
    drop(writer.join().unwrap());
}
