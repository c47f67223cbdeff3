//! Data sets: read from disk or made up, and handed out in batches.
//!
//! Everything is bytes in host memory, as it was stored: images 0…255, labels class ids. Turning them into what a
//! network wants (scaling, one image of a batch after another, half precision) is the trainer's work.

mod batches;
mod cifar;
mod classes;
mod classify;
mod decode;
mod digits;
mod error;
mod idx;
mod images;
mod labelled;
mod order;
mod packed;
mod random;
mod scene;
mod split;
mod synthetic;
mod weights;

pub use batches::{Batches, InOrder, in_order};
pub use classes::Classes;
pub use classify::Classification;
pub use error::{Cause, DataError};
pub use idx::Idx;
pub use labelled::Labelled;
pub use order::{Order, Sample};
pub use split::Split;
pub use weights::median_frequency;

use std::{fs, path::Path};

/// Images with a class for every pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// What to call it: the last part of the directory's path.
    pub name: String,
    /// The name of each class; class ids are positions here.
    pub classes: Vec<String>,
    /// A colour for each class, R G B.
    pub colours: Vec<[u8; 3]>,
    /// The label of pixels that count for nothing. It may be a position in `classes`, which then stands for no class.
    pub ignore: Option<u8>,
    /// For training.
    pub train: Split,
    /// For scores.
    pub test: Split,
}

/// What a directory must contain, for messages.
const LAYOUTS: &str = "train-images-idx4-ubyte[.gz] with train-labels-idx3-ubyte[.gz] and the same for test, \
                       or images/{train,test}/*.jpg|png with labels/{train,test}/*.png";

/// The same for images with one class each.
const LABELLED: &str = "train-images-idx3-ubyte[.gz] with train-labels-idx1-ubyte[.gz] and the same for t10k or test, \
                        or data_batch_1.bin … and test_batch.bin";

impl Segmentation {
    /// Reads a directory in one of two layouts, recognised by what is in it:
    ///
    /// - IDX files `train-images-idx4-ubyte[.gz]` of [n, h, w, 3] and `train-labels-idx3-ubyte[.gz]` of [n, h, w],
    ///   and the same for `test`;
    /// - image files `images/{train,test}/STEM.jpg|png` with label images `labels/{train,test}/STEM.png`, grey values
    ///   or palette indices being class ids; `train.txt` and `test.txt`, if they are there, say which and in what order.
    ///
    /// Without a test split, `val` stands for it. `classes.tsv`, if it is there, has a line `id name r g b …` for each
    /// class after one with these words, separated by tabs; the class called Unlabelled, void or ignore is the ignored
    /// one. Without it the classes are 0 to the largest label, and 255 is the ignored one if it occurs.
    ///
    /// # Errors
    /// A directory of neither layout; files that are missing, cut off, corrupt or of the wrong type; sizes that do not
    /// agree; labels that are no class; a split without images.
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, DataError> {
        let dir = dir.as_ref();
        let found = listing(dir)?;
        let packed = |name: &String| name.starts_with("train-images-idx4-ubyte");
        let (train, test) = if found.iter().any(packed) {
            (packed::split(dir, "train")?, packed::split(dir, packed::test(dir))?)
        } else if dir.join("images").is_dir() {
            (images::split(dir, "train")?, images::split(dir, images::test(dir))?)
        } else {
            return Err(Cause::Layout { expected: LAYOUTS, found }.at(dir));
        };
        let classes = Classes::of(dir, [&train, &test])?;
        for loaded in [&train, &test] {
            loaded.check(&classes)?;
        }
        let sizes = [&train, &test].map(|loaded| [loaded.split.height, loaded.split.width]);
        if sizes[0] != sizes[1] {
            return Err(Cause::Size { expected: sizes[0], of: "the training images", found: sizes[1] }
                .at(test.labelled_by(0).0));
        }
        Ok(Self {
            name: name(dir),
            classes: classes.names,
            colours: classes.colours,
            ignore: classes.ignore,
            train: train.split,
            test: test.split,
        })
    }

    /// Made-up road scenes: 160 training and 40 test images of 48 × 64, nine classes of very unequal area.
    ///
    /// The same seed gives the same bytes, on every machine.
    #[must_use]
    pub fn synthetic(seed: u64) -> Self {
        synthetic::segmentation(seed)
    }
}

/// One picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// [height, width, 3], R G B in 0…255.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Reads a PNG or JPEG file.
    ///
    /// # Errors
    /// A file that cannot be read, is no such image, or is larger than 2^26 pixels.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let file = fs::read(path).map_err(|error| Cause::Io(error).at(path))?;
        let read = || {
            let [height, width] = decode::size(&file)?;
            Ok(Self { height, width, pixels: decode::image(&file, [height, width])? })
        };
        read().map_err(|cause: Cause| cause.at(path))
    }
}

/// What to call a directory's data: the last part of its path.
fn name(dir: &Path) -> String {
    let last = dir.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    last.unwrap_or_else(|| dir.to_string_lossy().into_owned())
}

/// The names in a directory, sorted.
fn listing(dir: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| Cause::Io(error).at(dir))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
