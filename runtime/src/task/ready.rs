//! Which tasks of a core are due, and where all of them are.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

use super::spawned::Job;
use super::waker::TaskKey;
use crate::attention::Attention;

/// The tasks of one core, and which of them are due.
pub(super) struct Ready {
    pub(super) due: RefCell<Due>,
    pub(super) attention: Rc<Attention>,
}

#[derive(Default)]
pub(super) struct Due {
    /// Tasks in the order in which they were woken.
    woken: Queue,
    /// Tasks that have not run yet, in the order in which they were spawned.
    pub(super) fresh: Queue,
    pub(super) places: Vec<Place>,
}

/// Numbers of tasks.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) tasks: Vec<u32>,
    /// So many of them have run in this round.
    ran: usize,
}

impl Queue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tasks.len() - self.ran
    }

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let task = *self.tasks.get(self.ran)?;
        self.ran += 1;
        Some(task)
    }

    /// Lets those go that have run.
    #[inline]
    pub(super) fn end_round(&mut self) {
        self.tasks.drain(..self.ran);
        self.ran = 0;
    }
}

impl Due {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.woken.len() + self.fresh.len()
    }

    #[inline(always)]
    pub(super) fn queue(&mut self, of: Round) -> &mut Queue {
        match of {
            Round::Woken => &mut self.woken,
            Round::Fresh => &mut self.fresh,
        }
    }
}

/// What runs after what in a turn.
#[derive(Clone, Copy)]
pub(super) enum Round {
    Woken,
    Fresh,
}

/// A task's place. Its name changes with its tenant.
pub(super) struct Place {
    pub(super) key: TaskKey,
    pub(super) queued: bool,
    /// `None` when there is no tenant.
    pub(super) job: Option<Rc<dyn Job>>,
}

impl Ready {
    #[inline(always)]
    pub(super) fn push(&self, key: TaskKey) {
        let due = &mut *self.due.borrow_mut();
        if let Some(place) = due.places.get_mut(key.index())
            && place.key == key
            && !place.queued
        {
            place.queued = true;
            due.woken.tasks.push(key.index() as u32);
        }
    }

    /// The next task that is due, which may be queued again from now on, and where it is. It stays
    /// in its place while it runs: it may spawn and wake, which moves places but no task.
    #[inline(always)]
    pub(super) fn pop(&self, round: Round) -> Option<(TaskKey, Option<NonNull<dyn Job>>)> {
        let due = &mut *self.due.borrow_mut();
        let index = due.queue(round).next()?;
        let place = due.places.get_mut(index as usize)?;
        place.queued = false;
        let job = place.job.as_ref().map(|job| NonNull::from(&**job));
        Some((place.key, job))
    }

    /// Takes a task that has ended out of its place.
    pub(super) fn take(&self, at: usize) -> Option<Rc<dyn Job>> {
        self.due.borrow_mut().places.get_mut(at)?.job.take()
    }
}
