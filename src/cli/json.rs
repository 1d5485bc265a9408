//! The report as JSON.

use super::report::Report;
use std::io::{self, Write};

/// Writes the report, indented, with a line end.
pub(crate) fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
