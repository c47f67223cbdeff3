//! Softmax of rows, and its logarithm.

use super::{ShapeError, elements};

/// Columns that a row of a softmax reads. The results of the others are 0, whatever they contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SoftmaxColumns {
    /// All columns of the row.
    All,
    /// The first i + 1 columns for row i of each matrix, as in causal attention.
    Causal,
    /// Columns before the end of a sequence. Each matrix is a sequence, with a length of its own.
    Within,
    /// Columns at which a mask is above 0.
    Masked,
}

crate::codes!(SoftmaxColumns {
    Self::All => 0 "SOFTMAX_ALL",
    Self::Causal => 1 "SOFTMAX_CAUSAL",
    Self::Within => 2 "SOFTMAX_WITHIN",
    Self::Masked => 3 "SOFTMAX_MASKED",
});

/// Descriptor of the softmax `y = e^(x − max) / Σ e^(x − max)` of each row of x `[matrices, rows, columns]`, computed in
/// f32, or of its logarithm `y = x − max − ln Σ e^(x − max)`. Maximum and sum are those of the columns that a row reads.
///
/// A row that reads no column is 0. One that reads NaN or +∞, or nothing but −∞, is NaN in the columns that it reads.
/// Otherwise −∞ has the weight 0. The order of a sum depends on the shape alone.
///
/// The gradient is `dx = y·(dy − Σ dy·y)`, and for the logarithm `dx = dy − e^y·Σ dy`. A column whose weight is 0 has the
/// gradient 0 and adds nothing to the sum, whatever its dy is; so the gradient needs neither lengths nor mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    shape: [u32; 3],
    read: SoftmaxColumns,
    is_logarithm: bool,
}

impl Softmax {
    /// Creates the descriptor of a softmax of x `[matrices, rows, columns]` whose rows read some columns.
    ///
    /// # Errors
    /// [`ShapeError::Empty`] without columns, [`ShapeError::TooLarge`].
    pub fn new(shape: [u32; 3], read: SoftmaxColumns) -> Result<Self, ShapeError> {
        if shape[2] == 0 {
            return Err(ShapeError::Empty);
        }
        elements(&shape)?;
        Ok(Self { shape, read, is_logarithm: false })
    }

    /// Creates the descriptor of the logarithm of a softmax of x `[rows, columns]` over all columns.
    ///
    /// # Errors
    /// See [`Softmax::new`].
    pub fn logarithm(rows: u32, columns: u32) -> Result<Self, ShapeError> {
        Ok(Self { is_logarithm: true, ..Self::new([1, rows, columns], SoftmaxColumns::All)? })
    }

    /// Returns the numbers of matrices, of rows of a matrix and of columns of a row.
    #[must_use]
    pub const fn shape(&self) -> [u32; 3] {
        self.shape
    }

    /// Returns the number of rows of all matrices.
    #[must_use]
    pub const fn rows(&self) -> u32 {
        self.shape[0] * self.shape[1]
    }

    /// Returns the columns that a row reads.
    #[must_use]
    pub const fn read(&self) -> SoftmaxColumns {
        self.read
    }

    /// Returns true if the results are logarithms of the weights.
    #[must_use]
    pub const fn is_logarithm(&self) -> bool {
        self.is_logarithm
    }

    /// Returns the number of elements of the lengths or of the mask that select columns; 0 if columns need neither.
    #[must_use]
    pub const fn selection_len(&self) -> u32 {
        match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Causal => 0,
            SoftmaxColumns::Within => self.shape[0],
            SoftmaxColumns::Masked => self.rows() * self.shape[2],
        }
    }

    /// Returns the number of columns up to the last that a row can read, for `row` of all rows. `length` is that of the
    /// row's sequence, and is used with [`SoftmaxColumns::Within`] only.
    #[must_use]
    pub const fn columns_of_row(&self, row: u32, length: u32) -> u32 {
        let columns = self.shape[2];
        let end = match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Masked => columns,
            SoftmaxColumns::Causal => row % self.shape[1] + 1,
            SoftmaxColumns::Within => length,
        };
        if end < columns { end } else { columns }
    }
}
