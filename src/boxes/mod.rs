//! Boxes in images: overlap, encoding, and selection among many.
//!
//! A box is described by its corners, `[left, top, right, bottom]`, in pixels or as fractions of an image. A caller
//! uses one unit throughout.
//!
//! ```
//! use gradscale::boxes::{decode, encode, nms, overlap};
//! let (truth, default) = ([10.0, 10.0, 30.0, 50.0], [12.0, 8.0, 32.0, 40.0]);
//! assert!(overlap(truth, default) > 0.5);
//! let again = decode(encode(truth, default), default);
//! assert!(again.iter().zip(truth).all(|(a, b)| (a - b).abs() < 1e-4));
//! // The second box covers the first; the third overlaps neither.
//! assert_eq!(nms(&[truth, default, [90.0, 90.0, 99.0, 99.0]], &[0.5, 0.9, 0.1], 0.45), [1, 2]);
//! ```

mod anchor;
mod code;
mod default;
mod detect;
mod matching;
mod nms;
mod propose;

pub use anchor::anchors;
pub use code::{Variances, decode, decode_with, encode, encode_with};
pub use default::{Grid, default_boxes};
pub use detect::{Detection, Keep, detections};
pub use matching::{Assigned, assigned, balanced, matches};
pub use nms::nms;
pub use propose::{Propose, proposals};

/// Corners of a box: left, top, right, bottom.
pub type Corners = [f32; 4];

/// Computes the area of a box. If right is less than left, the sign follows from the signs of the sides; a line has
/// area 0.
#[must_use]
pub fn area([left, top, right, bottom]: Corners) -> f32 {
    (right - left) * (bottom - top)
}

/// Clips a box to an image with this width and height.
fn clipped([left, top, right, bottom]: Corners, [width, height]: [f32; 2]) -> Corners {
    [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)]
}

/// Returns true if both sides have at least the given length; false if one is NaN.
fn larger([left, top, right, bottom]: Corners, smallest: f32) -> bool {
    right - left >= smallest && bottom - top >= smallest
}

/// Returns the area of the intersection of two boxes.
fn common(a: Corners, b: Corners) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    width * height
}

/// Computes intersection over union (the Jaccard overlap); NaN for two boxes without area.
#[must_use]
pub fn overlap(a: Corners, b: Corners) -> f32 {
    let common = common(a, b);
    common / (area(a) + area(b) - common)
}
