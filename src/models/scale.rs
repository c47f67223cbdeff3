//! Size of an image network.

use crate::nn::Dropout;

/// Number of channels of the first layer at full width. Widths of other layers are scaled by width / 64.
const FULL_WIDTH: usize = 64;

/// Size of an image network: width, small input images, dropout.
///
/// ```
/// use gradscale::models::Scale;
/// assert_eq!(Scale::PAPER, Scale { width: 64, small: false, dropout: true });
/// assert_eq!(Scale::small(16), Scale { width: 16, small: true, dropout: true });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Width of the network: the channels of every layer are the paper's times width / 64, rounded up.
    pub width: usize,
    /// True for images of about 32 × 32: the first layers reduce the size less.
    pub small: bool,
    /// True if training uses dropout in the layers where the paper does.
    pub dropout: bool,
}

impl Scale {
    /// Full size of image networks, as in the papers.
    pub const PAPER: Self = Self { width: FULL_WIDTH, small: false, dropout: true };

    /// Returns the size for small images, with about `width` channels in the first layer.
    #[must_use]
    pub const fn small(width: usize) -> Self {
        Self { width, small: true, dropout: true }
    }

    /// Returns the number of channels of a layer at this size, from the number in the paper.
    pub(super) const fn scale_channels(self, channels: usize) -> usize {
        (channels * self.width).div_ceil(FULL_WIDTH)
    }

    /// Returns a dropout layer with probability `share`, or without effect if dropout is off.
    pub(super) fn drops(self, share: f32) -> Dropout {
        Dropout { p: if self.dropout { share } else { 0.0 } }
    }
}
