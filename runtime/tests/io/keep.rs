//! Values that users keep.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::mpsc;

use bytes::Bytes;
use hedgerow_runtime::kernel::Kernel;

use crate::message::{message, text};
use crate::rig::{KIB, MIB, Rig, in_thread};

pub(crate) fn kept_values_never_change<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 1500;
    let len = |number: usize| 4 * KIB + (number * 7919) % (76 * KIB);
    let writer = in_thread(move || {
        for number in 0..count {
            peer.write_all(&message(number, &[len(number)])).unwrap();
        }
    });
    let (send, receive) = mpsc::channel::<(usize, Bytes)>();
    let checker = in_thread(move || {
        let check = |(number, bytes): &(usize, Bytes)| {
            assert!(bytes[4..] == *text(*number, len(*number)), "message {number} was overwritten");
        };
        let mut rng = fastrand::Rng::with_seed(4);
        let mut held = Vec::new();
        for kept in receive {
            check(&kept);
            held.push(kept);
            while held.len() > rng.usize(0..60) {
                check(&held.swap_remove(rng.usize(0..held.len())));
            }
        }
        held.iter().for_each(check);
    });
    rig.probe.keep = Some(Box::new(move |number, bytes| send.send((number, bytes)).unwrap()));
    rig.heard(id, count);
    assert!(rig.probe.sliced > count / 10, "values this large are slices of their blocks");
    rig.close(id);
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    let Rig { core, mut probe } = rig;
    probe.keep = None;
    checker.join().unwrap();
    writer.join().unwrap();
    assert_eq!(core.io.retained(), 0);
    core.shut_down(&mut probe);
}

pub(crate) fn what_users_keep_is_bounded<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let count = 1200;
    let len = 70 * KIB;
    let writer = in_thread(move || {
        for number in 0..count {
            peer.write_all(&message(number, &[len])).unwrap();
        }
    });
    let kept = Rc::new(RefCell::new(Vec::new()));
    let into = kept.clone();
    rig.probe.keep = Some(Box::new(move |number, bytes| into.borrow_mut().push((number, bytes))));
    rig.heard(id, count);
    // A buffer of one value alone costs no more than a copy would; blocks beyond that are bounded.
    let alone = count * (len + 4) * 5 / 4;
    let (bound, retained) = (64 * MIB + 8 * 256 * KIB, rig.core.io.retained());
    assert!(retained <= bound.max(alone), "{retained} bytes are retained");
    assert!(retained > 32 * MIB && rig.probe.sliced > 0, "slices are not counted");
    for (number, bytes) in kept.borrow().iter() {
        assert!(bytes[4..] == *text(*number, len));
    }
    rig.close(id);
    rig.until("the cell", |rig| rig.core.io.live() == 0);
    kept.borrow_mut().clear();
    assert_eq!(rig.core.io.retained(), 0);
    writer.join().unwrap();
    rig.shut_down();
}
