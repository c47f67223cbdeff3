//! Reductions along one axis.

use super::{ShapeError, elements};

/// Function of a reduction, from many values to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum of the values: Σx.
    Sum,
    /// Mean of the values: Σx / len.
    Mean,
    /// Maximum of the values; NaN if one value is NaN.
    Max,
    /// Sum of squares of the values: Σx².
    SumSquares,
    /// Index of the first maximum (or of the first NaN), stored as an integer in U8 or U32.
    ArgMax,
}

impl ReduceOp {
    /// All reduction functions.
    pub const ALL: &'static [Self] = &[Self::Sum, Self::Mean, Self::Max, Self::SumSquares, Self::ArgMax];
}

crate::codes!(ReduceOp {
    Self::Sum => 0 "REDUCE_SUM",
    Self::Mean => 1 "REDUCE_MEAN",
    Self::Max => 2 "REDUCE_MAX",
    Self::SumSquares => 3 "REDUCE_SQUARES",
    Self::ArgMax => 4 "REDUCE_ARGMAX",
});

/// Descriptor of a reduction `[outer, len, inner] → [outer, inner]`. Sums are f32, in an order that the shape
/// determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    op: ReduceOp,
    outer: u32,
    len: u32,
    inner: u32,
}

impl Reduce {
    /// Creates the descriptor of a reduction from shape `[outer, len, inner]` to `[outer, inner]`.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`], or [`ShapeError::Empty`] for a mean, a maximum or its index over no elements.
    pub fn new(op: ReduceOp, outer: u32, len: u32, inner: u32) -> Result<Self, ShapeError> {
        elements(&[outer, len, inner])?;
        elements(&[outer, inner])?;
        if len == 0 && !matches!(op, ReduceOp::Sum | ReduceOp::SumSquares) {
            return Err(ShapeError::Empty);
        }
        Ok(Self { op, outer, len, inner })
    }

    /// Returns the reduction function of the descriptor.
    #[must_use]
    pub const fn op(&self) -> ReduceOp {
        self.op
    }

    /// Returns the shape of the reduction's input: outer, len, inner.
    #[must_use]
    pub const fn shape(&self) -> [u32; 3] {
        [self.outer, self.len, self.inner]
    }

    /// Returns the number of elements of the reduction's result.
    #[must_use]
    pub const fn y_len(&self) -> u32 {
        self.outer * self.inner
    }
}
