//! What other threads see of a core.

use std::task::Waker;

use crate::mailbox::{Producer, PushError};
use crate::task::Post;

/// Reaches a core from any thread.
#[derive(Clone)]
pub struct Remote(Producer<Post>);

/// The core did not take the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// Its mailbox is full; try again a little later.
    #[error("the core's mailbox is full")]
    Full,
    /// The core has ended.
    #[error("the core has ended")]
    Ended,
}

impl Remote {
    pub(super) fn new(producer: Producer<Post>) -> Remote {
        Remote(producer)
    }

    /// Runs `job` on the core, soon. Never waits.
    ///
    /// # Errors
    /// When the mailbox is full or the core has ended; the job is dropped then.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), RemoteError> {
        self.0.push(Post::Run(Box::new(job))).map_err(refused)
    }

    /// As [`Remote::run`]; where the mailbox is full, `waker` is woken as soon as there may be room,
    /// or the core has ended.
    ///
    /// # Errors
    /// As [`Remote::run`].
    pub fn run_or_wait(
        &self,
        job: impl FnOnce() + Send + 'static,
        waker: &Waker,
    ) -> Result<(), RemoteError> {
        self.0.push_or_wait(Post::Run(Box::new(job)), waker).map_err(refused)
    }
}

fn refused(error: PushError<Post>) -> RemoteError {
    match error {
        PushError::Full(_) => RemoteError::Full,
        PushError::Closed(_) => RemoteError::Ended,
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
