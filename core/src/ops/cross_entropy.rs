//! Softmax and cross-entropy.

use super::{ShapeError, elements};

/// By what the sum of losses is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divisor {
    /// A number, whatever the batch holds.
    Fixed(f32),
    /// The rows that are not ignored.
    Rows,
    /// The sum of their weights: PyTorch's mean.
    Weights,
}

crate::codes!(Divisor {
    Self::Fixed(_) => 0 "DIVIDE_FIXED",
    Self::Rows => 1 "DIVIDE_ROWS",
    Self::Weights => 2 "DIVIDE_WEIGHTS",
});

impl Divisor {
    /// The divisor, for so many rows that count and such a sum of their weights.
    #[must_use]
    pub const fn value(self, rows: f32, weights: f32) -> f32 {
        match self {
            Self::Fixed(divisor) => divisor,
            Self::Rows => rows,
            Self::Weights => weights,
        }
    }
}

/// Softmax and weighted cross-entropy over logits `[rows, classes]`, labels `[rows]` (U8 or U32), weights
/// `[classes]` (f32, 1 without).
///
/// `loss = Σ w[label]·(lse − logits[label]) / divisor`, lse the logarithm of the sum of exponentials of a row.
/// `out` is f32 `[2 + rows]`: loss, divisor, then each row's lse. Rows with the ignored label do not count; if none
/// counts, loss and gradient are 0. A label beyond the classes makes loss and its row's gradient NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    rows: u32,
    classes: u32,
    ignore: Option<u32>,
    divisor: Divisor,
}

impl CrossEntropy {
    /// Divided by the rows, none ignored.
    ///
    /// # Errors
    /// [`ShapeError::Empty`] without classes, [`ShapeError::TooLarge`].
    pub fn new(rows: u32, classes: u32) -> Result<Self, ShapeError> {
        if classes == 0 {
            return Err(ShapeError::Empty);
        }
        elements(&[rows, classes])?;
        rows.checked_add(2).ok_or(ShapeError::TooLarge)?;
        Ok(Self { rows, classes, ignore: None, divisor: Divisor::Rows })
    }

    /// Rows with this label do not count.
    #[must_use]
    pub const fn ignoring(self, label: u32) -> Self {
        Self { ignore: Some(label), ..self }
    }

    /// Divided otherwise.
    ///
    /// # Errors
    /// [`ShapeError::Value`] for a fixed divisor that is not positive.
    pub fn divided_by(self, divisor: Divisor) -> Result<Self, ShapeError> {
        match divisor {
            Divisor::Fixed(x) if !(x > 0.0 && x.is_finite()) => Err(ShapeError::Value(x)),
            _ => Ok(Self { divisor, ..self }),
        }
    }

    /// Rows and classes.
    #[must_use]
    pub const fn shape(&self) -> [u32; 2] {
        [self.rows, self.classes]
    }

    /// The label that does not count.
    #[must_use]
    pub const fn ignored(&self) -> Option<u32> {
        self.ignore
    }

    /// By what the sum is divided.
    #[must_use]
    pub const fn divisor(&self) -> Divisor {
        self.divisor
    }

    /// What a row's label means.
    #[must_use]
    pub fn row(&self, label: u32) -> CrossEntropyRow {
        if self.ignore == Some(label) {
            CrossEntropyRow::Ignored
        } else if label < self.classes {
            CrossEntropyRow::Class(label)
        } else {
            CrossEntropyRow::Invalid
        }
    }
}

/// What a row's label means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrossEntropyRow {
    /// It does not count.
    Ignored,
    /// Its class.
    Class(u32),
    /// No class: NaN.
    Invalid,
}
