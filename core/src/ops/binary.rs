//! Element-wise functions of two tensors, the second of which is broadcast.

use super::{At, ShapeError, Unary, elements};

/// Element-wise function of two tensors of the same shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BinaryOp {
    /// Addition of two elements: a + b.
    Add,
    /// Subtraction of two elements: a − b.
    Sub,
    /// Multiplication of two elements: a · b.
    Mul,
    /// Division of two elements: a / b.
    Div,
    /// Maximum: the larger value; NaN if one is NaN.
    Max,
    /// Gradient (vjp) of a unary function: a is the value saved for backward, b the gradient.
    Grad(Unary),
}

impl BinaryOp {
    /// All arithmetic functions of two values. The other functions are [`Unary::ALL`] inside [`BinaryOp::Grad`].
    pub const ARITHMETIC: &'static [Self] = &[Self::Add, Self::Sub, Self::Mul, Self::Div, Self::Max];

    /// Computes the binary function for one pair of elements.
    #[must_use]
    pub fn eval(self, a: f32, b: f32, at: At) -> f32 {
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Max => {
                if a > b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            Self::Grad(unary) => unary.vjp(a, b, at),
        }
    }
}

crate::codes!(BinaryOp {
    Self::Add => 0 "BINARY_ADD",
    Self::Sub => 1 "BINARY_SUB",
    Self::Mul => 2 "BINARY_MUL",
    Self::Div => 3 "BINARY_DIV",
    Self::Max => 4 "BINARY_MAX",
    // The unary function has its own number.
    Self::Grad(_) => 5 "BINARY_GRAD",
});

/// Broadcast of the second operand b over the rows and columns of a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broadcast {
    /// No broadcast: b has one value for each element of a.
    All,
    /// Broadcast over rows: b has one value for each column, `[cols]`.
    PerColumn,
    /// Broadcast over columns: b has one value for each row, `[rows]`.
    PerRow,
    /// Broadcast of a single value to all elements: `[1]`.
    One,
}

crate::codes!(Broadcast {
    Self::All => 0 "OVER_ALL",
    Self::PerColumn => 1 "OVER_PER_COLUMN",
    Self::PerRow => 2 "OVER_PER_ROW",
    Self::One => 3 "OVER_ONE",
});

/// Descriptor of `y[r, c] = op(a[r, c], b[…])`, a and y `[rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    op: BinaryOp,
    rows: u32,
    cols: u32,
    over: Broadcast,
}

impl Binary {
    /// Creates the descriptor of a binary function of a matrix `[rows, cols]` and a second operand, broadcast as in
    /// `over`.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(op: BinaryOp, rows: u32, cols: u32, over: Broadcast) -> Result<Self, ShapeError> {
        elements(&[rows, cols])?;
        Ok(Self { op, rows, cols, over })
    }

    /// Returns the element-wise function of the descriptor.
    #[must_use]
    pub const fn op(&self) -> BinaryOp {
        self.op
    }

    /// Returns the number of rows and columns of a and of the result.
    #[must_use]
    pub const fn shape(&self) -> [u32; 2] {
        [self.rows, self.cols]
    }

    /// Returns the broadcast of b over the rows and columns of a.
    #[must_use]
    pub const fn over(&self) -> Broadcast {
        self.over
    }

    /// Returns the number of elements of b, the operand that may be broadcast.
    #[must_use]
    pub const fn b_len(&self) -> u32 {
        match self.over {
            Broadcast::All => self.rows * self.cols,
            Broadcast::PerColumn => self.cols,
            Broadcast::PerRow => self.rows,
            Broadcast::One => 1,
        }
    }

    /// Returns the index in b of the value that is combined with element `i` of a.
    #[must_use]
    pub const fn b_index(&self, i: u32) -> u32 {
        match self.over {
            Broadcast::All => i,
            Broadcast::PerColumn => i % self.cols,
            Broadcast::PerRow => i / self.cols,
            Broadcast::One => 0,
        }
    }
}
