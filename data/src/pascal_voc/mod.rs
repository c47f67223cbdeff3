//! Detection data: images with boxes.

mod annotation;
mod augment;
mod coco;
mod layout;
mod listed;
mod orientation;
mod synthetic;
mod yolo;

pub use augment::Shown;

use super::{
    Cause, DataError, DataOptions, Fingerprint, LoadNotes, MOST_CLASSES, Sample, Whole, decode,
    files::{Broken, hold_out},
    lists::List,
    name, parted,
    store::{each, each_file, read},
};
use gradscale::metrics::Truth;
use layout::AnnotationLayout;
use listed::{Found, Listed};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Name of the file with the names of the classes, one a line.
const NAMES: &str = "classes.txt";
/// Storage of an image's pixels: in memory, or as a file that is decoded when needed.
#[derive(Clone, Debug)]
enum Kept {
    Memory(Whole<'static>),
    File(PathBuf),
}

/// Image for object detection, with its true boxes.
#[derive(Clone, Debug)]
pub struct Pictured {
    /// Name of the image file without its extension.
    pub name: String,
    /// True boxes with corners relative to the image size; classes from 1.
    pub truths: Vec<Truth>,
    kept: Kept,
}

impl Pictured {
    /// Returns the pixels of the image, R G B, decoding the file if necessary.
    ///
    /// # Errors
    /// A file that can no longer be read.
    pub fn whole(&self) -> Result<Whole<'_>, DataError> {
        match &self.kept {
            Kept::Memory(Whole { pixels, size, channels }) => {
                Ok(Whole { pixels: pixels.as_ref().into(), size: *size, channels: *channels })
            }
            Kept::File(path) => {
                let (pixels, size) = decode::whole(&read(path)?, 3).map_err(|cause| cause.at(path))?;
                Ok(Whole { pixels: pixels.into(), size, channels: 3 })
            }
        }
    }
}

/// Data set for object detection: images with boxes.
#[derive(Clone, Debug)]
pub struct Boxed {
    /// Name of the detection data set: the last part of the directory's path.
    pub name: String,
    /// Names of the classes, numbered from 1.
    pub classes: Vec<String>,
    /// Training set: images with the boxes and classes of their objects.
    pub train: Vec<Pictured>,
    /// Validation set of images with boxes, if one was requested.
    pub validation: Option<Vec<Pictured>>,
    /// Test set of images with boxes, for the final evaluation.
    pub test: Vec<Pictured>,
    /// Notes about the loaded pictures and boxes, which the program prints.
    pub notes: LoadNotes,
}

impl Boxed {
    /// Reads a directory in one of these layouts: PASCAL VOC's; images with XML files in the same folder, as labelImg
    /// writes them; annotation files of COCO; label files of YOLO. The last three may have folders or files for each
    /// part, and every fifth image is for scores otherwise.
    ///
    /// PASCAL VOC has `Annotations/NAME.xml`, `JPEGImages/NAME.jpg` (or `.jpeg`, `.png`), and lists of names in
    /// `ImageSets/Main`. If scores during training are requested, `train` is for training and
    /// `val` for these scores. Otherwise `trainval`, or both lists, are for training. Without `test` the final scores
    /// use `val`; without lists every fifth picture is for scores. The classes are those of `classes.txt`, or all that
    /// occur outside the pictures of the final scores.
    ///
    /// Boxes without an area are skipped, which is reported.
    ///
    /// # Errors
    /// A directory of another layout; files that are missing or broken; boxes outside of their pictures; classes that
    /// are none.
    pub fn load(dir: &Path, reading: &DataOptions) -> Result<Self, DataError> {
        let AnnotationLayout { root, parts: [train, validation, test], names, all_classes, mut taken, mut lists } =
            AnnotationLayout::find(dir, reading)?;
        let mut broken = Broken::new(reading);
        let mut found = |all: Vec<Listed>| broken.keep(each_file(all.len(), |i| all[i].read(&names)));
        let (train, test) = (found(train)?, found(test)?);
        let validation = if validation.is_empty() { None } else { Some(found(validation)?) };
        check_images(&root, train.len(), test.len())?;
        let classes = if all_classes {
            names
        } else {
            let list = List::read(&root.join(NAMES))?;
            lists.extend(list.as_ref().map(|list| list.path.clone()));
            classes(&root, list, &names, train.iter().chain(validation.iter().flatten()))?
        };
        let mut reader = Reader {
            classes: &classes,
            lines: Vec::new(),
            memory: reading.memory.saturating_mul(1_000_000),
            images: Vec::new(),
            origins: BTreeSet::new(),
        };
        let mut whole = |found: Vec<Found>| {
            let read = reader.read_all(found);
            broken.keep(read)
        };
        let (train, test) = (whole(train)?, whole(test)?);
        check_images(&root, train.len(), test.len())?;
        let validation = validation.map(&mut whole).transpose()?.filter(|all| !all.is_empty());
        let Reader { lines, images, mut origins, .. } = reader;
        origins.extend(lists);
        let files = Some(Fingerprint::measure(dir, images.iter().chain(&origins))?);
        let (train, validation) = parted(train, validation, reading, &mut taken, |all| hold_out(all), Vec::len);
        let boxes: usize = train.iter().map(|one| one.truths.len()).sum();
        if boxes == 0 {
            return Err(Cause::Boxes("the training images have no boxes".into()).at(&root));
        }
        let counted = |one: &Pictured| one.truths.iter().filter(|truth| !truth.difficult).count();
        if test.iter().map(counted).sum::<usize>() == 0 {
            let why = match test.iter().map(|one| one.truths.len()).sum::<usize>() {
                0 => "the test images have none".to_owned(),
                all => format!("all {all} are difficult"),
            };
            taken.push(format!("no test box counts: {why}; average precision is not defined"));
        }
        taken.insert(0, format!("{}: {boxes} boxes of {} classes ({})", name(dir), classes.len(), classes.join(", ")));
        let notes = LoadNotes {
            taken,
            left_out: broken.lines().into_iter().chain(lines).collect(),
            files,
            ..LoadNotes::default()
        };
        Ok(Self { name: name(dir), classes, train, validation, test, notes })
    }

    /// Returns augmented training images in this order, computed on all cores; see [`Pictured::random`].
    ///
    /// # Errors
    /// Files that can no longer be read.
    ///
    /// # Panics
    /// An index is beyond the last picture.
    pub fn batch(&self, samples: &[Sample], side: usize, farthest: f64) -> Result<Vec<Shown>, DataError> {
        let one = |i: usize| self.train[samples[i].index].random(side, farthest, samples[i].word);
        each(samples.len(), one).into_iter().collect()
    }

    /// Generates synthetic data: 160 training and 40 test images of 96 × 128 with one to six coloured shapes of three
    /// classes.
    #[must_use]
    pub fn synthetic(seed: u64, reading: &DataOptions) -> Self {
        let [train, test] = synthetic::pictures(seed);
        let mut notes = LoadNotes::default();
        let (train, validation) = parted(train, None, reading, &mut notes.taken, |all| hold_out(all), Vec::len);
        let classes = synthetic::CLASSES.map(str::to_owned).to_vec();
        Self { name: "synthetic shapes".into(), classes, train, validation, test, notes }
    }
}

/// Checks that there are images for training and for scores.
fn check_images(root: &Path, train: usize, test: usize) -> Result<(), DataError> {
    let empty = [(train, "training"), (test, "scores")].into_iter().find(|(count, _)| *count == 0);
    empty.map_or(Ok(()), |(_, part)| Err(Cause::Boxes(format!("no images for {part}")).at(root)))
}

/// Returns the classes of `classes.txt`, or all that occur: in the order of `known`, and others by name.
fn classes<'a>(
    root: &Path, list: Option<List>, known: &[String], found: impl Iterator<Item = &'a Found>,
) -> Result<Vec<String>, DataError> {
    let (names, from) = match list {
        Some(list) => {
            list.check_unique()?;
            (list.names(), list.path)
        }
        None => {
            let names: BTreeSet<&String> =
                found.flat_map(|one| &one.annotation.objects).map(|object| &object.class).collect();
            // Numbers of YOLO's classes without names.
            let mut names: Vec<String> = names.into_iter().cloned().collect();
            let place = |name: &String| known.iter().position(|known| known == name).unwrap_or(known.len());
            names.sort_by_key(|name| (place(name), name.parse::<u32>().ok()));
            (names, root.to_owned())
        }
    };
    match names.len() {
        0 => Err(Cause::Boxes("the training images have no boxes".into()).at(from)),
        1..=MOST_CLASSES => Ok(names),
        count => Err(Cause::Boxes(format!("{count} classes, more than the maximum of {MOST_CLASSES}")).at(from)),
    }
}

/// Reader that keeps images in memory while they fit.
struct Reader<'a> {
    classes: &'a [String],
    /// Notes for the user about skipped boxes.
    lines: Vec<String>,
    /// Number of bytes of pixels that may still be kept in memory.
    memory: u64,
    /// Image files that were read.
    images: Vec<PathBuf>,
    /// Files that the boxes of these come from.
    origins: BTreeSet<PathBuf>,
}

impl Reader<'_> {
    fn read_all(&mut self, found: Vec<Found>) -> Vec<Result<Pictured, DataError>> {
        // All pictures are decoded once, so that a broken one is reported before the training begins.
        let decoded = each_file(found.len(), |i| {
            let (whole, orientation) = found[i].decoded()?;
            let truths = found[i].truths(self.classes, whole.size, orientation)?;
            let fits = whole.pixels.len() as u64 * found.len() as u64 <= self.memory;
            Ok((if fits { Kept::Memory(whole) } else { Kept::File(found[i].image.clone()) }, truths))
        });
        let mut one = |(found, decoded): (Found, Result<_, DataError>)| {
            let (kept, (truths, lines)): (Kept, (Vec<Truth>, Vec<String>)) = decoded?;
            self.lines.extend(lines);
            if let Kept::Memory(whole) = &kept {
                self.memory = self.memory.saturating_sub(whole.pixels.len() as u64);
            }
            if found.origin != found.image {
                self.origins.insert(found.origin);
            }
            self.images.push(found.image);
            Ok(Pictured { name: found.name, truths, kept })
        };
        found.into_iter().zip(decoded).map(&mut one).collect()
    }
}
