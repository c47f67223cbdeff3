//! Split of a segmentation data set, with the source of each image.

use super::{Cause, DataError, Sources, Store, classes::Classes, decode, store, tally::Tally};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Split of a data set: images of one size with the class ids of their pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Number of images in the split.
    pub count: usize,
    /// Number of rows of each image to segment.
    pub height: usize,
    /// Number of columns of each image to segment.
    pub width: usize,
    /// Values of all pixels, [count, height, width, 3], R G B in 0…255.
    pub images: Store,
    /// Class ids of all pixels, [count, height, width].
    pub labels: Store,
    /// Source of each image, if `images` are in memory.
    pub sources: Sources,
}

impl Split {
    /// Returns the number of pixels of an image.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// Describes the file of an image, with its place there, if that is known.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<String> {
        self.images.source(index).or_else(|| self.sources.get(index))
    }

    /// Splits off every tenth image; returns `None` for fewer than ten.
    pub(super) fn hold_out(&self) -> Option<[Self; 2]> {
        let part = |which: Vec<usize>| Self {
            count: which.len(),
            images: self.images.pick(&which, 3 * self.pixels()),
            labels: self.labels.pick(&which, self.pixels()),
            sources: self.sources.pick(&which),
            ..*self
        };
        let (held, kept) = (0..self.count).partition(|image| image % 10 == 9);
        let held: Vec<usize> = held;
        (!held.is_empty()).then(|| [part(kept), part(held)])
    }

    /// Checks that the lengths fit the sizes and that the split is not empty.
    pub(super) fn consistent(&self) -> Result<(), Cause> {
        let labels = self.count.checked_mul(self.height).and_then(|rows| rows.checked_mul(self.width));
        let images = labels.and_then(|labels| labels.checked_mul(3));
        let fits = |store: &Store, expected| match store {
            Store::Memory(bytes) => expected == Some(bytes.len()),
            // Those were measured when they were found.
            Store::Part { .. } | Store::Files { .. } => true,
        };
        if labels.is_none_or(|labels| labels == 0) && self.labels.memory().is_empty() {
            Err(Cause::Empty)
        } else if !fits(&self.labels, labels) || !fits(&self.images, images) {
            let Self { count, height, width, .. } = *self;
            let [images, labels] = [&self.images, &self.labels].map(|store| store.memory().len());
            Err(Cause::Inconsistent { count, height, width, images, labels })
        } else {
            Ok(())
        }
    }
}

/// Split whose labels are values as they are in files, and the files of these.
pub(super) struct Loaded {
    pub(super) split: Split,
    /// Paths of the files of the labels: one for all, or one for each image.
    pub(super) labels_from: Vec<PathBuf>,
    /// Paths of all files of the split, the first image first.
    pub(super) files: Vec<PathBuf>,
    /// Counts of all label values in the split.
    pub(super) tally: Tally,
    /// True if the labels are kept in memory.
    pub(super) keep: bool,
}

impl Loaded {
    /// Returns the file of an image's labels, and the image's number if several are in that file.
    pub(super) fn labelled_by(&self, image: usize) -> (&Path, Option<usize>) {
        match &self.labels_from[..] {
            [one] if self.split.count > 1 => (one, Some(image)),
            each => (each.get(image).map_or(Path::new(""), |path| path), None),
        }
    }

    /// Checks that every label is a class or the ignored value.
    fn check(&self, classes: &Classes) -> Result<(), DataError> {
        let Some((&value, count)) = self.tally.0.iter().find(|(value, _)| !classes.values.0.contains_key(value)) else {
            return Ok(());
        };
        let (path, image) = self.labelled_by(count.first);
        let (pixels, width) = (self.split.pixels(), self.split.width.max(1));
        let at = match &self.split.labels {
            Store::Files { form, .. } => {
                let labels = decode::labels(&store::read(path)?, *form).map_err(|cause| cause.at(path))?;
                labels.iter().position(|label| *label == value)
            }
            bytes => bytes.get(count.first, pixels)?.iter().position(|label| u32::from(*label) == value),
        };
        let at = at.unwrap_or(0);
        Err(classes.values.unknown(value, image, [at / width, at % width]).at(path))
    }

    /// Converts labels to class ids; returns the split and the count of each id.
    pub(super) fn finish(mut self, classes: &Classes) -> Result<(Split, Tally), DataError> {
        self.check(classes)?;
        let pixels = self.split.pixels();
        match &mut self.split.labels {
            Store::Memory(bytes) => {
                if let Some(table) = classes.values.table() {
                    bytes.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
                }
            }
            Store::Part { values, .. } | Store::Files { values, .. } => {
                *values = Some(Arc::new(classes.values.clone()))
            }
        }
        if self.keep {
            let labels = self.split.labels.range(0..self.split.count, pixels)?.into_owned();
            self.split.labels = labels.into();
        }
        let id = |value: &u32| classes.values.0.get(value).map(|id| u32::from(*id));
        let tally = self.tally.0.iter().filter_map(|(value, count)| Some((id(value)?, *count))).collect();
        Ok((self.split, Tally(tally)))
    }
}
