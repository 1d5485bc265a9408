//! The options of SCAN, HSCAN, SSCAN and ZSCAN, and what a step of them gives.
use super::args::Args;
use super::put::Put;
use crate::resp::{ConvertError, FromReply, Kept, Reply};

/// What one step of a scan found, and where the next begins.
///
/// `T` is what the scan is over: keys, members, or (field, value) and (member, score) pairs.
///
/// ```
/// use hedgerow::{Error, prelude::*};
/// async fn count_users(client: &impl Door) -> Result<usize, Error> {
///     let (mut cursor, mut count) = (0, 0);
///     loop {
///         let page = client.scan::<String>(cursor).await?;
///         count += page.items.iter().filter(|key| key.starts_with("user:")).count();
///         if page.is_last() {
///             return Ok(count);
///         }
///         cursor = page.cursor;
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage<T> {
    /// The cursor of the next step; 0 after the last.
    pub cursor: u64,
    /// What this step found, in no order: it may be nothing before the last step, too.
    pub items: Vec<T>,
}

impl<T> ScanPage<T> {
    /// Whether the scan is complete.
    pub fn is_last(&self) -> bool {
        self.cursor == 0
    }
}

impl<T: FromReply<K>, K: Kept> FromReply<K> for ScanPage<T> {
    /// A list of two: the cursor, and the items or pairs.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        <(u64, Vec<T>)>::from_reply(reply).map(|(cursor, items)| ScanPage { cursor, items })
    }
}

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
