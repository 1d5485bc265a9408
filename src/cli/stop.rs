//! Ctrl-C: the first ends the load with the figures so far, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a program that a second Ctrl-C ended, as shells expect it.
const INTERRUPTED: i32 = 130;

static STOP: AtomicBool = AtomicBool::new(false);

/// Begins to listen for Ctrl-C and SIGTERM.
pub(crate) fn listen() -> Result<(), String> {
    let listening = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
    listening.map_err(|error| format!("cannot listen for Ctrl-C: {error}"))
}

/// Whether the user asked to stop.
pub(crate) fn is_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}
