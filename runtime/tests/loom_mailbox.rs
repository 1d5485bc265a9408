//! Every interleaving of the mailbox's park decision and of its crowd, by the loom model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p hedgerow-runtime --test loom_mailbox --release`
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use hedgerow_runtime::kernel::Wakeup;
use hedgerow_runtime::mailbox::{Consumer, Producer, PushError, mailbox};
use loom::sync::Notify;
use loom::thread;

/// A kernel's wait: `Notify` blocks the model's thread, so a lost wake-up is a deadlock that loom
/// reports. The count is not part of the model.
#[derive(Default)]
struct Bell {
    rung: Notify,
    wakes: AtomicUsize,
}

impl Bell {
    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

impl Wakeup for Bell {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.rung.notify();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        Wakeup::wake(&*self);
    }
}

fn with_bell<T>(capacity: usize) -> (Producer<T>, Consumer<T>, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    let (producer, consumer) = mailbox(capacity, Arc::clone(&bell) as Arc<dyn Wakeup>);
    (producer, consumer, bell)
}

/// The consumer's loop until `count` values came; returns them and how often it announced sleep.
fn take<T>(consumer: &mut Consumer<T>, bell: &Bell, count: usize) -> (Vec<T>, usize) {
    let (mut values, mut announced) = (Vec::new(), 0);
    while values.len() < count {
        if let Some(value) = consumer.pop() {
            values.push(value);
            continue;
        }
        announced += 1;
        if consumer.prepare_sleep() {
            bell.rung.wait();
            consumer.rise();
        }
    }
    (values, announced)
}

/// Trap 14. Fails if a value posted while the consumer decides to park leaves it asleep, or if a wake
/// is made that no announcement asked for.
#[test]
fn foreign_wake_during_the_park_decision() {
    loom::model(|| {
        let (producer, mut consumer, bell) = with_bell(2);
        let poster = thread::spawn(move || producer.push(1).unwrap());
        let (values, announced) = take(&mut consumer, &bell, 1);
        poster.join().unwrap();
        assert_eq!(values, [1]);
        assert!(bell.wakes() <= announced);
    });
}

/// Trap 14. Fails if two producers lose a value, or both wake for one announcement.
#[test]
fn two_producers_wake_once_per_announcement() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (producer, mut consumer, bell) = with_bell(2);
        let posters = [1, 2].map(|value| {
            let producer = producer.clone();
            thread::spawn(move || producer.push(value).unwrap())
        });
        let (mut values, announced) = take(&mut consumer, &bell, 2);
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
        assert!(bell.wakes() <= announced);
    });
}

/// Trap 14. Fails if a value posted before the consumer first looks is missed or costs a wake-up.
#[test]
fn wake_before_the_first_poll() {
    loom::model(|| {
        let (producer, mut consumer, bell) = with_bell(2);
        producer.push(1).unwrap();
        let poster = thread::spawn(move || producer.push(2).unwrap());
        let (values, announced) = take(&mut consumer, &bell, 2);
        poster.join().unwrap();
        assert_eq!(values, [1, 2]);
        assert!(bell.wakes() <= announced);
    });
}

/// Trap 14. Fails if a consumer that posts to itself goes to sleep on it, or pays a wake-up for it.
#[test]
fn self_wake() {
    loom::model(|| {
        let (producer, mut consumer, bell) = with_bell(2);
        let own = consumer.producer();
        own.push(1).unwrap();
        assert!(!consumer.prepare_sleep());
        let poster = thread::spawn(move || producer.push(2).unwrap());
        let (mut values, announced) = take(&mut consumer, &bell, 2);
        poster.join().unwrap();
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
        assert!(bell.wakes() <= announced);
    });
}

/// case behaviour/21. Fails if a value posted while the consumer goes away stays in the mailbox for
/// ever (its requester would wait for ever).
#[test]
fn a_push_during_the_close_is_not_kept() {
    loom::model(|| {
        let (producer, consumer, _) = with_bell(2);
        let value = Arc::new(());
        let posted = Arc::clone(&value);
        let poster = thread::spawn(move || {
            _ = producer.push(posted);
            producer
        });
        drop(consumer);
        let producer = poster.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
        drop(producer);
    });
}

/// Posts `value` as a task does: where there is no room it sleeps until it is woken, and tries
/// again. Whether the value was taken.
fn post<T>(producer: &Producer<T>, mut value: T) -> bool {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        match producer.push_or_wait(value, &waker) {
            Ok(()) => return true,
            Err(PushError::Closed(_)) => return false,
            Err(PushError::Full(back)) => value = back,
        }
        bell.rung.wait();
    }
}

/// As [`take`], calling the crowd after each value.
fn take_and_call<T>(consumer: &mut Consumer<T>, bell: &Bell, count: usize) -> Vec<T> {
    let mut values = Vec::new();
    while values.len() < count {
        values.extend(take(consumer, bell, 1).0);
        consumer.call_crowd();
    }
    values
}

/// Trap 14. Fails if room that is made while a sender decides to wait leaves it asleep.
#[test]
fn room_during_the_decision_to_wait() {
    loom::model(|| {
        let (producer, mut consumer, bell) = with_bell(1);
        producer.push(1).unwrap();
        let sender = thread::spawn(move || assert!(post(&producer, 2)));
        assert_eq!(take_and_call(&mut consumer, &bell, 2), [1, 2]);
        sender.join().unwrap();
    });
}

/// Trap 14. Fails if of two senders that wait for one place the one that lost it sleeps for ever.
#[test]
fn a_crowd_is_served_one_by_one() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.check(|| {
        let (producer, mut consumer, bell) = with_bell(1);
        producer.push(1).unwrap();
        let senders = [2, 3].map(|value| {
            let producer = producer.clone();
            thread::spawn(move || assert!(post(&producer, value)))
        });
        let mut values = take_and_call(&mut consumer, &bell, 3);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        values.sort_unstable();
        assert_eq!(values, [1, 2, 3]);
    });
}

/// case behaviour/21. Fails if a sender that waits for room is not told that the consumer is gone.
#[test]
fn a_crowd_hears_of_the_close() {
    loom::model(|| {
        let (producer, consumer, _) = with_bell(1);
        producer.push(1).unwrap();
        let sender = thread::spawn(move || post(&producer, 2));
        drop(consumer);
        sender.join().unwrap();
    });
}
