//! Images with one class each, for training and for scores, with the names of the classes.

use super::{Cause, Classification, DataError, LABELLED, digits, listing, name};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A data set of small images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// What to call it: the last part of the directory's path.
    pub name: String,
    /// The name of each class; class ids are positions here.
    pub classes: Vec<String>,
    /// For training.
    pub train: Classification,
    /// For scores.
    pub test: Classification,
}

/// Files with the names of classes, one a line. (CIFAR brings the first.)
const NAMES: [&str; 2] = ["batches.meta.txt", "classes.txt"];

impl Labelled {
    /// Reads a directory with the files of MNIST ([`Classification::load_idx`]) or CIFAR
    /// ([`Classification::load_cifar`]), recognised by what is in it. Names of classes stand in `batches.meta.txt` or
    /// `classes.txt`, one a line; without such a file they are numbers.
    ///
    /// # Errors
    /// A directory with neither; files that are missing, cut off or corrupt; fewer names than classes.
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, DataError> {
        let dir = dir.as_ref();
        let found = listing(dir)?;
        let (mut train, mut test) = if found.iter().any(|name| name.starts_with("data_batch_")) {
            Classification::load_cifar(dir)?
        } else if found.iter().any(|name| name.starts_with("train-images-idx")) {
            Classification::load_idx(dir)?
        } else {
            return Err(Cause::Layout { expected: LABELLED, found }.at(dir));
        };
        let classes = match names(dir)? {
            Some((path, names)) if names.len() < train.classes => {
                let reason = format!("{} names for {} classes", names.len(), train.classes);
                return Err(Cause::Table { line: names.len(), reason }.at(path));
            }
            Some((_, names)) => names,
            None => (0..train.classes).map(|class| class.to_string()).collect(),
        };
        (train.classes, test.classes) = (classes.len(), classes.len());
        Ok(Self { name: name(dir), classes, train, test })
    }

    /// Made-up digits: 2000 training and 500 test images of 28 × 28 in grey, ten classes.
    ///
    /// The same seed gives the same bytes, on every machine.
    #[must_use]
    pub fn synthetic(seed: u64) -> Self {
        digits::labelled(seed)
    }
}

fn names(dir: &Path) -> Result<Option<(PathBuf, Vec<String>)>, DataError> {
    for path in NAMES.map(|name| dir.join(name)) {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let names = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(256);
                return Ok(Some((path, names.map(str::to_owned).collect())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Cause::Io(error).at(path)),
        }
    }
    Ok(None)
}
