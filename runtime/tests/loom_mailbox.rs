//! Every interleaving of the mailbox's park decision, by the loom model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p hedgerow-runtime --test loom_mailbox --release`
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hedgerow_runtime::kernel::Wakeup;
use hedgerow_runtime::mailbox::{Consumer, Producer, mailbox};
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
