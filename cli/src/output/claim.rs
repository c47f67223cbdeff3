//! Directories of results: one process at a time writes to one, and no file of somebody else is replaced.

use crate::Failure;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

/// Marks of files that this program has written, one of which is near the start of each page and table. The first two
/// are of pages, the second of which earlier versions wrote without the first.
const MARKS: [&str; 3] =
    ["<meta name=\"generator\" content=\"gradscale", "<p class=\"brand\">gradscale</p>", "<!-- gradscale"];

/// Number of bytes in which a mark is searched. The style sheet of a page comes before its second mark and has 10 kB.
const SEARCHED_BYTES: u64 = 1 << 16;

/// Name of the file that the writing process locks.
const LOCK: &str = "lock";

/// Directory for results that this process has locked.
#[derive(Debug)]
pub struct Claim {
    /// Path of the directory, as the user gave it.
    pub path: PathBuf,
    /// Lock file, which the system releases when the process ends.
    _lock: File,
}

impl Claim {
    /// Locks a directory that has results, to continue them.
    ///
    /// # Errors
    /// A directory in which another process writes, or whose `pages` somebody else wrote.
    pub fn continued(path: &Path, pages: &[&str]) -> Result<Self, Failure> {
        let lock = lock(path)?;
        pages.iter().try_for_each(|page| check_own(&path.join(page)))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }
}

/// Creates and locks the directory for results: the requested one, or the first of STEM-1, STEM-2 … that is not there.
/// A file of `pages` in it must be one of this program.
///
/// # Errors
/// A directory that has other pages, in which another process writes, or that cannot be made.
pub fn claim(asked: Option<&Path>, stem: &str, pages: &[&str]) -> Result<Claim, Failure> {
    Claim::continued(&directory(asked, stem)?, pages)
}

/// Checks that a directory has no results of an earlier run. The caller has locked it, because another process may have
/// written them just before.
///
/// # Errors
/// A file with this path.
pub fn check_absent(results: &Path) -> Result<(), Failure> {
    if results.exists() {
        return Err(Failure::file(results, "exists already; choose another directory for --out"));
    }
    Ok(())
}

fn directory(asked: Option<&Path>, stem: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = asked {
        fs::create_dir_all(path).map_err(|error| Failure::file(path, error))?;
        return Ok(path.to_owned());
    }
    for number in 1u32.. {
        let path = PathBuf::from(format!("{stem}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::file(&path, error)),
        }
    }
    Err(Failure::at(stem, "too many directories of this name; choose one with --out"))
}

/// Locks a directory for one process. The system releases the lock when the process ends, even after a crash.
///
/// # Errors
/// A lock that another process holds, or a directory that cannot be written to.
pub fn lock(directory: &Path) -> Result<File, Failure> {
    let path = directory.join(LOCK);
    // Without truncation: a file of this name may be somebody else's.
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| Failure::file(&path, error))?;
    file.try_lock().map_err(|error| refusal(directory, error))?;
    Ok(file)
}

/// Returns the error of a lock that was not acquired. A file system without locks is no other process.
fn refusal(directory: &Path, error: TryLockError) -> Failure {
    match error {
        TryLockError::WouldBlock => {
            let cause = "another gradscale is writing to this directory; wait for it or choose another --out";
            Failure::file(directory, cause)
        }
        TryLockError::Error(error) => Failure::file(&directory.join(LOCK), format!("cannot be locked: {error}"))
            .hint("choose an --out on a file system with locks"),
    }
}

/// Checks that a page or table can be replaced: it does not exist, is empty, or has a mark of this program.
///
/// # Errors
/// A file that somebody else wrote, or that cannot be read.
pub fn check_own(path: &Path) -> Result<(), Failure> {
    check_replaceable(path, |start| {
        let start = String::from_utf8_lossy(start);
        MARKS.iter().any(|mark| start.contains(mark))
    })
}

/// Checks that a file can be replaced: it does not exist, is empty, or `is_own` recognises its beginning as output of
/// this command.
///
/// # Errors
/// A file that somebody else wrote, or that cannot be read.
pub fn check_replaceable(path: &Path, is_own: impl FnOnce(&[u8]) -> bool) -> Result<(), Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file(path, error)),
    };
    let mut start = Vec::new();
    file.take(SEARCHED_BYTES).read_to_end(&mut start).map_err(|error| Failure::file(path, error))?;
    if start.is_empty() || is_own(&start) { Ok(()) } else { Err(foreign(path)) }
}

/// Returns the error of a file that is not replaced.
fn foreign(path: &Path) -> Failure {
    Failure::file(path, "exists already and is not a file of gradscale; choose another place with --out")
}

/// Name of the list of files that `gradscale predict` wrote to a directory. Images and texts have no place for a mark.
const LIST: &str = ".gradscale-predictions";

/// Checks that a file can be written to a directory of predictions: it does not exist, is empty, or is in the list of
/// files of earlier predictions.
///
/// # Errors
/// A file that somebody else wrote, or a list that cannot be read.
pub fn check_listed(directory: &Path, name: &str) -> Result<(), Failure> {
    let (path, list) = (directory.join(name), directory.join(LIST));
    if !fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    match fs::read(&list) {
        Ok(names) if names.split(|byte| *byte == b'\n').any(|listed| listed == name.as_bytes()) => Ok(()),
        Ok(_) => Err(foreign(&path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(foreign(&path)),
        Err(error) => Err(Failure::file(&list, error)),
    }
}

/// Writes a file to a directory of predictions, and adds its name to the list there.
///
/// # Errors
/// A file that somebody else wrote, or a directory that cannot be written to.
pub fn write_listed(directory: &Path, name: &str, content: &[u8]) -> Result<(), Failure> {
    check_listed(directory, name)?;
    let (path, list) = (directory.join(name), directory.join(LIST));
    if !fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
        let file = OpenOptions::new().create(true).append(true).open(&list);
        let added = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
        added.map_err(|error| Failure::file(&list, error))?;
    }
    super::write(&path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a lock of another process and a file system without locks have different messages.
    #[test]
    fn locks_that_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let held = lock(path).expect("a lock");
        let refused = lock(path).expect_err("a lock that is held").to_string();
        assert!(refused.contains(": another gradscale is writing to this directory"), "{refused}");
        drop(held);
        lock(path).expect("a lock that was released");
        let unsupported = refusal(path, TryLockError::Error(ErrorKind::Unsupported.into())).to_string();
        assert!(unsupported.contains("lock: cannot be locked: unsupported; choose an --out on"), "{unsupported}");
    }

    /// Checks that predictions replace their own files and empty ones, and no others.
    #[test]
    fn predictions_replace_their_own_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let read = |name: &str| fs::read(path.join(name)).expect("a file");
        for content in [b"1", b"2"] {
            write_listed(path, "a.tsv", content).expect("an own file");
            assert_eq!(read("a.tsv"), content);
        }
        // "tsv" is part of a listed name.
        for name in ["tsv", "b.tsv"] {
            fs::write(path.join(name), "mine").expect("a file");
            let refused = write_listed(path, name, b"1").expect_err("somebody else's file").to_string();
            assert!(
                refused.ends_with(": exists already and is not a file of gradscale; choose another place with --out")
            );
            assert_eq!(read(name), b"mine");
        }
        fs::write(path.join("empty"), "").expect("a file");
        for content in [b"1", b"2"] {
            write_listed(path, "empty", content).expect("a file that was empty");
        }
    }
}
