//! Image files in folders, and the treatment of files that cannot be read.

use super::{Cause, DataError, DataOptions};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Suffixes of the image files that can be read.
const SUPPORTED_SUFFIXES: [&str; 3] = ["png", "jpg", "jpeg"];
/// Suffixes of image formats that are not read. Messages name files that have one.
const UNSUPPORTED_SUFFIXES: [&str; 8] = ["tif", "tiff", "bmp", "gif", "webp", "avif", "heic", "jp2"];

/// Folder names that are recognised as the test set.
pub(super) const TEST: [&str; 4] = ["test", "val", "valid", "validation"];

/// Folder names of the validation set, if there is a `test` as well.
pub(super) const VALIDATION: [&str; 3] = ["val", "valid", "validation"];

/// Returns the name of the test set, and that of the validation set if it is another.
pub(super) fn parts(there: impl Fn(&str) -> bool) -> [Option<&'static str>; 2] {
    let test = TEST.into_iter().find(|name| there(name));
    [test, VALIDATION.into_iter().find(|name| test == Some(TEST[0]) && there(name))]
}

/// Collector of errors of files and lines that cannot be read.
#[derive(Debug)]
pub(super) struct Broken<'a> {
    reading: &'a DataOptions,
    left_out: Vec<DataError>,
}

impl<'a> Broken<'a> {
    pub fn new(reading: &'a DataOptions) -> Self {
        Self { reading, left_out: Vec::new() }
    }

    /// Returns the items that could be read.
    ///
    /// # Errors
    /// There are others, and they are not to be left out: the first of them, with the number of all.
    pub fn keep<T>(&mut self, found: impl IntoIterator<Item = Result<T, DataError>>) -> Result<Vec<T>, DataError> {
        let (mut whole, mut broken) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Ok(one) => whole.push(one),
                Err(error) => broken.push(error),
            }
        }
        if !self.reading.skip_broken && !broken.is_empty() {
            let more = broken.len() - 1;
            let first = broken.swap_remove(0);
            return Err(if more == 0 { first } else { first.and(more) });
        }
        self.left_out.append(&mut broken);
        Ok(whole)
    }

    /// Returns a line for each skipped file.
    pub fn lines(self) -> Vec<String> {
        self.left_out.iter().map(|error| format!("skipped: {error}")).collect()
    }
}

/// Lists the images of a folder by name, each with an error if it cannot be used.
pub(super) fn images(folder: &Path) -> Result<Vec<Result<PathBuf, DataError>>, DataError> {
    let one = |path: PathBuf| {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match extension.as_str() {
            known if SUPPORTED_SUFFIXES.contains(&known) => Some(Ok(path)),
            other if UNSUPPORTED_SUFFIXES.contains(&other) => Some(Err(Cause::Format.at(path))),
            _ => None,
        }
    };
    Ok(visible(folder)?.into_iter().filter_map(one).collect())
}

/// Lists the files and folders in a folder, sorted, without hidden ones.
pub(super) fn visible(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(|error: io::Error| Cause::Io(error).at(folder))?;
    paths.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    paths.sort();
    Ok(paths)
}

/// Splits data without a test set: every fifth item is for evaluation.
pub(super) fn fifths<T>(all: Vec<T>) -> [Vec<T>; 2] {
    let mut parts = [Vec::new(), Vec::new()];
    for (i, one) in all.into_iter().enumerate() {
        parts[usize::from(i % 5 == 4)].push(one);
    }
    parts
}

/// Splits off every tenth item for validation. `None` for fewer than ten items.
pub(super) fn hold_out<T: Clone>(all: &[T]) -> Option<[Vec<T>; 2]> {
    let of = |held: bool| -> Vec<T> {
        let numbered = all.iter().enumerate();
        numbered.filter(|(i, _)| (i % 10 == 9) == held).map(|(_, one)| one.clone()).collect()
    };
    let parts = [of(false), of(true)];
    (!parts[1].is_empty()).then_some(parts)
}
