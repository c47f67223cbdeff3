//! Segmentation data as two IDX files for each split.

use super::{
    Cause, DataError, DataOptions, Idx, Sources, Split,
    files::{TEST, parts},
    split::Loaded,
    tally::Tally,
};
use std::path::{Path, PathBuf};

/// Returns the path of the plain file, or of the gzip file if only that exists.
pub(super) fn find(dir: &Path, name: &str) -> Result<PathBuf, DataError> {
    let plain = dir.join(name);
    let packed = dir.join(format!("{name}.gz"));
    if plain.is_file() {
        Ok(plain)
    } else if packed.is_file() {
        Ok(packed)
    } else {
        Err(Cause::Missing(format!("{name}.gz is missing too")).at(plain))
    }
}

/// Returns the name of the test set, `test` unless only `val` exists, and that of the validation set.
pub(super) fn names(dir: &Path) -> (&'static str, Option<&'static str>) {
    let [test, validation] = parts(|split| find(dir, &format!("{split}-images-idx4-ubyte")).is_ok());
    (test.unwrap_or(TEST[0]), validation)
}

/// Reads the images and labels of a split from packed IDX files.
pub(super) fn split(dir: &Path, name: &str, reading: &DataOptions) -> Result<Loaded, DataError> {
    let images_path = find(dir, &format!("{name}-images-idx4-ubyte"))?;
    let labels_path = find(dir, &format!("{name}-labels-idx3-ubyte"))?;
    let (dims, images) = Idx::open(&images_path, |count, bytes| reading.keeps(count, bytes))?;
    let &[count, height, width, 3] = &dims[..] else {
        return Err(Cause::Shape { expected: "images × rows × columns × 3".into(), found: dims }.at(images_path));
    };
    if dims.contains(&0) {
        return Err(Cause::Empty.at(images_path));
    }
    let (sizes, labels) = Idx::open(&labels_path, |count, bytes| reading.keeps(count, 3 * bytes))?;
    if sizes != [count, height, width] {
        let expected = format!("{count} × {height} × {width}, as in the image file");
        return Err(Cause::Shape { expected, found: sizes }.at(labels_path));
    }
    let mut tally = Tally::default();
    for image in 0..count {
        let labels = labels.get(image, height * width)?;
        tally.add(image, &Tally::count(labels.iter().map(|label| u32::from(*label))));
    }
    let split = Split { count, height, width, images, labels, sources: Sources::Unnamed };
    let files = vec![images_path, labels_path.clone()];
    Ok(Loaded { split, labels_from: vec![labels_path], files, tally, keep: false })
}
