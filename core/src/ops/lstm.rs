//! One step of an LSTM cell.

use super::{At, ShapeError, Unary, elements};

/// Number of gates of an LSTM cell.
const GATES: u32 = 4;

/// Results of one hidden unit of an LSTM cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LstmUnit {
    /// Input, forget, candidate and output gate: i, f, g, o.
    pub gates: [f32; 4],
    /// Next cell state c′.
    pub c: f32,
    /// tanh c′.
    pub tanh: f32,
}

/// Gradients of one hidden unit of an LSTM cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LstmUnitGradient {
    /// Gradients of the sums before the functions of the gates, in their order.
    pub sums: [f32; 4],
    /// Gradient of the cell state c.
    pub c: f32,
}

/// Descriptor of one step of an LSTM cell (Hochreiter and Schmidhuber 1997), computed in f32: `c′ = f·c + i·g` and
/// `h′ = o·tanh c′`, with i, f, o = sigmoid(…) and g = tanh(…) of the sums `x + h`. Rows are sequences of a batch.
///
/// x holds the products with the inputs of all steps, `[rows, steps, 4, hidden]`, of which the launch reads one step; h
/// the products with the hidden state, `[rows, 4, hidden]`. Gates are in the order i, f, g, o. The states c and c′ are
/// `[rows, hidden]`; c′ is f32 and has no exponent.
///
/// The gradient of the sums is that of both products. The backward launch computes gates and c′ again.
///
/// ```
/// use gradscale_core::ops::Lstm;
/// // The third of five steps, of 2 sequences with 8 hidden units.
/// let p = Lstm::new(2, 8)?.of_step(2, 5)?;
/// assert_eq!((p.x_len(), p.gates_len(), p.state_len()), (2 * 5 * 32, 2 * 32, 2 * 8));
/// # Ok::<(), gradscale_core::ops::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lstm {
    rows: u32,
    hidden: u32,
    step: u32,
    steps: u32,
}

impl Lstm {
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

    /// Returns the number of elements of the products with the hidden state, and of the gradient of the sums.
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

    /// Computes the results of one hidden unit from the sums of its gates and its cell state: the definition of the
    /// operator.
    #[must_use]
    pub fn unit(sums: [f32; 4], c: f32) -> LstmUnit {
        let sigmoid = |x: f32| Unary::Sigmoid.eval(x, At::default());
        let tanh = |x: f32| Unary::Tanh.eval(x, At::default());
        let gates = [sigmoid(sums[0]), sigmoid(sums[1]), tanh(sums[2]), sigmoid(sums[3])];
        let c = gates[1] * c + gates[0] * gates[2];
        LstmUnit { gates, c, tanh: tanh(c) }
    }

    /// Computes the gradients of one hidden unit with the cell state c from the gradients of h′ and c′.
    #[must_use]
    pub fn unit_vjp(
        LstmUnit { gates: [i, f, g, o], tanh, .. }: LstmUnit, c: f32, dh: f32, dc: f32,
    ) -> LstmUnitGradient {
        let dc = dc + dh * o * (1.0 - tanh * tanh);
        let slope = |gate: f32| gate * (1.0 - gate);
        let sums = [dc * g * slope(i), dc * c * slope(f), dc * i * (1.0 - g * g), dh * tanh * slope(o)];
        LstmUnitGradient { sums, c: dc * f }
    }
}
