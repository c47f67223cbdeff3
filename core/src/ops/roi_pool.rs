//! RoI max pooling (Girshick 2015, section 2.1): boxes of images, with the maximum of each bin.

use super::{ShapeError, elements, roi_align::image_of};
use core::ops::Range;

/// Limit of box corners, in pixels. Corners beyond it are clamped, so that their integers are exact in f32.
const MAX_CORNER: f32 = 1_048_576.0;
/// Maximum number of bins along an axis, so that pixels times bins fit 32 bits.
const MOST_BINS: u32 = 1 << 10;

/// Descriptor of RoI max pooling. Each box is divided into `bins`, and the result of a bin is its maximum, as in
/// torchvision's `roi_pool`.
///
/// x is `[n, h, w, c]`. Boxes are F32 `[boxes, 5]`: image number, then left, top, right and bottom; multiplied by
/// `scale` these are pixels of x. Corners are rounded to whole pixels, halves away from 0. They belong to the box,
/// which has at least one row and one column.
///
/// Bin i of B covers rows ⌊i·L/B⌋ to ⌈(i + 1)·L/B⌉ of L, in integer arithmetic; bins overlap if B does not divide L.
/// (Torchvision computes these ends in f32, and for some L a bin has one pixel more.)
///
/// The result is `[boxes, rows, columns, c]`. It is the first NaN if there is one, and 0 for a bin outside its image
/// and for a box with a NaN or an invalid image number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiPool {
    x: [u32; 4],
    boxes: u32,
    bins: [u32; 2],
    scale: f32,
}

impl RoiPool {
    /// Position that RoI max pooling stores for a bin without values.
    pub const NO_POSITION: u32 = u32::MAX;

    /// Creates the descriptor of RoI max pooling: `boxes` boxes of images x, each divided into `bins` rows and columns.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`]; [`ShapeError::Value`] for a scale that is not positive and finite;
    /// [`ShapeError::Window`] for more than 2^10 bins along an axis.
    pub fn new(x: [u32; 4], boxes: u32, bins: [u32; 2], scale: f32) -> Result<Self, ShapeError> {
        elements(&x)?;
        elements(&[boxes, 5])?;
        elements(&[boxes, bins[0], bins[1], x[3]])?;
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(ShapeError::Value(scale));
        }
        if bins.iter().any(|&bins| bins > MOST_BINS) {
            return Err(ShapeError::Window);
        }
        Ok(Self { x, boxes, bins, scale })
    }

    /// Returns the shape of RoI max pooling's images x: n, h, w, c.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// Returns the shape of RoI max pooling's result: boxes, rows, columns, c.
    #[must_use]
    pub const fn y(&self) -> [u32; 4] {
        [self.boxes, self.bins[0], self.bins[1], self.x[3]]
    }

    /// Returns the scale of RoI max pooling, from box coordinates to pixels of x.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the image of a box, given its five numbers; `None` if there is no such image or a corner is NaN.
    #[must_use]
    pub fn image(&self, numbers: &[f32; 5]) -> Option<u32> {
        image_of(self.x[0], numbers[0]).filter(|_| numbers.iter().all(|number| !number.is_nan()))
    }

    /// Returns the range of rows (`axis` 0) or columns (1) of x in a bin of a box with these `ends` along the axis. It
    /// is empty outside the image.
    #[must_use]
    pub fn places(&self, axis: usize, ends: [f32; 2], bin: u32) -> Range<u32> {
        let (Some(&size), Some(&bins)) = (self.x.get(1 + axis), self.bins.get(axis)) else { return 0..0 };
        let [first, last] = ends.map(|end| whole(end * self.scale));
        let (len, bins) = (i64::from(last - first).max(0) + 1, i64::from(bins));
        let end = |places: i64| (i64::from(first) + places).clamp(0, i64::from(size));
        let (start, end) = (end(i64::from(bin) * len / bins), end((i64::from(bin + 1) * len + bins - 1) / bins));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the image")]
        (start as u32..end as u32)
    }
}

/// Rounds a coordinate to the nearest integer, halves away from 0.
#[expect(clippy::cast_possible_truncation, reason = "2^20 at most")]
fn whole(at: f32) -> i32 {
    libm::roundf(at.clamp(-MAX_CORNER, MAX_CORNER)) as i32
}
