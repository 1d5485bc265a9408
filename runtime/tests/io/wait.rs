//! What ends a wait: wakes, instants, work for a host.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use hedgerow_runtime::core::{RemoteError, Turn};
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::time::Instant;

use crate::message::message;
use crate::rig::{PATIENCE, Rig, in_thread};

/// Ends once `flag` is set; its waker is left for others.
pub(crate) async fn flagged(flag: Arc<AtomicBool>, wakers: mpsc::Sender<Waker>) {
    std::future::poll_fn(|cx| {
        if flag.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let _ = wakers.send(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

pub(crate) fn wakes_from_other_threads<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    // More than the mailbox holds, from several threads, while the core does not look.
    for tasks in [1usize, 3, 4096, 4097, 9000] {
        let flag = Arc::new(AtomicBool::new(false));
        let (send, wakers) = mpsc::channel();
        let ended: Vec<Rc<Cell<bool>>> =
            (0..tasks).map(|_| rig.spawn(flagged(flag.clone(), send.clone()))).collect();
        rig.turn(Turn::Return);
        let wakers: Vec<Waker> = wakers.try_iter().collect();
        assert_eq!(wakers.len(), tasks);
        flag.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            for part in wakers.chunks(tasks.div_ceil(3)) {
                scope.spawn(move || part.iter().for_each(Waker::wake_by_ref));
            }
        });
        rig.until("every task", |_| ended.iter().all(|ended| ended.get()));
    }
    let remote = rig.core.local().remote();
    let full = (0..5000).find_map(|_| remote.run(|| {}).err());
    assert_eq!(full, Some(RemoteError::Full));
    rig.poll_until("the jobs", |rig| !rig.turn(Turn::Return));
    rig.shut_down();
    assert_eq!(remote.run(|| {}), Err(RemoteError::Ended));
}

pub(crate) fn wakes_while_the_core_parks<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    for round in 0..2000usize {
        let flag = Arc::new(AtomicBool::new(false));
        let (send, wakers) = mpsc::channel::<Waker>();
        let ended = rig.spawn(flagged(flag.clone(), send));
        if round == 0 {
            rig.turn(Turn::Return);
        }
        let waking = in_thread(move || {
            let waker = wakers.recv().unwrap();
            for _ in 0..round % 50 * 20 {
                std::hint::spin_loop();
            }
            flag.store(true, Ordering::Release);
            waker.wake();
        });
        let turns = rig.until("a wake", |_| ended.get());
        assert!(turns < 100, "{turns} turns for one wake");
        waking.join().unwrap();
    }
    rig.shut_down();
}

pub(crate) fn sleeps_end_on_time<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let late = Rc::new(RefCell::new(Vec::new()));
    let (local, into) = (rig.core.local().clone(), late.clone());
    let ended = rig.spawn(async move {
        for round in 0..200u64 {
            let at = Instant::now() + Duration::from_micros(100 + round * 13);
            local.sleep_until(at).await;
            let now = Instant::now();
            assert!(now >= at, "{:?} early", at - now);
            into.borrow_mut().push(now - at);
        }
    });
    let turns = rig.until("the sleeper", |_| ended.get());
    let mut late = late.take();
    late.sort();
    assert_eq!(late.len(), 200, "a sleep ended early");
    // The best of many shows the resolution even on a busy machine.
    assert!(late[10] < Duration::from_micros(700), "{late:?}");
    assert!(turns < 2000, "{turns} turns for 200 sleeps");
    rig.shut_down();
}

pub(crate) fn a_host_never_oversleeps<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let ready = rig.core.io.kernel.ready_fd().unwrap();
    let (id, peer) = rig.connected();
    let local = rig.core.local().clone();
    let done = Rc::new(Cell::new(0u64));
    let counter = done.clone();
    rig.core.local().spawn(async move {
        loop {
            let at = Instant::now() + Duration::from_micros(200 + counter.get() % 7 * 150);
            local.sleep_until(at).await;
            counter.set(counter.get() + 1);
        }
    });
    let remote = rig.core.local().remote();
    let jobs = Arc::new(AtomicUsize::new(0));
    let ran = jobs.clone();
    let mut writing = peer.try_clone().unwrap();
    let other = in_thread(move || {
        for number in 0..200 {
            writing.write_all(&message(number, &[number])).unwrap();
            let ran = ran.clone();
            let job = move || {
                ran.fetch_add(1, Ordering::Relaxed);
            };
            remote.run(job).unwrap();
            if number % 3 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let limit = Instant::now() + PATIENCE;
    loop {
        while rig.turn(Turn::Return) {}
        let heard = rig.probe.link(id).heard;
        if heard == 200 && jobs.load(Ordering::Relaxed) == 200 && done.get() > 200 {
            break;
        }
        assert!(Instant::now() < limit);
        if rig.core.prepare_park(&rig.probe) {
            let mut poll = libc::pollfd { fd: ready, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            let woken = unsafe { libc::poll(&mut poll, 1, 10_000) };
            assert_eq!(woken, 1, "the host sleeps: {heard} heard, {} naps", done.get());
        }
    }
    other.join().unwrap();
    drop(peer);
    rig.shut_down();
}
