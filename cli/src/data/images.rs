//! Segmentation data as folders of image files and of label images.

use super::{
    Cause, DataError, DataOptions, Split, Store,
    decode::{self, Form},
    error::ITS_IMAGE,
    files::{self, Broken, TEST, fifths, parts},
    split::Loaded,
    store::{each_file, read},
    tally::Tally,
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// Folder names that are recognised as images.
const IMAGES: [&str; 5] = ["images", "image", "imgs", "img", "JPEGImages"];
/// Folder names that are recognised as label images.
const LABELS: [&str; 8] =
    ["labels", "masks", "annotations", "label", "mask", "annotation", "segmentations", "SegmentationClass"];
/// Suffixes that the name of a label image may add to that of its image.
const SUFFIXES: [&str; 6] = ["", "_mask", "_masks", "_label", "_labels", "_L"];

/// Paths of an image file and of the file with its labels.
pub(super) struct Pair {
    image: PathBuf,
    labels: PathBuf,
}

/// Pairs of image and label files, by split.
pub(super) struct Pairs {
    pub train: Vec<Pair>,
    /// Pairs of the validation set, if there is one.
    pub validation: Option<Vec<Pair>>,
    pub test: Vec<Pair>,
    /// True if the data define the split; if false, every fifth image is the test set.
    pub told: bool,
}

/// Paths of a split: folders of images and of labels, and the list of its members.
struct Folders {
    images: PathBuf,
    labels: PathBuf,
    list: PathBuf,
}

/// Finds pairs of image and label files; returns `None` if a directory has no folders with such.
pub(super) fn pairs(dir: &Path, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Option<Pairs>, DataError> {
    let list = |name: &str| dir.join(format!("{name}.txt"));
    let mut told = |train: Folders, validation: Option<Folders>, test: Folders| {
        let (train, test) = (found(&train, broken)?, found(&test, broken)?);
        let validation = validation.filter(|_| reading.validation);
        let validation = validation.map(|folders| found(&folders, broken)).transpose()?;
        Ok(Some(Pairs { train, validation, test, told: true }))
    };
    let together = if let Some([images, labels]) = siblings(dir) {
        if images.join("train").is_dir() {
            let [test, validation] = parts(|name| images.join(name).is_dir());
            let part = |name: &str| Folders { images: images.join(name), labels: labels.join(name), list: list(name) };
            return told(part("train"), validation.map(part), part(test.unwrap_or(TEST[0])));
        }
        let part = |list| Folders { images: images.clone(), labels: labels.clone(), list };
        if let [Some(test), validation] = parts(|name| list(name).exists())
            && list("train").exists()
        {
            return told(part(list("train")), validation.map(|name| part(list(name))), part(list(test)));
        }
        part(PathBuf::new())
    } else {
        let part = |name: &str| {
            let [images, labels] = siblings(&dir.join(name))?;
            Some(Folders { images, labels, list: list(name) })
        };
        let [test, validation] = parts(|name| part(name).is_some()).map(|name| name.and_then(part));
        match (part("train"), test) {
            (Some(train), Some(test)) => return told(train, validation, test),
            (Some(train), None) => train,
            (None, _) => return Ok(None),
        }
    };
    let [train, test] = fifths(found(&together, broken)?);
    Ok(Some(Pairs { train, validation: None, test, told: false }))
}

/// Returns true if a directory has images with label images.
pub(super) fn labelled(dir: &Path) -> bool {
    let both = |dir: &Path| siblings(dir).is_some_and(|[_, labels]| labels.is_dir());
    both(dir) || both(&dir.join("train"))
}

/// Returns the folders of images and of labels in a directory.
fn siblings(dir: &Path) -> Option<[PathBuf; 2]> {
    let there = |names: &[&str]| names.iter().map(|name| dir.join(name)).find(|path| path.is_dir());
    let images = there(&IMAGES)?;
    Some([images, there(&LABELS).unwrap_or_else(|| dir.join("labels"))])
}

/// Returns the files of a split: those its list names, in the list's order, or all images by name.
fn found(folders: &Folders, broken: &mut Broken<'_>) -> Result<Vec<Pair>, DataError> {
    let mut images = BTreeMap::new();
    for path in broken.keep(files::images(&folders.images)?)? {
        let stem = path.file_stem().unwrap_or_default().to_owned();
        if images.insert(stem, path.clone()).is_some() {
            return Err(Cause::SameStem.at(path));
        }
    }
    let list = &folders.list;
    let stems: Vec<OsString> = match fs::read_to_string(list) {
        Ok(text) => text.lines().map(str::trim).filter(|line| !line.is_empty()).map(OsString::from).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => images.keys().cloned().collect(),
        Err(error) => return Err(Cause::Io(error).at(list)),
    };
    let pair = |stem: OsString| {
        let Some(image) = images.get(&stem) else {
            let list = list.file_name().unwrap_or_default().to_string_lossy();
            return Err(Cause::Missing(format!("{list} lists it")).at(folders.images.join(stem)));
        };
        let labels = SUFFIXES.map(|suffix| {
            let mut name = stem.clone();
            name.push(suffix);
            name.push(".png");
            folders.labels.join(name)
        });
        match labels.iter().find(|path| path.exists()) {
            Some(labels) => Ok(Pair { image: image.clone(), labels: labels.clone() }),
            None => Err(Cause::Missing(format!("no label image for {}", image.display())).at(&labels[0])),
        }
    };
    let pairs = broken.keep(stems.into_iter().map(pair))?;
    if pairs.is_empty() { Err(Cause::Empty.at(&folders.images)) } else { Ok(pairs) }
}

/// Loads all files of a split, in memory as far as the limit allows.
pub(super) fn split(pairs: Vec<Pair>, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Loaded, DataError> {
    let Some(first) = pairs.first() else { return Err(Cause::Empty.at("images")) };
    let place = first.image.clone();
    let size = match reading.size {
        Some(size) => size.0,
        None => {
            let sizes = pairs.iter().map(|pair| {
                read(&pair.image).and_then(|file| decode::size(&file).map_err(|cause| cause.at(&pair.image)))
            });
            let first = if reading.skip_broken { sizes.flatten().next().map(Ok) } else { sizes.into_iter().next() };
            first.unwrap_or_else(|| Err(Cause::Empty.at(&place)))?
        }
    };
    let pixels = size[0].saturating_mul(size[1]);
    let keep = reading.keeps(pairs.len(), pixels.saturating_mul(4));
    let form = Form { size, channels: 3, resize: reading.size.is_some() };
    let look = |pair: &Pair| {
        let image = read(&pair.image)?;
        let decoded = decode::image(&image, form).map_err(|cause| cause.at(&pair.image))?;
        let labels = read(&pair.labels)?;
        let tally = || {
            let [expected, found] = [decode::size(&image)?, decode::labels_size(&labels)?];
            if expected != found {
                return Err(Cause::Size { expected, of: ITS_IMAGE, found });
            }
            Ok(Tally::count(decode::labels(&labels, form)?.into_iter()))
        };
        let tally = tally().map_err(|cause| cause.at(&pair.labels))?;
        Ok((if keep { decoded } else { Vec::new() }, tally))
    };
    let looked = each_file(pairs.len(), |i| look(&pairs[i]));
    let whole = broken.keep(pairs.into_iter().zip(looked).map(|(pair, looked)| Ok((pair, looked?))))?;
    if whole.is_empty() {
        return Err(Cause::Empty.at(place));
    }
    let (mut bytes, mut tally, mut paths, mut labels_from) = (Vec::new(), Tally::default(), Vec::new(), Vec::new());
    for (i, (pair, (image, counts))) in whole.into_iter().enumerate() {
        bytes.extend(image);
        tally.add(i, &counts);
        paths.push(pair.image);
        labels_from.push(pair.labels);
    }
    let count = paths.len();
    let images = if keep { bytes.into() } else { Store::Files { paths, form, values: None } };
    let labels = Store::Files { paths: labels_from.clone(), form, values: None };
    let split = Split { count, height: size[0], width: size[1], images, labels };
    Ok(Loaded { split, labels_from, tally, keep })
}
