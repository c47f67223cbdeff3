//! Files that are written as a whole, or not at all.

use std::{
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Maximum number of bytes that a temporary file's name takes from the name of its file. Names of 255 bytes are the
/// limit of most file systems, and the number and the ending need 23.
const MAX_NAME_BYTES: usize = 200;
/// Number of temporary names that are tried. Two writers choose the same 64 random bits never in practice.
const MAX_ATTEMPTS: usize = 8;

/// Writes a file as a whole, or not at all: to a temporary file beside it, which is synced and then renamed. If this
/// fails, or the machine stops in between, the path has its old content. A symbolic link stays, and its target is
/// replaced; permissions of the old file are kept.
///
/// A process that is killed may leave the temporary file, whose name begins with a dot and ends in `.part`.
///
/// ```
/// let path = std::env::temp_dir().join(format!("gradscale-doc-{}.bin", std::process::id()));
/// gradscale::write_file(&path, b"first")?;
/// gradscale::write_file(&path, b"second")?;
/// assert_eq!(std::fs::read(&path)?, b"second");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// A directory that does not exist or cannot be written, a full disk, a path that is a directory.
pub fn write_file(path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
    let path = path.as_ref();
    // Only an existing file has a canonical path. A link would be replaced by the new file.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    let (temporary, file) = create_temporary(&path)?;
    let written = write_and_rename(file, content, old.as_ref(), &temporary, &path);
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written
}

fn write_and_rename(
    mut file: File, content: &[u8], old: Option<&fs::Metadata>, temporary: &Path, path: &Path,
) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(old) = old {
        file.set_permissions(old.permissions())?;
    }
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)?;
    sync_directory(directory(path))
}

/// Creates a file of a new name in the directory of `path`.
fn create_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no file name"))?;
    let name = name.to_string_lossy();
    let kept = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_ATTEMPTS {
        let number = RandomState::new().hash_one(kept);
        let temporary = directory(path).join(format!(".{}.{number:016x}.part", &name[..kept]));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until a rename in this directory is on the disk.
#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Does nothing, because only Unix opens directories as files.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
