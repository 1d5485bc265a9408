//! Report files: tried before the run, so that a wrong path is told before the time is spent, and written
//! after it, whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Names of drafts that may be taken already, by a process of the same number that was killed.
const DRAFTS: u32 = 100;

/// A place that a report goes to. What a file there holds stays until the whole report is written.
#[derive(Debug)]
pub(crate) struct Output {
    flag: &'static str,
    path: PathBuf,
    place: Place,
}

/// Where the bytes go.
#[derive(Debug)]
enum Place {
    /// A pipe or a device: written as it is.
    Stream(File),
    /// A file, links followed: replaced by a draft beside it, in one step.
    Plain(PathBuf),
}

impl Output {
    /// Makes sure that what `flag` names, if it names anything, can be written. Leaves nothing behind.
    pub(crate) fn open(flag: &'static str, path: Option<&Path>) -> Result<Option<Output>, String> {
        let Some(path) = path else { return Ok(None) };
        match place(path) {
            Ok(place) => Ok(Some(Output { flag, path: path.to_owned(), place })),
            Err(error) => Err(format!("{flag} {}: cannot be opened: {error}", path.display())),
        }
    }

    /// Puts what `write` writes there: all of it or, if that fails, nothing.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), String> {
        let written = match &self.place {
            Place::Stream(file) => filled(file, write),
            Place::Plain(target) => replace(target, write),
        };
        written.map_err(|error| {
            format!("{} {}: cannot be written: {error}", self.flag, self.path.display())
        })
    }
}

/// Whether two paths are the same file, by whatever spelling and links. One that is not there yet is where
/// its folder is.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other || real(one).is_some_and(|one| real(other).is_some_and(|other| one == other))
}

/// The path without links; `None` where not even its folder is there.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Some(real);
    }
    let folder = fs::canonicalize(folder(path)).ok()?;
    Some(folder.join(path.file_name()?))
}

/// The folder that a path is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn place(path: &Path) -> io::Result<Place> {
    match OpenOptions::new().write(true).open(path) {
        Ok(file) if !file.metadata()?.is_file() => return Ok(Place::Stream(file)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let target = real(path).ok_or(io::ErrorKind::NotFound)?;
    // Tried now: after the run it is too late to say that the folder cannot be written.
    let (draft, _) = draft(&target)?;
    fs::remove_file(draft)?;
    Ok(Place::Plain(target))
}

/// A new and empty file beside the target.
fn draft(target: &Path) -> io::Result<(PathBuf, File)> {
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..DRAFTS {
        // Short, whatever the target's name is: a longer one may be too long.
        let name = format!(".hedgerow-{}-{number}.part", std::process::id());
        let path = folder(target).join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

fn replace(target: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (draft, file) = draft(target)?;
    let put = filled(&file, write).and_then(|()| put(&draft, target));
    if put.is_err() {
        let _ = fs::remove_file(&draft);
    }
    put
}

/// Puts a whole draft in the target's place, with the rights that the target had.
fn put(draft: &Path, target: &Path) -> io::Result<()> {
    if let Ok(before) = fs::metadata(target) {
        fs::set_permissions(draft, before.permissions())?;
    }
    match fs::rename(draft, target) {
        // A file that is mounted by itself can be written, not replaced.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            fs::copy(draft, target)?;
            fs::remove_file(draft)
        }
        renamed => renamed,
    }
}

fn filled(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    buffered.flush()?;
    // A full disk may show only here; a pipe or a device has nothing to sync.
    if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) }
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

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A report that fails half-way leaves what was there, and nothing where nothing was. Fails if a part of
    /// it, an empty file or a draft stays.
    #[test]
    fn failures_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "good").unwrap();
        for path in [&old, &new] {
            drop(Output::open("--json", Some(path)).unwrap());
            assert_eq!(names(folder.path()), ["old"], "opened and not written");
            let output = Output::open("--json", Some(path)).unwrap().unwrap();
            let failed = output.write(|out| {
                out.write_all(&[b'x'; 100_000])?;
                Err(io::Error::other("no more"))
            });
            assert!(failed.unwrap_err().contains("no more"));
        }
        assert_eq!(names(folder.path()), ["old"]);
        assert_eq!(fs::read_to_string(&old).unwrap(), "good");
    }

    /// Fails if a link is replaced instead of what it points to, or if the rights of a file are lost.
    #[test]
    fn links_and_rights_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real", &link).unwrap();
        let output = Output::open("--json", Some(&link)).unwrap().unwrap();
        output.write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }

    /// Fails if another spelling of a path, or a link, passes for another file.
    #[test]
    fn spellings_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        assert!(is_same_file(&at("a"), &at("./a")) && is_same_file(&at("a"), &at("link")));
        assert!(is_same_file(&at("new"), &at("./new")));
        assert!(!is_same_file(&at("a"), &at("new")) && !is_same_file(&at("no/a"), &at("a")));
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
