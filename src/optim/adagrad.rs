//! Adagrad.

use super::{CustomOptimizer, UpdateInput, UpdateOutput, settings};
use gradscale_core::ops::ShapeError;

/// Settings of Adagrad (Duchi, Hazan and Singer 2011): s ← s + g²; w ← w − lr·g/(√s + eps). As in PyTorch.
///
/// It is written with the operators of networks, like a custom rule: it runs on every device, with a launch for each
/// operator and weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// Learning rate of Adagrad, before the schedule's factor.
    pub lr: f64,
    /// Sum of squares before the first step, not negative.
    pub initial_sum: f32,
    /// Constant ε in Adagrad's denominator, at least 10^-17.
    pub eps: f32,
    /// Weight decay of Adagrad, added to the gradient.
    pub weight_decay: f32,
}

impl Adagrad {
    /// Creates Adagrad with an initial sum of 0 and eps 1e-10, without weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, initial_sum: 0.0, eps: 1e-10, weight_decay: 0.0 }
    }
}

impl Default for Adagrad {
    /// Returns Adagrad with a learning rate of 0.01, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-2)
    }
}

impl CustomOptimizer for Adagrad {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn decay(&self) -> f32 {
        self.weight_decay
    }

    fn states(&self) -> usize {
        1
    }

    fn check(&self) -> Result<(), ShapeError> {
        if !(self.initial_sum >= 0.0 && self.initial_sum.is_finite()) {
            return Err(ShapeError::Value(self.initial_sum));
        }
        settings::check_eps(self.eps)
    }

    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let gradient = of.decayed_gradient();
        // States start at 0, so the initial sum is added where it is read.
        let sum = of.states[0] + gradient.square();
        let root = (sum + self.initial_sum).pow(0.5) + self.eps;
        UpdateOutput { weight: of.weight - gradient / root * of.lr, states: vec![sum] }
    }
}
