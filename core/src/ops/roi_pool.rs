//! Boxes of images, the largest value of each part: RoI max pooling (Girshick 2015, section 2.1).

use super::{ShapeError, elements, roi_align::image_of};
use core::ops::Range;

/// Limit of corners, in places. Corners beyond it are clamped, so that their integers stay exact in f32.
const MAX_CORNER: f32 = 1_048_576.0;
/// Most bins along an axis, so that places times bins fit 32 bits.
const MOST_BINS: u32 = 1 << 10;

/// Each box is divided into `bins`, and a bin gives its largest value: torchvision's `roi_pool`.
///
/// x `[n, h, w, c]`; boxes F32 `[boxes, 5]`: the image's number, then left, top, right and bottom, of which `scale` is one
/// place. Corners are rounded to whole places, halves away from 0, and belong to the box, which has one row and one column
/// at least. Of L rows, bin i of B has those from ⌊i·L/B⌋ to ⌈(i + 1)·L/B⌉, in whole numbers: bins overlap where B does not
/// divide L. (Torchvision computes these ends in f32, and for some L has a place more.) Result `[boxes, rows, columns, c]`:
/// the first NaN, if there is one; 0 of a bin outside its image, of a box of no image, or with a NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiPool {
    x: [u32; 4],
    boxes: u32,
    bins: [u32; 2],
    scale: f32,
}

impl RoiPool {
    /// Position of a bin without values.
    pub const NO_POSITION: u32 = u32::MAX;

    /// # Errors
    /// [`ShapeError::TooLarge`], [`ShapeError::Value`] of a scale that is not positive and finite, [`ShapeError::Window`]
    /// of more than 2^10 bins along an axis.
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

    /// n, h, w, c.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// boxes, rows, columns, c.
    #[must_use]
    pub const fn y(&self) -> [u32; 4] {
        [self.boxes, self.bins[0], self.bins[1], self.x[3]]
    }

    /// Places for each unit of a box.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// The image of a box by its first number, if there is one and its corners are numbers.
    #[must_use]
    pub fn image(&self, numbers: &[f32; 5]) -> Option<u32> {
        image_of(self.x[0], numbers[0]).filter(|_| numbers.iter().all(|number| !number.is_nan()))
    }

    /// The rows (`axis` 0) or columns (1) of x that a bin has, of a box between `ends` along it; empty outside the image.
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

/// The nearest whole number, halves away from 0.
#[expect(clippy::cast_possible_truncation, reason = "2^20 at most")]
fn whole(at: f32) -> i32 {
    libm::roundf(at.clamp(-MAX_CORNER, MAX_CORNER)) as i32
}
