//! Segmentation data as folders of image files.

use super::{Cause, DataError, Split, decode, split::Loaded};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io, panic,
    path::{Path, PathBuf},
    thread,
};

/// The split for scores: `test`, or `val` if only that is there.
pub(super) fn test(dir: &Path) -> &'static str {
    let there = |split: &str| dir.join("images").join(split).is_dir();
    if !there("test") && there("val") { "val" } else { "test" }
}

/// Reads a split.
pub(super) fn split(dir: &Path, name: &str) -> Result<Loaded, DataError> {
    let pairs = pairs(dir, name)?;
    let Some(first) = pairs.first() else {
        return Err(Cause::Empty.at(dir.join("images").join(name)));
    };
    let size = decode::size(&read(&first.image)?).map_err(|cause| cause.at(&first.image))?;

    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts = thread::scope(|scope| {
        let chunks = pairs.chunks(pairs.len().div_ceil(threads));
        let workers: Vec<_> = chunks.map(|pairs| scope.spawn(move || decoded(pairs, size))).collect();
        let parts = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|fault| panic::resume_unwind(fault)));
        parts.collect::<Result<Vec<_>, _>>()
    })?;
    let (images, labels): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let (images, labels) = (images.concat(), labels.concat());
    let split = Split { count: pairs.len(), height: size[0], width: size[1], images, labels };
    Ok(Loaded { split, labels_from: pairs.into_iter().map(|pair| pair.labels).collect() })
}

/// The files of an image and of its labels.
struct Pair {
    image: PathBuf,
    labels: PathBuf,
}

/// Pixels and labels of some images, one after the other.
fn decoded(pairs: &[Pair], size: [usize; 2]) -> Result<(Vec<u8>, Vec<u8>), DataError> {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for pair in pairs {
        images.extend(decode::image(&read(&pair.image)?, size).map_err(|cause| cause.at(&pair.image))?);
        labels.extend(decode::labels(&read(&pair.labels)?, size).map_err(|cause| cause.at(&pair.labels))?);
    }
    Ok((images, labels))
}

/// The files of a split: those its list names, in the list's order, or all images by name.
fn pairs(dir: &Path, name: &str) -> Result<Vec<Pair>, DataError> {
    let folder = dir.join("images").join(name);
    let images = by_stem(&folder)?;
    let list = dir.join(format!("{name}.txt"));
    let stems: Vec<OsString> = match fs::read_to_string(&list) {
        Ok(text) => text.lines().map(str::trim).filter(|line| !line.is_empty()).map(OsString::from).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => images.keys().cloned().collect(),
        Err(error) => return Err(Cause::Io(error).at(list)),
    };
    let pair = |stem: OsString| {
        let Some(image) = images.get(&stem) else {
            return Err(Cause::Missing(format!("{name}.txt lists it")).at(folder.join(stem)));
        };
        let mut file = stem;
        file.push(".png");
        let labels = dir.join("labels").join(name).join(file);
        if labels.exists() {
            Ok(Pair { image: image.clone(), labels })
        } else {
            Err(Cause::Missing(format!("{} needs its labels", image.display())).at(labels))
        }
    };
    stems.into_iter().map(pair).collect()
}

/// The images of a folder by their names without extension.
fn by_stem(folder: &Path) -> Result<BTreeMap<OsString, PathBuf>, DataError> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<_> = entries.map_err(|error: io::Error| Cause::Io(error).at(folder))?;
    paths.sort();
    let mut images = BTreeMap::new();
    for path in paths {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let (true, Some(stem)) = (["jpg", "jpeg", "png"].iter().any(|&known| extension == known), path.file_stem())
        else {
            continue;
        };
        if images.insert(stem.to_owned(), path.clone()).is_some() {
            return Err(Cause::SameStem.at(path));
        }
    }
    Ok(images)
}

fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|error| Cause::Io(error).at(path))
}
