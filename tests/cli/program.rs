//! Runs the program.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// No run of these tests takes longer; one that does hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Both doors of the load generator.
pub(crate) const DOORS: [&str; 2] = ["cores", "hosted"];

/// What a finished program left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A fresh folder, and the program run in it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    /// A fresh folder.
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts the program with these words.
    pub(crate) fn start(&self, words: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
        command.args(words.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs the program with these words to its end.
    pub(crate) fn run(&self, words: &str) -> Ended {
        end(self.start(words))
    }

    /// The JSON report `report.json`.
    pub(crate) fn report(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.path("report.json")).unwrap()).unwrap()
    }
}

/// Awaits the program's end; one that hangs is killed, and the test fails.
pub(crate) fn end(mut child: Child) -> Ended {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > HANGS_AFTER {
            child.kill().unwrap();
            panic!("the program hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(!err.contains("panicked"), "{err}");
    Ended { code: status.code(), out, err }
}

impl Ended {
    /// Asserts an exit code and exactly one line on standard error, which names `named`.
    pub(crate) fn failed(&self, code: i32, named: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "one line: {}", self.err);
        assert!(self.err.contains(named), "{named}: {}", self.err);
        assert!(self.err.starts_with("hedgerow: "), "{}", self.err);
    }

    /// Asserts success.
    pub(crate) fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
    }
}
