//! Image files in folders, names of the parts of a data set, and the treatment of files that cannot be read.

use super::{Cause, DataError, DataOptions, error::few};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Suffixes of the image files that can be read.
pub(super) const SUPPORTED_SUFFIXES: [&str; 3] = ["png", "jpg", "jpeg"];
/// Suffixes of image formats that are not read, with their names for messages.
const UNSUPPORTED_SUFFIXES: [(&str, &str); 12] = [
    ("tif", "TIFF"),
    ("tiff", "TIFF"),
    ("bmp", "BMP"),
    ("gif", "GIF"),
    ("webp", "WebP"),
    ("avif", "AVIF"),
    ("heic", "HEIC"),
    ("heif", "HEIF"),
    ("jp2", "JPEG 2000"),
    ("ppm", "PPM"),
    ("pgm", "PGM"),
    ("svg", "SVG"),
];
/// Files that operating systems leave in folders of images. Messages do not count them.
const SYSTEM_FILES: [&str; 2] = ["thumbs.db", "desktop.ini"];
/// Folders that operating systems create in the root of a drive. Users have no permission to read them.
const SYSTEM_FOLDERS: [&str; 3] = ["lost+found", "System Volume Information", "$RECYCLE.BIN"];
/// Depth to which folders are searched for images that no layout reads. Real data sets have at most four levels.
const MAX_DEPTH: usize = 5;
/// Number of unreadable files that the line about left out files names.
const MAX_NAMED: usize = 5;

/// Names that are recognised as the training set.
pub(super) const TRAIN: [&str; 2] = ["train", "training"];
/// Names that are recognised as the test set.
pub(super) const TEST: [&str; 2] = ["test", "testing"];
/// Names that are recognised as the validation set, which replaces a missing test set.
pub(super) const VALIDATION: [&str; 3] = ["val", "valid", "validation"];

/// Returns the name of the test set, and that of the validation set if it is another.
pub(super) fn parts(there: impl Fn(&str) -> bool) -> [Option<&'static str>; 2] {
    let test = TEST.into_iter().find(|name| there(name));
    let validation = VALIDATION.into_iter().find(|name| there(name));
    if test.is_some() { [test, validation] } else { [validation, None] }
}

/// Folders of the parts of a data set, by their usual names in upper or lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartFolders {
    pub train: Option<PathBuf>,
    pub test: Option<PathBuf>,
    pub validation: Option<PathBuf>,
}

impl PartFolders {
    /// Finds the folders of parts in a directory.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn find(dir: &Path) -> Result<Self, DataError> {
        let folders = folders(dir)?;
        let find = |names: &[&str]| names.iter().find_map(|name| named(&folders, name)).cloned();
        Ok(Self { train: find(&TRAIN), test: find(&TEST), validation: find(&VALIDATION) })
    }

    /// Returns true for a folder that is one of the parts.
    pub fn contain(&self, folder: &Path) -> bool {
        [&self.train, &self.test, &self.validation].into_iter().flatten().any(|part| part == folder)
    }
}

/// Returns the path with this name, or else the first one whose name differs in case only.
pub(super) fn named<'a>(paths: &'a [PathBuf], name: &str) -> Option<&'a PathBuf> {
    let exact = paths.iter().find(|path| file_name(path) == name);
    exact.or_else(|| paths.iter().find(|path| file_name(path).eq_ignore_ascii_case(name)))
}

/// Returns the last part of a path as text.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the last part of a path in small letters.
pub(super) fn lower_name(path: &Path) -> String {
    file_name(path).to_lowercase()
}

/// Returns the file's name without the directory of the data set, for notes.
pub(super) fn within(dir: &Path, path: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).display().to_string()
}

/// Collector of what is left out: files and lines that cannot be read, and entries that no layout reads.
#[derive(Debug)]
pub(super) struct Broken<'a> {
    reading: &'a DataOptions,
    left_out: Vec<DataError>,
    notes: Vec<String>,
}

impl<'a> Broken<'a> {
    pub fn new(reading: &'a DataOptions) -> Self {
        Self { reading, left_out: Vec::new(), notes: Vec::new() }
    }

    /// Returns the items that could be read. [`Broken::check`] reports the others once all parts were read.
    pub fn sift<T>(&mut self, found: impl IntoIterator<Item = Result<T, DataError>>) -> Vec<T> {
        let keep = |one: Result<T, DataError>| one.map_err(|error| self.left_out.push(error)).ok();
        found.into_iter().filter_map(keep).collect()
    }

    /// Checks that items could be read, and that all could be unless the others are to be left out.
    ///
    /// # Errors
    /// The first item that could not be read, with the number of all.
    pub fn check(&mut self, kept: usize, dir: &Path) -> Result<(), DataError> {
        let count = self.left_out.len();
        if count == 0 || kept > 0 && self.reading.skip_broken {
            return Ok(());
        }
        let first = self.left_out.swap_remove(0);
        Err(match count {
            _ if kept == 0 && count > 1 => Cause::NoneReadable { count, first: Box::new(first) }.at(dir),
            1 => first,
            _ => first.and(count - 1),
        })
    }

    /// Returns the items that could be read.
    ///
    /// # Errors
    /// There are others, and they are not to be left out: the first of them, with the number of all.
    pub fn keep<T>(&mut self, found: impl IntoIterator<Item = Result<T, DataError>>) -> Result<Vec<T>, DataError> {
        let (mut whole, mut broken) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Ok(one) => whole.push(one),
                Err(error) => broken.push(error),
            }
        }
        if !self.reading.skip_broken && !broken.is_empty() {
            let more = broken.len() - 1;
            let first = broken.swap_remove(0);
            return Err(if more == 0 { first } else { first.and(more) });
        }
        self.left_out.append(&mut broken);
        Ok(whole)
    }

    /// Records entries that no layout reads, with the reason.
    pub fn leave_out(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Returns a note for each kind of entry that was left out, and for the first files that could not be read.
    pub fn lines(self) -> Vec<String> {
        let more = self.left_out.len().saturating_sub(MAX_NAMED);
        let named = self.left_out.iter().take(MAX_NAMED).map(ToString::to_string);
        let more = (more > 0).then(|| format!("{more} more that cannot be read"));
        self.notes.into_iter().chain(named).chain(more).collect()
    }
}

/// Content of a folder of images.
#[derive(Debug, Default)]
pub(super) struct ImageFolder {
    /// Image files by name, each with an error if it cannot be used.
    pub images: Vec<Result<PathBuf, DataError>>,
    /// Folders in this folder.
    pub folders: Vec<PathBuf>,
    /// Files that are no images.
    pub others: Vec<PathBuf>,
}

impl ImageFolder {
    /// Lists the content of a folder.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn list(folder: &Path) -> Result<Self, DataError> {
        let mut content = Self::default();
        for path in visible(folder)? {
            let about = fs::metadata(&path);
            if about.as_ref().is_ok_and(fs::Metadata::is_dir) {
                content.folders.push(path);
            } else if let Some(image) = image(&path) {
                let file = |about: io::Result<fs::Metadata>| match about {
                    Ok(about) if about.is_file() => image,
                    Ok(_) => Err(Cause::Irregular),
                    Err(error) => Err(Cause::Io(error)),
                };
                content.images.push(file(about).map_err(|cause| cause.at(&path)).map(|()| path));
            } else if !SYSTEM_FILES.contains(&lower_name(&path).as_str()) {
                content.others.push(path);
            }
        }
        Ok(content)
    }

    /// Records everything but the images as left out.
    pub fn note_others(&self, dir: &Path, broken: &mut Broken<'_>) {
        for folder in &self.folders {
            match images_below(folder) {
                0 => {}
                count => broken.leave_out(format!("{} in {}", images(count), within(dir, folder))),
            }
        }
        if let Some(first) = self.others.first() {
            let count = self.others.len();
            let others = if count == 1 { "1 other file".to_owned() } else { format!("{count} other files") };
            broken.leave_out(format!("{others} ({}{})", within(dir, first), if count == 1 { "" } else { " …" }));
        }
    }

    /// Describes what a folder without images has instead.
    pub fn described(&self) -> String {
        let names = |paths: &[PathBuf]| paths.iter().map(|path| file_name(path)).collect::<Vec<_>>();
        match (&self.folders[..], &self.others[..]) {
            ([], []) => "it is empty".to_owned(),
            ([], others) => format!("found {}", few(&names(others))),
            ([one], _) => format!("found the folder {}", file_name(one)),
            (folders, _) => format!("found the folders {}", few(&names(folders))),
        }
    }
}

/// Formats a number of images.
pub(super) fn images(count: usize) -> String {
    if count == 1 { "1 image".to_owned() } else { format!("{count} images") }
}

/// Returns whether an image file has a format that can be read, by its suffix; `None` for other files.
fn image(path: &Path) -> Option<Result<(), Cause>> {
    let suffix = path.extension()?.to_string_lossy().to_lowercase();
    let unsupported = || UNSUPPORTED_SUFFIXES.iter().find(|(known, _)| *known == suffix);
    match SUPPORTED_SUFFIXES.contains(&suffix.as_str()) {
        true => Some(Ok(())),
        false => unsupported().map(|(_, name)| Err(Cause::Format((*name).to_owned()))),
    }
}

/// Counts the images in a folder and in the folders below it.
pub(super) fn images_below(folder: &Path) -> usize {
    fn count(folder: &Path, depth: usize) -> usize {
        let Ok(content) = ImageFolder::list(folder) else { return 0 };
        let below = content.folders.iter().filter(|_| depth > 0).map(|folder| count(folder, depth - 1));
        content.images.len() + below.sum::<usize>()
    }
    count(folder, MAX_DEPTH)
}

/// Lists the files and folders in a folder, sorted, without hidden ones and those of the operating system.
pub(super) fn visible(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(|error: io::Error| Cause::Io(error).at(folder))?;
    paths.retain(|path| {
        let name = file_name(path);
        !name.starts_with('.') && !SYSTEM_FOLDERS.contains(&name.as_str())
    });
    paths.sort();
    Ok(paths)
}

/// Lists the folders in a folder, sorted, without hidden ones.
pub(super) fn folders(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    Ok(visible(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// Splits data without a test set: every fifth item is for evaluation.
pub(super) fn fifths<T>(all: Vec<T>) -> [Vec<T>; 2] {
    let mut parts = [Vec::new(), Vec::new()];
    for (i, one) in all.into_iter().enumerate() {
        parts[usize::from(i % 5 == 4)].push(one);
    }
    parts
}

/// Splits off every tenth item for validation. `None` for fewer than ten items.
pub(super) fn hold_out<T: Clone>(all: &[T]) -> Option<[Vec<T>; 2]> {
    let of = |held: bool| -> Vec<T> {
        let numbered = all.iter().enumerate();
        numbered.filter(|(i, _)| (i % 10 == 9) == held).map(|(_, one)| one.clone()).collect()
    };
    let parts = [of(false), of(true)];
    (!parts[1].is_empty()).then_some(parts)
}
