//! The program: parse what was typed (`args`), decide what was meant (`plan`), run it (`bench`:
//! `load` decides what is sent, `drive` sends it, `record` counts it) and report (`report`, then
//! `table`, `json` and `hdr`). `probe` has a folder of its own and shares the parts of both, and `page`
//! shows its report. `topology` has one too. It uses the library's public doors only.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. Every failure is one line on standard error.

mod args;
mod arrival;
mod bench;
mod cluster;
mod doctor;
mod door;
mod drive;
mod duration;
mod fill;
mod gate;
mod hdr;
mod hosted;
mod json;
mod keys;
mod lane;
mod load;
mod machine;
mod mix;
mod nodes;
mod number;
mod output;
mod page;
mod pinned;
mod plan;
mod probe;
mod progress;
mod rate;
mod reads;
mod record;
mod report;
mod role;
#[cfg(test)]
mod sim;
mod size;
mod stop;
mod table;
mod target;
mod threads;
mod topology;

use args::{Args, Task};
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

/// Why the program ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// Something failed: exit code 1.
    Failed(String),
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let ended = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => answer(&error),
    };
    let (code, line) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(line)) => {
            (2, format!("{line} (see {})", help(std::env::args_os().nth(1))))
        }
        Err(Failure::Failed(line)) => (1, line),
    };
    // Nobody is left to tell where standard error is closed.
    let _ = writeln!(io::stderr(), "hedgerow: {line}");
    ExitCode::from(code)
}

/// The command that explains the flags of what was to be done.
fn help(word: Option<OsString>) -> String {
    let tasks = ["probe", "replay", "bench", "topology", "doctor"];
    match tasks.into_iter().find(|task| word.as_deref() == Some(OsStr::new(task))) {
        Some(task) => format!("hedgerow {task} --help"),
        None => "hedgerow --help".into(),
    }
}

fn run(args: Args) -> Result<(), Failure> {
    match args.task {
        Task::Probe(args) => probe::run(*args),
        Task::Replay(args) => probe::replay(*args),
        Task::Bench(args) => bench::run(*args),
        Task::Topology(args) => topology::run(*args),
        Task::Doctor => doctor::run(),
    }
}

/// Help and version are answers; everything else is wrong usage.
fn answer(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => say(&error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let what = "say what to do: hedgerow probe, hedgerow replay, hedgerow bench, \
                        hedgerow topology or \
                        hedgerow doctor";
            Err(Failure::Usage(what.into()))
        }
        _ => Err(Failure::Usage(args::one_line(error))),
    }
}

/// Prints to standard output. A reader that went away is no failure; a full disk is.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a remark to standard error.
pub(crate) fn remark(line: &str) {
    let _ = writeln!(io::stderr(), "hedgerow: {line}");
}
