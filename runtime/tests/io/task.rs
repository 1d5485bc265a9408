//! Tasks beside each other.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hedgerow_runtime::core::Turn;
use hedgerow_runtime::kernel::Kernel;

use crate::message::message;
use crate::rig::{Rig, yield_now};

pub(crate) fn a_busy_task_starves_nobody<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let task = rig.core.local().spawn(async {
        loop {
            yield_now().await;
        }
    });
    let sleeper = rig.core.local().clone();
    let nap = rig.spawn(async move { sleeper.sleep(Duration::from_millis(2)).await });
    for number in 0..50 {
        peer.write_all(&message(number, &[100])).unwrap();
        rig.heard(id, number + 1);
    }
    rig.until("a timer", |_| nap.get());
    assert!(!task.is_finished());
    rig.shut_down();
}

pub(crate) struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a destructor");
        }
    }
}

impl Future for PanicsWhenDropped {
    type Output = u8;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<u8> {
        Poll::Ready(1)
    }
}

pub(crate) fn a_panic_ends_its_own_task<K: Kernel>(make: fn() -> K) {
    let mut rig = Rig::new(make());
    let (id, mut peer) = rig.connected();
    let local = rig.core.local().clone();
    let other = local.clone();
    let lives = rig.spawn(async move {
        for _ in 0..20 {
            other.sleep(Duration::from_micros(300)).await;
        }
    });
    let plain = local.spawn(async {
        yield_now().await;
        panic!("in a task");
    });
    let dropped = local.spawn(PanicsWhenDropped);
    // Nobody takes this output, so the core drops it.
    drop(local.spawn(async { [PanicsWhenDropped] }));
    local.remote().run(|| panic!("in a job")).unwrap();
    let told = Rc::new(RefCell::new(Vec::new()));
    let into = told.clone();
    let listens = rig.spawn(async move {
        let plain: Result<(), _> = plain.await;
        into.borrow_mut().push(plain.unwrap_err().message().to_owned());
        let dropped = dropped.await.unwrap_err().message().to_owned();
        into.borrow_mut().push(dropped);
    });
    peer.write_all(&message(0, &[9])).unwrap();
    rig.heard(id, 1);
    rig.until("the other tasks", |_| lives.get() && listens.get());
    assert_eq!(told.take(), ["in a task", "in a destructor"]);
    rig.poll_until("the last tasks", |rig| !rig.turn(Turn::Return));
    assert_eq!(rig.core.local().live_tasks(), 0, "a task that panicked is gone");
    rig.shut_down();
}
