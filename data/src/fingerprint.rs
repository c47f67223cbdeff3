//! Names and sizes of the files of a data set, by which a resumed training recognises its data.

use super::{Cause, DataError};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Number of the files that a data set was read from, with a checksum of their names and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of files that the data set was read from.
    pub files: usize,
    /// CRC-32C of the names without the directory, and of the sizes, in the order of use.
    pub checksum: u32,
}

impl Fingerprint {
    /// Describes how the files of a data set have changed; `None` if they are the same.
    #[must_use]
    pub fn describe_change(&self, found: &Self) -> Option<String> {
        (self != found).then(|| {
            if self.files == found.files {
                format!("names, order or sizes of its {} files", found.files)
            } else {
                format!("{} files then, {} now", self.files, found.files)
            }
        })
    }

    /// Measures files of a data set. `dir` is the path of the data set, which may have moved before a resume.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn measure<'a>(dir: &Path, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, DataError> {
        let mut all = Self::default();
        for path in paths {
            let bytes = fs::metadata(path).map_err(|error| Cause::Io(error).at(path))?.len();
            all.files += 1;
            all.append_name(path.strip_prefix(dir).unwrap_or(path));
            all.checksum = crc32c::crc32c_append(all.checksum, &bytes.to_le_bytes());
        }
        Ok(all)
    }

    /// Adds a name to the checksum. Its parts are separated by slashes, so that Windows and Unix agree.
    fn append_name(&mut self, name: &Path) {
        for (at, part) in name.components().enumerate() {
            let slash: &[u8] = if at == 0 { b"" } else { b"/" };
            for bytes in [slash, part.as_os_str().as_encoded_bytes()] {
                self.checksum = crc32c::crc32c_append(self.checksum, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_do_not_matter() {
        let checksum = |name: &Path| {
            let mut all = Fingerprint::default();
            all.append_name(name);
            all.checksum
        };
        // The platform's separator, as a directory listing joins names.
        let joined = Path::new("train").join("cats").join("0.png");
        assert_eq!(checksum(&joined), crc32c::crc32c(b"train/cats/0.png"));
        assert_eq!(checksum(Path::new("train//cats/0.png")), checksum(&joined));
        assert_ne!(checksum(Path::new("train/cats0.png")), checksum(&joined));
    }
}
