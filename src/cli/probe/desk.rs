//! The reads of a probe on their way: a schedule hands them to idle tasks, each of which has one read in
//! flight.

use super::super::arrival::{Arrivals, Schedule};
use super::super::door::failed;
use super::super::record::Outcome;
use super::super::stop;
use super::book::{Book, Done};
use super::heat::Heat;
use hedgerow::{Endpoint, LocalClient, LocalContext};
use hedgerow_runtime::Task;
use hedgerow_runtime::time::Instant;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Most reads in flight; what is due beyond waits, and counts from when it was due.
pub(crate) const MOST_IN_FLIGHT: usize = 1_024;
/// How often the copies of reads are collected, and whether the user asked to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Replies that are due when a block ends are awaited this long.
const GRACE: Duration = Duration::from_secs(1);
/// Copies that a client keeps between two collections.
const TRACE_MAX: usize = 2_048;
/// Arrivals that were never sent are counted one by one up to here.
const COUNTED_UNSENT: u64 = 1_000_000;
/// Reads to each one that a node is asked that serves none.
const EVERY_SPARE: u32 = 20;

/// A read to send.
#[derive(Clone, Copy, Debug)]
struct Order {
    pass: usize,
    seat: usize,
    /// Which of the seat's clients.
    client: usize,
    key: usize,
    planned: Instant,
    measured: bool,
    /// For the times of a node that serves no reads; in no book of reads.
    is_spare: bool,
}

/// One task that sends.
#[derive(Debug, Default)]
struct Slot {
    order: Option<Order>,
    waker: Option<Waker>,
}

/// Clients that share the reads of a pass, and the pass that they were last used by.
struct Seat {
    clients: Vec<LocalClient>,
    /// The same clients, reading from nodes that serve no reads otherwise; empty where all do.
    spares: Vec<LocalClient>,
    pass: Option<usize>,
}

/// What the tasks of a probe share.
pub(crate) struct Desk {
    local: LocalContext,
    keys: Vec<Vec<u8>>,
    places: Vec<Endpoint>,
    seats: RefCell<Vec<Seat>>,
    books: RefCell<Vec<Book>>,
    heat: RefCell<Heat>,
    slots: RefCell<Vec<Slot>>,
    idle: RefCell<Vec<usize>>,
    in_flight: Cell<usize>,
    dispatcher: RefCell<Option<Waker>>,
    tasks: RefCell<Vec<Task<()>>>,
    /// When the measurement began; `None` during warm-up and check, which no heat map shows.
    begin: Cell<Option<Instant>>,
    dice: RefCell<fastrand::Rng>,
    /// Reads that ended, for the progress.
    answered: Cell<u64>,
}

/// One stretch of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// Whose book it goes into.
    pub(crate) pass: usize,
    /// Through which clients.
    pub(crate) seat: usize,
    /// Reads per second.
    pub(crate) rate_per_s: f64,
    /// How long.
    pub(crate) length: Duration,
    /// Whether it counts.
    pub(crate) measured: bool,
}

impl Desk {
    /// For reads of `keys` (one at least), drawn by `seed`. `places` are the nodes of a cluster in the order
    /// of the books, as every client may number them otherwise; none where the books go by that number.
    pub(crate) fn new(
        local: LocalContext,
        keys: Vec<Vec<u8>>,
        heat: Heat,
        places: Vec<Endpoint>,
        seed: u64,
    ) -> Rc<Desk> {
        Rc::new(Desk {
            local,
            keys,
            places,
            seats: RefCell::default(),
            books: RefCell::default(),
            heat: RefCell::new(heat),
            slots: RefCell::default(),
            idle: RefCell::default(),
            in_flight: Cell::new(0),
            dispatcher: RefCell::default(),
            tasks: RefCell::default(),
            begin: Cell::new(None),
            dice: RefCell::new(fastrand::Rng::with_seed(seed)),
            answered: Cell::new(0),
        })
    }

    /// Adds clients (one at least) that share reads, and the same ones as they read from nodes that serve
    /// none otherwise; gives their number.
    pub(crate) fn seat(&self, clients: Vec<LocalClient>, spares: Vec<LocalClient>) -> usize {
        clients.iter().for_each(|client| client.trace_reads(TRACE_MAX));
        self.seats.borrow_mut().push(Seat { clients, spares, pass: None });
        self.seats.borrow().len() - 1
    }

    /// Adds a pass; gives its number.
    pub(crate) fn open(&self, book: Book) -> usize {
        self.books.borrow_mut().push(book);
        self.books.borrow().len() - 1
    }

    /// The books, whose passes are over.
    pub(crate) fn take_books(&self) -> Vec<Book> {
        self.books.take()
    }

    /// Looks at the books.
    pub(crate) fn with_books<R>(&self, look: impl FnOnce(&[Book]) -> R) -> R {
        look(&self.books.borrow())
    }

    /// The heat map so far.
    pub(crate) fn heat(&self) -> Heat {
        self.heat.borrow().clone()
    }

    /// Reads that ended so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// From now on the heat map is filled, or no longer.
    pub(crate) fn map_heat(&self, on: bool) {
        self.begin.set(on.then(|| self.local.now()));
    }

    /// Puts one stretch of load on; returns when its replies are there. False if the user asked to stop.
    pub(crate) async fn run(self: &Rc<Desk>, stretch: Stretch, tell: impl Fn()) -> bool {
        self.collect();
        let (mut clients, mut has_spares) = (1, false);
        if let Some(seat) = self.seats.borrow_mut().get_mut(stretch.seat) {
            seat.pass = stretch.measured.then_some(stretch.pass);
            (clients, has_spares) = (seat.clients.len(), !seat.spares.is_empty());
        }
        let start = self.local.now();
        let end = start + stretch.length;
        let mut dice = self.dice.borrow_mut().fork();
        let mut schedule =
            Schedule::new(Arrivals::Poisson, stretch.rate_per_s, start, (0, 1), &mut dice);
        let mut look = start + LOOK;
        let mut hand_out_until = |due: Instant, schedule: &mut Schedule| {
            while schedule.next() <= due && schedule.next() < end && self.has_room() {
                let planned = schedule.take(&mut dice);
                // Drawn, not in turn: each client then has arrivals of its own, as callers make them.
                let (key, client) = (dice.usize(0..self.keys.len()), dice.usize(0..clients));
                let Stretch { pass, seat, measured, .. } = stretch;
                let order = Order { pass, seat, client, key, planned, measured, is_spare: false };
                self.hand_out(order);
                if has_spares && dice.u32(0..EVERY_SPARE) == 0 && self.has_room() {
                    self.hand_out(Order { is_spare: true, measured: false, ..order });
                }
            }
        };
        loop {
            let now = self.local.now();
            if now >= look {
                self.collect();
                tell();
                look = now + LOOK;
            }
            if now >= end || stop::is_asked() {
                break;
            }
            hand_out_until(now, &mut schedule);
            let at = schedule.next().min(end).min(look);
            if at > now {
                self.local.sleep_until(at).await;
            } else {
                self.wait_for_room(look.min(end)).await;
            }
        }
        let stopped = stop::is_asked();
        if !stopped {
            // What was due in the last moment, before the loop saw the end.
            hand_out_until(end, &mut schedule);
        }
        self.count_unsent(stretch, &mut schedule, &mut dice, end);
        self.settle().await;
        self.collect();
        !stopped
    }

    /// What was due before the end and never sent; of a run that the user ended, nothing.
    fn count_unsent(
        &self,
        stretch: Stretch,
        schedule: &mut Schedule,
        dice: &mut fastrand::Rng,
        end: Instant,
    ) {
        let due_by = self.local.now().min(end);
        let mut unsent = 0;
        while schedule.next() < due_by && unsent < COUNTED_UNSENT {
            schedule.take(dice);
            unsent += 1;
        }
        if let (true, Some(book)) =
            (stretch.measured, self.books.borrow_mut().get_mut(stretch.pass))
        {
            book.unsent += unsent;
        }
    }

    /// Waits for the replies that are due, for a second at most.
    async fn settle(&self) {
        let limit = self.local.now() + GRACE;
        while self.in_flight.get() > 0 && self.local.now() < limit {
            let in_flight = self.in_flight.get();
            let mut pause = pin!(self.local.sleep_until(limit));
            poll_fn(|cx| {
                self.dispatcher.replace(Some(cx.waker().clone()));
                if self.in_flight.get() < in_flight {
                    return Poll::Ready(());
                }
                pause.as_mut().poll(cx).map(|_| ())
            })
            .await;
        }
    }

    fn has_room(&self) -> bool {
        !self.idle.borrow().is_empty() || self.slots.borrow().len() < MOST_IN_FLIGHT
    }

    async fn wait_for_room(&self, until: Instant) {
        let mut pause = pin!(self.local.sleep_until(until));
        poll_fn(|cx| {
            self.dispatcher.replace(Some(cx.waker().clone()));
            if self.has_room() { Poll::Ready(()) } else { pause.as_mut().poll(cx).map(|_| ()) }
        })
        .await;
    }

    /// Gives a read to an idle task, or to a new one.
    fn hand_out(self: &Rc<Desk>, order: Order) {
        self.in_flight.set(self.in_flight.get() + 1);
        if let (true, Some(book)) = (order.measured, self.books.borrow_mut().get_mut(order.pass)) {
            book.unanswered += 1;
        }
        let idle = self.idle.borrow_mut().pop();
        let Some(index) = idle else {
            let index = self.slots.borrow().len();
            self.slots.borrow_mut().push(Slot { order: Some(order), waker: None });
            let task = self.local.spawn(sender(self.clone(), index));
            self.tasks.borrow_mut().push(task);
            return;
        };
        let waker = self.slots.borrow_mut().get_mut(index).and_then(|slot| {
            slot.order = Some(order);
            slot.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    fn done(&self, index: usize, order: &Order, done: Done) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.answered.set(self.answered.get() + 1);
        if let (true, Some(book)) = (order.measured, self.books.borrow_mut().get_mut(order.pass)) {
            book.unanswered -= 1;
            book.add(done);
        }
        self.idle.borrow_mut().push(index);
        let waker = self.dispatcher.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes the copies of reads that were answered into the books of their passes.
    fn collect(&self) {
        let (seats, mut books, mut heat) =
            (self.seats.borrow(), self.books.borrow_mut(), self.heat.borrow_mut());
        for seat in seats.iter() {
            for client in &seat.clients {
                let (copies, dropped) = client.take_trace();
                let Some(book) = seat.pass.and_then(|pass| books.get_mut(pass)) else { continue };
                book.copies_dropped += dropped;
                let placed = self.placed(client);
                for mut copy in copies {
                    if !self.places.is_empty() {
                        copy.node = placed.get(copy.node as usize).copied().unwrap_or(u32::MAX);
                    }
                    book.add_copy(&copy);
                    if let Some(begin) = self.begin.get() {
                        heat.add(copy.node as usize, copy.at.since(begin), copy.time);
                    }
                }
            }
        }
    }

    /// By a client's number of a node of a cluster: its place in the books.
    fn placed(&self, client: &LocalClient) -> Vec<u32> {
        let mut placed = Vec::new();
        if self.places.is_empty() {
            return placed;
        }
        for node in client.nodes() {
            let place = self.places.iter().position(|place| *place == node.endpoint);
            let index = node.index as usize;
            placed.resize(placed.len().max(index + 1), u32::MAX);
            placed[index] = place.map_or(u32::MAX, |place| place as u32);
        }
        placed
    }

    /// Ends the tasks; what they still wait for counts as unanswered.
    pub(crate) fn close(&self) {
        self.collect();
        self.tasks.take();
        self.seats.take();
    }

    fn take_order(&self, index: usize, waker: &Waker) -> Poll<Order> {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(index) else { return Poll::Pending };
        match slot.order.take() {
            Some(order) => Poll::Ready(order),
            None => {
                slot.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

/// A task that sends one read after the other, until it is dropped.
async fn sender(desk: Rc<Desk>, index: usize) {
    loop {
        let order = poll_fn(|cx| desk.take_order(index, cx.waker())).await;
        let client = desk.seats.borrow().get(order.seat).and_then(|seat| {
            let clients = if order.is_spare { &seat.spares } else { &seat.clients };
            clients.get(order.client).cloned()
        });
        let (Some(client), Some(key)) = (client, desk.keys.get(order.key)) else { return };
        let sent = desk.local.now();
        let outcome = match client.get_with(key, |value| value.is_some()).await {
            Ok(true) => Outcome::Hit,
            Ok(false) => Outcome::Miss,
            Err(error) => failed(&error),
        };
        let at = desk.local.now();
        desk.done(index, &order, Done { planned: order.planned, sent, at, outcome });
    }
}
