//! Loading of data sets for classification from their files, whose kind is recognised.

use super::{
    Broken, Cause, Classes, Classification, DataError, DataOptions, Fingerprint, Ignore, LABELLED, Labelled, LoadNotes,
    cifar, classes, classify, csv_rows, digits, folders, images, layout_hint::not_a_data_set, listing,
    lists::class_names, name, packed, parted, tally::Tally,
};
use std::path::{Path, PathBuf};

/// Files with the names of classes, one a line. (CIFAR brings the first.)
const NAMES: [&str; 2] = ["batches.meta.txt", "classes.txt"];

/// Maximum number of names of classes that are read, because labels of these files are bytes.
const MAX_NAMES: usize = 256;

impl Labelled {
    /// Loads a data set, whose kind is recognised by its files:
    ///
    /// - a directory with the files of MNIST ([`Classification::load_idx`]) or CIFAR ([`Classification::load_cifar`]).
    ///   Names of classes stand in `batches.meta.txt` or `classes.txt`, one a line; without such a file they are
    ///   numbers: 0 to the largest label if more than half of these occur, else those that do;
    /// - a directory with a folder of PNG or JPEG images for each class, which is called after it, or `train` and `test`
    ///   (or `val`, `valid`, `validation`, in capitals or not) with such folders; without a test set every fifth image
    ///   of a class is for scores;
    /// - a directory of images with a CSV file of their names and classes; `train.csv` and `test.csv` are parts;
    /// - a CSV file, or a directory with one, or with `train.csv` and `test.csv`: a line of names, then lines of
    ///   numbers, with the class in the column that [`DataOptions::label`] says. Commas, semicolons or tabs separate
    ///   them. A column without a name is left out. Numbers become (x − mean)/deviation of their column in training.
    ///
    /// If all image files are grey, images have one channel, else three. 16 bits are reduced to 8, and transparency is
    /// left out.
    ///
    /// # Errors
    /// A directory of another layout; files that are missing, cut off or corrupt; sizes that do not agree; fewer names
    /// than classes; less than two classes, or more than 2^16 (of rows 256).
    pub fn load(path: impl AsRef<Path>, reading: &DataOptions) -> Result<Self, DataError> {
        let path = path.as_ref();
        if reading.ignore.is_some() {
            return Err(Cause::Option(
                "`ignore` is for label images (`Segmentation`); here each image has one class".into(),
            )
            .at(path));
        }
        let mut broken = Broken::new(reading);
        let asked = path.is_file() || reading.label.is_some();
        let images = if path.is_file() { None } else { Self::images(path, reading, &mut broken)? };
        let mut data = match (images, csv_rows::files(path)?) {
            (Some(images), _) => images,
            (None, Some(files)) => csv_rows::load(&files, reading, &mut broken)?,
            (None, None) if asked => {
                return Err(Cause::Option("`label` is for CSV files, and this data set has none".into()).at(path));
            }
            (None, None) => return Err(not_a_data_set(path, LABELLED, listing(path)?)),
        };
        data.name = name(path);
        let mut counts = vec![0_usize; data.classes.len()];
        data.train.labels.iter().for_each(|label| counts[*label as usize] += 1);
        let described = described(&data.classes, &counts);
        if !reading.without_classes && counts.iter().filter(|count| **count > 0).count() < 2 {
            return Err(Cause::OneClass { found: described, left_out: broken.lines().join("; ") }.at(path));
        }
        data.notes.doubts.extend(too_many_classes(&data).filter(|_| !reading.without_classes));
        data = data.cropped(reading);
        let count = |part: &Classification| part.count;
        let taken = &mut data.notes.taken;
        (data.train, data.validation) =
            parted(data.train, data.validation, reading, taken, Classification::hold_out, count);
        data.notes.taken.insert(0, format!("{}: {described}", data.name));
        data.notes.left_out = broken.lines();
        Ok(data)
    }

    /// Loads a directory of images with one class each; `None` if it has none.
    fn images(dir: &Path, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Option<Self>, DataError> {
        let found = listing(dir)?;
        if reading.label.is_none() && images::labelled(dir) {
            return Err(Cause::Option("images with label images; use `Segmentation`".into()).at(dir));
        }
        let cifar = found.iter().any(|name| name.starts_with("data_batch_"));
        if !cifar && !found.iter().any(|name| name.starts_with("train-images-idx")) {
            return folders::load(dir, reading, broken);
        }
        if reading.label.is_some() {
            return Ok(None);
        }
        if reading.size.is_some() {
            return Err(Cause::Option("`size` is for PNG and JPEG files only".into()).at(dir));
        }
        let (mut train, mut test) =
            if cifar { Classification::load_cifar(dir)? } else { Classification::load_idx(dir, reading)? };
        let mut validation = match reading.validation && !cifar {
            true => Classification::validation_idx(dir, reading)?,
            false => None,
        };
        if let Some(validation) = &validation {
            let [expected, found] = [&train, validation].map(|part| [part.height, part.width, part.channels]);
            if expected != found {
                let expected = format!("{} × {} × {} as in the training set", expected[0], expected[1], expected[2]);
                return Err(Cause::Shape { expected, found: found.into() }.at(dir.join("val-images")));
            }
        }
        let classes = match names(dir)? {
            Some((path, names)) if names.len() < train.classes => {
                let beyond = |labels: &[u32]| labels.iter().position(|label| *label as usize >= names.len());
                let (label, (file, image)) = match beyond(&train.labels) {
                    Some(image) if cifar => (train.labels[image], cifar::file_of(dir, image)?),
                    Some(image) => (train.labels[image], (classify::labels(dir, "train")?, image)),
                    None => {
                        let image = beyond(&test.labels).unwrap_or_default();
                        let file = if cifar {
                            packed::find(dir, "test_batch.bin")?
                        } else {
                            classify::labels(dir, classify::test_prefix(dir))?
                        };
                        (test.labels[image], (file, image))
                    }
                };
                // In the folder of the file with the names.
                let file = file.file_name().unwrap_or_default().display();
                let count = names.len();
                let reason =
                    format!("{count} names for {} classes; in {file}, image {image} has label {label}", train.classes);
                return Err(Cause::Table { line: count, reason }.at(path));
            }
            Some((_, names)) => names,
            None => {
                let validated = validation.iter().flat_map(|part| &part.labels);
                let all = train.labels.iter().chain(&test.labels).chain(validated).copied();
                let seen = Classes::seen(&Tally::count(all), Some(Ignore::Nothing)).map_err(|cause| cause.at(dir))?;
                let validated = validation.as_mut().map(|part| &mut part.labels);
                for labels in [&mut train.labels, &mut test.labels].into_iter().chain(validated) {
                    if let Some(table) = seen.values.table() {
                        // Bytes, in these files.
                        labels.iter_mut().for_each(|label| *label = table[*label as usize & 255].into());
                    }
                }
                seen.names
            }
        };
        let beyond = |part: &Classification| part.labels.iter().position(|label| *label as usize >= classes.len());
        if let Some(part) = &validation
            && let Some(image) = beyond(part)
        {
            let (count, label) = (classes.len(), part.labels[image]);
            let reason = format!("{count} names, but validation image {image} has label {label}");
            return Err(Cause::Table { line: count, reason }.at(dir));
        }
        for part in [&mut train, &mut test].into_iter().chain(&mut validation) {
            part.classes = classes.len();
        }
        let [mean, deviation] = train.spread()?.mean_and_deviation();
        let (channels, columns) = (None, Vec::new());
        let packed =
            |name: &&String| name.contains("-idx") || name.contains("_batch") || NAMES.contains(&name.as_str());
        let files: Vec<PathBuf> = found.iter().filter(packed).map(|name| dir.join(name)).collect();
        let notes = LoadNotes { files: Some(Fingerprint::measure(dir, &files)?), ..LoadNotes::default() };
        Ok(Some(Self {
            name: String::new(),
            classes,
            mean,
            deviation,
            channels,
            columns,
            train,
            validation,
            test,
            notes,
        }))
    }

    /// Generates synthetic digits: 2000 training and 500 test images of 28 × 28 in grey, ten classes.
    ///
    /// The same seed gives the same bytes, on every machine.
    #[must_use]
    pub fn synthetic(seed: u64) -> Self {
        digits::labelled(seed)
    }

    /// Generates 10 000 faint digits of 14 × 14 for training, one of which is NaN, and 1000 for the test.
    ///
    /// The same seed gives the same bytes, on every machine.
    #[must_use]
    pub fn with_bad_image(seed: u64) -> Self {
        digits::with_bad_image(seed)
    }
}

/// Returns a question about classes with less than two samples each: they may be numbers to predict, or names.
fn too_many_classes(data: &Labelled) -> Option<String> {
    /// Number of classes below which small examples may have as few samples.
    const MIN_CLASSES: usize = 8;
    let validation = data.validation.as_ref().map_or(0, |part| part.count);
    let (count, classes) = (data.train.count + data.test.count + validation, data.classes.len());
    let rows = !data.columns.is_empty();
    let (samples, remedy) = if rows {
        ("rows", "are they names or numbers to predict? `label` names another column")
    } else {
        ("images", "do their names or folders name single images?")
    };
    (classes >= MIN_CLASSES && 2 * classes > count).then(|| format!("{classes} classes in {count} {samples}: {remedy}"))
}

/// Returns a line with the number of training images of each class.
fn described(names: &[String], counts: &[usize]) -> String {
    const MAX_CLASSES: usize = 16;
    let list = names.iter().zip(counts).take(MAX_CLASSES).map(|(name, count)| format!("{name} {count}"));
    let mut line = format!("{}, for training: {}", classes::classes(names.len()), list.collect::<Vec<_>>().join(", "));
    if names.len() > MAX_CLASSES {
        line += &format!(" and {} more", names.len() - MAX_CLASSES);
    }
    line
}

fn names(dir: &Path) -> Result<Option<(PathBuf, Vec<String>)>, DataError> {
    for path in NAMES.map(|name| dir.join(name)) {
        if let Some(mut names) = class_names(&path)? {
            names.truncate(MAX_NAMES);
            return Ok(Some((path, names)));
        }
    }
    Ok(None)
}
