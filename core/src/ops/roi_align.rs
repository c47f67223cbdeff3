//! RoIAlign (He et al. 2017, section 3): boxes of images, resampled to one size.

use super::{ShapeError, elements};

/// Descriptor of RoIAlign. Each box is divided into `bins`, and a bin is the mean of `samples` × `samples` points. Each
/// point is interpolated between its four neighbours, like torchvision's `roi_align` with `aligned=True`.
///
/// x is `[n, h, w, c]`. Boxes are F32 `[boxes, 5]`: image number, then left, top, right and bottom. Multiplied by
/// `scale` these are pixels of x; for example, the feature map of a network that halves four times has a scale of 1/16.
/// The result is `[boxes, rows, columns, c]`. A point more than one pixel outside the image counts as 0, and so does a
/// box with a NaN or an invalid image number.
///
/// Gather computes the boxes' values. Scatter, its vjp, computes the gradient of x from those of the bins; boxes have
/// no gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiAlign {
    x: [u32; 4],
    boxes: u32,
    bins: [u32; 2],
    scale: f32,
    samples: u32,
}

impl RoiAlign {
    /// Creates the descriptor of RoIAlign: `boxes` boxes of images x, each resampled to `bins` rows and columns.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`]; [`ShapeError::Value`] for a scale that is not positive and finite;
    /// [`ShapeError::Window`] for no samples or more than 2^12.
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

    /// Returns the shape of RoIAlign's images x: n, h, w, c.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// Returns the shape of RoIAlign's result: boxes, rows, columns, c.
    #[must_use]
    pub const fn y(&self) -> [u32; 4] {
        [self.boxes, self.bins[0], self.bins[1], self.x[3]]
    }

    /// Returns the scale of RoIAlign, from box coordinates to pixels of x.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the number of RoIAlign's sample points of a bin along each axis.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// Returns the image of a box, given its image number; `None` if there is no such image.
    #[must_use]
    pub fn image(&self, number: f32) -> Option<u32> {
        image_of(self.x[0], number)
    }

    /// Returns the two neighbouring pixels of a sample point along one axis, with their interpolation weights; `None`
    /// if the point counts as 0. `axis` is 0 for rows and 1 for columns, and `ends` are the ends of the box along it.
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

/// Converts an image number to an index below `images`; `None` if it is not one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the images")]
pub(super) fn image_of(images: u32, number: f32) -> Option<u32> {
    (number >= 0.0 && number < images as f32).then_some(number as u32)
}
