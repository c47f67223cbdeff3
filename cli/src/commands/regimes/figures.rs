//! All figures by their names.

use super::{figure::Figure, one_in_n, scale_by_size};
use crate::Failure;

/// A figure by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Share of large batches that a dynamic scale drops.
    OneInN,
    /// Scales that serve, by size of the images and the batch.
    ScaleBySize,
}

impl Kind {
    /// All figures.
    pub const ALL: [Self; 2] = [Self::OneInN, Self::ScaleBySize];

    /// Name, as `--only` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneInN => one_in_n::NAME,
            Self::ScaleBySize => scale_by_size::NAME,
        }
    }

    /// Draws it.
    ///
    /// # Errors
    /// Of the device.
    pub fn draw(self, quick: bool) -> Result<Figure, Failure> {
        match self {
            Self::OneInN => Ok(one_in_n::figure()),
            Self::ScaleBySize => scale_by_size::figure(quick),
        }
    }
}
