//! Functions of two numbers, the second broadcast.

use super::{At, ShapeError, Unary, elements};

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BinaryOp {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a · b.
    Mul,
    /// a / b.
    Div,
    /// The larger; NaN if one is NaN.
    Max,
    /// The vjp of a unary function: a is what the tape kept, b the gradient.
    Grad(Unary),
}

impl BinaryOp {
    /// The plain ones; the others are [`Unary::ALL`] inside [`BinaryOp::Grad`].
    pub const ARITHMETIC: &'static [Self] = &[Self::Add, Self::Sub, Self::Mul, Self::Div, Self::Max];

    /// The meaning.
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
    // Which function's, its own number says.
    Self::Grad(_) => 5 "BINARY_GRAD",
});

/// How b is laid over the rows and columns of a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broadcast {
    /// b is as large as a.
    All,
    /// One value for each column: `[cols]`.
    PerColumn,
    /// One value for each row: `[rows]`.
    PerRow,
    /// One value: `[1]`.
    One,
}

crate::codes!(Broadcast {
    Self::All => 0 "OVER_ALL",
    Self::PerColumn => 1 "OVER_PER_COLUMN",
    Self::PerRow => 2 "OVER_PER_ROW",
    Self::One => 3 "OVER_ONE",
});

/// `y[r, c] = op(a[r, c], b[…])`, a and y `[rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    op: BinaryOp,
    rows: u32,
    cols: u32,
    over: Broadcast,
}

impl Binary {
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(op: BinaryOp, rows: u32, cols: u32, over: Broadcast) -> Result<Self, ShapeError> {
        elements(&[rows, cols])?;
        Ok(Self { op, rows, cols, over })
    }

    /// The function.
    #[must_use]
    pub const fn op(&self) -> BinaryOp {
        self.op
    }

    /// Rows and columns.
    #[must_use]
    pub const fn shape(&self) -> [u32; 2] {
        [self.rows, self.cols]
    }

    /// How b is broadcast.
    #[must_use]
    pub const fn over(&self) -> Broadcast {
        self.over
    }

    /// Elements of b.
    #[must_use]
    pub const fn b_len(&self) -> u32 {
        match self.over {
            Broadcast::All => self.rows * self.cols,
            Broadcast::PerColumn => self.cols,
            Broadcast::PerRow => self.rows,
            Broadcast::One => 1,
        }
    }

    /// The element of b that meets element `i` of a.
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
