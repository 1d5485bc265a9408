//! What goes out, and peers that do not read it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::Batch;
use hedgerow_runtime::core::Turn;
use hedgerow_runtime::io::SocketId;
use hedgerow_runtime::kernel::Kernel;

use crate::message::{message, text};
use crate::rig::{KIB, MIB, Rig, in_thread};

pub(crate) fn one_send_a_turn<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut sent = Vec::new();
    for round in 0..20 {
        let mut batch = Batch::new();
        for number in 0..50 {
            batch.small().extend_from_slice(&message(number, &[round]));
        }
        let bytes: Vec<u8> = batch.parts().flatten().copied().collect();
        let before = rig.core.io.counters();
        assert!(rig.core.io.send(id, &mut batch));
        assert!(!rig.send(id, b"another in the same turn"), "one send at a time");
        rig.turn(Turn::Return);
        let after = rig.core.io.counters();
        assert_eq!((after.sends - before.sends, after.enters - before.enters), (1, 1));
        assert_eq!(rig.probe.sent.pop(), Some((id, bytes.len(), true)));
        sent.extend(bytes);
    }
    let mut heard = vec![0; sent.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == sent);
    rig.shut_down();
}

pub(crate) fn short_sends_go_on<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let small = 4096i32;
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `small` is readable for `len` bytes.
    let done = unsafe {
        let value = (&raw const small).cast();
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, len)
    };
    assert_eq!(done, 0);
    let (id, mut peer) = rig.connected_to(&listener);
    let mut batch = Batch::new();
    for number in 0..200 {
        batch.small().extend_from_slice(text(number, number));
        batch.push_large(Bytes::from_static(text(number, 60 * KIB + number)));
    }
    batch.push_large(Bytes::new());
    batch.small().extend_from_slice(b"end");
    let sent: Vec<u8> = batch.parts().flatten().copied().collect();
    let total = sent.len();
    assert!(rig.core.io.send(id, &mut batch));
    rig.rest(Duration::from_millis(20));
    assert!(rig.core.io.unsent(id) > 0, "the peer has not read");
    let reader = in_thread(move || {
        let mut heard = vec![0; sent.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "bytes are lost, doubled or out of order");
    });
    rig.poll_until("the whole batch", |rig| rig.probe.sent.last().is_some_and(|s| s.2));
    assert_eq!(rig.probe.sent.iter().map(|s| s.1).sum::<usize>(), total);
    assert_eq!(rig.core.io.unsent(id), 0);
    reader.join().unwrap();
    rig.shut_down();
}

pub(crate) fn a_sent_part_is_let_go<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    struct Part(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Part {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let held = Arc::new(vec![1; 1000]);
    let mut batch = Batch::new();
    batch.push_large(Bytes::from_owner(Part(held.clone())));
    assert!(rig.core.io.send(id, &mut batch));
    rig.poll_until("the send", |rig| rig.probe.sent.last().is_some_and(|s| s.2));
    assert_eq!(Arc::strong_count(&held), 1, "an idle socket keeps the caller's bytes");
    peer.read_exact(&mut [0; 1000]).unwrap();
    rig.shut_down();
}

/// Trap 7, trap 9. Fails if queues of a few entries drop an operation or a completion.
pub(crate) fn tiny_queues_lose_nothing<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut links: Vec<(SocketId, TcpStream)> =
        (0..100).map(|_| rig.connected_to(&listener)).collect();
    for round in 0..20 {
        // A receive, a send and a cancel of each socket, all between two turns.
        for (id, peer) in &mut links {
            for number in 0..5 {
                peer.write_all(&message(round * 5 + number, &[number * 4000])).unwrap();
            }
            assert!(rig.send(*id, &message(round, &[10])));
            if round % 3 == 0 {
                rig.receive(*id, false);
            }
        }
        rig.turn(Turn::Return);
        for (id, peer) in &mut links {
            if round % 3 == 0 {
                rig.receive(*id, true);
            }
            rig.heard(*id, (round + 1) * 5);
            let mut heard = vec![0; 14];
            peer.read_exact(&mut heard).unwrap();
            assert!(heard == message(round, &[10]));
        }
        rig.poll_until("the sends", |rig| rig.probe.sent.len() == (round + 1) * 100);
    }
    assert!(rig.probe.sent.iter().all(|s| s.1 == 14 && s.2));
    rig.shut_down();
}

pub(crate) fn a_peer_that_does_not_read_delays_no_other<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (full, _unread) = rig.connected();
    let (id, mut peer) = rig.connected();
    let mut batch = Batch::new();
    batch.push_large(Bytes::from(vec![0; 64 * MIB]));
    assert!(rig.core.io.send(full, &mut batch));
    for number in 0..200 {
        assert!(rig.send(id, &[1]));
        rig.poll_until("a send", |rig| {
            rig.probe.sent.iter().filter(|s| s.0 == id).count() > number
        });
        peer.read_exact(&mut [0]).unwrap();
        peer.write_all(&message(number, &[1])).unwrap();
        rig.heard(id, number + 1);
        assert!(rig.core.io.unsent(full) > 0);
    }
    let turns = rig.rest(Duration::from_millis(30));
    assert!(turns < 20, "{turns} turns: a full socket is spun for");
    rig.shut_down();
}

pub(crate) fn a_peer_that_leaves_ends_a_blocked_send<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut batch = Batch::new();
    batch.push_large(Bytes::from(vec![0; 64 * MIB]));
    assert!(rig.core.io.send(id, &mut batch));
    rig.rest(Duration::from_millis(20));
    assert!(rig.core.io.unsent(id) > 0);
    peer.write_all(&message(0, &[3])).unwrap();
    rig.heard(id, 1);
    // Unread bytes make it a reset.
    drop(peer);
    rig.until("the end", |rig| !rig.probe.closed.is_empty());
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    assert_eq!(rig.probe.closed.len(), 1, "one end is reported once");
    rig.shut_down();
}
