//! Images of a data set with their annotations, as a layout lists them, and their boxes once they are read.

use super::{annotation::Annotation, orientation::turned, yolo};
use crate::{Cause, DataError, Whole, decode, store::read};
use gradscale::metrics::Truth;
use image::metadata::Orientation;
use std::{
    io::Cursor,
    path::{Path, PathBuf},
};

/// Image that a layout lists, with the origin of its boxes.
#[derive(Clone, Debug)]
pub(super) enum Listed {
    /// Image with an annotation file of PASCAL VOC, which a list or a folder names.
    Voc {
        /// Folder of the images.
        images: PathBuf,
        /// Name of the image without its ending.
        name: String,
        xml: PathBuf,
    },
    /// Image with a label file of YOLO; an image without one has no objects.
    Yolo { image: PathBuf, labels: Option<PathBuf> },
    /// Image whose annotation is read, from a file of COCO.
    Read { image: PathBuf, origin: PathBuf, annotation: Annotation },
}

/// Image file with its annotation.
pub(super) struct Found {
    pub name: String,
    pub image: PathBuf,
    /// File that the boxes come from.
    pub origin: PathBuf,
    pub annotation: Annotation,
}

impl Listed {
    /// Reads the annotation of the image; `names` are those of YOLO's classes.
    ///
    /// # Errors
    /// A file that is missing or cannot be read.
    pub fn read(&self, names: &[String]) -> Result<Found, DataError> {
        match self {
            Self::Voc { images, name, xml } => Found::read_voc(images, name, xml),
            Self::Yolo { image, labels } => {
                let annotation = labels.as_ref().map(|labels| yolo::read(labels, names)).transpose()?;
                Ok(Found::new(image, labels.as_ref().unwrap_or(image), annotation.unwrap_or_default()))
            }
            Self::Read { image, origin, annotation } => {
                if !image.is_file() {
                    return Err(Cause::Missing(format!("{} lists it", origin.display())).at(image));
                }
                Ok(Found::new(image, origin, annotation.clone()))
            }
        }
    }
}

impl Found {
    fn new(image: &Path, origin: &Path, annotation: Annotation) -> Self {
        let name = image.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self { name, image: image.to_owned(), origin: origin.to_owned(), annotation }
    }

    fn read_voc(images: &Path, name: &str, xml: &Path) -> Result<Self, DataError> {
        if !xml.is_file() {
            return Err(Cause::Missing(format!("{name} is in a list of images")).at(xml));
        }
        let image = |end: &&str| images.join(format!("{name}.{end}"));
        let image = ["jpg", "jpeg", "JPG", "png", "JPEG", "PNG"].iter().map(image).find(|path| path.is_file());
        let missing = || {
            Cause::Missing(format!("there is {}, but no image of that name", xml.display()))
                .at(images.join(format!("{name}.jpg")))
        };
        let image = image.ok_or_else(missing)?;
        Ok(Self { name: name.to_owned(), ..Self::new(&image, xml, Annotation::read(xml)?) })
    }

    /// Decodes the image file to R G B, as it is shown, and reads the turn from the stored to the shown image.
    pub fn decoded(&self) -> Result<(Whole<'static>, Orientation), DataError> {
        let file = read(&self.image)?;
        let decode = || Ok((decode::whole(&file, 3)?, decode::header(Cursor::new(&file))?.orientation));
        let ((pixels, size), orientation) = decode().map_err(|cause: Cause| cause.at(&self.image))?;
        Ok((Whole { pixels: pixels.into(), size, channels: 3 }, orientation))
    }

    /// Returns the true boxes in the image as it is shown, and a note for each box without an area.
    ///
    /// # Errors
    /// Another size than declared, boxes outside of the image, unknown classes. If the image is turned by its EXIF
    /// orientation, the declared size must tell whether its boxes are those of the turned image.
    pub fn truths(
        &self, classes: &[String], size: [usize; 2], orientation: Orientation,
    ) -> Result<(Vec<Truth>, Vec<String>), DataError> {
        let wrong = |reason: String| Cause::Boxes(reason).at(&self.origin);
        let orientation = self.turn_of_boxes(size, orientation).map_err(wrong)?;
        let size = decode::turned_size(size, orientation);
        let (mut truths, mut lines) = (Vec::new(), Vec::new());
        for object in &self.annotation.objects {
            let Some(class) = classes.iter().position(|known| *known == object.class) else {
                let list = classes.join(", ");
                return Err(wrong(format!(
                    "{}: {} is not a class; the classes are {list}",
                    object.place, object.class
                )));
            };
            match object.shares(size).map_err(wrong)? {
                Some(corners) => {
                    let corners = turned(corners, orientation);
                    truths.push(Truth { class: class + 1, corners, difficult: object.difficult });
                }
                None => lines.push(format!(
                    "{}: {}: the box of {} has no area",
                    self.origin.display(),
                    object.place,
                    object.class
                )),
            }
        }
        Ok((truths, lines))
    }

    /// Returns the orientation by which boxes must be turned to those of the image as it is shown.
    fn turn_of_boxes(&self, shown: [usize; 2], orientation: Orientation) -> Result<Orientation, String> {
        let (declared, stored) = (self.annotation.size, decode::turned_size(shown, orientation));
        let differs = |declared: [usize; 2]| {
            let [rows, columns] = declared;
            format!("declares {rows} × {columns} (rows × columns), but the image has {} × {}", shown[0], shown[1])
        };
        match declared {
            Some(declared) if declared != shown && declared != stored => Err(differs(declared)),
            _ if orientation == Orientation::NoTransforms || self.annotation.objects.is_empty() => {
                Ok(Orientation::NoTransforms)
            }
            Some(declared) if shown != stored => {
                Ok(if declared == shown { Orientation::NoTransforms } else { orientation })
            }
            Some(_) | None => {
                Err("the image is turned by its EXIF orientation, and nothing tells whether its boxes are; \
                                   save it upright"
                    .to_owned())
            }
        }
    }
}
