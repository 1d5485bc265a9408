//! Cursors of SCAN, HSCAN, SSCAN and ZSCAN.
//!
//! The collections keep their elements at positions from 0 on, and a removal moves only the last
//! element, into the hole. A scan therefore goes from the end to the beginning: what moves during a
//! scan was seen already, and every element that stays is seen at least once. The cursor is the
//! number of positions still to be seen.

use super::{Failure, SYNTAX, integer, is};
use crate::testing::pattern;
use crate::testing::request::Args;

/// What one call of the family asks.
pub(super) struct Scan<'a> {
    cursor: usize,
    count: usize,
    matching: Option<&'a [u8]>,
    pub(super) type_name: Option<&'a [u8]>,
    pub(super) no_values: bool,
}

impl<'a> Scan<'a> {
    /// Reads the arguments from the cursor at `at` on.
    pub(super) fn read(args: Args<'a>, at: usize) -> Result<Self, Failure> {
        let cursor =
            std::str::from_utf8(args.at(at)).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or("ERR invalid cursor")?;
        let cursor = usize::try_from(cursor).unwrap_or(usize::MAX);
        let mut scan =
            Self { cursor, count: 10, matching: None, type_name: None, no_values: false };
        let mut at = at + 1;
        while at < args.len() {
            let (option, value) = (args.at(at), (at + 1 < args.len()).then(|| args.at(at + 1)));
            match value {
                _ if is(option, "NOVALUES") => {
                    scan.no_values = true;
                    at += 1;
                    continue;
                }
                Some(value) if is(option, "MATCH") => scan.matching = Some(value),
                Some(value) if is(option, "TYPE") => scan.type_name = Some(value),
                Some(value) if is(option, "COUNT") => {
                    let count = usize::try_from(integer(value)?).ok().filter(|count| *count > 0);
                    scan.count = count.ok_or(SYNTAX)?;
                }
                _ => return Err(SYNTAX.into()),
            }
            at += 2;
        }
        Ok(scan)
    }

    /// The positions of a collection of `length` elements to look at now, from the end of the range
    /// to its beginning.
    pub(super) fn positions(&self, length: usize) -> std::ops::Range<usize> {
        let end = if self.cursor == 0 { length } else { self.cursor.min(length) };
        end.saturating_sub(self.count)..end
    }

    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.matching.is_none_or(|matching| pattern::fits(matching, name))
    }
}
