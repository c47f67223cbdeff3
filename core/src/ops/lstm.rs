//! One step of an LSTM cell.

use super::{At, CellStep, Unary};

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
/// `h′ = o·tanh c′`, with i, f, o = sigmoid(…) and g = tanh(…) of the sums `x + h`. Gates are in the order i, f, g, o. The
/// next cell state c′ is f32 and has no exponent.
///
/// The gradient of the sums is that of both products. The backward launch computes gates and c′ again.
pub type Lstm = CellStep<4>;

impl Lstm {
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
