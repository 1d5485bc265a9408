//! What comes in: cut anywhere, of any size, switched off and on.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use hedgerow_runtime::core::Turn;
use hedgerow_runtime::kernel::Kernel;

use crate::message::message;
use crate::rig::{BLOCK, KIB, MIB, Rig, in_thread};

pub(crate) fn messages_split_at_every_byte<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    let mut written = rig.received();
    for parts in [&[0usize][..], &[1], &[60], &[0, 0, 7], &[20, 1]] {
        for split in 0..message(0, parts).len() {
            let bytes = message(number, parts);
            let (head, tail) = bytes.split_at(split);
            for piece in [head, tail] {
                peer.write_all(piece).unwrap();
                written += piece.len() as u64;
                rig.until("a piece", |rig| rig.received() == written);
            }
            number += 1;
            assert_eq!(rig.probe.link(id).heard, number, "{parts:?} split at {split}");
        }
    }
    rig.shut_down();
}

pub(crate) fn messages_end_at_every_place_of_a_block<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    let mut written = rig.received();
    for step in 0..60 {
        for len in [BLOCK / 2 - 8, BLOCK / 4, BLOCK / 4 - 4 + step % 3, 3, 0] {
            let bytes = message(number, &[len]);
            for piece in bytes.chunks(1 + 97 * step) {
                peer.write_all(piece).unwrap();
                written += piece.len() as u64;
                if step % 4 == 0 && piece.len() > 300 {
                    rig.until("a piece", |rig| rig.received() == written);
                }
            }
            number += 1;
        }
        rig.heard(id, number);
    }
    rig.shut_down();
}

pub(crate) fn values_of_every_size<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut sizes: Vec<usize> = vec![0, 1];
    for border in [BLOCK, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 4 * MIB] {
        sizes.extend(border - 9..border + 9);
    }
    sizes.extend([64 * MIB, 0, 1, 64 * KIB]);
    let count = sizes.len();
    let writer = in_thread(move || {
        for (number, len) in sizes.iter().enumerate() {
            peer.write_all(&message(number, &[*len])).unwrap();
        }
    });
    rig.heard(id, count);
    writer.join().unwrap();
    rig.shut_down();
}

pub(crate) fn no_byte_is_lost_around_exact_receives<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 400;
    let writer = in_thread(move || {
        let mut rng = fastrand::Rng::with_seed(25);
        let mut stream = Vec::new();
        for number in 0..count {
            // Parts of which many are longer than a block, so that exact buffers grow.
            let parts: Vec<usize> = (0..rng.usize(1..5))
                .map(|_| if rng.u8(..) < 100 { rng.usize(0..400 * KIB) } else { rng.usize(0..300) })
                .collect();
            stream.extend(message(number, &parts));
            while stream.len() > MIB || (number + 1 == count && !stream.is_empty()) {
                let n = rng.usize(1..200 * KIB).min(stream.len());
                peer.write_all(&stream[..n]).unwrap();
                stream.drain(..n);
            }
        }
    });
    rig.heard(id, count);
    writer.join().unwrap();
    rig.shut_down();
}

pub(crate) fn an_empty_group_is_armed_again<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    for round in 0..10 {
        let (from, count) = (round * 40, 40);
        let writer = in_thread({
            let mut peer = peer.try_clone().unwrap();
            move || {
                for number in from..from + count {
                    peer.write_all(&message(number, &[50_000])).unwrap();
                }
            }
        });
        // More than all blocks hold waits before the first turn.
        while !writer.is_finished() && round % 2 == 0 {
            std::thread::yield_now();
            if queued(&peer) > 300 * KIB {
                break;
            }
        }
        rig.heard(id, from + count);
        writer.join().unwrap();
        let turns = rig.rest(Duration::from_millis(20));
        assert!(turns < 10, "{turns} turns with nothing to do");
    }
    peer.write_all(&message(400, &[1])).unwrap();
    rig.heard(id, 401);
    rig.shut_down();
}

/// Bytes that a peer sent and that were not acknowledged or received yet.
pub(crate) fn queued(peer: &TcpStream) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` is a writable int, which TIOCOUTQ fills.
    unsafe { libc::ioctl(peer.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    bytes as usize
}

pub(crate) fn receiving_off_shows_nothing<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let mut number = 0;
    for round in 0..30 {
        // Half a message waits in its block, or in the spill.
        let bytes = message(number, &[BLOCK / 2 + 100 * round]);
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let before = rig.received();
        peer.write_all(head).unwrap();
        rig.until("half a message", |rig| rig.received() == before + head.len() as u64);
        if round % 3 == 0 {
            // What is on its way when it is switched off must wait too.
            peer.write_all(tail).unwrap();
            rig.receive(id, false);
        } else {
            rig.receive(id, false);
            peer.write_all(tail).unwrap();
        }
        peer.write_all(&message(number + 1, &[7])).unwrap();
        for _ in 0..5 {
            rig.turn(Turn::Return);
        }
        if round % 2 == 0 {
            rig.receive(id, true);
            rig.receive(id, false);
            rig.receive(id, true);
        } else {
            rig.receive(id, true);
        }
        number += 2;
        rig.heard(id, number);
    }
    rig.shut_down();
}

pub(crate) fn receiving_off_during_an_exact_receive<K: Kernel>(make: fn() -> K) {
    for late in [false, true] {
        let mut rig = Rig::new(make());
        let (id, mut peer) = rig.connected();
        let first = message(0, &[3 * MIB, 200 * KIB, 9]);
        let cut = if late { 3 * MIB - 10 } else { 64 * KIB };
        let head = first[..cut].to_vec();
        let writer = in_thread({
            let mut peer = peer.try_clone().unwrap();
            move || peer.write_all(&head).unwrap()
        });
        // An exact receive completes only at its end: all that went out has come in a while.
        rig.rest(Duration::from_millis(30));
        writer.join().unwrap();
        rig.receive(id, false);
        let writer = in_thread(move || {
            peer.write_all(&first[cut..]).unwrap();
            peer.write_all(&message(1, &[500_000])).unwrap();
            peer.write_all(&message(2, &[5])).unwrap();
        });
        rig.rest(Duration::from_millis(30));
        rig.receive(id, true);
        rig.until("the end", |rig| !rig.probe.closed.is_empty());
        let (error, heard) = rig.probe.closed.remove(0);
        assert!(error.is_none(), "an orderly end: {error:?}");
        assert_eq!(heard, 3, "all messages come before the end");
        writer.join().unwrap();
        rig.shut_down();
    }
}
