//! Hints about paths that are no data set: archives, folders around one, images without classes.

use super::{
    Cause, DataError, DataOptions, csv_rows,
    error::few,
    files::{self, ImageFolder, PartFolders, file_name, images_below},
    folders, images, listing,
};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// First bytes of archives and compressed files, with their names and what to do.
const ARCHIVES: [(&[u8], &str); 8] = [
    (b"PK\x03\x04", "a ZIP archive; unpack it"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "a gzip file; unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (b"Rar!", "a RAR archive; unpack it"),
    (b"\xfd7zXZ\x00", "an xz file; unpack it"),
    (b"BZh", "a bzip2 file; unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; unpack it"),
];
/// First bytes of files of other programs, with their names and what to do.
const FOREIGN_FILES: [(&[u8], &str); 5] = [
    (b"PAR1", "a Parquet file; save it as CSV"),
    (b"\x93NUMPY", "a NumPy array; save it as CSV"),
    (b"\x89HDF", "an HDF5 file; save images or tables as files"),
    (b"SQLite format 3", "an SQLite database; save it as CSV"),
    (b"\xd0\xcf\x11\xe0", "an Excel file; save it as CSV"),
];
/// Suffixes of archives in a directory.
const ARCHIVE_SUFFIXES: [&str; 10] =
    [".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar", ".gz"];
/// Offset of the mark of a tar archive, which stands behind the first file's name and attributes.
const TAR_MARK: usize = 257;
/// Number of folders inside each other that are searched for a data set.
const MAX_DEPTH: usize = 3;

/// Checks that a path is no archive, no file of another program and no pipe, which no task reads.
///
/// # Errors
/// Such a file, or one that cannot be read; the text says what to do.
pub fn check_file(path: &Path) -> Result<(), DataError> {
    if !path.is_file() {
        return if path.exists() && !path.is_dir() { Err(Cause::Irregular.at(path)) } else { Ok(()) };
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(|error| Cause::Io(error).at(path))?;
    file.take(TAR_MARK as u64 + 5).read_to_end(&mut start).map_err(|error| Cause::Io(error).at(path))?;
    let tar = start.get(TAR_MARK..).is_some_and(|mark| mark == b"ustar");
    let known = ARCHIVES.iter().chain(&FOREIGN_FILES).find(|(mark, _)| start.starts_with(mark)).map(|(_, name)| *name);
    let workbook = path.extension().is_some_and(|suffix| ["xlsx", "ods"].iter().any(|known| suffix == *known));
    let known = match known {
        Some(_) if workbook => Some("a spreadsheet; save it as CSV"),
        None if tar => Some("a tar archive; unpack it"),
        known => known,
    };
    known.map_or(Ok(()), |name| Err(Cause::Files(name.to_owned()).at(path)))
}

/// Returns true if data with one class each are rows of numbers and not images.
#[must_use]
pub fn is_table(path: &Path, reading: &DataOptions) -> bool {
    if path.is_file() {
        return true;
    }
    let images = || {
        let train = PartFolders::find(path).ok().and_then(|parts| parts.train);
        images_below(&train.unwrap_or_else(|| path.to_owned())) > 0
    };
    let found = listing(path).unwrap_or_default();
    !found.iter().any(|name| is_packed(name))
        && csv_rows::files(path).is_ok_and(|files| files.is_some())
        && (reading.label.is_some() || !images())
}

/// Returns true for a file with many images, as CIFAR and MNIST have them.
fn is_packed(name: &str) -> bool {
    name.starts_with("data_batch_") || name.starts_with("train-images-idx")
}

/// Returns the error about a directory that has none of the known layouts, with a hint about what it has.
pub(super) fn not_a_data_set(dir: &Path, expected: &'static str, found: Vec<String>) -> DataError {
    match hint(dir, &found) {
        Some(hint) => Cause::Files(format!("not a data set for this task: {hint}")).at(dir),
        None => Cause::Layout { expected, found }.at(dir),
    }
}

fn hint(dir: &Path, found: &[String]) -> Option<String> {
    let archive = |name: &&String| {
        ARCHIVE_SUFFIXES.iter().any(|suffix| name.to_lowercase().ends_with(suffix)) && !name.contains("-idx")
    };
    if let Some(archive) = found.iter().find(archive) {
        return Some(format!("{archive} is an archive; unpack it"));
    }
    if folders::is_sorted(dir) {
        return Some("has a folder of images for each class; use `Labelled`".to_owned());
    }
    if let Some(inner) = inside(dir, MAX_DEPTH) {
        return Some(format!("{} looks like one; read {}", file_name(&inner), inner.display()));
    }
    let content = ImageFolder::list(dir).ok()?;
    let (count, place) = match &content.folders[..] {
        _ if !content.images.is_empty() => (content.images.len(), String::new()),
        [one] => (images_below(one), format!(" in {}", file_name(one))),
        folders => {
            let with: Vec<String> =
                folders.iter().filter(|folder| images_below(folder) > 0).map(|folder| file_name(folder)).collect();
            let count = folders.iter().map(|folder| images_below(folder)).sum();
            (count, format!(" in {}", few(&with)))
        }
    };
    (count > 0).then(|| {
        format!(
            "{}{place} without classes; `Labelled` needs a folder for each class, or a table of file \
             names and classes, `Segmentation` the folders images and labels",
            files::images(count)
        )
    })
}

/// Finds the only folder below a directory that looks like a data set.
fn inside(dir: &Path, depth: usize) -> Option<PathBuf> {
    let folders = files::folders(dir).ok()?;
    let mut like = folders.iter().filter(|folder| looks_like_one(folder));
    match (like.next(), like.next()) {
        (Some(one), None) => Some(one.clone()),
        (Some(_), Some(_)) => None,
        (None, _) if depth > 0 => {
            let mut deeper = folders.iter().filter_map(|folder| inside(folder, depth - 1));
            let first = deeper.next()?;
            deeper.next().is_none().then_some(first)
        }
        (None, _) => None,
    }
}

fn looks_like_one(dir: &Path) -> bool {
    images::labelled(dir)
        || folders::is_sorted(dir)
        || listing(dir).is_ok_and(|found| found.iter().any(|name| is_packed(name)))
        || csv_rows::files(dir).is_ok_and(|files| files.is_some())
}
