//! Drives a core inside another runtime, on that runtime's thread.
//!
//! A host needs three things of a driver: a turn, a descriptor that becomes readable when another
//! turn is worth taking, and the park protocol that closes the gap between them. The adapters below
//! do that for one runtime each; all need the driver's task on the thread that built the driver.
//!
//! | feature | function | how it waits |
//! |---|---|---|
//! | `host-tokio` | `tokio::drive` | `AsyncFd` |
//! | `host-monoio` | `monoio::drive` | POLL_ADD on monoio's ring, or its epoll |
//! | `host-glommio` | `glommio::drive` | glommio's timers, 50 us doubling to 10 ms, in a latency queue |

#[cfg(feature = "host-glommio")]
pub mod glommio;
#[cfg(feature = "host-monoio")]
pub mod monoio;
#[cfg(feature = "host-tokio")]
pub mod tokio;

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Waker;

/// A core that a host turns.
///
/// The protocol, on one thread: turn until a turn answers `false`; then [`Hosted::prepare_park`]; if
/// that answers `true`, wait until [`Hosted::ready_fd`] is readable or the waker is woken; turn again.
/// Nothing is lost between these steps. The descriptor is never read by the host.
pub trait Hosted {
    /// One pass without waiting. `true`: it found something to do, another one is due.
    ///
    /// # Errors
    /// When the kernel below is unusable, or after a fork; the driver cannot go on.
    fn turn(&mut self) -> io::Result<bool>;

    /// The descriptor to wait on: the same one for the driver's life.
    ///
    /// # Errors
    /// The system's error when it cannot be made.
    fn ready_fd(&mut self) -> io::Result<BorrowedFd<'_>>;

    /// Call this before waiting. `false`: work is there already, take another turn.
    fn prepare_park(&mut self) -> bool;

    /// Whom to wake when a task on this thread queues work while the host waits. Without a waker the
    /// descriptor turns readable instead, which costs a system call.
    fn set_waker(&mut self, waker: &Waker);
}

/// What the driver's task does next.
#[cfg(any(feature = "host-glommio", feature = "host-monoio", feature = "host-tokio"))]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Let the host's tasks run, then take another turn.
    Turn,
    /// Wait until the descriptor is readable or the waker is woken.
    Wait,
}

/// One turn on behalf of the task of `waker`.
#[cfg(any(feature = "host-glommio", feature = "host-monoio", feature = "host-tokio"))]
fn step(driver: &mut impl Hosted, waker: &Waker) -> io::Result<Next> {
    driver.set_waker(waker);
    let worked = driver.turn()?;
    Ok(if !worked && driver.prepare_park() { Next::Wait } else { Next::Turn })
}
