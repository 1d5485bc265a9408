//! How other threads reach a core: its mailbox, and what finds it by number.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::waker::TaskKey;
use crate::mailbox::{Producer, PushError};

/// What other threads send to a core.
pub(crate) enum Post {
    /// Wake this task.
    Wake(TaskKey),
    /// Nothing but a reason to look: wakes may wait in the overflow list.
    Look,
    /// Run this on the core.
    Run(Box<dyn FnOnce() + Send>),
}

/// Where a core can be reached from other threads.
pub(crate) struct Reach {
    pub(crate) producer: Producer<Post>,
    overflow: Mutex<Vec<TaskKey>>,
    /// Whether the overflow list may hold anything.
    overflowed: AtomicBool,
}

impl Reach {
    pub(crate) fn new(producer: Producer<Post>) -> Reach {
        Reach { producer, overflow: Mutex::new(Vec::new()), overflowed: AtomicBool::new(false) }
    }

    /// Never loses a wake: what the full mailbox does not take waits beside it, and the second push
    /// either finds room (and wakes the core) or shows that the core has yet to drain the mailbox,
    /// after which it looks here.
    fn wake(&self, key: TaskKey) {
        if let Err(PushError::Full(_)) = self.producer.push(Post::Wake(key)) {
            self.overflow.lock().unwrap_or_else(PoisonError::into_inner).push(key);
            self.overflowed.store(true, Ordering::Relaxed);
            // A push that finds the mailbox full fences before it says so: either it finds room, or
            // the consumer that makes room sees the flag.
            fence(Ordering::SeqCst);
            let _ = self.producer.push(Post::Look);
        }
    }

    /// The wakes that the mailbox had no room for. To be asked after anything was taken from it.
    pub(crate) fn take_overflow(&self) -> Vec<TaskKey> {
        fence(Ordering::SeqCst);
        if !self.overflowed.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // Before the list is taken: a wake that comes in between sets it again.
        self.overflowed.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        std::mem::take(&mut *self.overflow.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// All cores of the process, by number. Read only by wakes from foreign threads.
static CORES: RwLock<Vec<Option<Arc<Reach>>>> = RwLock::new(Vec::new());

/// Gives a core its number.
pub(super) fn enlist(reach: Arc<Reach>) -> u16 {
    let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
    let free = cores.iter().position(Option::is_none).unwrap_or(cores.len());
    if free == cores.len() {
        cores.push(None);
    }
    cores[free] = Some(reach);
    // 65,536 cores alive at once do not exist; a wrapped number would only wake spuriously.
    free as u16
}

/// Takes a core's number back.
pub(super) fn delist(core: u16) {
    let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(cell) = cores.get_mut(core as usize) {
        *cell = None;
    }
}

/// Wakes a task of whichever core, through its mailbox.
#[cold]
pub(super) fn wake_foreign(key: TaskKey) {
    let reach = {
        let cores = CORES.read().unwrap_or_else(PoisonError::into_inner);
        cores.get(key.core() as usize).cloned().flatten()
    };
    if let Some(reach) = reach {
        reach.wake(key);
    }
}
