//! Layouts of data sets with boxes: PASCAL VOC, folders as labelImg writes them, COCO and YOLO.

use super::{
    coco::{Coco, is_coco},
    listed::Listed,
    yolo,
};
use crate::{
    Cause, DataError, DataOptions,
    encoding::read_text,
    error::few,
    files::{SUPPORTED_SUFFIXES, TEST, TRAIN, VALIDATION, fifths, file_name, folders, images, lower_name, visible},
    listing, split_note,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Expected layout of a directory for object detection, for error messages.
const LAYOUT: &str = "Annotations/*.xml and JPEGImages/*.jpg as in PASCAL VOC, in it or in one folder of it; \
                      ImageSets/Main/{train,val,trainval,test}.txt list the names; or images with XML files beside \
                      them; or annotations/*.json as in COCO; or images and labels/*.txt as in YOLO";
/// Names of folders and files of each part of a data set: training, validation, test.
const PARTS: [&[&str]; 3] = [&TRAIN, &VALIDATION, &TEST];
/// Names of folders with images, in small letters.
const IMAGE_FOLDERS: [&str; 2] = ["jpegimages", "images"];
/// Names of folders with annotations, in small letters.
const ANNOTATION_FOLDERS: [&str; 3] = ["annotations", "labels", "xmls"];

/// Images of a data set by part.
#[derive(Debug, Default)]
pub(super) struct AnnotationLayout {
    /// Directory that has the data, for error messages.
    pub root: PathBuf,
    /// Images for training, for scores during training, and for the final scores.
    pub parts: [Vec<Listed>; 3],
    /// Names of the classes by their numbers, if the layout has them.
    pub names: Vec<String>,
    /// True if the names are all classes; otherwise only those that occur are.
    pub all_classes: bool,
    pub taken: Vec<String>,
    /// Lists of names that were read, of images or of classes.
    pub lists: Vec<PathBuf>,
}

impl AnnotationLayout {
    /// Finds the layout of a directory.
    ///
    /// # Errors
    /// A directory of no layout, lists and files that cannot be read.
    pub fn find(dir: &Path, reading: &DataOptions) -> Result<Self, DataError> {
        if let Some(root) = voc_root(dir)? {
            return Self::voc(root, reading);
        }
        let layout = match Self::coco(dir, reading)? {
            Some(layout) => Some(layout),
            None => Self::pairs(dir, reading)?,
        };
        layout.ok_or_else(|| match listing(dir) {
            Ok(found) => Cause::Layout { expected: LAYOUT, found }.at(dir),
            Err(error) => error,
        })
    }

    fn voc(root: PathBuf, reading: &DataOptions) -> Result<Self, DataError> {
        let (mut taken, mut lists) = (Vec::new(), Vec::new());
        let parts = voc_parts(&root, reading, &mut taken, &mut lists)?;
        let listed = |name: String| Listed::Voc {
            images: root.join("JPEGImages"),
            xml: root.join("Annotations").join(format!("{name}.xml")),
            name,
        };
        let parts = parts.map(|names| names.into_iter().map(listed).collect());
        Ok(Self { root, parts, taken, lists, ..Self::default() })
    }

    /// Finds annotation files of COCO: in the directory, in its folder `annotations`, or in a folder for each part.
    fn coco(dir: &Path, reading: &DataOptions) -> Result<Option<Self>, DataError> {
        let (mut files, mut parts) = (json_files(dir)?, [const { Vec::new() }; 3]);
        let folders = folders(dir)?;
        for folder in &folders {
            let name = lower_name(folder);
            if ANNOTATION_FOLDERS.contains(&name.as_str()) || part_of(&name).is_some() {
                files.extend(json_files(folder)?);
            }
        }
        let (mut whole, mut names, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for file in files {
            let (own, stem) = (file.parent().unwrap_or(dir), file.file_stem().unwrap_or_default().to_string_lossy());
            let part = part_of(&stem.to_lowercase()).or_else(|| part_of(&lower_name(own)));
            let Some(coco) = Coco::read(&file, &image_folders(dir, own, &folders, &stem))? else {
                others.push(file_name(&file));
                continue;
            };
            for name in coco.classes {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            part.map_or(&mut whole, |part: usize| &mut parts[part]).extend(coco.images);
        }
        if whole.is_empty() && parts.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let mut layout = Self::split(dir, whole, parts, reading)?;
        if !others.is_empty() {
            layout.taken.push(format!("left out: {} (no images and annotations as in COCO)", few(&others)));
        }
        Ok(Some(Self { names, ..layout }))
    }

    /// Finds folders of images with XML files or label files of YOLO, in them or in folders beside them.
    fn pairs(dir: &Path, reading: &DataOptions) -> Result<Option<Self>, DataError> {
        let found = Pair::find(dir)?;
        let (mut parts, mut folders) = ([const { Vec::new() }; 3], vec![dir.to_owned()]);
        let (mut whole, mut taken) = (Vec::new(), Vec::new());
        if let Some(pair) = &found {
            folders.push(pair.annotations.clone());
            whole = pair.listed(&mut taken)?;
        }
        for (part, path) in part_folders(dir)? {
            if let Some(pair) = Pair::find(&path)? {
                folders.push(pair.annotations.clone());
                parts[part].extend(pair.listed(&mut taken)?);
            }
        }
        // The parts may be inside of the folders of images and of annotations.
        if let Some((images, annotations)) = Pair::folders(dir)? {
            let inside: BTreeMap<usize, PathBuf> = part_folders(&annotations)?.into_iter().collect();
            for (part, images) in part_folders(&images)? {
                let annotations = inside.get(&part).unwrap_or(&images).clone();
                if let Some(pair) = Pair::from_folders(images, annotations)? {
                    parts[part].extend(pair.listed(&mut taken)?);
                }
            }
            folders.push(annotations);
        }
        if whole.is_empty() && parts.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let (list, names) = yolo::find_names(&folders)?.unzip();
        let names = names.unwrap_or_default();
        let layout = Self::split(dir, whole, parts, reading)?;
        let is_yolo = |listed: &Listed| matches!(listed, Listed::Yolo { .. });
        let all_classes = !names.is_empty() && layout.parts.iter().flatten().any(is_yolo);
        let taken = taken.into_iter().chain(layout.taken).collect();
        Ok(Some(Self { names, all_classes, taken, lists: list.into_iter().collect(), ..layout }))
    }

    /// Chooses the images of each part: those of its folder or file. `whole` has the images of no part, which are for
    /// training. Without images for validation or test, every fifth image is for the final scores.
    fn split(
        dir: &Path, whole: Vec<Listed>, [train, validation, test]: [Vec<Listed>; 3], reading: &DataOptions,
    ) -> Result<Self, DataError> {
        let train: Vec<Listed> = train.into_iter().chain(whole).collect();
        if train.is_empty() {
            return Err(Cause::Boxes("no images for training; name their folder or file train".into()).at(dir));
        }
        let (parts, note) = match (validation.is_empty(), test.is_empty()) {
            (_, false) if reading.validation => ([train, validation, test], None),
            (_, false) => ([train, Vec::new(), test], None),
            (false, true) => {
                let note = "no test set: the validation images are used for evaluation".to_owned();
                ([train, Vec::new(), validation], Some(note))
            }
            (true, true) => {
                let [train, test] = fifths(train);
                let note = split_note(train.len(), test.len());
                ([train, Vec::new(), test], Some(note))
            }
        };
        Ok(Self { root: dir.to_owned(), parts, taken: note.into_iter().collect(), ..Self::default() })
    }
}

/// Folder of images with the folder of their annotations, which may be the same.
struct Pair {
    images: PathBuf,
    annotations: PathBuf,
    /// Suffix of the annotations: `xml`, or `txt` for YOLO.
    suffix: &'static str,
}

impl Pair {
    /// Finds images and annotations in a directory, or in two folders of it.
    fn find(dir: &Path) -> Result<Option<Self>, DataError> {
        if let Some(pair) = Self::from_folders(dir.to_owned(), dir.to_owned())? {
            return Ok(Some(pair));
        }
        match Self::folders(dir)? {
            Some((images, annotations)) => Self::from_folders(images, annotations),
            None => Ok(None),
        }
    }

    /// Returns the folder of images and that of annotations in a directory.
    fn folders(dir: &Path) -> Result<Option<(PathBuf, PathBuf)>, DataError> {
        let folders = folders(dir)?;
        let find = |names: &[&str]| {
            names.iter().find_map(|name| folders.iter().find(|path| lower_name(path) == *name)).cloned()
        };
        Ok(find(&IMAGE_FOLDERS).zip(find(&ANNOTATION_FOLDERS)))
    }

    /// Pairs folders if an image has an annotation of its name.
    fn from_folders(images: PathBuf, annotations: PathBuf) -> Result<Option<Self>, DataError> {
        let known: BTreeSet<String> = stems(&images, &SUPPORTED_SUFFIXES)?.into_keys().collect();
        for suffix in ["xml", "txt"] {
            if stems(&annotations, &[suffix])?.keys().any(|stem| known.contains(stem)) {
                return Ok(Some(Self { images, annotations, suffix }));
            }
        }
        Ok(None)
    }

    /// Lists the images. Those without an XML file are left out, since nobody has annotated them yet; those without a
    /// label file of YOLO have no objects.
    fn listed(&self, taken: &mut Vec<String>) -> Result<Vec<Listed>, DataError> {
        let found = stems(&self.images, &SUPPORTED_SUFFIXES)?;
        let mut annotations = stems(&self.annotations, &[self.suffix])?;
        let folder = file_name(&self.images);
        let (mut listed, mut without) = (Vec::new(), 0);
        for (name, image) in found {
            match (annotations.remove(&name), self.suffix) {
                (Some(xml), "xml") => listed.push(Listed::Voc { images: self.images.clone(), name, xml }),
                (None, "xml") => without += 1,
                (labels, _) => {
                    without += usize::from(labels.is_none());
                    listed.push(Listed::Yolo { image, labels });
                }
            }
        }
        if self.suffix == "xml" {
            // These lack their images, which is an error.
            let alone = annotations.into_iter();
            listed.extend(alone.map(|(name, xml)| Listed::Voc { images: self.images.clone(), name, xml }));
        }
        if without > 0 {
            let what = match (self.suffix, without) {
                ("xml", _) => "left out: no XML file",
                (_, 1) => "taken as an image without objects: no label file",
                (_, _) => "taken as images without objects: no label file",
            };
            taken.push(format!("{folder}: {} {what}", images(without)));
        }
        Ok(listed)
    }
}

/// Returns the files of a folder with one of these suffixes, by their names without suffix.
fn stems(folder: &Path, suffixes: &[&str]) -> Result<BTreeMap<String, PathBuf>, DataError> {
    let one = |path: PathBuf| {
        let suffix = path.extension()?.to_string_lossy().to_lowercase();
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        suffixes.contains(&suffix.as_str()).then_some((stem, path))
    };
    Ok(visible(folder)?.into_iter().filter_map(one).collect())
}

/// Returns the annotation files of COCO in a folder.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    Ok(visible(folder)?.into_iter().filter(|path| path.is_file() && is_coco(path)).collect())
}

/// Returns the folders in which images of an annotation file may be, the likeliest first.
fn image_folders(dir: &Path, own: &Path, folders: &[PathBuf], stem: &str) -> Vec<PathBuf> {
    // As `train2017` in `instances_train2017.json`.
    let part = stem.rsplit(['_', '-', '.']).next().unwrap_or(stem);
    let inside = [dir.join("images"), dir.to_owned()].into_iter().flat_map(|at| [at.join(part), at]);
    std::iter::once(own.to_owned()).chain(inside).chain(folders.iter().cloned()).collect()
}

/// Returns the part that a name in small letters belongs to, if it says so.
fn part_of(name: &str) -> Option<usize> {
    let words = || name.split(|c: char| !c.is_ascii_alphabetic());
    PARTS.iter().position(|names| words().any(|word| names.contains(&word)))
}

/// Returns the folders of parts in a directory.
fn part_folders(dir: &Path) -> Result<Vec<(usize, PathBuf)>, DataError> {
    Ok(folders(dir)?.into_iter().filter_map(|path| Some((part_of(&lower_name(&path))?, path))).collect())
}

/// Returns the folder in PASCAL VOC's layout: this one, or the only one in it.
fn voc_root(dir: &Path) -> Result<Option<PathBuf>, DataError> {
    let is_one = |path: &PathBuf| path.join("Annotations").is_dir() && path.join("JPEGImages").is_dir();
    let own = dir.to_owned();
    if is_one(&own) {
        return Ok(Some(own));
    }
    let mut inside: Vec<PathBuf> = listing(dir)?.iter().map(|name| dir.join(name)).filter(is_one).collect();
    match inside.len() {
        0 | 1 => Ok(inside.pop()),
        _ => Err(Cause::Boxes("several folders have annotations; read one of them".into()).at(dir)),
    }
}

/// Returns the names of training, validation and test images.
fn voc_parts(
    root: &Path, reading: &DataOptions, taken: &mut Vec<String>, lists: &mut Vec<PathBuf>,
) -> Result<[Vec<String>; 3], DataError> {
    let mut list = |name: &str| {
        let path = root.join("ImageSets/Main").join(format!("{name}.txt"));
        let found = image_names(&path)?;
        lists.extend(found.is_some().then_some(path));
        Ok::<_, DataError>(found)
    };
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

/// Reads the names of images in a list file, if there is one. Further columns do not count.
fn image_names(path: &Path) -> Result<Option<Vec<String>>, DataError> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(path)?;
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
