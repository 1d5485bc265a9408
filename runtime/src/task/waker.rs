//! Wakers of one word, and what they do on the thread of their core.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::reach::wake_foreign;
use super::ready::Ready;

/// Core, task and tenant in one word, which is also a waker's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskKey(u64);

impl TaskKey {
    const INDEX_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 24;

    pub(super) fn new(core: u16, index: u32, generation: u32) -> TaskKey {
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        TaskKey(u64::from(core) << 48 | generation << Self::INDEX_BITS | u64::from(index))
    }
    #[inline]
    pub(super) fn core(self) -> u16 {
        (self.0 >> 48) as u16
    }
    #[inline]
    pub(super) fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }

    /// The name of the place's next tenant.
    pub(super) fn next_tenant(self) -> TaskKey {
        let mask = (1 << Self::GENERATION_BITS) - 1;
        let generation = ((self.0 >> Self::INDEX_BITS) & mask) as u32;
        TaskKey::new(self.core(), self.index() as u32, generation.wrapping_add(1))
    }

    /// Whom `waker` wakes, if it is a task's.
    #[inline(always)]
    pub(super) fn of(waker: &Waker) -> Option<TaskKey> {
        std::ptr::eq(waker.vtable(), &VTABLE).then(|| TaskKey(waker.data() as u64))
    }
}

thread_local! {
    /// The executors of this thread: one on a core's own thread, several in a host with several.
    pub(super) static HERE: RefCell<Vec<(u16, Rc<Ready>)>> = const { RefCell::new(Vec::new()) };
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| wake(TaskKey(data as u64)),
    |data| wake(TaskKey(data as u64)),
    |_| {},
);

/// The waker of a task. Its drop does nothing.
#[inline]
pub(super) fn waker(key: TaskKey) -> Waker {
    let data = std::ptr::without_provenance::<()>(key.0 as usize);
    // SAFETY: the data is a number, never a pointer; the functions above keep nothing and may be
    // called from any thread.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

fn wake(key: TaskKey) {
    // Without thread-local storage (a thread that ends), every core is foreign.
    let local = HERE.try_with(|here| {
        let here = here.try_borrow().ok()?;
        let (_, ready) = here.iter().find(|(core, _)| *core == key.core())?;
        ready.push(key);
        Some(ready.attention.is_parked().then(|| ready.attention.clone()))
    });
    match local {
        Ok(Some(None)) => {}
        // Outside of the borrow: the waker is the host's code.
        Ok(Some(Some(attention))) => attention.call(),
        _ => wake_foreign(key),
    }
}
