//! Boxes of images, resampled to one size: RoIAlign (He et al. 2017, section 3).

use super::{ShapeError, elements};

/// Each box is divided into `bins`, and a bin is the mean of `samples` × `samples` points, interpolated between the four
/// places around each: torchvision's `roi_align` with `aligned=True`.
///
/// x `[n, h, w, c]`; boxes F32 `[boxes, 5]`: the image's number, then left, top, right and bottom, of which `scale` is one
/// place (the feature map of a network that halves four times has 1/16). Result `[boxes, rows, columns, c]`. A point more
/// than a place outside the image counts as 0; so does a box of no image, or with a NaN.
///
/// Gather: the boxes' values. Scatter, its vjp: from gradients of bins to that of x; boxes have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiAlign {
    x: [u32; 4],
    boxes: u32,
    bins: [u32; 2],
    scale: f32,
    samples: u32,
}

impl RoiAlign {
    /// # Errors
    /// [`ShapeError::TooLarge`], [`ShapeError::Value`] of a scale that is not positive and finite, [`ShapeError::Window`]
    /// of no samples or more than 2^12.
    pub fn new(x: [u32; 4], boxes: u32, bins: [u32; 2], scale: f32, samples: u32) -> Result<Self, ShapeError> {
        elements(&x)?;
        elements(&[boxes, 5])?;
        elements(&[boxes, bins[0], bins[1], x[3]])?;
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(ShapeError::Value(scale));
        }
        if !(1..=1 << 12).contains(&samples) {
            return Err(ShapeError::Window);
        }
        Ok(Self { x, boxes, bins, scale, samples })
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

    /// Points of a bin along each axis.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// The image of a box by its first number, if there is one.
    #[must_use]
    pub fn image(&self, number: f32) -> Option<u32> {
        image_of(self.x[0], number)
    }

    /// The two places that a point lies between, with their shares; none if it counts as 0. `axis` is 0 for rows and 1 for
    /// columns, `ends` the box's along it.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the image")]
    pub fn point(&self, axis: usize, ends: [f32; 2], bin: u32, sample: u32) -> Option<[(u32, f32); 2]> {
        let (size, bins) = (*self.x.get(1 + axis)?, *self.bins.get(axis)?);
        let [start, end] = ends.map(|end| end * self.scale - 0.5);
        let width = (end - start) / bins as f32;
        let at = start + bin as f32 * width + (sample as f32 + 0.5) * width / self.samples as f32;
        if size == 0 || !(at >= -1.0 && at <= size as f32) {
            return None;
        }
        let at = if at > 0.0 { at } else { 0.0 };
        let (low, last) = (at as u32, size - 1);
        if low >= last {
            return Some([(last, 1.0), (last, 0.0)]);
        }
        let share = at - low as f32;
        Some([(low, 1.0 - share), (low + 1, share)])
    }
}

/// Which of so many images a number names.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the images")]
pub(super) fn image_of(images: u32, number: f32) -> Option<u32> {
    (number >= 0.0 && number < images as f32).then_some(number as u32)
}
