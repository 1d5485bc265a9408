//! An engine under the simulated kernel: the code of a core, its turn included, on a virtual clock.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use hedgerow_runtime::Panicked;
use hedgerow_runtime::core::Turn;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::sim::{Ledger, Sim, SimNet};

use super::core::{CoreDesk, CoreDriver};

/// How a simulated core's main task ended.
pub(crate) enum Ended<T> {
    /// It gave its output, or panicked.
    Output(Result<T, Panicked>),
    /// Nothing could ever happen any more.
    Stuck,
    /// All turns that it may take are taken.
    OutOfTurns,
    /// The kernel gave up, which the simulated one never does by itself.
    Kernel(std::io::Error),
}

/// What is left of a core that was shut down; all zero and empty unless something leaks.
pub(crate) struct Remains {
    pub(crate) ledger: Ledger,
    pub(crate) clients: usize,
    pub(crate) requests: usize,
    pub(crate) tasks: usize,
}

/// One core on a simulated network.
pub(crate) struct SimCore {
    driver: CoreDriver<Sim>,
    ledger: Ledger,
}

impl SimCore {
    /// A core whose engines draw from `seed`.
    pub(crate) fn new(net: &SimNet, seed: u64, park: ParkPolicy) -> SimCore {
        let kernel = net.kernel();
        let ledger = kernel.ledger();
        let parker = Parker::new(park, None, 1, 1);
        SimCore { driver: CoreDriver::seeded(kernel, parker, seed), ledger }
    }

    pub(crate) fn desk(&self) -> CoreDesk {
        self.driver.desk()
    }

    /// Runs `main` as a task until it ends; answers the turns that took.
    pub(crate) fn run<T: 'static>(
        &mut self,
        main: impl Future<Output = T> + 'static,
        turns_max: u64,
    ) -> (Ended<T>, u64) {
        let local = self.desk().local().clone();
        let output = Rc::new(RefCell::new(None));
        let (to, main) = (output.clone(), local.spawn(main));
        let _waits = local.spawn(async move {
            let ended = main.await;
            *to.borrow_mut() = Some(ended);
        });
        for turn in 1..=turns_max {
            if let Err(error) = self.driver.turn(Turn::MayWait) {
                return (Ended::Kernel(error), turn);
            }
            if let Some(output) = output.borrow_mut().take() {
                return (Ended::Output(output), turn);
            }
            if self.ledger.deadlock() {
                return (Ended::Stuck, turn);
            }
        }
        (Ended::OutOfTurns, turns_max)
    }

    /// Ends every client and task, closes every socket, and says what is left.
    pub(crate) fn shut_down(self) -> Remains {
        let desk = self.driver.desk();
        self.driver.shut_down();
        let (clients, requests) = desk.left();
        Remains { ledger: self.ledger, clients, requests, tasks: desk.local().live_tasks() }
    }
}
