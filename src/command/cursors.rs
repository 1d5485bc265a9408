//! The options of SCAN, HSCAN, SSCAN and ZSCAN.
use super::args::Args;
use super::put::Put;

/// What a scan shows and how much of it at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    pattern: Option<Box<[u8]>>,
    count: Option<u64>,
}

impl ScanOptions {
    /// Everything, about ten at a time (the server's default).
    pub fn new() -> ScanOptions {
        ScanOptions::default()
    }

    /// Only what matches a glob pattern (`MATCH`). A step may then find nothing and yet not be the
    /// last.
    pub fn pattern(mut self, pattern: impl AsRef<[u8]>) -> ScanOptions {
        self.pattern = Some(pattern.as_ref().into());
        self
    }

    /// About how much work a step does (`COUNT`), at least 1.
    pub fn count(mut self, count: u64) -> ScanOptions {
        self.count = Some(count);
        self
    }
}

impl Put for ScanOptions {
    fn put(&self, args: &mut Args) {
        if let Some(pattern) = &self.pattern {
            args.word("MATCH");
            args.bulk(pattern);
        }
        if let Some(count) = self.count {
            args.word("COUNT");
            args.uint(count);
        }
    }
}
