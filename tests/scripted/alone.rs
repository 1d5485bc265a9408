//! Tests about the whole process, each in a process of its own.

use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `body` with nothing beside it: in a process that runs only the test of this name.
#[track_caller]
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "HEDGEROW_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some_and(|name| name == test) {
        return body();
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(VARIABLE, test);
    let output = command.output().expect("run");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{errors}");
}

/// Descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the table of descriptors").count()
}

/// Waits until `is_so`, for as long as a thread takes to leave the process after it was joined.
pub(crate) fn soon(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > Duration::from_secs(1) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Threads of this process whose name begins so.
pub(crate) fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.flatten().filter_map(|t| name(t).ok()).filter(|n| n.starts_with(prefix)).count()
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the memory");
    let pages = text.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok());
    pages.expect("a number") * 4096
}
