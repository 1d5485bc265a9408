//! Tasks without a core, for Miri above all.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use super::*;
use crate::kernel::Wakeup;
use crate::mailbox::{Consumer, mailbox};

struct NoBell;

impl Wakeup for NoBell {
    fn wake(&self) {}
}

fn tasks() -> (Rc<Tasks>, Consumer<Post>) {
    let (producer, mail) = mailbox(16, Arc::new(NoBell));
    let attention = Rc::new(Attention::new(Arc::new(NoBell)));
    (Rc::new(Tasks::new(Arc::new(Reach::new(producer)), attention)), mail)
}

fn poll_once<T>(task: &mut Task<T>, waker: &Waker) -> Option<Result<T, Panicked>> {
    match Pin::new(task).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
}

/// Runs something when it is dropped, and panics then.
struct Last(Box<dyn FnMut()>);

impl Drop for Last {
    fn drop(&mut self) {
        (self.0)();
        if !std::thread::panicking() {
            panic!("in a destructor");
        }
    }
}

/// Fails if whoever awaits a task of a core that ends waits for ever.
#[test]
fn a_core_that_ends_tells_those_who_wait() {
    struct Called(AtomicBool);
    impl Wake for Called {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (tasks, _mail) = tasks();
    let mut task = tasks.spawn(pending::<()>());
    let called = Arc::new(Called(AtomicBool::new(false)));
    let waker = Waker::from(called.clone());
    assert!(poll_once(&mut task, &waker).is_none());
    drop(tasks);
    assert!(called.0.load(Ordering::Relaxed));
    let Some(Err(ended)) = poll_once(&mut task, &waker) else { panic!("it goes on") };
    assert!(ended.message().contains("core ended"), "{ended}");
}

/// Fails, or Miri does, if a task that runs moves with its place, or is freed by its own handle.
#[test]
fn a_task_that_runs_stays_where_it_is() {
    let (tasks, _mail) = tasks();
    let own = Rc::new(RefCell::new(None::<Task<u8>>));
    let (handle, here) = (own.clone(), tasks.clone());
    let task = tasks.spawn(async move {
        let text = [1; 100];
        let held = &text;
        let mut handle = handle.borrow_mut().take();
        let mut begun = false;
        poll_fn(|cx| {
            // The list of places grows, and with it moves.
            (0..10).for_each(|_| drop(here.spawn(async {})));
            let ended = handle.as_mut().and_then(|task| poll_once(task, cx.waker()));
            assert!(ended.is_none(), "it still runs");
            cx.waker().wake_by_ref();
            handle = None;
            if std::mem::replace(&mut begun, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        held[99]
    });
    *own.borrow_mut() = Some(task);
    for _ in 0..3 {
        tasks.run();
    }
    assert_eq!((tasks.live(), tasks.ready_len()), (0, 0));
}

/// Fails if the waker of a task that has ended reaches who came after it, from here or elsewhere.
#[test]
fn a_stale_waker_reaches_nobody() {
    let (tasks, mut mail) = tasks();
    let kept = Rc::new(RefCell::new(None));
    let keeps = kept.clone();
    drop(tasks.spawn(poll_fn(move |cx| {
        *keeps.borrow_mut() = Some(cx.waker().clone());
        cx.waker().wake_by_ref();
        Poll::Ready(())
    })));
    tasks.run();
    drop(tasks.spawn(pending::<()>()));
    // It left its number in the queue, at which the new tenant runs.
    tasks.run();
    assert_eq!((tasks.live(), tasks.ready_len()), (1, 0));
    let stale = kept.take().expect("it ran");
    stale.wake_by_ref();
    assert!(tasks.wake_own(stale.clone()).is_none(), "a number of this core");
    std::thread::spawn(move || stale.wake()).join().unwrap();
    let Some(Post::Wake(key)) = mail.pop() else { panic!("a wake from elsewhere") };
    tasks.wake(key);
    assert_eq!(tasks.ready_len(), 0);
    tasks.clear();
    assert_eq!(tasks.live(), 0);
}

thread_local! {
    static AWAITED: RefCell<Option<Task<u8>>> = const { RefCell::new(None) };
    static GOT: Cell<u8> = const { Cell::new(0) };
}

/// Takes the outcome and lets the handle go inside the wake, and panics.
struct Greedy;

impl Wake for Greedy {
    fn wake(self: Arc<Self>) {
        let mut task = AWAITED.take().expect("a handle");
        let ended = poll_once(&mut task, Waker::noop());
        GOT.set(ended.expect("it has ended").expect("and did not panic"));
        drop(task);
        panic!("in a wake");
    }
}

/// Fails, or Miri does, if whoever waits cannot use and drop the handle inside its wake.
#[test]
fn a_waiter_may_take_the_outcome_inside_its_wake() {
    let (tasks, _mail) = tasks();
    let mut task = tasks.spawn(async { 7 });
    assert!(poll_once(&mut task, &Waker::from(Arc::new(Greedy))).is_none());
    AWAITED.set(Some(task));
    tasks.run();
    assert_eq!((GOT.get(), tasks.live()), (7, 0));
}

/// Fails, or Miri does, if what tasks do as they are dropped keeps another alive or frees it twice.
#[test]
fn all_end_whatever_their_destructors_do() {
    let (tasks, _mail) = tasks();
    let dropped = Rc::new(Cell::new(0));
    let handles = Rc::new(RefCell::new(Vec::new()));
    for number in 0..6 {
        let (here, count, both) = (Rc::downgrade(&tasks), dropped.clone(), handles.clone());
        let last = Last(Box::new(move || {
            count.set(count.get() + 1);
            let Some(here) = here.upgrade() else { return };
            let also = count.clone();
            // In the place of this one, or of one whose turn it is next.
            let heir = Last(Box::new(move || also.set(also.get() + 1)));
            drop(here.spawn(async move {
                pending::<()>().await;
                drop(heir);
            }));
            let other = both.borrow_mut().pop();
            drop(other);
        }));
        let task = tasks.spawn(async move {
            let last = last;
            match number % 3 {
                0 => pending().await,
                1 => panic!("in a task"),
                _ => {}
            }
            last
        });
        handles.borrow_mut().push(task);
    }
    tasks.run();
    tasks.clear();
    assert_eq!(tasks.live(), 0);
    handles.take();
    drop(tasks);
    assert_eq!(dropped.get(), 12);
}
