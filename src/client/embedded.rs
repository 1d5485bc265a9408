//! The client of an application that owns its threads: it turns the core itself.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use hedgerow_runtime::caps::{self, Rung};
use hedgerow_runtime::core::Turn;
use hedgerow_runtime::epoll::Epoll;
use hedgerow_runtime::host::Hosted;
use hedgerow_runtime::kernel::Kernel;
use hedgerow_runtime::park::{ParkPolicy, Parker};
use hedgerow_runtime::ring::{self, Ring};
use hedgerow_runtime::{Quota, cpu};

use super::cores::{LocalContext, rung_of_environment, runtime};
use crate::error::Error;
use crate::placement::core::{CoreDesk, CoreDriver};

/// A core inside a thread of the application: clients, and the [`Driver`] that makes them progress.
///
/// The adapters in [`host`](crate::host) drive it in tokio, monoio and glommio. By hand, with
/// whatever waits for descriptors:
///
/// ```no_run
/// use hedgerow::{Embedded, Options, prelude::*};
///
/// # fn wait_readable(fd: std::os::fd::BorrowedFd<'_>) {}
/// let (context, mut driver) = Embedded::builder().build()?;
/// let options = Options::from_url("redis://localhost")?;
/// let job = context.spawn({
///     let context = context.clone();
///     async move { context.connect(&options).await?.get::<Option<String>>("greeting").await }
/// });
/// while !job.is_finished() {
///     if !driver.turn()? && driver.prepare_park() {
///         wait_readable(driver.ready_fd()?);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Embedded;

impl Embedded {
    /// Describes a core to embed.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::default()
    }
}

/// How an embedded core is made.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedBuilder {
    rung: Option<Rung>,
    require_uring: bool,
}

impl EmbeddedBuilder {
    /// Forces a rung. Default: the variable `HEDGEROW_RUNG`, else the best that passes its
    /// self-test here.
    pub fn rung(mut self, rung: impl Into<Option<Rung>>) -> EmbeddedBuilder {
        self.rung = rung.into();
        self
    }

    /// Makes a machine without a usable io_uring an error instead of a warning.
    pub fn require_uring(mut self, require: bool) -> EmbeddedBuilder {
        self.require_uring = require;
        self
    }

    /// Makes the core on the calling thread, which alone may use it: context, clients and driver
    /// are `!Send`. Takes some milliseconds, for the rung is tried.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an unknown `HEDGEROW_RUNG`,
    /// [`ErrorKind::Runtime`](crate::ErrorKind::Runtime) when the ring cannot be made; the text names
    /// the limit and what to change.
    pub fn build(self) -> Result<(LocalContext, Driver), Error> {
        let forced = match self.rung {
            Some(rung) => Some(rung),
            None => rung_of_environment()?,
        };
        let choice = caps::choose(forced, self.require_uring)
            .map_err(|e| runtime("choosing how to reach the kernel", e))?;
        if choice.falls_back() {
            tracing::warn!(rung = %choice.rung, why = %choice.why, "io_uring is not used");
        }
        let inner = match choice.rung {
            Rung::Epoll => {
                let kernel = Epoll::new().map_err(|e| runtime("making an epoll instance", e))?;
                Inner::Epoll(embed(kernel))
            }
            rung @ (Rung::U1 | Rung::U2) => {
                let config = ring::Config { incremental: rung == Rung::U2, ..Default::default() };
                let kernel = Ring::new(config).map_err(|e| {
                    runtime("making a ring", caps::Refusal::from_error(rung, "making a ring", e))
                })?;
                Inner::Ring(embed(kernel))
            }
        };
        let context = LocalContext::new(inner.desk(), 0, None);
        Ok((context, Driver { inner: Some(inner), rung: choice.rung }))
    }
}

fn embed<K: Kernel>(kernel: K) -> Box<CoreDriver<K>> {
    // A host's core never waits or spins by itself.
    let cpus = cpu::allowed().map_or(1, |allowed| allowed.len());
    let parker = Parker::new(ParkPolicy::Park, Quota::detect(), cpus, 1);
    let mut driver = CoreDriver::new(kernel, parker);
    driver.core().embed();
    Box::new(driver)
}

enum Inner {
    Ring(Box<CoreDriver<Ring>>),
    Epoll(Box<CoreDriver<Epoll>>),
}

/// Calls the same thing of either kernel's driver.
macro_rules! either {
    ($inner:expr, $driver:ident => $call:expr) => {
        match $inner {
            Inner::Ring($driver) => $call,
            Inner::Epoll($driver) => $call,
        }
    };
}

impl Inner {
    fn desk(&self) -> CoreDesk {
        either!(self, driver => driver.desk())
    }
}

/// Turns an embedded core. Clients make progress only while somebody turns it.
///
/// On one thread: turn until a turn answers `false`; then [`Driver::prepare_park`]; if that answers
/// `true`, wait until [`Driver::ready_fd`] is readable (or the waker is woken); turn again.
///
/// It belongs to the thread that built it, as its ring does:
///
/// ```compile_fail,E0277
/// let (_context, mut driver) = hedgerow::Embedded::builder().build().unwrap();
/// std::thread::spawn(move || driver.turn());
/// ```
///
/// Dropping it answers every waiting request with an error, closes every connection and waits up to
/// a second for the kernel to let go of them.
pub struct Driver {
    /// Taken by the drop only.
    inner: Option<Inner>,
    rung: Rung,
}

impl Driver {
    fn inner(&mut self) -> io::Result<&mut Inner> {
        self.inner.as_mut().ok_or_else(|| io::Error::other("the driver was shut down"))
    }

    /// How the core reaches the kernel.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// One pass without waiting: runs tasks, sends what is queued, takes what came. `true`: it found
    /// something to do, another turn is due.
    ///
    /// # Errors
    /// When the kernel below is unusable, or in a process that was forked after the driver was built;
    /// the driver cannot go on.
    pub fn turn(&mut self) -> io::Result<bool> {
        either!(self.inner()?, driver => driver.turn(Turn::Return))
    }

    /// The descriptor that becomes readable when a turn is worth taking: also at the next deadline.
    /// The same one for the driver's life; wait on it, never read it.
    ///
    /// # Errors
    /// The system's error when it cannot be made.
    pub fn ready_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        either!(self.inner()?, driver => driver.core().ready_fd())
    }

    /// Call this before waiting on [`Driver::ready_fd`]. `false`: work is there already, turn again.
    pub fn prepare_park(&mut self) -> bool {
        self.inner().is_ok_and(|inner| either!(inner, driver => driver.prepare_park()))
    }

    /// Whom to wake when a task on this thread queues work while the host waits. Without a waker
    /// [`Driver::ready_fd`] turns readable instead, which costs a system call.
    pub fn set_waker(&mut self, waker: &Waker) {
        if let Ok(inner) = self.inner() {
            either!(inner, driver => driver.core().set_host(waker));
        }
    }
}

impl Hosted for Driver {
    fn turn(&mut self) -> io::Result<bool> {
        Driver::turn(self)
    }
    fn ready_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        Driver::ready_fd(self)
    }
    fn prepare_park(&mut self) -> bool {
        Driver::prepare_park(self)
    }
    fn set_waker(&mut self, waker: &Waker) {
        Driver::set_waker(self, waker);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            either!(inner, driver => driver.shut_down());
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("rung", &self.rung).finish_non_exhaustive()
    }
}
