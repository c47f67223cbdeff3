//! One step of a GRU cell.

use super::{At, CellStep, Unary};

/// Results of one hidden unit of a GRU cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GruUnit {
    /// Reset gate, update gate and candidate: r, z, n.
    pub gates: [f32; 3],
    /// Next hidden state h′.
    pub h: f32,
}

/// Gradients of one hidden unit of a GRU cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GruUnitGradient {
    /// Gradients of the products with the input, in the order of the gates.
    pub x: [f32; 3],
    /// Gradients of the products with the hidden state, in the order of the gates.
    pub h: [f32; 3],
    /// Gradient of the hidden state that the update gate keeps.
    pub state: f32,
}

/// Descriptor of one step of a GRU cell (Cho et al. 2014), computed in f32: `h′ = n + z·(h − n)` of the hidden state h, with
/// r, z = sigmoid(…) of the sums `x + h` of products and n = tanh(x + r·h) of the third products. Gates are in the order r,
/// z, n.
///
/// The gradients of the products with the input and with the hidden state differ in n by the factor r. The backward launch
/// computes the gates again.
pub type Gru = CellStep<3>;

impl Gru {
    /// Computes the results of one hidden unit from its products with the input and the hidden state, and from the hidden
    /// state: the definition of the operator.
    #[must_use]
    pub fn unit(x: [f32; 3], h: [f32; 3], state: f32) -> GruUnit {
        let sigmoid = |x: f32| Unary::Sigmoid.eval(x, At::default());
        let (r, z) = (sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1]));
        let n = Unary::Tanh.eval(x[2] + r * h[2], At::default());
        GruUnit { gates: [r, z, n], h: n + z * (state - n) }
    }

    /// Computes the gradients of one hidden unit with the hidden state `state` and the third product `h` with it, from the
    /// gradient of h′.
    #[must_use]
    pub fn unit_vjp(GruUnit { gates: [r, z, n], .. }: GruUnit, h: f32, state: f32, dh: f32) -> GruUnitGradient {
        let of_candidate = dh * (1.0 - z) * (1.0 - n * n);
        let of_gates = [of_candidate * h * (r * (1.0 - r)), dh * (state - n) * (z * (1.0 - z))];
        let [of_reset, of_update] = of_gates;
        GruUnitGradient {
            x: [of_reset, of_update, of_candidate],
            h: [of_reset, of_update, of_candidate * r],
            state: dh * z,
        }
    }
}
