//! Softmax and cross-entropy loss.

use super::{ShapeError, elements};

/// Divisor of a cross-entropy's sum of losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divisor {
    /// Division by a fixed number, independent of the batch.
    Fixed(f32),
    /// Division by the number of rows that are not ignored.
    Rows,
    /// Division by the sum of the class weights of the rows that are not ignored: PyTorch's mean.
    Weights,
}

crate::codes!(Divisor {
    Self::Fixed(_) => 0 "DIVIDE_FIXED",
    Self::Rows => 1 "DIVIDE_ROWS",
    Self::Weights => 2 "DIVIDE_WEIGHTS",
});

impl Divisor {
    /// Returns the divisor, given the number of rows that are not ignored and the sum of their weights.
    #[must_use]
    pub const fn value(self, rows: f32, weights: f32) -> f32 {
        match self {
            Self::Fixed(divisor) => divisor,
            Self::Rows => rows,
            Self::Weights => weights,
        }
    }
}

/// Descriptor of softmax and weighted cross-entropy. Logits `[rows, classes]`, labels `[rows]` (U8 or U32), weights
/// `[classes]` (f32; 1 if there are none).
///
/// `loss = Σ w[label]·(lse − logits[label]) / divisor`, with lse the logarithm of the sum of exponentials of a row.
/// `out` is f32 `[2 + rows]`: loss, divisor, then each row's lse. Rows with the ignored label do not count; if none
/// counts, loss and gradient are 0. A label outside the classes makes the loss and its row's gradient NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    rows: u32,
    classes: u32,
    ignore: Option<u32>,
    divisor: Divisor,
}

impl CrossEntropy {
    /// Creates the descriptor of a cross-entropy that is divided by the number of rows and ignores no label.
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

    /// Makes the loss ignore the rows whose label is `label`.
    #[must_use]
    pub const fn ignoring(self, label: u32) -> Self {
        Self { ignore: Some(label), ..self }
    }

    /// Sets the divisor of the loss, the sum over the rows.
    ///
    /// # Errors
    /// [`ShapeError::Value`] for a fixed divisor that is not positive.
    pub fn divided_by(self, divisor: Divisor) -> Result<Self, ShapeError> {
        match divisor {
            Divisor::Fixed(x) if !(x > 0.0 && x.is_finite()) => Err(ShapeError::Value(x)),
            _ => Ok(Self { divisor, ..self }),
        }
    }

    /// Returns the number of rows and classes of the logits.
    #[must_use]
    pub const fn shape(&self) -> [u32; 2] {
        [self.rows, self.classes]
    }

    /// Returns the label whose rows the loss ignores, if there is one.
    #[must_use]
    pub const fn ignored(&self) -> Option<u32> {
        self.ignore
    }

    /// Returns the divisor of the loss, the sum over the rows.
    #[must_use]
    pub const fn divisor(&self) -> Divisor {
        self.divisor
    }

    /// Returns the meaning of a row's label: ignored, a class, or invalid.
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

/// Meaning of a row's label in a cross-entropy: ignored, a class, or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrossEntropyRow {
    /// The row is ignored because of its label.
    Ignored,
    /// The label is a class, with this index.
    Class(u32),
    /// The label is not a class, so the loss is NaN.
    Invalid,
}
