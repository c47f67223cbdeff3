//! All figures by their names.

use super::{figure::Figure, one_in_n, scale_by_size};
use crate::Failure;

/// Figure that `gradscale regimes` can draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Figure of the share of large batches that a dynamic loss scale drops.
    OneInN,
    /// Figure of the usable loss scales, by size of the images and of the batch.
    ScaleBySize,
}

impl Kind {
    /// All figures that `gradscale regimes` can draw.
    pub const ALL: [Self; 2] = [Self::OneInN, Self::ScaleBySize];

    /// Returns the figure's name, as `--only` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneInN => one_in_n::NAME,
            Self::ScaleBySize => scale_by_size::NAME,
        }
    }

    /// Computes and draws the figure.
    ///
    /// # Errors
    /// A device that cannot be opened or that fails.
    pub fn draw(self, quick: bool) -> Result<Figure, Failure> {
        match self {
            Self::OneInN => Ok(one_in_n::figure()),
            Self::ScaleBySize => scale_by_size::figure(quick),
        }
    }
}
