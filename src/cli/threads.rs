//! CPU time of threads that others run.

use std::sync::{Arc, Mutex, PoisonError};

/// The threads of a tokio runtime, and the CPU time of those that ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    running: Vec<i32>,
    ended_ns: u64,
}

impl Threads {
    /// The calling thread starts.
    pub(crate) fn add_this(&self) {
        self.known(|known| known.running.push(this()));
    }

    /// The calling thread ends.
    pub(crate) fn remove_this(&self) {
        self.known(|known| {
            known.running.retain(|id| *id != this());
            known.ended_ns += cpu_ns(this());
        });
    }

    /// CPU time of all of them so far, user and system, in nanoseconds. A thread that runs just
    /// now may be a scheduler's tick behind.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.known(|known| known.ended_ns + known.running.iter().map(|id| cpu_ns(*id)).sum::<u64>())
    }

    fn known<R>(&self, f: impl FnOnce(&mut Known) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The calling thread's id.
fn this() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// CPU time of one thread of this process; 0 where the kernel does not tell.
fn cpu_ns(id: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat"));
    let first = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.unwrap_or(0)
}

/// CPU time of the calling thread, user and system, in nanoseconds.
pub(crate) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A busy thread's time is counted, also after its end. Fails if the wrong column is read.
    #[test]
    fn busy_threads_are_counted() {
        let threads = Threads::default();
        let inside = threads.clone();
        let worker = std::thread::spawn(move || {
            inside.add_this();
            while own_cpu_ns() < 20_000_000 {}
            inside.remove_this();
        });
        worker.join().unwrap();
        let ns = threads.cpu_ns();
        assert!((10_000_000..2_000_000_000).contains(&ns), "{ns}");
    }
}
