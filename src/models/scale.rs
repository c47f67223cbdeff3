//! How large a network for images is.

use crate::nn::Dropout;

/// Channels of the first layer at full width. Widths of other layers are scaled by width / 64.
const FULL_WIDTH: usize = 64;

/// How large a network is.
///
/// ```
/// use gradscale::models::Scale;
/// assert_eq!(Scale::PAPER, Scale { width: 64, small: false, dropout: true });
/// assert_eq!(Scale::small(16), Scale { width: 16, small: true, dropout: true });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Channels of every layer, in 64ths of the paper's, rounded up.
    pub width: usize,
    /// For pictures of about 32 × 32: the first layers keep more of their size.
    pub small: bool,
    /// Whether training drops values where the paper does.
    pub dropout: bool,
}

impl Scale {
    /// The paper's.
    pub const PAPER: Self = Self { width: FULL_WIDTH, small: false, dropout: true };

    /// For small pictures, with a first layer of about `width` channels.
    #[must_use]
    pub const fn small(width: usize) -> Self {
        Self { width, small: true, dropout: true }
    }

    /// What becomes of a layer's channels.
    pub(super) const fn scale_channels(self, channels: usize) -> usize {
        (channels * self.width).div_ceil(FULL_WIDTH)
    }

    /// Drops this share.
    pub(super) fn drops(self, share: f32) -> Dropout {
        Dropout { p: if self.dropout { share } else { 0.0 } }
    }
}
