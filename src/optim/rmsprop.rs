//! RMSprop.

use super::{CustomOptimizer, UpdateInput, UpdateOutput, settings};
use gradscale_core::ops::ShapeError;

/// Settings of RMSprop (Tieleman and Hinton 2012): v ← αv + (1 − α)g²; w ← w − lr·g/(√v + eps). As in PyTorch.
///
/// It is written with the operators of networks, like a custom rule: it runs on every device, with a launch for each
/// operator and weight.
///
/// ```
/// use gradscale::optim::{Optimizer, RmsProp};
/// let optimizer = Optimizer::from(RmsProp { momentum: 0.9, ..RmsProp::new(0.01) });
/// # let _ = optimizer;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Learning rate of RMSprop, before the schedule's factor.
    pub lr: f64,
    /// Decay rate α of the mean square, in [0, 1).
    pub alpha: f32,
    /// Constant ε in RMSprop's denominator, at least 10^-17.
    pub eps: f32,
    /// Momentum coefficient of the normalised gradient, in [0, 1).
    pub momentum: f32,
    /// True if the square of the gradient's mean is subtracted from v, so that v is a variance.
    pub centered: bool,
    /// Weight decay of RMSprop, added to the gradient.
    pub weight_decay: f32,
}

impl RmsProp {
    /// Creates RMSprop with α 0.99, eps 1e-8, without momentum or weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }
}

impl Default for RmsProp {
    /// Returns RMSprop with a learning rate of 0.01, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-2)
    }
}

impl CustomOptimizer for RmsProp {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn decay(&self) -> f32 {
        self.weight_decay
    }

    fn states(&self) -> usize {
        1 + usize::from(self.centered) + usize::from(self.momentum != 0.0)
    }

    fn check(&self) -> Result<(), ShapeError> {
        settings::check_shares(&[self.alpha, self.momentum])?;
        settings::check_eps(self.eps)
    }

    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let gradient = of.decayed_gradient();
        let square = of.states[0] * self.alpha + gradient.square() * (1.0 - self.alpha);
        let mut states = vec![square];
        let mut variance = square;
        if self.centered {
            let mean = of.states[1] * self.alpha + gradient * (1.0 - self.alpha);
            // Rounding can make the difference negative.
            variance = (square - mean.square()).relu();
            states.push(mean);
        }
        let mut direction = gradient / (variance.pow(0.5) + self.eps);
        if self.momentum != 0.0 {
            direction = of.states[states.len()] * self.momentum + direction;
            states.push(direction);
        }
        UpdateOutput { weight: of.weight - direction * of.lr, states }
    }
}
