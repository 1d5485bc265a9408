//! Ends of sockets and of the core.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hedgerow_runtime::Batch;
use hedgerow_runtime::io::{SocketId, Target};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::time::Instant;

use crate::message::{message, text};
use crate::rig::{KIB, MIB, PATIENCE, Rig, in_thread, open_descriptors};

pub(crate) fn stale_completions_touch_nobody<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = None;
    for round in 0..300 {
        let (id, mut peer) = rig.connected_to(&listener);
        // Numbers tell the tenants apart: the bytes of another one would not be its text.
        rig.probe.link(id).heard = round * 3;
        for number in 0..3 {
            peer.write_all(&message(round * 3 + number, &[5000])).unwrap();
        }
        if round % 4 != 0 {
            rig.heard(id, round * 3 + 1 + round % 3);
        }
        rig.send(id, b"on its way");
        rig.close(id);
        rig.close(id);
        assert!(!rig.send(id, b"gone"), "a stale name is refused");
        rig.core.io.receive(Instant::now(), id, true, &mut rig.probe);
        if let Some(old) = before.replace(id) {
            rig.core.io.close(old);
            assert_ne!(old, id);
        }
    }
    rig.until("all cells", |rig| rig.core.io.live() == 0);
    assert!(rig.probe.closed.is_empty(), "nothing is reported of a socket that we closed");
    rig.shut_down();
}

pub(crate) fn dropped_connects_leak_nothing<K: Kernel>(make: fn() -> K) {
    let total = 10_000;
    let before = open_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let server = in_thread(move || {
        let mut held = Vec::new();
        for (number, peer) in listener.incoming().enumerate() {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let mut peer = peer.unwrap();
            let _ = peer.write_all(&message(0, &[number % 300]));
            held.push(peer);
            if held.len() > 20 {
                held.swap_remove(number % held.len());
            }
        }
    });
    let mut rig = Rig::new(make());
    let mut rng = fastrand::Rng::with_seed(24);
    let mut made = 0;
    rig.poll_until("ten thousand", |rig| {
        for _ in 0..rng.usize(0..8) {
            if made < total && rig.core.io.live() < 100 {
                rig.dial(vec![refusing_or(address, &mut rng)], PATIENCE).unwrap();
                made += 1;
            }
        }
        let dropped: Vec<SocketId> =
            rig.probe.links.keys().copied().filter(|_| rng.u8(..) < 64).collect();
        for id in dropped {
            rig.send(id, b"half a com");
            rig.close(id);
        }
        rig.probe.closed.clear();
        rig.probe.failed.clear();
        made == total && rig.core.io.live() == 0
    });
    rig.shut_down();
    stop.store(true, Ordering::Relaxed);
    drop(TcpStream::connect(address));
    server.join().unwrap();
    assert_eq!(open_descriptors(), before);
}

/// Now and then a port where nobody listens.
pub(crate) fn refusing_or(address: SocketAddr, rng: &mut fastrand::Rng) -> Target {
    if rng.u8(..) < 8 { Target::Tcp(([127, 0, 0, 1], 1).into()) } else { Target::Tcp(address) }
}

pub(crate) fn teardown_while_peers_send<K: Kernel>(make: fn() -> K) {
    for orderly in [true, false] {
        let before = open_descriptors();
        let mut rig = Rig::new(make());
        let kept = Rc::new(RefCell::new(Vec::new()));
        let into = kept.clone();
        rig.probe.keep = Some(Box::new(move |number, bytes| {
            if number % 16 == 0 {
                into.borrow_mut().push((number, bytes));
            }
        }));
        let mut writers = Vec::new();
        for _ in 0..16 {
            let (id, mut peer) = rig.connected();
            let mut unread = peer.try_clone().unwrap();
            writers.push(in_thread(move || {
                let mut number = 0;
                while peer.write_all(&message(number, &[10 * KIB + number * 997 % MIB])).is_ok() {
                    number += 1;
                }
                let _ = unread.read(&mut [0; 64]);
            }));
            // A send that is blocked, and one that gathers, are on their way too.
            let mut batch = Batch::new();
            batch.small().extend_from_slice(&[0; 10]);
            batch.push_large(Bytes::from(vec![0; 8 * MIB]));
            assert!(rig.core.io.send(id, &mut batch));
        }
        rig.rest(Duration::from_millis(50));
        if orderly {
            rig.shut_down();
        } else {
            drop(rig);
        }
        // What is kept outlives the core, and the freed blocks are somebody else's now.
        let others: Vec<Vec<u8>> = (0..200).map(|_| vec![0x5a; 64 * KIB]).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(others.iter().all(|bytes| bytes.iter().all(|b| *b == 0x5a)), "a wild write");
        for (number, bytes) in kept.borrow().iter() {
            assert!(bytes[4..] == *text(*number, bytes.len() - 4));
        }
        assert_eq!(open_descriptors(), before, "orderly: {orderly}");
    }
}
