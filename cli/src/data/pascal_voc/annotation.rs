//! Annotation files of PASCAL VOC.

use crate::data::{Cause, DataError};
use gradscale::boxes::Corners;
use roxmltree::{Document, Node};
use std::{fs, path::Path};

/// Pixels by which a box may exceed its image, because tools count pixels from 0 or from 1.
const SLACK: f32 = 1.0;

/// Content of an annotation file in the format of PASCAL VOC.
#[derive(Clone, Debug, PartialEq)]
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
    /// Corners of the object's box: first and last pixels, counted from 1.
    pub corners: Corners,
    /// Number of the object's line in the annotation file.
    pub line: u32,
}

impl Annotation {
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|error| Cause::Io(error).at(path))?;
        let wrong = |reason: String| Cause::Boxes(reason).at(path);
        let text = String::from_utf8(bytes).map_err(|error| wrong(format!("not UTF-8 text: {error}")))?;
        let document = Document::parse(&text).map_err(|error| wrong(format!("invalid XML: {error}")))?;
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
            let line = document.text_pos_at(node.range().start).row;
            let at = |reason: String| format!("line {line}: {reason}");
            let class = text(node, "name").filter(|name| !name.is_empty());
            let class = class.ok_or_else(|| at("an object without a <name>".into()))?.to_owned();
            let bounds = child(node, "bndbox").ok_or_else(|| at(format!("{class} has no <bndbox>")))?;
            let mut corners = [0.0; 4];
            for (corner, name) in corners.iter_mut().zip(["xmin", "ymin", "xmax", "ymax"]) {
                *corner = number(bounds, name).map_err(at)?;
            }
            let difficult = text(node, "difficult").is_some_and(|text| text == "1");
            Ok(Object { class, difficult, corners, line })
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
        let [left, top, right, bottom] = self.corners;
        let said = || format!("line {}: the box of {} ({left}, {top} to {right}, {bottom})", self.line, self.class);
        if right < left || bottom < top {
            return Err(format!("{} ends before it begins", said()));
        }
        let [high, wide] = [height, width].map(|side| side as f32);
        let outside = left < 1.0 - SLACK || top < 1.0 - SLACK || right > wide + SLACK || bottom > high + SLACK;
        if outside {
            return Err(format!("{} lies outside its image of {height} × {width} (rows × columns)", said()));
        }
        let inside = |value: f32, side: f32| ((value - 1.0) / side).clamp(0.0, 1.0);
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
