//! Report files: opened before the run, so that a wrong path is told before the time is spent,
//! and written after it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that a report goes to. What it held stays until the report is written.
#[derive(Debug)]
pub(crate) struct Output {
    flag: &'static str,
    path: PathBuf,
    file: File,
}

impl Output {
    /// Opens the file that `flag` names, if it names one.
    pub(crate) fn open(flag: &'static str, path: Option<&Path>) -> Result<Option<Output>, String> {
        let Some(path) = path else { return Ok(None) };
        // Not truncated yet: a run that fails leaves the last report alone.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        match file {
            Ok(file) => Ok(Some(Output { flag, path: path.to_owned(), file })),
            Err(error) => Err(format!("{flag} {}: cannot be opened: {error}", path.display())),
        }
    }

    /// Replaces what the file holds by what `write` writes.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), String> {
        let written = self.replace(write);
        written.map_err(|error| {
            format!("{} {}: cannot be written: {error}", self.flag, self.path.display())
        })
    }

    fn replace(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        // Only a plain file has a length to cut; a pipe or a device has none.
        let plain = self.file.metadata()?.is_file();
        if plain {
            self.file.set_len(0)?;
        }
        let mut buffered = BufWriter::new(&self.file);
        write(&mut buffered)?;
        buffered.flush()?;
        // A full disk may show only here.
        if plain { self.file.sync_all() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk is told, naming the flag. Fails if a write error is swallowed.
    #[test]
    fn full_disk() {
        let output = Output::open("--json", Some(Path::new("/dev/full"))).unwrap().unwrap();
        let error = output.write(|out| out.write_all(b"{}")).unwrap_err();
        assert!(error.starts_with("--json /dev/full: cannot be written: No space"), "{error}");
    }

    /// The old report goes only when the new one is written. Fails if opening truncates.
    #[test]
    fn old_report_stays_until_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::fs::write(&path, "an older and longer report").unwrap();
        let output = Output::open("--json", Some(&path)).unwrap().unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("an older"));
        output.write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    /// A path that cannot be opened is told at once. Fails if it is found out after the run.
    #[test]
    fn wrong_path() {
        let folder = tempfile::tempdir().unwrap();
        let error = Output::open("--hdr", Some(&folder.path().join("no/such"))).unwrap_err();
        assert!(error.starts_with("--hdr ") && error.contains("cannot be opened"), "{error}");
        assert!(Output::open("--hdr", Some(folder.path())).is_err());
        assert!(Output::open("--hdr", None).unwrap().is_none());
    }
}
