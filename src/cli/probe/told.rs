//! What the core tells about a probe that runs, for the progress bar.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The stage that a probe is in; written by the core, read by the thread that draws.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Stage>);

#[derive(Clone, Debug, Default)]
struct Stage {
    text: String,
    at: Duration,
    of: Duration,
}

impl Told {
    /// What is done now, and how far it is.
    pub(crate) fn tell(&self, text: impl Into<String>, at: Duration, of: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Stage { text: text.into(), at, of };
    }

    /// Position, length and text of the bar.
    pub(crate) fn state(&self) -> (u64, u64, String) {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ms = |time: Duration| time.as_millis() as u64;
        (ms(stage.at), ms(stage.of).max(1), stage.text)
    }
}
