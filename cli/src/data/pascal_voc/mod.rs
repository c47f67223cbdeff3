//! Detection data: images with boxes.

mod annotation;
mod augment;
mod synthetic;

pub use augment::Shown;

use super::{
    Cause, DataError, DataOptions, LoadNotes, MOST_CLASSES, Sample, Whole, decode,
    files::{Broken, fifths, visible},
    listing, name, parted, split_note,
    store::{each, each_file, read},
};
use annotation::Annotation;
use gradscale::metrics::Truth;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Expected layout of a directory for object detection, for error messages.
const LAYOUT: &str = "Annotations/*.xml and JPEGImages/*.jpg as in PASCAL VOC, in it or in one folder of it; \
                      ImageSets/Main/{train,val,trainval,test}.txt list the names";
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
    /// Reads a directory in PASCAL VOC's layout: `Annotations/NAME.xml`, `JPEGImages/NAME.jpg` (or `.jpeg`, `.png`),
    /// and lists of names in `ImageSets/Main`. If scores during training are requested, `train` is for training and
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
        let root = root(dir)?;
        let (mut broken, mut taken) = (Broken::new(reading), Vec::new());
        let [train, validation, test] = parts(&root, reading, &mut taken)?;
        let mut found = |names: Vec<String>| broken.keep(each_file(names.len(), |i| Found::read(&root, &names[i])));
        let (train, test) = (found(train)?, found(test)?);
        let validation = if validation.is_empty() { None } else { Some(found(validation)?) };
        for (part, list) in [(&train, "training"), (&test, "scores")] {
            if part.is_empty() {
                return Err(Cause::Boxes(format!("no images for {list}")).at(&root));
            }
        }
        let classes = classes(&root, train.iter().chain(validation.iter().flatten()))?;
        let mut reader =
            Reader { classes: &classes, lines: Vec::new(), memory: reading.memory.saturating_mul(1_000_000) };
        let mut whole = |found: Vec<Found>| {
            let read = reader.read_all(found);
            broken.keep(read)
        };
        let (train, test) = (whole(train)?, whole(test)?);
        let validation = validation.map(&mut whole).transpose()?;
        let lines = reader.lines;
        let (train, validation) = parted(train, validation, reading, &mut taken, |all| hold_out(all), Vec::len);
        let boxes: usize = train.iter().map(|one| one.truths.len()).sum();
        if boxes == 0 {
            return Err(Cause::Boxes("the training images have no boxes".into()).at(&root));
        }
        taken.insert(0, format!("{}: {boxes} boxes of {} classes ({})", name(dir), classes.len(), classes.join(", ")));
        let notes =
            LoadNotes { taken, left_out: broken.lines().into_iter().chain(lines).collect(), ..LoadNotes::default() };
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

/// Returns the folder that has the annotations: this one, or the only one in it that has.
fn root(dir: &Path) -> Result<PathBuf, DataError> {
    let is_one = |path: &PathBuf| path.join("Annotations").is_dir() && path.join("JPEGImages").is_dir();
    let found = listing(dir)?;
    let own = dir.to_owned();
    if is_one(&own) {
        return Ok(own);
    }
    let mut inside: Vec<PathBuf> = found.iter().map(|name| dir.join(name)).filter(is_one).collect();
    match inside.len() {
        1 => Ok(inside.swap_remove(0)),
        0 => Err(Cause::Layout { expected: LAYOUT, found }.at(dir)),
        _ => Err(Cause::Boxes("several folders have annotations; give one of them to --data".into()).at(dir)),
    }
}

/// Returns the names of training, validation and test images.
fn parts(root: &Path, reading: &DataOptions, taken: &mut Vec<String>) -> Result<[Vec<String>; 3], DataError> {
    let list = |name: &str| list(&root.join("ImageSets/Main").join(format!("{name}.txt")));
    let (train, val, both, test) = (list("train")?, list("val")?, list("trainval")?, list("test")?);
    let together = |train: Vec<String>, val: Option<Vec<String>>| {
        let known: BTreeSet<String> = train.iter().cloned().collect();
        let more = val.into_iter().flatten().filter(|name| !known.contains(name));
        train.iter().cloned().chain(more).collect::<Vec<String>>()
    };
    match (train, val, both, test) {
        (Some(train), Some(val), _, Some(test)) if reading.validation => Ok([train, val, test]),
        (_, _, Some(both), Some(test)) => Ok([both, Vec::new(), test]),
        (Some(train), val, None, Some(test)) => Ok([together(train, val), Vec::new(), test]),
        (Some(train), Some(val), _, None) => {
            taken.push("no test.txt: the images of val.txt are used for evaluation".into());
            Ok([train, Vec::new(), val])
        }
        (None, None, None, Some(_)) => Err(Cause::Missing(
            "test.txt needs a list of training images beside \
                it"
            .into(),
        )
        .at(root.join("ImageSets/Main/train.txt"))),
        (train, val, both, _) => {
            let all = match both.or(train).or(val) {
                Some(all) => all,
                None => {
                    let xml = |path: &PathBuf| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("xml"));
                    let files = visible(&root.join("Annotations"))?.into_iter().filter(xml);
                    files.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect()
                }
            };
            let [train, test] = fifths(all);
            taken.push(split_note(train.len(), test.len()));
            Ok([train, Vec::new(), test])
        }
    }
}

/// Reads the names in a list file, if there is one.
fn list(path: &Path) -> Result<Option<Vec<String>>, DataError> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(path).map_err(|error| Cause::Io(error).at(path))?;
    let text = String::from_utf8(bytes).map_err(|error| Cause::Boxes(format!("not UTF-8 text: {error}")).at(path))?;
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for (i, line) in text.lines().enumerate() {
        let Some(name) = line.split_whitespace().next() else { continue };
        if !seen.insert(name.to_owned()) {
            return Err(Cause::Table { line: i + 1, reason: format!("{name} is listed twice") }.at(path));
        }
        names.push(name.to_owned());
    }
    Ok(Some(names))
}

/// Returns the classes of `classes.txt`, or all that occur.
fn classes<'a>(root: &Path, found: impl Iterator<Item = &'a Found>) -> Result<Vec<String>, DataError> {
    let path = root.join(NAMES);
    let (names, from) = match list(&path)? {
        Some(names) => (names, path),
        None => {
            let names: BTreeSet<&String> =
                found.flat_map(|one| &one.annotation.objects).map(|object| &object.class).collect();
            (names.into_iter().cloned().collect(), root.join("Annotations"))
        }
    };
    match names.len() {
        0 => Err(Cause::Boxes("the training images have no boxes".into()).at(from)),
        1..=MOST_CLASSES => Ok(names),
        count => Err(Cause::Boxes(format!("{count} classes, more than the maximum of {MOST_CLASSES}")).at(from)),
    }
}

/// Files of an image: its annotation and its pixels.
struct Found {
    name: String,
    xml: PathBuf,
    image: PathBuf,
    annotation: Annotation,
}

impl Found {
    fn read(root: &Path, name: &str) -> Result<Self, DataError> {
        let xml = root.join("Annotations").join(format!("{name}.xml"));
        if !xml.is_file() {
            return Err(Cause::Missing(format!("{name} is in a list of images")).at(xml));
        }
        let image = |end: &&str| root.join("JPEGImages").join(format!("{name}.{end}"));
        let image = ["jpg", "jpeg", "JPG", "png"].iter().map(image).find(|path| path.is_file());
        let missing = || {
            Cause::Missing(format!("there is {}, but no image of that name", xml.display()))
                .at(root.join("JPEGImages").join(format!("{name}.jpg")))
        };
        let image = image.ok_or_else(missing)?;
        let annotation = Annotation::read(&xml)?;
        Ok(Self { name: name.to_owned(), xml, image, annotation })
    }

    /// Decodes the image file to R G B.
    fn decoded(&self) -> Result<Whole<'static>, DataError> {
        let (pixels, size) = decode::whole(&read(&self.image)?, 3).map_err(|cause| cause.at(&self.image))?;
        Ok(Whole { pixels: pixels.into(), size, channels: 3 })
    }

    /// Returns the true boxes, and a note for each box without an area.
    fn truths(&self, classes: &[String], size: [usize; 2]) -> Result<(Vec<Truth>, Vec<String>), DataError> {
        let wrong = |reason: String| Cause::Boxes(reason).at(&self.xml);
        if let Some(said) = self.annotation.size.filter(|said| *said != size) {
            let words = format!(
                "declares {} × {} (rows × columns), but the image has {} × {}",
                said[0], said[1], size[0], size[1]
            );
            return Err(wrong(words));
        }
        let (mut truths, mut lines) = (Vec::new(), Vec::new());
        for object in &self.annotation.objects {
            let Some(class) = classes.iter().position(|known| *known == object.class) else {
                let words = format!(
                    "line {}: {} is not a class; the classes are {}",
                    object.line,
                    object.class,
                    classes.join(", ")
                );
                return Err(wrong(words));
            };
            match object.shares(size).map_err(wrong)? {
                Some(corners) => truths.push(Truth { class: class + 1, corners, difficult: object.difficult }),
                None => lines.push(format!(
                    "{}: line {}: the box of {} has no area",
                    self.xml.display(),
                    object.line,
                    object.class
                )),
            }
        }
        Ok((truths, lines))
    }
}

/// Reader that keeps images in memory while they fit.
struct Reader<'a> {
    classes: &'a [String],
    /// Notes for the user about skipped boxes.
    lines: Vec<String>,
    /// Number of bytes of pixels that may still be kept in memory.
    memory: u64,
}

impl Reader<'_> {
    fn read_all(&mut self, found: Vec<Found>) -> Vec<Result<Pictured, DataError>> {
        // All pictures are decoded once, so that a broken one is reported before the training begins.
        let decoded = each_file(found.len(), |i| {
            let whole = found[i].decoded()?;
            let truths = found[i].truths(self.classes, whole.size)?;
            let fits = whole.pixels.len() as u64 * found.len() as u64 <= self.memory;
            Ok((if fits { Kept::Memory(whole) } else { Kept::File(found[i].image.clone()) }, truths))
        });
        let mut one = |(found, decoded): (Found, Result<_, DataError>)| {
            let (kept, (truths, lines)): (Kept, (Vec<Truth>, Vec<String>)) = decoded?;
            self.lines.extend(lines);
            if let Kept::Memory(whole) = &kept {
                self.memory = self.memory.saturating_sub(whole.pixels.len() as u64);
            }
            Ok(Pictured { name: found.name, truths, kept })
        };
        found.into_iter().zip(decoded).map(&mut one).collect()
    }
}

/// Splits off every tenth image for validation.
fn hold_out(all: &[Pictured]) -> Option<[Vec<Pictured>; 2]> {
    let of = |held: bool| -> Vec<Pictured> {
        let numbered = all.iter().enumerate();
        numbered.filter(|(i, _)| (i % 10 == 9) == held).map(|(_, one)| one.clone()).collect()
    };
    let parts = [of(false), of(true)];
    (!parts[1].is_empty()).then_some(parts)
}
