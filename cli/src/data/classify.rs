//! Images with one class each, as MNIST has them.

use super::{Cause, DataError, Idx, packed::find};
use std::path::{Path, PathBuf};

/// Images of one size with a label each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Images.
    pub count: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Values of a pixel: 1 for grey, 3 for R G B.
    pub channels: usize,
    /// [count, height, width, channels], 0…255.
    pub features: Vec<u8>,
    /// One for each image, each less than `classes`.
    pub labels: Vec<u8>,
    /// Classes of training and test together: one more than the largest label.
    pub classes: usize,
}

impl Classification {
    /// One image, [height, width, channels].
    ///
    /// # Panics
    /// There are not so many.
    #[must_use]
    pub fn image(&self, index: usize) -> &[u8] {
        let size = self.height * self.width * self.channels;
        &self.features[index * size..(index + 1) * size]
    }

    /// Reads training and test images from a directory with `train-images-idx3-ubyte` of [n, h, w] or
    /// `train-images-idx4-ubyte` of [n, h, w, c], `train-labels-idx1-ubyte` of \[n\], and the same with `t10k` or `test`
    /// for `train`; each plain or with `.gz`.
    ///
    /// # Errors
    /// Files that are missing, cut off, corrupt or of other sizes; different sizes in training and test; no images.
    pub fn load_idx(dir: impl AsRef<Path>) -> Result<(Self, Self), DataError> {
        let dir = dir.as_ref();
        let there = |prefix: &str| find(dir, &format!("{prefix}-labels-idx1-ubyte")).is_ok();
        let mut train = Self::part(dir, "train")?;
        let prefix = if !there("t10k") && there("test") { "test" } else { "t10k" };
        let mut test = Self::part(dir, prefix)?;
        let [expected, found] = [&train, &test].map(|part| [part.height, part.width, part.channels]);
        if expected != found {
            let expected = format!("{} × {} × {} as for training", expected[0], expected[1], expected[2]);
            return Err(Cause::Shape { expected, found: found.into() }.at(images(dir, prefix)?));
        }
        let classes = train.classes.max(test.classes);
        (train.classes, test.classes) = (classes, classes);
        Ok((train, test))
    }

    fn part(dir: &Path, prefix: &str) -> Result<Self, DataError> {
        let images_path = images(dir, prefix)?;
        let labels_path = find(dir, &format!("{prefix}-labels-idx1-ubyte"))?;
        let images = Idx::read(&images_path)?;
        let (count, height, width, channels) = match images.dims[..] {
            [count, height, width] => (count, height, width, 1),
            [count, height, width, channels] => (count, height, width, channels),
            _ => {
                let expected = "images × rows × columns, or × channels".into();
                return Err(Cause::Shape { expected, found: images.dims }.at(images_path));
            }
        };
        if images.data.is_empty() {
            return Err(Cause::Empty.at(images_path));
        }
        let labels = Idx::read(&labels_path)?;
        if labels.dims != [count] {
            let expected = format!("{count}, one for each image");
            return Err(Cause::Shape { expected, found: labels.dims }.at(labels_path));
        }
        let classes = labels.data.iter().max().map_or(0, |&most| usize::from(most) + 1);
        Ok(Self { count, height, width, channels, features: images.data, labels: labels.data, classes })
    }
}

/// The file of images. If there is none, the message is about the usual one.
fn images(dir: &Path, prefix: &str) -> Result<PathBuf, DataError> {
    let rank_3 = find(dir, &format!("{prefix}-images-idx3-ubyte"));
    rank_3.or_else(|error| find(dir, &format!("{prefix}-images-idx4-ubyte")).map_err(|_| error))
}
