//! Images with labels, and where each came from.

use super::{Cause, DataError, classes::Classes};
use std::path::{Path, PathBuf};

/// Images of one size with their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Images.
    pub count: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// [count, height, width, 3], R G B in 0…255.
    pub images: Vec<u8>,
    /// [count, height, width], class ids.
    pub labels: Vec<u8>,
}

impl Split {
    /// Pixels of an image.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// That the vectors are as long as the numbers say, and not empty.
    pub(super) fn consistent(&self) -> Result<(), Cause> {
        let labels = self.count.checked_mul(self.height).and_then(|rows| rows.checked_mul(self.width));
        let images = labels.and_then(|labels| labels.checked_mul(3));
        if self.labels.is_empty() {
            Err(Cause::Empty)
        } else if labels != Some(self.labels.len()) || images != Some(self.images.len()) {
            let Self { count, height, width, .. } = *self;
            Err(Cause::Inconsistent { count, height, width, images: self.images.len(), labels: self.labels.len() })
        } else {
            Ok(())
        }
    }
}

/// A split, and the file or files that its labels came from: one for all, or one for each image.
pub(super) struct Loaded {
    pub(super) split: Split,
    pub(super) labels_from: Vec<PathBuf>,
}

impl Loaded {
    /// The file of an image's labels, and the image's number if several are in that file.
    pub(super) fn labelled_by(&self, image: usize) -> (&Path, Option<usize>) {
        match &self.labels_from[..] {
            [one] if self.split.count > 1 => (one, Some(image)),
            each => (each.get(image).map_or(Path::new(""), |path| path), None),
        }
    }

    /// That every label is a class or the ignored one.
    pub(super) fn check(&self, classes: &Classes) -> Result<(), DataError> {
        let mut allowed = [false; 256];
        allowed[..classes.names.len()].fill(true);
        if let Some(ignore) = classes.ignore {
            allowed[usize::from(ignore)] = true;
        }
        let Some(at) = self.split.labels.iter().position(|&label| !allowed[usize::from(label)]) else {
            return Ok(());
        };
        let (pixels, width) = (self.split.pixels().max(1), self.split.width.max(1));
        let (path, image) = self.labelled_by(at / pixels);
        let (row, column) = (at % pixels / width, at % width);
        let value = self.split.labels[at];
        Err(Cause::Label { value, classes: classes.names.len(), ignore: classes.ignore, image, row, column }.at(path))
    }
}
