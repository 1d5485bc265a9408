//! Sends: whole, gathered, short.

use std::io::Read;
use std::time::Duration;

use hedgerow_runtime::kernel::{Kernel, Wait};
use hedgerow_runtime::op::Op;

use crate::rig::{PATIENCE, POLL, Rig, SEND, pattern};

/// Gathers from an iovec in order.
pub(crate) fn gathered_send<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let mut parts = [&b"one "[..], b"two ", b"three"]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all-zero is a valid msghdr (null pointers, zero lengths).
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    rig.queue(SEND, Op::SendMsg { fd, msg: &raw const msg });
    assert_eq!(rig.next(SEND).result, 13);
    let mut heard = [0; 13];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"one two three");
}

/// A wait is not ended by a send's own completion, which comes along with what ended it.
pub(crate) fn sends_do_not_end_the_wait<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, _peer) = rig.connected();
    let (_, ptr) = rig.memory(vec![b'x'; 10]);
    rig.queue(SEND, Op::Send { fd, ptr, len: 10 });
    let at = rig.kernel.now() + Duration::from_millis(20);
    rig.kernel.arm(at);
    rig.enter(Wait::Yes);
    assert!(rig.kernel.now() >= at, "the send alone ended the wait");
    assert_eq!(rig.next(SEND).result, 10);
}

/// A send that came short does end the wait: no reply can come before the rest went out.
pub(crate) fn short_send_ends_the_wait<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, _peer) = rig.connected();
    let len = 64 << 20;
    let (_, ptr) = rig.memory(vec![0; len]);
    rig.queue(SEND, Op::Send { fd, ptr, len: len as u32 });
    let at = rig.kernel.now() + PATIENCE;
    rig.kernel.arm(at);
    while rig.out.is_empty() && rig.kernel.now() < at {
        rig.enter(Wait::Yes);
    }
    assert!(rig.kernel.now() < at, "the rest of a command waits for a reply to it");
    assert!(rig.next(SEND).result < len as i32);
}

/// A peer that does not read: short send, EAGAIN, PollOut; another socket is not delayed.
pub(crate) fn full_socket_then_poll_out<K: Kernel>(kernel: K) {
    let mut rig = Rig::new(kernel);
    let (fd, mut peer) = rig.connected();
    let (other, mut other_peer) = rig.connected();
    let chunk = 1 << 20;
    let (_, ptr) = rig.memory(pattern(chunk));
    let mut sent = 0usize;
    loop {
        rig.queue(SEND, Op::Send { fd, ptr, len: chunk as u32 });
        match rig.next(SEND).result {
            result if result > 0 => sent += result as usize,
            result => break assert_eq!(result, -libc::EAGAIN),
        }
    }
    rig.queue(POLL, Op::PollOut { fd });
    rig.expect_silence(POLL);
    rig.send_all(other, b"not delayed");
    let mut heard = [0; 11];
    other_peer.read_exact(&mut heard).unwrap();
    rig.expect_silence(POLL);
    let reader = std::thread::spawn(move || {
        let mut sink = vec![0; sent];
        peer.read_exact(&mut sink).map(|()| peer)
    });
    assert!(rig.next(POLL).result > 0);
    let _peer = reader.join().unwrap().unwrap();
    rig.queue(POLL, Op::PollOut { fd });
    assert!(rig.next(POLL).result > 0, "an edge that was reported before must not be waited for");
}
