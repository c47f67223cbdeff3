//! Images with one class each, as MNIST has them.

use super::{
    Cause, DataError, DataOptions, Idx, Random, Sample, Sources, Store, Whole, files::VALIDATION, packed::find,
    store::each,
};
use std::{
    borrow::Cow,
    ops::Range,
    path::{Path, PathBuf},
};

/// Stored type of the values of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Byte from 0 to 255 per value.
    Byte,
    /// Value stored as an f32 in four bytes, little-endian.
    Number,
}

impl Element {
    /// Returns the size of a value in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Number => 4,
        }
    }
}

/// Size of stored images: all alike, or of any size to be cropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// All stored images have these rows and columns.
    Of([usize; 2]),
    /// Stored images differ in size, and are cropped.
    Any,
}

/// Images of one size with a label each; rows of numbers are images of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Number of images in the set.
    pub count: usize,
    /// Number of rows of each image to classify.
    pub height: usize,
    /// Number of columns of each image to classify.
    pub width: usize,
    /// Number of values of a pixel: 1 for grey, 3 for R G B.
    pub channels: usize,
    /// Stored type of the pixel values.
    pub element: Element,
    /// Values of all images, [count, height, width, channels].
    pub features: Store,
    /// Label of each image, less than `classes`.
    pub labels: Vec<u32>,
    /// Number of classes in training and test set: one more than the largest label.
    pub classes: usize,
    /// Source of each image, if `features` are in memory.
    pub sources: Sources,
    /// Images whose parts of `height` × `width` these are; none where they are as they are stored.
    pub crop: Option<Stored>,
}

impl Classification {
    /// Returns the number of bytes of an image.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.height * self.width * self.channels * self.element.size()
    }

    /// Returns the values of an image, [height, width, channels].
    ///
    /// # Errors
    /// An image on disk that can no longer be read.
    ///
    /// # Panics
    /// The index is beyond the last image.
    pub fn image(&self, index: usize) -> Result<Cow<'_, [u8]>, DataError> {
        match self.crop {
            None => self.features.get(index, self.bytes()),
            Some(stored) => Ok(self.whole(index, stored)?.middle(self.height).into()),
        }
    }

    /// Returns an augmented training image: mirrored, or a random crop if images are cropped. The sample's random word
    /// decides.
    ///
    /// # Errors
    /// See [`Classification::image`].
    ///
    /// # Panics
    /// The index is beyond the last image.
    pub fn shown(&self, sample: Sample) -> Result<Cow<'_, [u8]>, DataError> {
        if let Some(stored) = self.crop {
            let whole = self.whole(sample.index, stored)?;
            return Ok(whole.random_part(self.height, &mut Random::from_key(&[sample.word])).into());
        }
        let image = self.image(sample.index)?;
        // Only colour photographs are mirrored, because mirrored letters and digits are wrong.
        if !sample.flip() || self.channels != 3 {
            return Ok(image);
        }
        let rows = image.chunks_exact(self.width * self.channels);
        Ok(rows.flat_map(|row| row.rchunks_exact(self.channels).flatten().copied()).collect())
    }

    /// Describes the file of an image or row, with its place or line there, if that is known.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<String> {
        self.features.source(index).or_else(|| self.sources.get(index))
    }

    fn whole(&self, index: usize, stored: Stored) -> Result<Whole<'_>, DataError> {
        let channels = self.channels;
        match stored {
            Stored::Of(size) => {
                Ok(Whole { pixels: self.features.get(index, size[0] * size[1] * channels)?, size, channels })
            }
            Stored::Any => self.features.whole(index, channels),
        }
    }

    /// Sets the crop size to `side` × `side`.
    pub(super) fn cropped(&mut self, side: usize) {
        self.crop = Some(self.crop.unwrap_or(Stored::Of([self.height, self.width])));
        (self.height, self.width) = (side, side);
    }

    /// Returns the number of bytes of an image as it is stored, before a crop.
    fn stored(&self) -> usize {
        match self.crop {
            Some(Stored::Of([height, width])) => height * width * self.channels * self.element.size(),
            Some(Stored::Any) | None => self.bytes(),
        }
    }

    /// Returns several images for training, in this order; those that take work are computed by all cores.
    #[must_use]
    pub fn batch(&self, samples: &[Sample]) -> Vec<Result<Cow<'_, [u8]>, DataError>> {
        match &self.features {
            Store::Memory(_) if self.crop.is_none() => samples.iter().map(|sample| self.shown(*sample)).collect(),
            Store::Memory(_) | Store::Part { .. } | Store::Files { .. } => {
                each(samples.len(), |i| self.shown(samples[i]))
            }
        }
    }

    /// Returns the values of several consecutive images.
    ///
    /// # Errors
    /// See [`Classification::image`].
    pub fn range(&self, images: Range<usize>) -> Result<Cow<'_, [u8]>, DataError> {
        if self.crop.is_none() {
            return self.features.range(images, self.bytes());
        }
        let mut all = Vec::with_capacity(images.len() * self.bytes());
        for image in each(images.len(), |i| self.image(images.start + i)) {
            all.extend_from_slice(&image?);
        }
        Ok(all.into())
    }

    /// Splits off every tenth image of each class. `None` if no class has ten.
    pub(super) fn hold_out(&self) -> Option<[Self; 2]> {
        let (mut seen, mut kept, mut held) = (vec![0_usize; self.classes], Vec::new(), Vec::new());
        for (image, label) in self.labels.iter().enumerate() {
            let seen = &mut seen[*label as usize];
            *seen += 1;
            if seen.is_multiple_of(10) { held.push(image) } else { kept.push(image) }
        }
        let part = |which: &[usize]| Self {
            count: which.len(),
            features: self.features.pick(which, self.stored()),
            labels: which.iter().map(|&image| self.labels[image]).collect(),
            sources: self.sources.pick(which),
            ..*self
        };
        (!held.is_empty()).then(|| [part(&kept), part(&held)])
    }

    /// Sums over all values, by which a network sees about zero mean and unit spread.
    ///
    /// # Errors
    /// Images on disk that cannot be read.
    pub(super) fn spread(&self) -> Result<Moments, DataError> {
        let mut all = Moments::default();
        for index in 0..self.count {
            all.add(Moments::measure(&self.image(index)?));
        }
        Ok(all)
    }

    /// Reads training and test images from a directory with `train-images-idx3-ubyte` of [n, h, w] or
    /// `train-images-idx4-ubyte` of [n, h, w, c], `train-labels-idx1-ubyte` of \[n\], and the same with `t10k` or
    /// `test` for `train`; each plain or with `.gz`.
    ///
    /// # Errors
    /// Files that are missing, cut off, corrupt or of other sizes; different sizes in training and test; no images.
    pub fn load_idx(dir: impl AsRef<Path>, reading: &DataOptions) -> Result<(Self, Self), DataError> {
        let dir = dir.as_ref();
        let mut train = Self::part(dir, "train", reading)?;
        let prefix = test_prefix(dir);
        let mut test = Self::part(dir, prefix, reading)?;
        let [expected, found] = [&train, &test].map(|part| [part.height, part.width, part.channels]);
        if expected != found {
            let expected = format!("{} × {} × {} as in the training set", expected[0], expected[1], expected[2]);
            return Err(Cause::Shape { expected, found: found.into() }.at(images(dir, prefix)?));
        }
        let classes = train.classes.max(test.classes);
        (train.classes, test.classes) = (classes, classes);
        Ok((train, test))
    }

    /// Loads the images that are called `val`, if these are there and others for the test set.
    pub(super) fn validation_idx(dir: &Path, reading: &DataOptions) -> Result<Option<Self>, DataError> {
        let there = |prefix: &str| find(dir, &format!("{prefix}-labels-idx1-ubyte")).is_ok();
        VALIDATION.into_iter().find(|prefix| there(prefix)).map(|prefix| Self::part(dir, prefix, reading)).transpose()
    }

    fn part(dir: &Path, prefix: &str, reading: &DataOptions) -> Result<Self, DataError> {
        let images_path = images(dir, prefix)?;
        let labels_path = labels(dir, prefix)?;
        let (dims, features) = Idx::open(&images_path, |count, bytes| reading.keeps(count, bytes))?;
        let (count, height, width, channels) = match dims[..] {
            [count, height, width] => (count, height, width, 1),
            [count, height, width, channels] => (count, height, width, channels),
            _ => {
                let expected = "images × rows × columns, or × channels".into();
                return Err(Cause::Shape { expected, found: dims }.at(images_path));
            }
        };
        if dims.contains(&0) {
            return Err(Cause::Empty.at(images_path));
        }
        let labels = Idx::read(&labels_path)?;
        if labels.dims != [count] {
            let expected = format!("{count}, one for each image");
            return Err(Cause::Shape { expected, found: labels.dims }.at(labels_path));
        }
        let classes = labels.data.iter().max().map_or(0, |&most| usize::from(most) + 1);
        let element = Element::Byte;
        let labels = labels.data.into_iter().map(u32::from).collect();
        let (crop, sources) = (None, Sources::Unnamed);
        Ok(Self { count, height, width, channels, element, features, labels, classes, sources, crop })
    }
}

/// Returns the name prefix of test files: `t10k` or `test`.
pub(super) fn test_prefix(dir: &Path) -> &'static str {
    if labels(dir, "t10k").is_err() && labels(dir, "test").is_ok() { "test" } else { "t10k" }
}

/// Finds the file of labels for a set of images in a directory.
pub(super) fn labels(dir: &Path, prefix: &str) -> Result<PathBuf, DataError> {
    find(dir, &format!("{prefix}-labels-idx1-ubyte"))
}

/// Finds the file of images. If there is none, the message is about the usual one.
fn images(dir: &Path, prefix: &str) -> Result<PathBuf, DataError> {
    let rank_3 = find(dir, &format!("{prefix}-images-idx3-ubyte"));
    rank_3.or_else(|error| find(dir, &format!("{prefix}-images-idx4-ubyte")).map_err(|_| error))
}

/// Sums of values, and of their squares, for mean and standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments {
    count: u64,
    sum: u64,
    squares: u64,
}

impl Moments {
    pub fn measure(values: &[u8]) -> Self {
        let [sum, squares] = values.iter().fold([0u64; 2], |[sum, squares], &value| {
            [sum + u64::from(value), squares + u64::from(value) * u64::from(value)]
        });
        Self { count: values.len() as u64, sum, squares }
    }

    pub fn add(&mut self, more: Self) {
        self.count += more.count;
        self.sum += more.sum;
        self.squares += more.squares;
    }

    /// Returns mean and deviation per channel. The deviation of constant values is 1.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    pub fn mean_and_deviation(self) -> [f32; 2] {
        let count = self.count.max(1) as f64;
        let mean = self.sum as f64 / count;
        let deviation = (self.squares as f64 / count - mean * mean).max(1.0).sqrt();
        [mean as f32, deviation as f32]
    }
}
