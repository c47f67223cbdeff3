//! Lion.

use super::{CustomOptimizer, UpdateInput, UpdateOutput, settings};
use gradscale_core::ops::ShapeError;

/// Settings of Lion (Chen et al. 2023): w ← w − lr·(sign(β₁m + (1 − β₁)g) + decay·w); m ← β₂m + (1 − β₂)g. Its
/// learning rate is usually a third to a tenth of Adam's, and its weight decay larger by as much.
///
/// It is written with the operators of networks, like a custom rule: it runs on every device, with a launch for each
/// operator and weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Learning rate of Lion, before the schedule's factor.
    pub lr: f64,
    /// Coefficients β₁ of the update and β₂ of the momentum, in [0, 1).
    pub betas: [f32; 2],
    /// Weight decay of Lion, which acts on the weights.
    pub weight_decay: f32,
}

impl Lion {
    /// Creates Lion with β 0.9 and 0.99, without weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, betas: [0.9, 0.99], weight_decay: 0.0 }
    }
}

impl Default for Lion {
    /// Returns Lion with a learning rate of 0.0001, as in its authors' code.
    fn default() -> Self {
        Self::new(1e-4)
    }
}

impl CustomOptimizer for Lion {
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
        settings::check_shares(&self.betas)
    }

    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let mix = |beta: f32| of.states[0] * beta + of.gradient * (1.0 - beta);
        let mut direction = mix(self.betas[0]).sign();
        if of.decay != 0.0 {
            direction = direction + of.weight * of.decay;
        }
        UpdateOutput { weight: of.weight - direction * of.lr, states: vec![mix(self.betas[1])] }
    }
}
