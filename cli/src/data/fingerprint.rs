//! Names and sizes of the files of a data set, by which a resumed training recognises its data.

use super::{Cause, DataError, files::visible};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files by which a folder with the results of a training or a comparison is recognised.
const RESULTS: [&str; 2] = ["log.jsonl", "results.json"];
/// Depth of the folders that data are in: of PASCAL VOC `VOC2012/ImageSets/Main`.
const MAX_DEPTH: usize = 4;

/// Number of the files that a data set was read from, with a checksum of their names and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of files that the data set was read from.
    pub files: usize,
    /// CRC-32C of the names without the directory, and of the sizes, in the order of use.
    pub checksum: u32,
}

impl Fingerprint {
    /// Measures files of a data set. `dir` is the path of the data set, which may have moved before a resume.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn measure<'a>(dir: &Path, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, DataError> {
        let mut all = Self::default();
        for path in paths {
            let bytes = fs::metadata(path).map_err(|error| Cause::Io(error).at(path))?.len();
            let name = path.strip_prefix(dir).unwrap_or(path);
            all.files += 1;
            all.checksum = crc32c::crc32c_append(all.checksum, name.as_os_str().as_encoded_bytes());
            all.checksum = crc32c::crc32c_append(all.checksum, &bytes.to_le_bytes());
        }
        Ok(all)
    }

    /// Measures the files of a path that belong to the data, as `belongs` recognises them. Folders with the results of
    /// this program do not.
    ///
    /// # Errors
    /// A folder or a file that cannot be read.
    pub fn measure_path(path: &Path, belongs: impl Fn(&Path) -> bool) -> Result<Self, DataError> {
        if path.is_file() {
            return Self::measure(path.parent().unwrap_or(path), [&path.to_owned()]);
        }
        let (mut files, mut folders) = (Vec::new(), vec![(path.to_owned(), 0)]);
        while let Some((folder, depth)) = folders.pop() {
            for entry in visible(&folder)? {
                let results = || RESULTS.iter().any(|name| entry.join(name).exists());
                if entry.is_file() && belongs(&entry) {
                    files.push(entry);
                } else if entry.is_dir() && depth < MAX_DEPTH && !results() {
                    folders.push((entry, depth + 1));
                }
            }
        }
        files.sort();
        Self::measure(path, &files)
    }
}
