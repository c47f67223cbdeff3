//! One step of a recurrent cell: sizes, and places of the step in the products with the inputs.

use super::{ShapeError, elements};

/// Descriptor of one step of a recurrent cell with that many gates: [`super::Lstm`], [`super::Gru`]. Rows are sequences of a
/// batch.
///
/// x holds the products with the inputs of all steps, `[rows, steps, gates, hidden]`, of which the launch reads one step; h
/// the products with the hidden state, `[rows, gates, hidden]`. States are `[rows, hidden]`.
///
/// ```
/// use gradscale_core::ops::Lstm;
/// // The third of five steps, of 2 sequences with 8 hidden units.
/// let p = Lstm::new(2, 8)?.of_step(2, 5)?;
/// assert_eq!((p.x_len(), p.gates_len(), p.state_len()), (2 * 5 * 32, 2 * 32, 2 * 8));
/// # Ok::<(), gradscale_core::ops::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellStep<const GATES: u32> {
    rows: u32,
    hidden: u32,
    step: u32,
    steps: u32,
}

impl<const GATES: u32> CellStep<GATES> {
    /// Creates the descriptor of the step of a cell with products of this step alone.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(rows: u32, hidden: u32) -> Result<Self, ShapeError> {
        Self { rows, hidden, step: 0, steps: 1 }.check()
    }

    /// Sets the number of steps whose products x holds, and the step that is read.
    ///
    /// # Errors
    /// [`ShapeError::Stride`] for a step beyond them, [`ShapeError::TooLarge`].
    pub fn of_step(self, step: u32, steps: u32) -> Result<Self, ShapeError> {
        if step >= steps { Err(ShapeError::Stride) } else { Self { step, steps, ..self }.check() }
    }

    fn check(self) -> Result<Self, ShapeError> {
        elements(&[self.rows, self.steps, GATES, self.hidden])?;
        Ok(self)
    }

    /// Returns the numbers of rows and of hidden units.
    #[must_use]
    pub const fn shape(&self) -> [u32; 2] {
        [self.rows, self.hidden]
    }

    /// Returns the step that is read of x, and the number of steps in x.
    #[must_use]
    pub const fn step(&self) -> [u32; 2] {
        [self.step, self.steps]
    }

    /// Returns the number of elements of x.
    #[must_use]
    pub const fn x_len(&self) -> u32 {
        self.steps * self.gates_len()
    }

    /// Returns the number of elements of the products with the hidden state, and of their gradient.
    #[must_use]
    pub const fn gates_len(&self) -> u32 {
        GATES * self.state_len()
    }

    /// Returns the number of elements of each state.
    #[must_use]
    pub const fn state_len(&self) -> u32 {
        self.rows * self.hidden
    }

    /// Returns the index in x of the first gate of a row.
    #[must_use]
    pub const fn x_of_row(&self, row: u32) -> u32 {
        (row * self.steps + self.step) * GATES * self.hidden
    }
}
