//! Annotation files of PASCAL VOC, and boxes in the coordinates of any format.

use crate::{Cause, DataError, encoding::decode_xml, store};
use gradscale::boxes::Corners;
use roxmltree::{Document, Node, ParsingOptions};
use std::{fmt, path::Path};

/// Pixels by which a box may exceed its image, because tools count pixels from 0 or from 1.
const SLACK: f32 = 1.0;

/// Annotation of an image: its size and its objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Annotation {
    /// Rows and columns of the image, if the file has them.
    pub size: Option<[usize; 2]>,
    pub objects: Vec<Object>,
}

/// Annotated object in an image: its class and its box.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub class: String,
    pub difficult: bool,
    pub bounds: Bounds,
    pub place: ObjectPosition,
}

/// Left, top, right and bottom edge of a box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bounds {
    /// First and last pixels, counted from 1 (PASCAL VOC).
    Pixels(Corners),
    /// Edges in pixels, counted from 0 (COCO).
    Edges(Corners),
    /// Edges relative to the size of the image (YOLO).
    Normalized(Corners),
}

/// Position of an object in its file, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectPosition {
    /// Number of the line, from 1.
    Line(u32),
    /// Identifier of an annotation of COCO.
    Id(u64),
}

impl fmt::Display for ObjectPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Id(id) => write!(f, "annotation {id}"),
        }
    }
}

impl Annotation {
    /// Reads a file of PASCAL VOC.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let wrong = |reason: String| Cause::Boxes(reason).at(path);
        let text = decode_xml(store::read(path)?).map_err(|cause| cause.at(path))?;
        // A document type is harmless: the parser follows no file names in it and limits how far entities expand.
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document =
            Document::parse_with_options(&text, options).map_err(|error| wrong(format!("invalid XML: {error}")))?;
        Self::from_document(&document).map_err(wrong)
    }

    fn from_document(document: &Document<'_>) -> Result<Self, String> {
        let root = document.root_element();
        if !root.has_tag_name("annotation") {
            return Err(format!(
                "not a PASCAL VOC annotation: the root element is <{}>, not <annotation>",
                root.tag_name().name()
            ));
        }
        let size = child(root, "size").map(|size| [number(size, "height"), number(size, "width")]);
        let size = match size {
            Some([height, width]) => Some([whole(height?), whole(width?)]).filter(|sides| !sides.contains(&0)),
            None => None,
        };
        let object = |node: Node<'_, '_>| {
            let place = ObjectPosition::Line(document.text_pos_at(node.range().start).row);
            let at = |reason: String| format!("{place}: {reason}");
            let class = text(node, "name").filter(|name| !name.is_empty());
            let class = class.ok_or_else(|| at("an object without a <name>".into()))?.to_owned();
            let bounds = child(node, "bndbox").ok_or_else(|| at(format!("{class} has no <bndbox>")))?;
            let mut corners = [0.0; 4];
            for (corner, name) in corners.iter_mut().zip(["xmin", "ymin", "xmax", "ymax"]) {
                *corner = number(bounds, name).map_err(at)?;
            }
            let difficult = text(node, "difficult").is_some_and(|text| text == "1");
            Ok(Object { class, difficult, bounds: Bounds::Pixels(corners), place })
        };
        let objects = root.children().filter(|node| node.has_tag_name("object")).map(object);
        Ok(Self { size, objects: objects.collect::<Result<_, String>>()? })
    }
}

impl Object {
    /// Returns the corners relative to the image size; `None` for a box without an area.
    ///
    /// # Errors
    /// A box that exceeds the picture; the text names it.
    pub fn shares(&self, [height, width]: [usize; 2]) -> Result<Option<Corners>, String> {
        let [high, wide] = [height, width].map(|side| side as f32);
        // From here on in pixels from 0, whose right and bottom edges are those of VOC as the paper's code reads them.
        let (stated, corners) = match self.bounds {
            Bounds::Pixels(corners) => (corners, corners.map(|edge| edge - 1.0)),
            Bounds::Edges(corners) => (corners, corners),
            Bounds::Normalized(corners) => {
                let [left, top, right, bottom] = corners;
                (corners, [left * wide, top * high, right * wide, bottom * high])
            }
        };
        let described = || {
            let [left, top, right, bottom] = stated;
            format!("{}: the box of {} ({left}, {top} to {right}, {bottom})", self.place, self.class)
        };
        let [left, top, right, bottom] = corners;
        if right < left || bottom < top {
            return Err(format!("{} ends before it begins", described()));
        }
        let past = match self.bounds {
            // A last pixel, counted from 1, may be that behind the image.
            Bounds::Pixels(_) => 0.0,
            Bounds::Edges(_) | Bounds::Normalized(_) => SLACK,
        };
        if left < -SLACK || top < -SLACK || right > wide + past || bottom > high + past {
            return Err(format!("{} lies outside its image of {height} × {width} (rows × columns)", described()));
        }
        let inside = |value: f32, side: f32| (value / side).clamp(0.0, 1.0);
        let corners = [inside(left, wide), inside(top, high), inside(right, wide), inside(bottom, high)];
        Ok((corners[2] > corners[0] && corners[3] > corners[1]).then_some(corners))
    }
}

fn child<'a, 'd>(node: Node<'a, 'd>, name: &str) -> Option<Node<'a, 'd>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name).and_then(|child| child.text()).map(str::trim)
}

fn number(node: Node<'_, '_>, name: &str) -> Result<f32, String> {
    let text = text(node, name).ok_or_else(|| format!("no {name}"))?;
    let number = text.parse::<f32>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{name} is “{text}”, expected a number"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size; what is none is 0")]
fn whole(number: f32) -> usize {
    number as usize
}
