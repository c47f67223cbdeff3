//! Annotation files of COCO: JSON with images, annotations and categories.

use super::{
    annotation::{Annotation, Bounds, Object, ObjectPosition},
    listed::Listed,
};
use crate::data::{Cause, DataError};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// Annotation file of COCO; other fields, as polygons and licences, are not read.
#[derive(Deserialize)]
struct CocoFile {
    images: Vec<Image>,
    annotations: Vec<BoxEntry>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image {
    id: u64,
    file_name: String,
    #[serde(default)]
    width: usize,
    #[serde(default)]
    height: usize,
}

#[derive(Deserialize)]
struct BoxEntry {
    #[serde(default)]
    id: u64,
    image_id: u64,
    category_id: u64,
    /// Left and top edge, width and height in pixels.
    #[serde(default)]
    bbox: Vec<f32>,
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: u64,
    name: String,
}

/// Images of an annotation file, and the names of its classes in the order of their numbers.
pub(super) struct Coco {
    pub images: Vec<Listed>,
    pub classes: Vec<String>,
}

/// Returns true for JSON that has images and annotations of boxes, by its beginning and its name.
pub(super) fn is_coco(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    // COCO has files of sentences, key points and areas beside those of boxes.
    let other = ["captions", "keypoints", "panoptic", "stuff", "image_info"].iter().any(|kind| name.contains(kind));
    name.ends_with(".json") && !other
}

impl Coco {
    /// Reads an annotation file, whose images are in one of these folders.
    ///
    /// # Errors
    /// A file that cannot be read or is of another kind, annotations of unknown images or classes.
    pub fn read(path: &Path, folders: &[PathBuf]) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|error| Cause::Io(error).at(path))?;
        let wrong = |reason: String| Cause::Boxes(reason).at(path);
        let file: CocoFile = serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes))
            .map_err(|error| wrong(format!("not an annotation file of COCO: {error}")))?;
        let categories: BTreeMap<u64, String> = file.categories.into_iter().map(|one| (one.id, one.name)).collect();
        let places: HashMap<u64, usize> = file.images.iter().enumerate().map(|(i, image)| (image.id, i)).collect();
        if places.len() < file.images.len() {
            return Err(wrong("two images have the same id".to_owned()));
        }
        let size = |image: &Image| Some([image.height, image.width]).filter(|sides| !sides.contains(&0));
        let mut annotations: Vec<Annotation> =
            file.images.iter().map(|image| Annotation { size: size(image), objects: Vec::new() }).collect();
        for BoxEntry { id, image_id, category_id, bbox, iscrowd } in file.annotations {
            let at = |reason: String| wrong(format!("annotation {id}: {reason}"));
            let place = places.get(&image_id).ok_or_else(|| at(format!("no image has the id {image_id}")))?;
            let class = categories.get(&category_id);
            let class = class.ok_or_else(|| at(format!("no category has the id {category_id}")))?.clone();
            let &[left, top, width, height] = &bbox[..] else {
                return Err(at("no bbox of four numbers".to_owned()));
            };
            // VOC counts pixels from 1.
            let corners = [left, top, left + width, top + height].map(|edge| edge + 1.0);
            if !corners.iter().all(|edge| edge.is_finite()) {
                return Err(at("its bbox is not finite".to_owned()));
            }
            let bounds = Bounds::Pixels(corners);
            annotations[*place].objects.push(Object {
                class,
                difficult: iscrowd > 0,
                bounds,
                place: ObjectPosition::Id(id),
            });
        }
        let there = |folder: &&PathBuf| file.images.iter().take(1).any(|image| folder.join(&image.file_name).is_file());
        let folder = folders.iter().find(there).or(folders.first());
        let folder = folder.map_or_else(PathBuf::new, Clone::clone);
        let listed = |(image, annotation): (Image, Annotation)| Listed::Read {
            image: folder.join(&image.file_name),
            origin: path.to_owned(),
            annotation,
        };
        let images = file.images.into_iter().zip(annotations).map(listed).collect();
        Ok(Self { images, classes: categories.into_values().collect() })
    }
}
