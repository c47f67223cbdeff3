#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batches;
mod cifar;
mod cityscapes;
mod classes;
mod classify;
mod columns;
mod crop;
mod csv_rows;
mod dataset;
mod decode;
mod digits;
mod encoding;
mod error;
mod example;
mod files;
mod fingerprint;
mod folders;
mod idx;
mod image_table;
mod images;
mod labelled;
mod layout_hint;
mod lists;
mod load_labelled;
mod missing_feature;
mod options;
mod packed;
mod pascal_voc;
mod progress;
mod scene;
mod serde_text;
mod sources;
mod speech;
mod split;
mod store;
mod synthetic;
mod table;
mod tally;
mod text;
mod text_corpus;
pub mod transforms;
mod weights;

pub use batches::{Batches, InOrder, Part, in_order};
pub use classes::{Classes, Values};
pub use classify::{Classification, Element, Stored};
pub use columns::{Column, Feature};
pub use crop::Whole;
pub use csv_rows::{TableRows, rows};
pub use dataset::{Dataset, ExampleBatch, ExampleBatches};
pub use decode::Form;
pub use error::{Cause, DataError};
pub use example::Example;
pub use fingerprint::Fingerprint;
pub use gradscale::data::{Order, Random, Sample};
pub use idx::Idx;
pub use labelled::Labelled;
pub use layout_hint::{check_file, is_table};
pub use missing_feature::describe_missing;
pub use options::{DataOptions, IMAGES, Ignore, Languages, Meant, Size};
pub use pascal_voc::{Boxed, Pictured, Shown};
pub use progress::{Progress, StartProgress, show_progress};
pub use sources::Sources;
pub use speech::{Sound, Spectra, Speech, Spoken};
pub use split::Split;
pub use store::Store;
pub use text::{BEGIN, Buckets, END, PAD_TOKEN, PIECES, Pair, Parallel, Pieces, lines};
pub use text_corpus::{Corpus, Tokens, Vocabulary, text};

use files::Broken;
use split::Loaded;
use std::{
    fs,
    path::{Path, PathBuf},
};
use table::TABLE;
use tally::Tally;

/// Data set for segmentation: images with a class for every pixel.
#[derive(Clone, Debug, PartialEq)]
pub struct Segmentation {
    /// Name of the segmentation data set: the last part of the directory's path.
    pub name: String,
    /// Names of the pixel classes; the id of a class is its position.
    pub classes: Vec<String>,
    /// Colours of the classes, R G B.
    pub colours: Vec<[u8; 3]>,
    /// Grey value of each class in label files; empty if it is the id, or for coloured label files.
    pub values: Vec<u8>,
    /// Label of ignored pixels. It may be an index of `classes`, which then has no meaning.
    pub ignore: Option<u8>,
    /// Weights of the classes in the loss by their area, median(f)/f(c): where f is the share of a class in the pixels
    /// of the training images in which it occurs (Eigen and Fergus 2015, §3.3.1); 0 for one that never does.
    pub weights: Vec<f32>,
    /// Training set of images with class ids of pixels.
    pub train: Split,
    /// Validation set, if [`DataOptions::validation`] asks for one and the data have one.
    pub validation: Option<Split>,
    /// Test set of images with class ids of pixels, for the final evaluation.
    pub test: Split,
    /// Notes about the loaded images and label images, which the program prints.
    pub notes: LoadNotes,
}

/// Notes about loading a data set, for the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadNotes {
    /// Descriptions of how the files were interpreted: classes, splits, columns.
    pub taken: Vec<String>,
    /// Files and folders that were left out, each with the reason.
    pub left_out: Vec<String>,
    /// Questions about data that can be read but look like a mistake.
    pub doubts: Vec<String>,
    /// Names and sizes of the files that were read; `None` for synthetic data.
    pub files: Option<Fingerprint>,
    /// First training image, if images are files.
    pub first: Option<PathBuf>,
}

impl LoadNotes {
    /// Returns one line about all that was left out, if anything was.
    #[must_use]
    pub fn left_out_line(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| format!("left out: {}", self.left_out.join("; ")))
    }
}

/// Expected layout of a directory for segmentation, for error messages.
const LAYOUTS: &str = "images/{train,test}/*.png|jpg with labels/{train,test}/*.png, or {train,test}/images and \
                       {train,test}/labels, or train, trainannot, test and testannot, or images and labels (or masks) \
                       without a test set, or JPEGImages, SegmentationClass and ImageSets/Segmentation, or \
                       leftImg8bit and gtFine, or \
                       train-images-idx4-ubyte[.gz] with train-labels-idx3-ubyte[.gz] and the same for test; a folder \
                       for each class is for `Labelled`";

/// Expected layout of images with one class each, for error messages.
const LABELLED: &str = "a folder with images for each class, or train and test with such folders, or images with a \
                        table of file names and classes, or \
                        train-images-idx3-ubyte[.gz] with train-labels-idx1-ubyte[.gz] and the same for t10k or test, \
                        or data_batch_1.bin … and test_batch.bin, or train.csv and test.csv, or a CSV file; for \
                        images with label images use `Segmentation`";

impl Segmentation {
    /// Reads a directory in one of these layouts, recognised by what is in it:
    ///
    /// - IDX files `train-images-idx4-ubyte[.gz]` of [n, h, w, 3] and `train-labels-idx3-ubyte[.gz]` of [n, h, w],
    ///   and the same for `test`;
    /// - image files `images/{train,test}/STEM.jpg|png` with label images `labels/{train,test}/STEM.png`, or the same
    ///   as `{train,test}/images` and `{train,test}/labels`; `train.txt` and `test.txt`, if they are there, say which
    ///   and in what order. `masks` and `annotations` may stand for `labels`, and `STEM_mask.png` for `STEM.png`;
    /// - `{train,test}/STEM.png` with `{train,test}annot/STEM.png` or `{train,test}_labels/STEM_L.png`, as CamVid's;
    /// - Cityscapes' `leftImg8bit/{train,val}/CITY/STEM_leftImg8bit.png` with
    ///   `gtFine/{train,val}/CITY/STEM_gtFine_labelIds.png`; the labels of its `test` are not public;
    /// - the same as the second without `train` and `test`: then the two lists tell them apart, or those of `ImageSets/Segmentation`,
    ///   or every fifth image is for scores. Names in lists may have a suffix, a folder or more columns.
    ///
    /// Names of folders may have capitals; `training` and `testing` stand for `train` and `test`. Without a test split,
    /// `val`, `valid` or `validation` stands for it; beside one, it is for the scores of a
    /// training under way, where [`DataOptions::validation`] asks for these. Label images are PNG: grey or palettes of
    /// 1 to 16 bits, whose values (of a palette the indices) are labels as they are in the file, or R G B, which is
    /// read as grey where all three are alike, and otherwise every colour is a label.
    ///
    /// `classes.tsv`, if it is there, has a line `id name r g b …` for each class after one with these words, separated
    /// by tabs; the class called Unlabelled, void or ignore is the ignored one. An id is the value in the label images,
    /// any from 0 to 65535; where these are coloured, r g b is. Without it Cityscapes has the 19 classes of its
    /// benchmark, and of other data what occurs are the classes: 0 to the
    /// largest label, if more than half of these occur, else each value that does. [`DataOptions::ignore`] says what is
    /// ignored.
    ///
    /// # Errors
    /// A directory of another layout; files that are missing, cut off, corrupt or of the wrong type; sizes that do not
    /// agree; labels that are no class; a split without images, or with only one class.
    pub fn load(dir: impl AsRef<Path>, reading: &DataOptions) -> Result<Self, DataError> {
        let dir = dir.as_ref();
        if dir.is_file() {
            return Err(Cause::Option("is a file, expected a directory; for CSV files use `Labelled`".into()).at(dir));
        }
        let found = listing(dir)?;
        if reading.crop.is_some() {
            return Err(Cause::Option("`crop` is for `Labelled`".into()).at(dir));
        }
        if reading.label.is_some() {
            return Err(Cause::Option("`label` is for CSV files of `Labelled`".into()).at(dir));
        }
        let mut broken = Broken::new(reading);
        let packed = |name: &String| name.starts_with("train-images-idx4-ubyte");
        let readable = |loaded: Option<Loaded>, part: &str| {
            loaded.ok_or_else(|| Cause::Files(format!("no images for {part} can be read")).at(dir))
        };
        let (train, validation, test, told, lists) = if found.iter().any(packed) {
            if reading.size.is_some() {
                return Err(Cause::Option("`size` is for PNG and JPEG files only".into()).at(dir));
            }
            let (test, validation) = packed::names(dir);
            let validation = validation.filter(|_| reading.validation);
            let validation = validation.map(|name| packed::split(dir, name, reading)).transpose()?;
            let [train, test] = [packed::split(dir, "train", reading)?, packed::split(dir, test, reading)?];
            (train, validation, test, true, Vec::new())
        } else if let Some(pairs) = images::pairs(dir, reading, &mut broken)? {
            let train = images::split(pairs.train, reading, &mut broken);
            let validation = pairs.validation.and_then(|pairs| images::split(pairs, reading, &mut broken));
            let test = images::split(pairs.test, reading, &mut broken);
            let count = |part: &Option<Loaded>| part.as_ref().map_or(0, |part| part.split.count);
            broken.check([&train, &validation, &test].map(count).iter().sum(), dir)?;
            let (train, test) = (readable(train, "training")?, readable(test, "evaluation")?);
            (train, validation, test, pairs.told, pairs.lists)
        } else {
            return Err(layout_hint::not_a_data_set(dir, LAYOUTS, found));
        };
        let paths = train.files.iter().chain(validation.iter().flat_map(|part| &part.files)).chain(&test.files);
        let table = Some(dir.join(TABLE)).filter(|path| path.exists());
        let files = Some(Fingerprint::measure(dir, paths.chain(&lists).chain(&table))?);
        let first = train.files.first().cloned();
        let mut tally = train.tally.clone();
        for other in validation.iter().chain([&test]) {
            other.tally.0.iter().for_each(|(value, count)| tally.add(0, &Tally([(*value, *count)].into())));
        }
        let benchmark = images::is_cityscapes(dir) && table.is_none() && reading.ignore.is_none();
        let classes = match cityscapes::classes().filter(|_| benchmark) {
            Some(classes) => classes,
            None => Classes::read(dir, &tally, reading.ignore)?,
        };
        let doubts = if table.is_some() { None } else { classes.smoothed(&tally) };
        let expected = [train.split.height, train.split.width];
        for other in validation.iter().chain([&test]) {
            let found = [other.split.height, other.split.width];
            if expected != found {
                let labels = other.labelled_by(0).0.to_owned();
                return Err(Cause::Size { expected, of: "the training images", found }.at(labels));
            }
        }
        let ((train, counts), (test, _)) = (train.finish(&classes)?, test.finish(&classes)?);
        let validation = validation.map(|loaded| loaded.finish(&classes)).transpose()?.map(|(split, _)| split);
        let described = classes.described(&tally);
        let learnt = counts.0.keys().filter(|id| classes.ignore.map(u32::from) != Some(**id)).count();
        if learnt < 2 {
            return Err(Cause::OneClass { found: described, left_out: broken.lines().join("; ") }.at(dir));
        }
        let mut taken = vec![format!("{}: {described}", name(dir))];
        if !told {
            taken.push(split_note(train.count, test.count));
        }
        let (train, validation) = parted(train, validation, reading, &mut taken, Split::hold_out, |split| split.count);
        Ok(Self {
            name: name(dir),
            weights: weights::median_frequency(&counts, classes.names.len(), classes.ignore),
            values: classes.greys(),
            classes: classes.names,
            colours: classes.colours,
            ignore: classes.ignore,
            train,
            validation,
            test,
            notes: LoadNotes { taken, left_out: broken.lines(), doubts: doubts.into_iter().collect(), files, first },
        })
    }

    /// Generates synthetic road scenes: 160 training and 40 test images of 48 × 64, nine classes of very unequal area.
    ///
    /// The same seed gives the same bytes, on every machine.
    #[must_use]
    pub fn synthetic(seed: u64) -> Self {
        synthetic::segmentation(seed)
    }
}

/// Maximum number of classes of folders of images; rows of numbers may have fewer: more are no classes.
const MOST_CLASSES: usize = 1 << 16;

/// Returns the note that no test set was found and every fifth sample is used.
fn split_note(train: usize, test: usize) -> String {
    format!("no test set: every fifth sample is held out for evaluation, {test} of {}", train + test)
}

/// Splits off the validation set, if it is requested: a part of the data set's own, or every tenth training image.
/// Weights of classes, means and deviations are those of all training images.
fn parted<T>(
    train: T, validation: Option<T>, reading: &DataOptions, taken: &mut Vec<String>,
    hold_out: impl Fn(&T) -> Option<[T; 2]>, count: impl Fn(&T) -> usize,
) -> (T, Option<T>) {
    if validation.is_some() || !reading.validation {
        return (train, validation);
    }
    match hold_out(&train) {
        Some([kept, held]) => {
            taken.push(format!(
                "no validation set: every tenth training image is held out for `validation`, {} of {}",
                count(&held),
                count(&train)
            ));
            (kept, Some(held))
        }
        None => {
            taken.push(
                "no validation set, and too few training images to hold some out: `validation` uses the test \
                set"
                .into(),
            );
            (train, None)
        }
    }
}

/// Decoded image: its size and its pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Number of rows of each image.
    pub height: usize,
    /// Number of columns of each image.
    pub width: usize,
    /// Values of the pixels, [height, width, 3], R G B in 0…255.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Reads a PNG or JPEG file, and resizes it if a size is given.
    ///
    /// # Errors
    /// A file that cannot be read, is no such image, or is larger than 2^26 pixels.
    pub fn read(path: &Path, size: Option<Size>) -> Result<Self, DataError> {
        let file = store::read(path)?;
        let read = || {
            let [height, width] = size.map_or_else(|| decode::size(&file), |size| Ok(size.0))?;
            let form = Form { size: [height, width], channels: 3, resize: size.is_some() };
            Ok(Self { height, width, pixels: decode::image(&file, form)? })
        };
        read().map_err(|cause: Cause| cause.at(path))
    }

    /// Returns the centre crop that evaluation uses; see [`Whole::middle`].
    #[must_use]
    pub fn middle(&self, side: usize) -> Self {
        let whole = Whole { pixels: (&self.pixels[..]).into(), size: [self.height, self.width], channels: 3 };
        Self { height: side, width: side, pixels: whole.middle(side) }
    }
}

/// Returns the name of a directory's data: the last part of its path.
fn name(dir: &Path) -> String {
    let last = dir.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    last.unwrap_or_else(|| dir.to_string_lossy().into_owned())
}

/// Returns the names of a directory's entries, sorted.
fn listing(dir: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| Cause::Io(error).at(dir))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
