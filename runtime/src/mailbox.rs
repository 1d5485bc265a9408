//! A bounded mailbox: many producers, one consumer, and a wake-up only when the consumer sleeps.
//!
//! Waking a core costs a system call and tens of microseconds, so a producer does it only if the
//! consumer has announced that it goes to sleep. Both sides write their own word, fence, and then read
//! the other's; sequentially consistent fences make it impossible that both read the old state:
//!
//! ```text
//!   producer            consumer
//!   push                state = asleep
//!   fence               fence
//!   read state          read whether the queue is empty
//! ```
//!
//! Either the producer sees `asleep` and wakes, or the consumer sees the value and stays. A consumer
//! that is gone is found in the same way, so no value is left in a mailbox that nobody will empty.
//!
//! Producers that found the mailbox full may wait in its crowd, by the same rule: they join, fence
//! and try once more; the consumer takes, fences and looks for a crowd.

#[cfg(loom)]
use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU8, Ordering, fence},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU8, Ordering, fence},
};
use std::task::Waker;

use crate::kernel::Wakeup;
use crate::task::quietly;

#[cfg(not(loom))]
use crossbeam_queue::ArrayQueue as Queue;
#[cfg(loom)]
use modelled::Queue;

/// The consumer will look at the queue before it sleeps.
const AWAKE: u8 = 0;
/// The consumer sleeps, or is about to: the next producer wakes it.
const ASLEEP: u8 = 1;
/// The consumer is gone.
const CLOSED: u8 = 2;

struct Shared<T> {
    queue: Queue<T>,
    state: AtomicU8,
    wakeup: std::sync::Arc<dyn Wakeup>,
    /// Who waits for room, and whether anybody may.
    crowd: Mutex<Vec<Waker>>,
    crowded: AtomicBool,
}

impl<T> Shared<T> {
    fn join_crowd(&self, waker: Waker) {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        self.crowded.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn call_crowd(&self) {
        fence(Ordering::SeqCst);
        if !self.crowded.load(Ordering::Relaxed) {
            return;
        }
        // Before the list is taken, whose lock orders it: who joins after that sets it again.
        self.crowded.store(false, Ordering::Relaxed);
        let crowd = std::mem::take(&mut *self.crowd.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in crowd {
            quietly(|| waker.wake());
        }
    }

    fn discard_all(&self) {
        while self.queue.pop().is_some() {}
    }
}

/// Why a value was not taken; gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError<T> {
    /// The mailbox holds as many values as it can.
    Full(T),
    /// The consumer is gone; it will never take values again.
    Closed(T),
}

impl<T> PushError<T> {
    /// The value that was not taken.
    pub fn into_inner(self) -> T {
        match self {
            PushError::Full(value) | PushError::Closed(value) => value,
        }
    }
}

/// Makes a mailbox for at most `capacity` values (at least 1). `wakeup` ends the consumer's wait.
pub fn mailbox<T>(
    capacity: usize,
    wakeup: std::sync::Arc<dyn Wakeup>,
) -> (Producer<T>, Consumer<T>) {
    let queue = Queue::new(capacity.max(1));
    let (crowd, crowded) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let shared = Arc::new(Shared { queue, state: AtomicU8::new(AWAKE), wakeup, crowd, crowded });
    (Producer { shared: Arc::clone(&shared) }, Consumer { shared })
}

/// The end that posts. Clones share the mailbox.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Producer<T> {
    /// Posts `value`, and wakes the consumer if it sleeps. Never waits.
    ///
    /// When the consumer goes away during the call the value may be dropped although the call
    /// succeeds, as if it had been taken just before.
    ///
    /// # Errors
    /// [`PushError::Full`] or [`PushError::Closed`], with the value.
    pub fn push(&self, value: T) -> Result<(), PushError<T>> {
        let shared = &*self.shared;
        if shared.state.load(Ordering::Relaxed) == CLOSED {
            return Err(PushError::Closed(value));
        }
        shared.queue.push(value).map_err(PushError::Full)?;
        fence(Ordering::SeqCst);
        // A plain read first: while the consumer is awake producers share this line and write nothing.
        match shared.state.load(Ordering::Relaxed) {
            ASLEEP => self.wake(),
            CLOSED => shared.discard_all(),
            _ => {}
        }
        Ok(())
    }

    /// As [`Producer::push`]; `waker` of a producer that found no room is woken when there may be
    /// some, or when the consumer is gone.
    ///
    /// # Errors
    /// As [`Producer::push`].
    pub fn push_or_wait(&self, value: T, waker: &Waker) -> Result<(), PushError<T>> {
        match self.push(value) {
            Err(PushError::Full(value)) => {
                self.shared.join_crowd(waker.clone());
                // Either this finds room, or whoever makes room finds the crowd.
                self.push(value)
            }
            done => done,
        }
    }

    /// Wakes the consumer, unless another producer is doing it.
    #[cold]
    fn wake(&self) {
        let state = &self.shared.state;
        if state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.shared.wakeup.wake();
        }
    }

    /// Whether the consumer is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.state.load(Ordering::Relaxed) == CLOSED
    }
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Producer { shared: Arc::clone(&self.shared) }
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// The end that takes: one per mailbox. Dropping it closes the mailbox and drops what is in it.
///
/// A turn of the consumer:
///
/// ```text
/// while let Some(value) = consumer.pop() { .. }
/// if consumer.prepare_sleep() { wait until woken; consumer.rise(); }
/// ```
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Consumer<T> {
    /// Takes the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        self.shared.queue.pop()
    }

    /// Wakes the producers that wait for room. To be called after anything was taken.
    pub fn call_crowd(&mut self) {
        self.shared.call_crowd();
    }

    /// Whether nothing is in the mailbox at this moment.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Announces sleep. `true`: the mailbox is empty and whoever posts from now on calls the wake-up.
    /// `false`: something is there; take it first.
    #[must_use]
    pub fn prepare_sleep(&mut self) -> bool {
        self.shared.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.shared.queue.is_empty() {
            return true;
        }
        self.rise();
        false
    }

    /// Ends the announced sleep: producers need not wake any more. Look at the mailbox after it.
    pub fn rise(&mut self) {
        self.shared.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Another producer for this mailbox.
    pub fn producer(&self) -> Producer<T> {
        Producer { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.state.store(CLOSED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.shared.discard_all();
        self.shared.call_crowd();
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// The queue as the model checker sees it. Its length is a relaxed word of its own, read without the
/// lock, so that the lock orders nothing that only the fences should order.
#[cfg(loom)]
mod modelled {
    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::collections::VecDeque;

    pub(super) struct Queue<T> {
        values: Mutex<VecDeque<T>>,
        len: AtomicUsize,
        capacity: usize,
    }

    impl<T> Queue<T> {
        pub(super) fn new(capacity: usize) -> Queue<T> {
            Queue { values: Mutex::new(VecDeque::new()), len: AtomicUsize::new(0), capacity }
        }

        pub(super) fn push(&self, value: T) -> Result<(), T> {
            // No lock when the length says full, for the same reason as in `pop`.
            if self.len.load(Ordering::Relaxed) == self.capacity {
                return Err(value);
            }
            let mut values = self.values.lock().expect("no panic under the lock");
            if values.len() == self.capacity {
                return Err(value);
            }
            values.push_back(value);
            drop(values);
            self.len.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        pub(super) fn pop(&self) -> Option<T> {
            // No lock when the length says empty: a locked look would order this thread after
            // the producer by itself.
            if self.is_empty() {
                return None;
            }
            let value = self.values.lock().expect("no panic under the lock").pop_front()?;
            self.len.fetch_sub(1, Ordering::Relaxed);
            Some(value)
        }

        pub(super) fn is_empty(&self) -> bool {
            self.len.load(Ordering::Relaxed) == 0
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wakeup for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted<T>(capacity: usize) -> (Producer<T>, Consumer<T>, Arc<Count>) {
        let count = Arc::new(Count::default());
        let (producer, consumer) = mailbox(capacity, Arc::clone(&count) as Arc<dyn Wakeup>);
        (producer, consumer, count)
    }

    /// Design section 3. Fails if a producer pays for a wake-up that a consumer which is awake, or
    /// woken already, does not need.
    #[test]
    fn wakes_a_sleeper_once() {
        let (producer, mut consumer, count) = counted(4);
        producer.push(1).unwrap();
        assert!(!consumer.prepare_sleep(), "there is something to take");
        assert_eq!(consumer.pop(), Some(1));
        assert!(consumer.prepare_sleep());
        producer.push(2).unwrap();
        producer.push(3).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        consumer.rise();
        assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some(2), Some(3), None));
        assert!(consumer.is_empty());
    }

    /// R-115. Fails if a full mailbox drops a value, waits, or takes one too many.
    #[test]
    fn a_full_mailbox_gives_the_value_back() {
        let (producer, mut consumer, _) = counted(2);
        producer.push(1).unwrap();
        producer.push(2).unwrap();
        assert_eq!(producer.push(3), Err(PushError::Full(3)));
        assert_eq!(consumer.pop(), Some(1));
        producer.push(3).unwrap();
    }

    /// case behaviour/21. Fails if values stay in a mailbox whose consumer is gone, or a later push
    /// succeeds.
    #[test]
    fn closing_drops_what_is_inside() {
        let (producer, consumer, _) = counted(2);
        let value = Arc::new(());
        producer.push(Arc::clone(&value)).unwrap();
        drop(consumer);
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(producer.is_closed());
        assert!(matches!(producer.push(value), Err(PushError::Closed(_))));
    }

    /// Trap 14. Fails if a value posted by one of many threads is lost or comes out of its
    /// thread's order.
    #[test]
    fn keeps_the_order_of_each_producer() {
        let (threads, each) = if cfg!(miri) { (2, 20) } else { (4, 5_000) };
        let (producer, mut consumer, _) = counted(8);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let producer = producer.clone();
                std::thread::spawn(move || {
                    for n in 0..each {
                        while producer.push((thread, n)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut seen = vec![0; threads];
        while seen.iter().sum::<usize>() < threads * each {
            match consumer.pop() {
                Some((thread, n)) => {
                    assert_eq!(seen[thread], n);
                    seen[thread] += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}
