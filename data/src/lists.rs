//! Lists of names: text files with a line for each image or recording of a part.

use super::{Cause, DataError, encoding, files::SUPPORTED_SUFFIXES};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

/// Suffix that a recording's name in a list may have.
const RECORDING_SUFFIX: &str = "wav";

/// Names that a list file has, each with its line.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub path: PathBuf,
    /// Number of each line, from 1, with its text.
    lines: Vec<(usize, String)>,
}

/// File that a list names, with its line.
#[derive(Clone, Debug)]
pub(super) struct Listed<T> {
    pub line: usize,
    /// Text of the line.
    pub text: String,
    /// File that the line names; `None` if there is no such file.
    pub file: Option<T>,
}

/// Reads a small text file, if there is one; see [`encoding::read_text`].
///
/// # Errors
/// An entry that is no file or cannot be read, or text in another encoding.
pub(super) fn read_if_present(path: &Path) -> Result<Option<String>, DataError> {
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Cause::Io(error).at(path)),
    };
    if !about.is_file() {
        return Err(
            if about.is_dir() { Cause::Files("a folder, expected a file".into()) } else { Cause::Irregular }.at(path)
        );
    }
    encoding::read_text(path).map(Some)
}

/// Reads the names of classes, one a line, if there is such a file.
///
/// # Errors
/// See [`read_if_present`].
pub(super) fn class_names(path: &Path) -> Result<Option<Vec<String>>, DataError> {
    Ok(List::read(path)?.map(|list| list.names()))
}

impl List {
    /// Reads a list, if there is such a file. Empty lines do not count.
    ///
    /// # Errors
    /// See [`read_if_present`].
    pub fn read(path: &Path) -> Result<Option<Self>, DataError> {
        let Some(text) = read_if_present(path)? else { return Ok(None) };
        let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim().to_owned()));
        Ok(Some(Self { path: path.to_owned(), lines: lines.filter(|(_, line)| !line.is_empty()).collect() }))
    }

    /// Returns true if the list names nothing.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the text of each line.
    pub fn names(&self) -> Vec<String> {
        self.lines.iter().map(|(_, text)| text.clone()).collect()
    }

    /// Checks that all lines differ.
    ///
    /// # Errors
    /// The first line that occurs before.
    pub fn check_unique(&self) -> Result<(), DataError> {
        let mut seen = BTreeSet::new();
        let twice = self.lines.iter().find(|(_, text)| !seen.insert(text));
        twice.map_or(Ok(()), |(line, text)| {
            Err(Cause::Table { line: *line, reason: format!("{text} is listed twice") }.at(&self.path))
        })
    }

    /// Finds the file of each line among files by their names without suffix. See [`find`].
    ///
    /// # Errors
    /// A file that is listed twice.
    pub fn files<T: Clone>(&self, known: &BTreeMap<OsString, T>) -> Result<Vec<Listed<(OsString, T)>>, DataError> {
        let mut seen = BTreeSet::new();
        let mut files = Vec::new();
        for (line, text) in &self.lines {
            let file = find(text, known).map(|(stem, file)| (stem.to_owned(), file.clone()));
            if let Some((stem, _)) = &file
                && !seen.insert(stem.clone())
            {
                return Err(Cause::Table { line: *line, reason: format!("{text} is listed twice") }.at(&self.path));
            }
            files.push(Listed { line: *line, text: text.clone(), file });
        }
        Ok(files)
    }

    /// Checks that two parts have no file in common.
    ///
    /// # Errors
    /// The first line of this list whose file is in the other list.
    pub fn check_apart<T: Clone>(&self, other: &Self, known: &BTreeMap<OsString, T>) -> Result<(), DataError> {
        let theirs: BTreeSet<OsString> = other.files(known)?.into_iter().filter_map(|one| Some(one.file?.0)).collect();
        let own = self.files(known)?;
        let both = |one: &&Listed<(OsString, T)>| one.file.as_ref().is_some_and(|(stem, _)| theirs.contains(stem));
        let mut both = own.iter().filter(both);
        let Some(first) = both.next() else { return Ok(()) };
        let other = other.path.file_name().unwrap_or_default().to_string_lossy();
        let more = match both.count() {
            0 => String::new(),
            more => format!(", as {more} more"),
        };
        let reason = format!("{} is in {other} too{more}; remove it from one", first.text);
        Err(Cause::Table { line: first.line, reason }.at(&self.path))
    }
}

/// Finds the file that a line of a list names: with or without a folder before it, a suffix, or columns after it.
pub(super) fn find<'a, T>(line: &str, known: &'a BTreeMap<OsString, T>) -> Option<(&'a OsStr, &'a T)> {
    let first = line.split_whitespace().next().unwrap_or(line);
    [line, first].into_iter().find_map(|name| {
        let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
        [name, last].into_iter().find_map(|name| {
            let found = |name: &str| known.get_key_value(OsStr::new(name));
            found(name).or_else(|| found(without_suffix(name)?)).map(|(stem, file)| (stem.as_os_str(), file))
        })
    })
}

/// Returns a name without the suffix of an image or a recording; `None` if it has none.
fn without_suffix(name: &str) -> Option<&str> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let suffix = suffix.to_lowercase();
    (SUPPORTED_SUFFIXES.contains(&suffix.as_str()) || suffix == RECORDING_SUFFIX).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_list_them() {
        let known: BTreeMap<OsString, u8> =
            [("im1", 1), ("a.b", 2), ("two words", 3)].map(|(stem, number)| (stem.into(), number)).into();
        for (line, number) in [
            ("im1", Some(1)),
            ("im1.png", Some(1)),
            ("im1.JPG", Some(1)),
            ("im1.wav", Some(1)),
            ("images/train/im1.png", Some(1)),
            (r"images\im1.png", Some(1)),
            ("/data/train/im1.png /data/trainannot/im1.png", Some(1)),
            ("im1 -1", Some(1)),
            ("a.b", Some(2)),
            ("a.b.jpeg", Some(2)),
            ("two words", Some(3)),
            ("two words.png", Some(3)),
            ("a", None),
            ("im1.txt", None),
            ("", None),
        ] {
            assert_eq!(find(line, &known).map(|(_, number)| *number), number, "{line}");
        }
    }
}
