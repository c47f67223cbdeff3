//! Segmentation data as folders of image files and of label images.

use super::{
    Cause, DataError, DataOptions, Sources, Split, Store,
    decode::{self, Form},
    files::{self, Broken, ImageFolder, PartFolders, fifths, file_name, named, within},
    folders::without_images,
    lists::List,
    split::Loaded,
    store::{each_file, read},
    tally::Tally,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Folder names that are recognised as images.
const IMAGES: [&str; 5] = ["images", "image", "imgs", "img", "JPEGImages"];
/// Folder names that are recognised as label images.
const LABELS: [&str; 8] =
    ["labels", "masks", "annotations", "label", "mask", "annotation", "segmentations", "SegmentationClass"];
/// Suffixes that the name of a label image may add to that of its image.
const SUFFIXES: [&str; 6] = ["", "_mask", "_masks", "_label", "_labels", "_L"];

/// Suffixes that the name of a folder of label images may add to that of its part, as `trainannot` in CamVid.
const FOLDER_SUFFIXES: [&str; 5] = ["annot", "_annot", "_labels", "_masks", "_mask"];

/// Folders of images and of label images of Cityscapes, and the ends of the names of their files.
const CITYSCAPES_IMAGES: [&str; 2] = ["leftImg8bit", "_leftImg8bit.png"];
const CITYSCAPES_LABELS: [&str; 2] = ["gtFine", "_gtFine_labelIds.png"];

/// Folder of lists in PASCAL VOC's layout.
const VOC_LISTS: &str = "ImageSets/Segmentation";
/// Number of images of which one is the first for evaluation.
const MIN_IMAGES: usize = 5;

/// Paths of an image file and of the file with its labels.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub image: PathBuf,
    pub labels: PathBuf,
}

/// Pairs of image and label files, by split.
pub(super) struct Pairs {
    pub train: Vec<Pair>,
    /// Pairs of the validation set, if there is one.
    pub validation: Option<Vec<Pair>>,
    pub test: Vec<Pair>,
    /// True if the data define the split; if false, every fifth image is the test set.
    pub told: bool,
    /// Lists that were read.
    pub lists: Vec<PathBuf>,
}

/// Folders of the images of a split and of their labels.
#[derive(Clone, Debug)]
struct Folders {
    images: PathBuf,
    labels: PathBuf,
    /// True if other splits have their labels in the same folder.
    shared: bool,
}

/// Folders for training, and those for test and for validation, if there are such.
type PartsWithLabels = (Folders, [Option<Folders>; 2]);

/// Lists of the names of each part.
struct Lists {
    train: List,
    test: List,
    /// Names for scores during training, beside those of the test set.
    validation: Option<List>,
    /// List that has the images of validation or test among those for training.
    both: Option<List>,
}

/// Finds pairs of image and label files; returns `None` if a directory has no folders with such.
pub(super) fn pairs(dir: &Path, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Option<Pairs>, DataError> {
    if is_cityscapes(dir) {
        return cityscapes(dir, broken).map(Some);
    }
    let Some([images, labels]) = siblings(dir)? else {
        let parts = PartFolders::find(dir)?;
        if let Some((train, others)) = annotated(dir, &parts)? {
            return by_folder(dir, train, others, reading, broken).map(Some);
        }
        let inner = |part: &Option<PathBuf>| match part {
            Some(folder) => Ok(siblings(folder)?.map(|[images, labels]| Folders { images, labels, shared: false })),
            None => Ok(None),
        };
        let Some(train) = inner(&parts.train)? else { return Ok(None) };
        let others = [inner(&parts.test)?, inner(&parts.validation)?];
        return by_folder(dir, train, others, reading, broken).map(Some);
    };
    let parts = PartFolders::find(&images)?;
    if let Some(train) = parts.train {
        let theirs = PartFolders::find(&labels).unwrap_or_default();
        let inner = |images: PathBuf, part: Option<PathBuf>| match part {
            Some(labels) => Folders { images, labels, shared: false },
            None => Folders { images, labels: labels.clone(), shared: true },
        };
        let both = |images: Option<PathBuf>, part| images.map(|images| inner(images, part));
        let others = [both(parts.test, theirs.test), both(parts.validation, theirs.validation)];
        return by_folder(dir, inner(train, theirs.train), others, reading, broken).map(Some);
    }
    let folders = Folders { images, labels, shared: false };
    let all = Found::read(dir, &folders, broken)?;
    match lists(dir)? {
        Some(lists) => by_list(&all, &lists, reading, broken).map(Some),
        None => {
            let pairs = all.pair_all(broken);
            let count = pairs.len();
            let [train, test] = fifths(pairs);
            if !train.is_empty() && test.is_empty() {
                return Err(too_few(count, &folders.images));
            }
            Ok(Some(Pairs { train, validation: None, test, told: false, lists: Vec::new() }))
        }
    }
}

/// Finds folders of parts with a folder of label images beside each, as `train` and `trainannot`. Returns those for
/// training, for test and for validation; `None` if the training images have no such folder.
fn annotated(dir: &Path, parts: &PartFolders) -> Result<Option<PartsWithLabels>, DataError> {
    let folders = files::folders(dir)?;
    let beside = |part: &PathBuf| {
        let name = file_name(part);
        FOLDER_SUFFIXES.iter().find_map(|suffix| named(&folders, &format!("{name}{suffix}"))).cloned()
    };
    let Some((train, labels)) = parts.train.as_ref().and_then(|train| Some((train, beside(train)?))) else {
        return Ok(None);
    };
    let other = |part: &Option<PathBuf>| {
        let images = part.clone()?;
        let labels = beside(&images).unwrap_or_else(|| dir.join(format!("{}annot", file_name(&images))));
        Some(Folders { images, labels, shared: false })
    };
    let train = Folders { images: train.clone(), labels, shared: false };
    Ok(Some((train, [&parts.test, &parts.validation].map(other))))
}

/// Returns true for a directory in the layout of Cityscapes.
pub(super) fn is_cityscapes(dir: &Path) -> bool {
    [CITYSCAPES_IMAGES, CITYSCAPES_LABELS].iter().all(|[folder, _]| dir.join(folder).is_dir())
}

/// Finds the pairs of Cityscapes. Its validation set is for the final scores, since labels of its test set are not
/// public: the files there are empty.
fn cityscapes(dir: &Path, broken: &mut Broken<'_>) -> Result<Pairs, DataError> {
    let images = dir.join(CITYSCAPES_IMAGES[0]);
    let mut find = |part: &str| {
        let mut pairs = Vec::new();
        for city in files::folders(&images.join(part))? {
            let labels = dir.join(CITYSCAPES_LABELS[0]).join(part).join(file_name(&city));
            for image in ImageFolder::list(&city)?.images {
                pairs.push(image.and_then(|image| cityscapes_pair(image, &labels)));
            }
        }
        Ok::<_, DataError>(broken.sift(pairs))
    };
    let (train, test) = (find(files::TRAIN[0])?, find(files::VALIDATION[0])?);
    let withheld = images.join(files::TEST[0]);
    match files::images_below(&withheld) {
        0 => {}
        count => broken.leave_out(format!(
            "{} in {}, whose labels are not public",
            files::images(count),
            within(dir, &withheld)
        )),
    }
    Ok(Pairs { train, validation: None, test, told: true, lists: Vec::new() })
}

/// Pairs an image of Cityscapes with its label image in a folder.
fn cityscapes_pair(image: PathBuf, labels: &Path) -> Result<Pair, DataError> {
    let [[_, end], [_, label_end]] = [CITYSCAPES_IMAGES, CITYSCAPES_LABELS];
    let name = file_name(&image);
    let stem = name.strip_suffix(end).unwrap_or(&name);
    let labels = labels.join(format!("{stem}{label_end}"));
    if labels.is_file() {
        Ok(Pair { image, labels })
    } else {
        Err(Cause::Missing(format!("no label image for {}", image.display())).at(labels))
    }
}

/// Returns the error about fewer images than a test set needs.
fn too_few(count: usize, images: &Path) -> DataError {
    let words = format!(
        "{}: every fifth is held out for evaluation, so {MIN_IMAGES} are needed; add images, or a test set of its own",
        files::images(count)
    );
    Cause::Files(words).at(images)
}

/// Sorts images whose split is that of their folders.
fn by_folder(
    dir: &Path, train: Folders, [test, validation]: [Option<Folders>; 2], reading: &DataOptions,
    broken: &mut Broken<'_>,
) -> Result<Pairs, DataError> {
    let mut labelled = |part: Option<Folders>| {
        let part = part?;
        if part.labels.is_dir() && !part.shared || part.has_labels() {
            return Some(part);
        }
        let count = files::images(files::images_below(&part.images));
        broken.leave_out(format!("{count} in {}, which have no label images", within(dir, &part.images)));
        None
    };
    let [test, validation] = [labelled(test), labelled(validation)];
    let (test, validation) = if test.is_some() { (test, validation) } else { (validation, None) };
    let mut lists = Vec::new();
    let mut found = |folders: &Folders| {
        let all = Found::read(dir, folders, broken)?;
        // A list of the folder's name tells the order.
        let folder = part_name(dir, &folders.images);
        match List::read(&dir.join(format!("{folder}.txt")))? {
            Some(list) => {
                lists.push(list.path.clone());
                all.listed(&list, broken)
            }
            None => Ok(all.pair_all(broken)),
        }
    };
    let images = train.images.clone();
    let train = found(&train)?;
    let validation = validation.filter(|_| reading.validation).map(|folders| found(&folders)).transpose()?;
    if let Some(test) = test {
        let test = found(&test)?;
        return Ok(Pairs { train, validation, test, told: true, lists });
    }
    let count = train.len();
    let [train, test] = fifths(train);
    if !train.is_empty() && test.is_empty() {
        return Err(too_few(count, &images));
    }
    Ok(Pairs { train, validation: None, test, told: false, lists })
}

/// Returns the name of the folder that makes images a part: of `images/train` or `train/images` it is `train`.
fn part_name(dir: &Path, images: &Path) -> String {
    let inner = images.strip_prefix(dir).unwrap_or(images);
    let own = |path: &Path| file_name(path);
    let is_images = |name: &String| IMAGES.iter().any(|known| name.eq_ignore_ascii_case(known));
    let last = own(inner);
    if is_images(&last) { inner.parent().map_or(last, own) } else { last }
}

/// Sorts images whose split is that of lists.
fn by_list(all: &Found, lists: &Lists, reading: &DataOptions, broken: &mut Broken<'_>) -> Result<Pairs, DataError> {
    lists.test.check_apart(&lists.train, &all.images)?;
    let validation = lists.validation.as_ref().filter(|_| reading.validation);
    if let Some(validation) = validation {
        validation.check_apart(&lists.train, &all.images)?;
        validation.check_apart(&lists.test, &all.images)?;
    }
    let train = all.listed(&lists.train, broken)?;
    let test = all.listed(&lists.test, broken)?;
    let validation = validation.map(|list| all.listed(list, broken)).transpose()?;
    let (mut named, mut read) = (BTreeSet::new(), Vec::new());
    for list in [Some(&lists.train), Some(&lists.test), lists.validation.as_ref(), lists.both.as_ref()] {
        let Some(list) = list else { continue };
        read.push(list.path.clone());
        let files = list.files(&all.images)?;
        named.extend(files.into_iter().filter_map(|one| one.file).map(|(stem, _)| stem));
    }
    let unnamed = all.images.len().saturating_sub(named.len());
    if unnamed > 0 {
        broken.leave_out(format!("{} that no list names", files::images(unnamed)));
    }
    Ok(Pairs { train, validation, test, told: true, lists: read })
}

/// Reads the lists of a directory, in it or in PASCAL VOC's folder; returns `None` if it has none.
fn lists(dir: &Path) -> Result<Option<Lists>, DataError> {
    for folder in [dir.to_owned(), dir.join(VOC_LISTS)] {
        let list = |names: &[&str]| {
            let read = |name: &&str| List::read(&folder.join(format!("{name}.txt"))).transpose();
            names.iter().find_map(read).transpose()
        };
        let [train, both] = [list(&files::TRAIN)?, list(&["trainval"])?];
        let [test, validation] = [list(&files::TEST)?, list(&files::VALIDATION)?];
        let (test, validation) = if test.is_some() { (test, validation) } else { (validation, None) };
        let (train, both) = if train.is_some() { (train, both) } else { (both, None) };
        match (train, test) {
            (Some(train), Some(test)) => return Ok(Some(Lists { train, test, validation, both })),
            (Some(train), None) => {
                let train = file_name(&train.path);
                let user = format!("{train} lists the training images, and test.txt or val.txt those for evaluation");
                return Err(Cause::Missing(user).at(folder.join("test.txt")));
            }
            (None, Some(test)) => {
                let user = format!("{} needs a list of training images beside it", file_name(&test.path));
                return Err(Cause::Missing(user).at(folder.join("train.txt")));
            }
            (None, None) => {}
        }
    }
    Ok(None)
}

/// Returns true if a directory has images with label images.
pub(super) fn labelled(dir: &Path) -> bool {
    let both = |dir: &Path| siblings(dir).ok().flatten().is_some_and(|[_, labels]| labels.is_dir());
    let parts = PartFolders::find(dir).unwrap_or_default();
    both(dir)
        || is_cityscapes(dir)
        || annotated(dir, &parts).is_ok_and(|found| found.is_some())
        || parts.train.is_some_and(|train| both(&train))
}

/// Returns the folders of images and of labels in a directory.
fn siblings(dir: &Path) -> Result<Option<[PathBuf; 2]>, DataError> {
    let folders = files::folders(dir)?;
    let find = |names: &[&str]| names.iter().find_map(|name| named(&folders, name)).cloned();
    Ok(find(&IMAGES).map(|images| [images, find(&LABELS).unwrap_or_else(|| dir.join(LABELS[0]))]))
}

impl Folders {
    /// Returns true if some image has a label image.
    fn has_labels(&self) -> bool {
        let stems = |folder: &Path| -> BTreeSet<OsString> {
            let content = ImageFolder::list(folder).unwrap_or_default();
            content.images.into_iter().flatten().filter_map(|path| path.file_stem().map(OsStr::to_owned)).collect()
        };
        let labels = stems(&self.labels);
        stems(&self.images).iter().any(|stem| SUFFIXES.iter().any(|suffix| labels.contains(&with(stem, suffix))))
    }
}

/// Appends a suffix to a name.
fn with(stem: &OsStr, suffix: &str) -> OsString {
    let mut name = stem.to_owned();
    name.push(suffix);
    name
}

/// Images and label images of a pair of folders, by their names without suffix.
struct Found {
    folder: PathBuf,
    images: BTreeMap<OsString, PathBuf>,
    labels_folder: PathBuf,
    labels: BTreeMap<OsString, Result<PathBuf, DataError>>,
}

impl Found {
    /// Lists the files of two folders, and records those that have no place.
    fn read(dir: &Path, folders: &Folders, broken: &mut Broken<'_>) -> Result<Self, DataError> {
        let content = ImageFolder::list(&folders.images)?;
        if content.images.is_empty() {
            return Err(without_images(&folders.images, "PNG or JPEG files"));
        }
        content.note_others(dir, broken);
        let mut images = BTreeMap::new();
        for path in broken.sift(content.images) {
            let stem = path.file_stem().unwrap_or_default().to_owned();
            if images.insert(stem, path.clone()).is_some() {
                return Err(Cause::SameStem.at(path));
            }
        }
        if !folders.labels.is_dir() {
            let names = LABELS.join(", ");
            let words = format!("images, but no folder of label images; expected one called {names}");
            let outer = folders.images.parent().unwrap_or(&folders.images);
            return Err(Cause::Files(words).at(outer));
        }
        let content = ImageFolder::list(&folders.labels)?;
        let deeper = content.folders.iter().map(|folder| files::images_below(folder)).sum::<usize>();
        if deeper > 0 && !folders.shared {
            broken.leave_out(format!("{} in folders of {}", files::images(deeper), within(dir, &folders.labels)));
        }
        let mut labels = BTreeMap::new();
        for found in content.images {
            // Other formats are an error only if an image has no PNG file.
            let path = found.as_ref().map_or_else(|error| error.path().to_owned(), Clone::clone);
            let stem = path.file_stem().unwrap_or_default().to_owned();
            let png = path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("png"));
            let found = match found {
                Ok(path) if !png => Err(Cause::LabelFormat("JPEG".to_owned()).at(path)),
                Err(error) => Err(match error.cause() {
                    Cause::Format(name) => Cause::LabelFormat(name.clone()).at(error.path()),
                    _ => error,
                }),
                Ok(path) => Ok(path),
            };
            if png || !labels.contains_key(&stem) {
                labels.insert(stem, found);
            }
        }
        let of_image = |stem: &OsString| {
            let stem = stem.to_string_lossy();
            let image =
                |suffix: &&str| stem.strip_suffix(*suffix).is_some_and(|stem| images.contains_key(OsStr::new(stem)));
            SUFFIXES.iter().any(image)
        };
        let alone = labels.keys().filter(|stem| !of_image(stem)).count();
        if alone > 0 && !folders.shared {
            let count = if alone == 1 { "1 label image".to_owned() } else { format!("{alone} label images") };
            broken.leave_out(format!("{count} without an image in {}", within(dir, &folders.labels)));
        }
        let (folder, labels_folder) = (folders.images.clone(), folders.labels.clone());
        Ok(Self { folder, images, labels_folder, labels })
    }

    /// Returns the image with its label image.
    fn pair(&self, stem: &OsStr, image: &Path) -> Result<Pair, DataError> {
        let found: Vec<_> = SUFFIXES.iter().filter_map(|suffix| self.labels.get(&with(stem, suffix))).collect();
        if let Some(labels) = found.iter().find_map(|labels| labels.as_ref().ok()) {
            return Ok(Pair { image: image.to_owned(), labels: labels.clone() });
        }
        Err(match found.first() {
            Some(Err(error)) => match error.cause() {
                Cause::LabelFormat(name) => Cause::LabelFormat(name.clone()),
                Cause::Irregular => Cause::Irregular,
                cause => Cause::Files(cause.to_string()),
            }
            .at(error.path()),
            Some(Ok(_)) | None => {
                let user = format!("no label image for {}", image.display());
                Cause::Missing(user).at(self.labels_folder.join(with(stem, ".png")))
            }
        })
    }

    /// Returns all images by name.
    fn pair_all(&self, broken: &mut Broken<'_>) -> Vec<Pair> {
        broken.sift(self.images.iter().map(|(stem, image)| self.pair(stem, image)))
    }

    /// Returns the images of a list in its order.
    fn listed(&self, list: &List, broken: &mut Broken<'_>) -> Result<Vec<Pair>, DataError> {
        if list.is_empty() {
            return Err(Cause::Files("no names; write the name of an image in each line".to_owned()).at(&list.path));
        }
        let one = |listed: super::lists::Listed<(OsString, PathBuf)>| match listed.file {
            Some((stem, image)) => self.pair(&stem, &image),
            None => {
                let user = format!("{} lists it in line {}", file_name(&list.path), listed.line);
                Err(Cause::Missing(user).at(self.folder.join(listed.text)))
            }
        };
        Ok(broken.sift(list.files(&self.images)?.into_iter().map(one)))
    }
}

/// Loads all files of a split, in memory as far as the limit allows; returns `None` if none can be read.
pub(super) fn split(pairs: Vec<Pair>, reading: &DataOptions, broken: &mut Broken<'_>) -> Option<Loaded> {
    let size = reading
        .size
        .map(|size| size.0)
        .or_else(|| pairs.iter().find_map(|pair| read(&pair.image).ok().and_then(|file| decode::size(&file).ok())));
    // Without a size all files are read for their errors.
    let form = Form { size: size.unwrap_or([1; 2]), channels: 3, resize: reading.size.is_some() };
    let size = form.size;
    let pixels = size[0].saturating_mul(size[1]);
    let keep = reading.keeps(pairs.len(), pixels.saturating_mul(4));
    let look = |pair: &Pair| {
        let image = read(&pair.image)?;
        let decoded = decode::image(&image, form).map_err(|cause| cause.at(&pair.image))?;
        let labels = read(&pair.labels)?;
        let tally = || {
            decode::check_label_size(&labels, &image)?;
            Ok(Tally::count_image(&decode::labels(&labels, form)?, size[1]))
        };
        let tally = tally().map_err(|cause: Cause| cause.at(&pair.labels))?;
        Ok((if keep { decoded } else { Vec::new() }, tally))
    };
    let looked = each_file(pairs.len(), |i| look(&pairs[i]));
    let whole = broken.sift(pairs.into_iter().zip(looked).map(|(pair, looked)| Ok((pair, looked?))));
    let (mut bytes, mut tally, mut paths, mut labels_from) = (Vec::new(), Tally::default(), Vec::new(), Vec::new());
    for (i, (pair, (image, counts))) in whole.into_iter().enumerate() {
        bytes.extend(image);
        tally.add(i, &counts);
        paths.push(pair.image);
        labels_from.push(pair.labels);
    }
    let count = paths.len();
    let files = paths.iter().zip(&labels_from).flat_map(|(image, labels)| [image.clone(), labels.clone()]).collect();
    let (images, sources) = match keep {
        true => (bytes.into(), Sources::Files(paths)),
        false => (Store::Files { paths, form, values: None }, Sources::Unnamed),
    };
    let labels = Store::Files { paths: labels_from.clone(), form, values: None };
    let split = Split { count, height: size[0], width: size[1], images, labels, sources };
    (count > 0).then_some(Loaded { split, labels_from, files, tally, keep })
}
