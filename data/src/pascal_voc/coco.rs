//! Annotation files of COCO: JSON with images, annotations and categories.

use super::{
    annotation::{Annotation, Bounds, Object, ObjectPosition},
    listed::Listed,
};
use crate::{Cause, DataError, encoding::read_text, files::lower_name};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

/// Number of images of an annotation file by which their folder is found, since some of them may be missing.
const SAMPLED_IMAGES: usize = 16;

/// Annotation file of COCO; other fields, as polygons and licences, are not read. JSON files of other programs lack
/// images or annotations.
#[derive(Deserialize)]
struct CocoFile {
    images: Option<Vec<Image>>,
    annotations: Option<Vec<BoxEntry>>,
    #[serde(default)]
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

/// Returns true for JSON that may have annotations of boxes, by its name.
pub(super) fn is_coco(path: &Path) -> bool {
    let name = lower_name(path);
    // COCO has files of sentences, key points and areas beside those of boxes.
    let other = ["captions", "keypoints", "panoptic", "stuff", "image_info"].iter().any(|kind| name.contains(kind));
    name.ends_with(".json") && !other
}

impl Coco {
    /// Reads an annotation file, whose images are in one of these folders; returns `None` for JSON of another kind.
    ///
    /// # Errors
    /// A file that cannot be read, annotations of unknown images or classes.
    pub fn read(path: &Path, folders: &[PathBuf]) -> Result<Option<Self>, DataError> {
        let text = read_text(path)?;
        let wrong = |reason: String| Cause::Boxes(reason).at(path);
        // Files of other programs may be lists, or no valid JSON, as settings with comments. One that names either field
        // is a file of COCO, and an error if it is cut off.
        if text.trim_start().starts_with('[') || !["\"images\"", "\"annotations\""].iter().any(|key| text.contains(key))
        {
            return Ok(None);
        }
        let file: CocoFile =
            serde_json::from_str(&text).map_err(|error| wrong(format!("not an annotation file of COCO: {error}")))?;
        let CocoFile { images: Some(images), annotations: Some(entries), categories } = file else { return Ok(None) };
        let categories: BTreeMap<u64, String> = categories.into_iter().map(|one| (one.id, one.name)).collect();
        let places: HashMap<u64, usize> = images.iter().enumerate().map(|(i, image)| (image.id, i)).collect();
        if places.len() < images.len() {
            return Err(wrong("two images have the same id".to_owned()));
        }
        let size = |image: &Image| Some([image.height, image.width]).filter(|sides| !sides.contains(&0));
        let mut annotations: Vec<Annotation> =
            images.iter().map(|image| Annotation { size: size(image), objects: Vec::new() }).collect();
        for BoxEntry { id, image_id, category_id, bbox, iscrowd } in entries {
            let at = |reason: String| wrong(format!("annotation {id}: {reason}"));
            let place = places.get(&image_id).ok_or_else(|| at(format!("no image has the id {image_id}")))?;
            let class = categories.get(&category_id);
            let class = class.ok_or_else(|| at(format!("no category has the id {category_id}")))?.clone();
            let &[left, top, width, height] = &bbox[..] else {
                return Err(at("no bbox of four numbers".to_owned()));
            };
            let corners = [left, top, left + width, top + height];
            if !corners.iter().all(|edge| edge.is_finite()) {
                return Err(at("its bbox is not finite".to_owned()));
            }
            let bounds = Bounds::Edges(corners);
            annotations[*place].objects.push(Object {
                class,
                difficult: iscrowd > 0,
                bounds,
                place: ObjectPosition::Id(id),
            });
        }
        let sample = &images[..images.len().min(SAMPLED_IMAGES)];
        let there = |folder: &&PathBuf| sample.iter().any(|image| folder.join(&image.file_name).is_file());
        let folder = folders.iter().find(there).or(folders.first());
        let folder = folder.map_or_else(PathBuf::new, Clone::clone);
        let listed = |(image, annotation): (Image, Annotation)| Listed::Read {
            image: folder.join(&image.file_name),
            origin: path.to_owned(),
            annotation,
        };
        let images = images.into_iter().zip(annotations).map(listed).collect();
        Ok(Some(Self { images, classes: categories.into_values().collect() }))
    }
}
