//! Name resolution off the core.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use hedgerow_runtime::core::Local;
use hedgerow_runtime::time::Instant;

use crate::config::Keepalive;
use crate::engine::LinkId;

/// Name resolution off the core: the system's resolver blocks, so each lookup is a short thread.
#[derive(Default)]
pub(super) struct Lookups {
    pub(super) running: Cell<usize>,
    pub(super) done: Arc<Mutex<Vec<Resolved>>>,
}

pub(super) struct Resolved {
    pub(super) index: usize,
    pub(super) link: LinkId,
    pub(super) by: Instant,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) outcome: io::Result<Vec<SocketAddr>>,
}

impl Lookups {
    pub(super) fn start(&self, local: &Local, host: String, port: u16, mut found: Resolved) {
        let (done, remote) = (self.done.clone(), local.remote());
        self.running.set(self.running.get() + 1);
        let look = move || {
            found.outcome = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            // An empty job: the core only has to look. A full mailbox means that it is awake.
            let _ = remote.run(|| {});
        };
        let name = "hedgerow-dns".to_owned();
        // Without a thread the connect runs into its own deadline and is tried again.
        let _ = std::thread::Builder::new().name(name).spawn(look);
    }

    pub(super) fn take(&self) -> Vec<Resolved> {
        if self.running.get() == 0 {
            return Vec::new();
        }
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        self.running.set(self.running.get() - done.len());
        done
    }
}
