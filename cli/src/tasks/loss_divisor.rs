//! Divisor of a summed loss.

use gradscale::gradscale_core::ops::Divisor;
use gradscale_data::as_text;
use std::{fmt, str::FromStr};

/// Divisor of the sum of losses over a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDivisor {
    /// Number of pixels of the batch that have a label.
    Batch,
    /// Fixed number that the sum of losses is divided by.
    Fixed(u64),
}

impl LossDivisor {
    /// Number of pixels of twelve images of 360 × 480: the paper's batch.
    pub const PAPER: u64 = 12 * 360 * 480;

    /// Returns the factor by which the loss is smaller than a mean over the batch's own `pixels`. Weight decay and
    /// clipping thresholds are divided by it, the learning rate is multiplied.
    #[must_use]
    pub fn ratio(self, pixels: usize) -> f64 {
        match self {
            Self::Batch => 1.0,
            Self::Fixed(divisor) => divisor as f64 / pixels as f64,
        }
    }

    /// Returns the divisor as the loss operators take it.
    #[must_use]
    pub const fn divisor(self) -> Divisor {
        match self {
            Self::Batch => Divisor::Rows,
            Self::Fixed(number) => Divisor::Fixed(number as f32),
        }
    }
}

impl FromStr for LossDivisor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "batch" {
            return Ok(Self::Batch);
        }
        let number = text.parse().ok().filter(|number| (1..=1 << 40).contains(number));
        number.map(Self::Fixed).ok_or_else(|| "must be `batch` or a number of pixels from 1 to 2^40".to_owned())
    }
}

impl fmt::Display for LossDivisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => f.write_str("batch"),
            Self::Fixed(number) => write!(f, "{number}"),
        }
    }
}

as_text!(LossDivisor);
